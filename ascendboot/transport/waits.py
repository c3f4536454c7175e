"""What is waited for on the nodes, so that nobody waits for long without being told for what."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TOLD_AFTER_S = 30.0
"""How long something may take, without any progress, before it is told of."""


class Wait:
    """One node that is waited for."""

    def __init__(self, node: str, purpose: str, now: Callable[[], float]) -> None:
        self.node = node
        self._now = now
        self.goes_on(purpose)

    def goes_on(self, purpose: str) -> None:
        """Say that there was progress; what is waited for now completes "still waiting to …"."""
        self.purpose = purpose
        self.since = self._now()
        self.is_told = False


class Waits:
    """All that is waited for now, by the threads that work on the nodes."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._open: dict[Wait, None] = {}

    @contextmanager
    def of(self, node: str, purpose: str) -> Iterator[Wait]:
        """Waiting for one node, until the block ends."""
        wait = Wait(node, purpose, self._now)
        with self._lock:
            self._open[wait] = None
        try:
            yield wait
        finally:
            with self._lock:
                del self._open[wait]

    def late(self) -> Mapping[str, list[str]]:
        """By purpose: the nodes without progress for a while of which nobody was told yet."""
        found: dict[str, list[str]] = {}
        with self._lock:
            for wait in self._open:
                if not wait.is_told and self._now() - wait.since >= TOLD_AFTER_S:
                    wait.is_told = True
                    found.setdefault(wait.purpose, []).append(wait.node)
        return found
