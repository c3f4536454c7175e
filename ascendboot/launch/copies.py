"""What nodes write, as files on the operator's side and as lines on the screen."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ascendboot.launch.kept import drop, hole_of, pieces, without_nothing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ascendboot.launch.demux import LineView


class RankOutput:
    """Passes blocks of whole lines to a sink, one block at a time; outlives a sink that broke."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self.problem: str = ""
        self.lost = False
        """Whether lines are missing for another reason than that the reader has read enough."""

    def show(self, block: bytes) -> None:
        """Hand over some whole lines."""
        if not block:
            return
        with self._lock:
            if self.problem:
                return
            try:
                self._sink(block)
            except OSError as error:
                self.lose(error)

    def lose(self, error: OSError) -> None:
        """Nothing is shown from here on, for this reason."""
        gone = isinstance(error, BrokenPipeError)
        self.lost = not gone
        why = "its reader is gone" if gone else error.strerror or error
        self.problem = f"could not show the output any longer: {why}; it is in the logs"


class LogCopy:
    """One file of a node: its copy on the operator's side and its lines.

    The copy always is the beginning of the file on the node: it can be completed later. What the
    node has dropped of it is a hole here as well, and so is what would take more than `limit`.
    """

    def __init__(
        self,
        path: Path,
        lines: LineView | None,
        output: RankOutput,
        *,
        resumes: bool = False,
        shown_from: int = 0,
        limit: int = 0,
    ) -> None:
        """Begin a new copy, or with `resumes` show what is here already and go on after it.

        Without `lines` nothing is shown. `shown_from`: what lies before it is not shown again.
        """
        self._lines = lines
        self._output = output
        self._path = path
        self._limit = limit
        self._dropped_to = 0
        self.size = 0
        self.problem = ""
        if resumes:
            self._show_copy(shown_from)
        else:
            path.write_bytes(b"")
        self._copy = path.open("ab", buffering=0)

    def give(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        for piece in without_nothing(data):
            if isinstance(piece, int):
                self.skip(piece)
            else:
                self._take(piece)

    def skip(self, count: int) -> None:
        """The node has dropped the next bytes of the file."""
        self.size += count
        if not self.problem:
            try:
                self._copy.truncate(self.size)
            except OSError as error:
                self._lose(error)
        if self._lines is not None:
            self._output.show(self._lines.skip(count))

    def end_line(self) -> None:
        """Show the line begun: its newline may be on its way."""
        if self._lines is not None:
            self._output.show(self._lines.end_line())

    def close(self) -> None:
        """Nothing more will come."""
        if self._lines is not None:
            self._output.show(self._lines.finish())
        with suppress(OSError):
            self._copy.close()

    def _take(self, data: bytes) -> None:
        self.size += len(data)
        if not self.problem:
            self._keep(data)
        if self._lines is not None:
            self._output.show(self._lines.feed(data))

    def _show_copy(self, start: int) -> None:
        with suppress(FileNotFoundError):
            self.size = self._path.stat().st_size
            if self._lines is not None:
                _show(self._path, self._lines, self._output, start)

    def _keep(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._copy.write(rest) :]
        except OSError as error:
            self._lose(error)
            return
        start, end = hole_of(self.size, self._limit)
        if self._limit and self.size - max(0, self._dropped_to - start) > self._limit:
            drop(self._copy.fileno(), max(start, self._dropped_to), end)
            self._dropped_to = end

    def _lose(self, error: OSError) -> None:
        self.problem = f"could not keep the whole output: {error.strerror or error}"


def show_copy(path: Path, lines: LineView, output: RankOutput, *, start: int = 0) -> None:
    """All lines of a copy that is here, or those from `start` on."""
    with suppress(FileNotFoundError):
        _show(path, lines, output, start)
    output.show(lines.finish())


def _show(path: Path, lines: LineView, output: RankOutput, start: int) -> None:
    with path.open("rb") as copy:
        for piece in pieces(copy, start):
            output.show(lines.skip(piece) if isinstance(piece, int) else lines.feed(piece))
