"""Events of one node, from bytes as they come."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError
from ascendboot.launch.events import parse_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from ascendboot.launch.events import Event

log = logging.getLogger(__name__)


class EventReader:
    """Gives the events that a node writes; a line that is none is told in the log and left out."""

    def __init__(self, node: str, on_event: Callable[[Event], None]) -> None:
        self._node = node
        self._on_event = on_event
        self._rest = b""
        self._lines = 0
        self.size = 0
        """How many bytes have come."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.size += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)

    def end_line(self) -> None:
        """What came last is a whole line, whose end may be on its way."""
        line, self._rest = self._rest, b""
        self._take(line)

    def _take(self, line: bytes) -> None:
        if not line:
            return
        self._lines += 1
        try:
            event = parse_event(line.decode(errors="replace"), self._lines)
        except NotUnderstoodError as error:
            log.warning("%s: %s", self._node, error)
        else:
            self._on_event(event)
