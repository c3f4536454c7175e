"""The answer of a script that asks several things: `@@ NAME EXIT_CODE BYTES`, then the bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.errors import NotUnderstoodError

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
