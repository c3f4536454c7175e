"""Lines in which something is found, whatever else a rank prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.launch.demux import Lines, behind

if TYPE_CHECKING:
    import re

_RED, _PLAIN = "\x1b[1;31m", "\x1b[0m"


class MatchingLines:
    """As `Lines`, but only the lines in which a pattern is found."""

    def __init__(self, prefix: bytes, pattern: re.Pattern[str], *, coloured: bool) -> None:
        """`coloured`: what was found is shown in red."""
        self._lines = Lines(b"")
        self._prefix = prefix
        self._pattern = pattern
        self._coloured = coloured

    def feed(self, data: bytes) -> bytes:
        """All such lines that are complete with `data`."""
        return self._found(self._lines.feed(data))

    def end_line(self) -> bytes:
        """As that of `Lines`."""
        return self._found(self._lines.end_line())

    def skip(self, count: int) -> bytes:
        """As that of `Lines`, without the line that says so."""
        return self._found(self._lines.end_line())

    def finish(self) -> bytes:
        """As that of `Lines`."""
        return self._found(self._lines.finish())

    def _found(self, block: bytes) -> bytes:
        shown = (self._line(line) for line in block.split(b"\n")[:-1])
        return b"".join(line for line in shown if line)

    def _line(self, line: bytes) -> bytes:
        text = line.decode(errors="surrogateescape")
        if self._pattern.search(text) is None:
            return b""
        if self._coloured:
            text = self._pattern.sub(_in_red, text)
        return behind(self._prefix, text.encode(errors="surrogateescape")) + b"\n"


def _in_red(match: re.Match[str]) -> str:
    return f"{_RED}{match[0]}{_PLAIN}" if match[0] else ""
