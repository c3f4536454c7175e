"""Shared by all parsers: sections of a script's output, and strict reading of lines.

A parser raises NotUnderstoodError for output of an unknown form, and ToolError for a failure that
the tool itself reports. Its parameter `tool` stands for the program in messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.value import Value

_HEAD = re.compile(rb"@@ ([A-Za-z0-9_./-]+) ([0-9]{1,3}) ([0-9]{1,9})\n")


class ToolMissingError(ToolError):
    """The tool is not installed on the node."""


class ToolSilentError(ToolError):
    """The tool gave no answer within its time."""


class ToolBusyError(ToolError):
    """The tool serves one caller at a time, and was busy until we gave up."""


class Section(Value):
    """The output of one program in a script."""

    exit_code: int
    content: bytes

    @property
    def text(self) -> str:
        """The content as text; bytes that are not UTF-8 become U+FFFD."""
        return self.content.decode(errors="replace")


def split(output: bytes, tool: str) -> dict[str, Section]:
    """Splits the output of a script into sections by name; it must end with the section `end`."""
    sections, position = dict[str, Section](), 0
    while position < len(output) or "end" not in sections:
        head = None if "end" in sections else _HEAD.match(output, position)
        name = head[1].decode() if head else ""
        end = head.end() + int(head[3]) if head else 0
        if head is None or output[end : end + 1] != b"\n" or name in sections:
            number = output.count(b"\n", 0, position) + 1
            line = output[position:].split(b"\n", 1)[0].decode(errors="replace")
            expected = "@@ NAME EXIT_CODE BYTES and as many bytes"
            raise NotUnderstoodError(tool, number, line, expected)
        sections[name] = Section(int(head[2]), output[head.end() : end])
        position = end + 1
    del sections["end"]
    return sections


class Line(Value):
    """One line of a tool's output with its number, from 1, as an editor counts."""

    number: int
    text: str
    tool: str = ""
    expected: str = ""

    def match(self, form: re.Pattern[str] | str, expected: str = "") -> re.Match[str]:
        """The match of `form` with the line, without the white space around it."""
        found = re.fullmatch(form, self.text.strip())
        if found is None:
            raise self.not_understood(expected)
        return found

    def not_understood(self, expected: str = "") -> NotUnderstoodError:
        """The error that names this line; it shows runs of white space as one space."""
        words = " ".join(self.text.split())
        return NotUnderstoodError(self.tool, self.number, words, expected or self.expected)


def lines_of(text: str, tool: str = "", expected: str = "") -> tuple[Line, ...]:
    """The lines that hold more than white space, with their numbers."""
    numbered = enumerate(text.split("\n"), start=1)
    return tuple(Line(number, line, tool, expected) for number, line in numbered if line.strip())


def some_lines(
    text: str, tool: str, expected: str, known: re.Pattern[str] | None = None
) -> tuple[Line, ...]:
    """The lines of an answer, at least one; with `known`, those that `within` returns."""
    lines = lines_of(text, tool, expected)
    if not lines:
        raise NotUnderstoodError(tool, 1, "", expected)
    return within(lines, known) if known else lines


def only(lines: Sequence[Line]) -> Line:
    """The line of an answer that has one line."""
    first, *rest = lines
    if rest:
        raise rest[0].not_understood(f"{first.expected} and nothing more")
    return first


def within(lines: Sequence[Line], known: re.Pattern[str]) -> tuple[Line, ...]:
    """The lines from the first to the last that begins as `known`; all if no line does.

    A tool may print warnings before and after its answer; each line in between belongs to it.
    """
    found = [at for at, line in enumerate(lines) if known.match(line.text)]
    return tuple(lines[found[0] : found[-1] + 1] if found else lines)


def around(text: str, known: re.Pattern[str]) -> tuple[Line, ...]:
    """The lines that `within` leaves out."""
    lines = lines_of(text)
    answer = set(within(lines, known))
    return tuple(line for line in lines if line not in answer)


def cells_of(lines: Sequence[Line], forms: Mapping[str, str]) -> dict[str, str]:
    """The values of rows `NAME : VALUE`, each name once; `forms` gives a value's form by name's."""
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = (part.strip() for part in line.text.partition(":"))
        form = next((form for names, form in forms.items() if re.fullmatch(names, name)), None)
        if not colon or form is None or name in found or not re.fullmatch(form, value):
            raise line.not_understood()
        found[name] = value
    return found
