"""The way of a job's lines to its reader, who may be slow, gone, or not reading at all."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ROOM: Final = 1 << 20
"""How many bytes may wait for the reader before the writers wait, too."""
_PATIENCE_S = 1.0
_LOOK_S = 0.25


class Outlet:
    """Passes blocks to a sink from a thread of its own, in order.

    A reader has all the time, and writers wait for room, until somebody is in a hurry: then a
    reader who takes nothing for a second is given up.
    """

    def __init__(self, sink: Callable[[bytes], None], *, is_hurried: Callable[[], bool]) -> None:
        self._sink = sink
        self._is_hurried = is_hurried
        self._changed = threading.Condition()
        self._blocks: deque[bytes] = deque()
        self._size = 0
        self._closed = False
        self._error: OSError | None = None
        self._hurried_at: float | None = None
        self._moved_at = time.monotonic()
        # A thread that hangs in a full pipe must not keep the program from ending.
        threading.Thread(target=self._write, name="outlet", daemon=True).start()

    def __call__(self, block: bytes) -> None:
        """Hand over a block.

        Raises:
            OSError: nothing reaches the reader any more.
        """
        with self._changed:
            while self._error is None and self._size >= ROOM:
                self._wait()
            if self._error is not None:
                raise self._error
            self._blocks.append(block)
            self._size += len(block)
            self._changed.notify_all()

    def close(self) -> OSError | None:
        """Wait until all has been passed on; why not, if it was not."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._error is None and self._size:
                self._wait()
            return self._error

    def _wait(self) -> None:
        self._changed.wait(_LOOK_S)
        if not self._is_hurried():
            return
        now = time.monotonic()
        if self._hurried_at is None:
            self._hurried_at = now
        if self._error is None and now - max(self._hurried_at, self._moved_at) > _PATIENCE_S:
            self._fail(TimeoutError("nobody reads it"))

    def _write(self) -> None:
        while (block := self._next()) is not None:
            error: OSError | None = None
            try:
                self._sink(block)
            except OSError as broken:
                error = broken
            except ValueError as closed:  # what a file says that was closed meanwhile
                error = OSError(str(closed))
            with self._changed:
                self._size -= len(block)
                self._moved_at = time.monotonic()
                self._changed.notify_all()
                if error is not None and self._error is None:
                    self._fail(error)

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._blocks and not self._closed and self._error is None:
                self._changed.wait()
            return self._blocks.popleft() if self._blocks else None

    def _fail(self, error: OSError) -> None:
        self._error = error
        self._blocks.clear()
        self._changed.notify_all()
