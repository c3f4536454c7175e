"""What all parsers share: sections of one script's output, and strict reading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError, ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = re.compile(rb"@@ ([A-Za-z0-9_./-]+) ([0-9]{1,3}) ([0-9]{1,9})")
_END = "end"


@dataclass(frozen=True)
class Section:
    """What one question of the script gave back."""

    exit_code: int
    content: bytes

    @property
    def text(self) -> str:
        """The content as text; bytes that are not UTF-8 become U+FFFD."""
        return self.content.decode(errors="replace")


def split(output: bytes, tool: str) -> dict[str, Section]:
    """The sections by name.

    Raises:
        NotUnderstoodError: the frame is broken, a name is there twice, or the end is missing.
    """
    sections: dict[str, Section] = {}
    position = 0
    while _END not in sections:
        end_of_head = output.find(b"\n", position)
        head = output[position : end_of_head if end_of_head >= 0 else len(output)]
        match = _HEAD.fullmatch(head)
        start = end_of_head + 1
        size = int(match[3]) if match else 0
        is_whole = end_of_head >= 0 and output[start + size : start + size + 1] == b"\n"
        if match is None or not is_whole or match[1].decode() in sections:
            raise _broken(output, position, head, tool)
        sections[match[1].decode()] = Section(int(match[2]), output[start : start + size])
        position = start + size + 1
    if position != len(output):
        raise _broken(output, position, output[position:].split(b"\n")[0], tool)
    del sections[_END]
    return sections


def _broken(output: bytes, position: int, line: bytes, tool: str) -> NotUnderstoodError:
    number = output.count(b"\n", 0, position) + 1
    return NotUnderstoodError(
        tool, number, line.decode(errors="replace"), "@@ NAME EXIT_CODE BYTES and as many bytes"
    )


class ToolMissingError(ToolError):
    """The tool is not installed on the node; nothing was asked of it."""


class ToolBusyError(ToolError):
    """The tool answers one caller at a time and kept saying so until we gave up."""


@dataclass(frozen=True)
class Line:
    """One line of a tool's output with its number, from 1, as an editor counts."""

    number: int
    text: str

    def not_understood(self, tool: str, expected: str) -> NotUnderstoodError:
        """The error that names this line; runs of white space are shown as one space."""
        return NotUnderstoodError(tool, self.number, " ".join(self.text.split()), expected)


def lines_of(text: str) -> tuple[Line, ...]:
    """The lines that hold more than white space, with their numbers."""
    numbered = enumerate(text.split("\n"), start=1)
    return tuple(Line(number, line) for number, line in numbered if line.strip())


def within(lines: Sequence[Line], known: re.Pattern[str]) -> tuple[Line, ...]:
    """The lines from the first to the last that begins as `known`; all where none does.

    A tool may warn before its answer or behind it. What stands between is part of the answer.
    """
    return tuple(lines[_answer(lines, known)])


def around(text: str, known: re.Pattern[str]) -> tuple[Line, ...]:
    """The lines that `within` leaves out."""
    lines = lines_of(text)
    answer = _answer(lines, known)
    return (*lines[: answer.start], *lines[answer.stop :])


def _answer(lines: Sequence[Line], known: re.Pattern[str]) -> slice:
    found = [at for at, line in enumerate(lines) if known.match(line.text)]
    return slice(found[0], found[-1] + 1) if found else slice(0, len(lines))


def only_line_of(text: str, tool: str, expected: str) -> Line:
    """The one line of a tool that prints one.

    Raises:
        NotUnderstoodError: there is none, or there are more.
    """
    return only_line(lines_of(text), tool, expected)


def only_line(lines: Sequence[Line], tool: str, expected: str) -> Line:
    """As `only_line_of`, of lines."""
    if not lines:
        raise nothing_printed(tool, expected)
    if len(lines) > 1:
        raise lines[1].not_understood(tool, f"{expected} and nothing more")
    return lines[0]


def nothing_printed(tool: str, expected: str) -> NotUnderstoodError:
    """The error for a tool that printed nothing where something must be."""
    return NotUnderstoodError(tool, 1, "", expected)
