"""What nodes write, as files on the operator's side and as lines on the screen."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ascendboot.launch.demux import Lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_BLOCK = 1 << 20


class Screen:
    """Passes blocks of whole lines to a sink, one block at a time; outlives a sink that broke."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self.problem: str = ""

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
        self.problem = f"could not show the output any longer: {error}; it is in the logs"


class LogCopy:
    """One file of a node: its copy on the operator's side and its lines.

    The copy always is the beginning of the file on the node: it can be completed later.
    """

    def __init__(
        self, path: Path, prefix: bytes | None, screen: Screen, *, resumes: bool = False
    ) -> None:
        """Begin a new copy, or with `resumes` show what is here already and go on after it.

        Lines are shown behind `prefix`; without one nothing is shown.
        """
        self._lines = Lines(prefix) if prefix is not None else None
        self._screen = screen
        self._path = path
        self.size = 0
        self.problem = ""
        if resumes:
            self._show_copy()
        self._copy = path.open("ab" if resumes else "wb", buffering=0)

    def give(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        self.size += len(data)
        if not self.problem:
            self._keep(data)
        if self._lines is not None:
            self._screen.show(self._lines.feed(data))

    def end_line(self) -> None:
        """Show the line begun: its newline may be on its way."""
        if self._lines is not None:
            self._screen.show(self._lines.end_line())

    def close(self) -> None:
        """Nothing more will come."""
        if self._lines is not None:
            self._screen.show(self._lines.finish())
        with suppress(OSError):
            self._copy.close()

    def _show_copy(self) -> None:
        with suppress(FileNotFoundError), self._path.open("rb") as copy:
            while data := copy.read(_BLOCK):
                self.size += len(data)
                if self._lines is not None:
                    self._screen.show(self._lines.feed(data))

    def _keep(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._copy.write(rest) :]
        except OSError as error:
            self.problem = f"could not keep the whole output: {error}"


def show_copy(path: Path, prefix: bytes, screen: Screen) -> None:
    """All lines of a copy that is here."""
    lines = Lines(prefix)
    with suppress(FileNotFoundError), path.open("rb") as copy:
        while data := copy.read(_BLOCK):
            screen.show(lines.feed(data))
    screen.show(lines.finish())
