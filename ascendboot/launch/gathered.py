"""What comes from one node of a job's files, stream after stream."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError
from ascendboot.launch.fetch import Frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.launch.copies import LogCopy
    from ascendboot.launch.event_reader import EventReader

_EVENTS = "events"


class NodeGathering:
    """Takes a node's streams, one at a time, into the copies of its logs, and its events."""

    def __init__(
        self,
        copies: Mapping[str, LogCopy],
        events: EventReader,
        wake: Callable[[], None],
    ) -> None:
        self._copies = copies
        self._events = events
        self._wake = wake
        self._heard_at = time.monotonic()
        self._is_busy = False
        self._reader: object = None
        self.is_absent = False
        self.is_lost = False
        self.ended = threading.Event()
        """Whether all of the last stream was said."""
        self.problem = ""

    @property
    def is_read(self) -> bool:
        """Whether the last stream has not ended yet, be it before or after all was said."""
        return self._reader is not None

    @property
    def silent_s(self) -> float:
        """How long nothing has come; time in which we ourselves were busy does not count."""
        return 0.0 if self._is_busy else time.monotonic() - self._heard_at

    @property
    def sizes(self) -> dict[str, int]:
        """How much of each file is here."""
        here = {name: copy.size for name, copy in self._copies.items()}
        return {_EVENTS: self._events.size, **here}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why a copy here is not whole."""
        return tuple(f"{n}: {copy.problem}" for n, copy in self._copies.items() if copy.problem)

    def reader(self) -> Callable[[bytes], None]:
        """Takes the bytes of a new stream; what an older one still delivers is left out."""
        frames = Frames(self._give, self._skip, self._tell)

        def feed(data: bytes) -> None:
            if self._reader is not feed:
                return
            self._is_busy = True
            try:
                self._feed(frames, data)
            finally:
                self._heard_at = time.monotonic()
                self._is_busy = False
                self._wake()

        self.ended.clear()
        self._heard_at = time.monotonic()
        self._reader = feed
        return feed

    def close(self) -> None:
        """Nothing more will come."""
        self._reader = None
        for copy in self._copies.values():
            copy.close()

    def _feed(self, frames: Frames, data: bytes) -> None:
        """Take the next bytes; once they are not understood, nothing more is taken."""
        if not data:
            self._reader = None
        elif not self.problem:
            try:
                frames.feed(data)
            except NotUnderstoodError as error:
                self.problem = str(error)

    def _give(self, name: str, data: bytes) -> None:
        if name == _EVENTS:
            self._events.feed(data)
        elif name in self._copies:
            self._copies[name].give(data)

    def _skip(self, name: str, count: int) -> None:
        if name in self._copies:
            self._copies[name].skip(count)

    def _tell(self, word: str) -> None:
        if word == "absent":
            self.is_absent = True
        elif word == "lost":
            self.is_lost = True
        elif word == "end":
            self.ended.set()
