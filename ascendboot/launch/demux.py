"""One byte stream of `tail -v -f FILE…` back into its files, and bytes into whole lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LINE = 1 << 20
MAX_BAR = 1 << 12
"""So much of a line that goes back to its start again and again: half a hundred times, mostly."""
_LONGEST_NAME = 64
_GOES_BACK = re.compile(rb"\r(?![\r\n]|\Z)")
"""Where more of the line follows: not in the line ends of Windows."""


class Demux:
    """Gives each file of a follower's stream its own bytes, every one of them and no other.

    `give(name, data)` takes bytes of a file. `line_may_end(name)` says that the file's next byte is
    a newline unless `tail` is about to turn to another file, which is known only with the next one.
    """

    def __init__(
        self,
        nonce: str,
        give: Callable[[str, bytes], None],
        line_may_end: Callable[[str], None],
    ) -> None:
        self._give = give
        self._line_may_end = line_may_end
        self._start = f"\n==> {nonce}/".encode()
        self._header = re.compile(re.escape(self._start) + rb"(?:\.\./)?([A-Za-z0-9._-]+) <==\n")
        self._name: str | None = None
        # tail puts an empty line before each header but the first.
        self._held = b"\n"

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        buffer = self._held + data
        position = 0
        for header in self._header.finditer(buffer):
            self._pass_on(buffer[position : header.start()])
            self._name = header[1].decode()
            position = header.end()
        cut = self._possible_header(buffer, position)
        self._pass_on(buffer[position:cut])
        self._held = buffer[cut:]
        if self._held == b"\n" and self._name is not None:
            self._line_may_end(self._name)

    def held(self, name: str) -> int:
        """How many bytes wait here that belong to `name` if the stream ends now."""
        return len(self._held) if name == self._name else 0

    def finish(self) -> None:
        """The stream has ended: what was held back belongs to the last file."""
        self._pass_on(self._held)
        self._held = b""

    def _pass_on(self, data: bytes) -> None:
        if data and self._name is not None:
            self._give(self._name, data)

    def _possible_header(self, buffer: bytes, position: int) -> int:
        """Where the bytes begin that may be the first part of a header."""
        newline = buffer.rfind(b"\n", max(position, len(buffer) - len(self._start) - _LONGEST_NAME))
        if newline < 0:
            return len(buffer)
        rest = buffer[newline:]
        begun = self._start.startswith(rest) or rest.startswith(self._start)
        return newline if begun else len(buffer)


class LineView(Protocol):
    """What is shown of one file as its bytes come."""

    def feed(self, data: bytes) -> bytes:
        """The next bytes."""

    def end_line(self) -> bytes:
        """The line begun ends here, as far as anybody knows."""

    def skip(self, count: int) -> bytes:
        """So many bytes were dropped."""

    def finish(self) -> bytes:
        """Nothing more will come."""


class Lines:
    """Bytes of one file as whole lines, each behind `prefix`; no byte of them is changed.

    A progress bar, which goes back to the start of its line again and again, is shown now and then
    while it lasts.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._pending = b""
        self._newline_shown = False
        self._missing = 0

    def feed(self, data: bytes) -> bytes:
        """All lines that are complete with `data`, in one piece; empty when there is none."""
        if self._missing and data:
            return self._what_is_missing() + self.feed(data)
        if self._newline_shown and data:
            self._newline_shown = False
            data = data.removeprefix(b"\n")
        end = data.rfind(b"\n")
        if end < 0:
            self._pending += data
            return self._split_pending()
        block = self._pending + data[:end]
        self._pending = data[end + 1 :]
        if len(block) > MAX_LINE:
            block = b"\n".join(_split(line) for line in block.split(b"\n"))
        return self._shown(block) + self._split_pending()

    def end_line(self) -> bytes:
        """The line begun, as if its newline had come; when it does come it is not shown again."""
        if not self._pending:
            return b""
        self._newline_shown = True
        return self._take_pending()

    def skip(self, count: int) -> bytes:
        """The line begun; what follows comes behind a line that says how much is missing."""
        shown = self._take_pending() if self._pending else b""
        self._missing += count
        return shown

    def finish(self) -> bytes:
        """The last line when it has no newline."""
        shown = self._what_is_missing()
        return shown + (self._take_pending() if self._pending else b"")

    def _what_is_missing(self) -> bytes:
        count, self._missing = self._missing, 0
        words = f"[ascendboot: {count} bytes are missing here: the log outgrew logs.max_size]"
        return self._shown(words.encode()) if count else b""

    def _take_pending(self) -> bytes:
        line, self._pending = self._pending, b""
        return self._shown(line)

    def _split_pending(self) -> bytes:
        shown = b""
        if len(self._pending) > MAX_BAR:
            # A newline may follow the last byte: what goes back there may be a line's end.
            bar, goes_back, begun = self._pending[:-1].rpartition(b"\r")
            if goes_back:
                shown, self._pending = self._shown(bar), begun + self._pending[-1:]
        while len(self._pending) > MAX_LINE:
            shown += self._shown(self._pending[:MAX_LINE])
            self._pending = self._pending[MAX_LINE:]
        return shown

    def _shown(self, block: bytes) -> bytes:
        return behind(self._prefix, block) + b"\n"


def behind(prefix: bytes, block: bytes) -> bytes:
    """Each line of the block behind `prefix`; again where it goes back over it, to its start."""
    if b"\r" in block:
        block = _GOES_BACK.sub(lambda _: b"\r" + prefix, block)
    return prefix + block.replace(b"\n", b"\n" + prefix)


def _split(line: bytes) -> bytes:
    pieces = (line[at : at + MAX_LINE] for at in range(0, len(line), MAX_LINE))
    return b"\n".join(pieces)
