"""How long a job may keep those waiting who follow it, and their Ctrl-C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import queue
    from typing import TypeAlias

    from ascendboot.launch.follow import Back, NodeEvent
    from ascendboot.launch.watch import Standing

    Box: TypeAlias = queue.SimpleQueue[NodeEvent | Back | Standing | None]
    """What comes to whoever follows a job; None wakes it."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long what may be waited for, in seconds."""

    start_s: float = 120.0
    """From the start until every rank has begun."""
    beat_s: float = 10.0
    """Between two signs of life of a node's follower."""
    silence_s: float = 60.0
    """Without any sign from the primary until it counts as lost."""
    back_s: float = 60.0
    """Until a connection that was lost has to be back."""
    drain_s: float = 10.0
    """Without any byte of a log that is known to be longer."""


class Interrupts:
    """Ctrl-C, counted: once ends the job as usual, twice kills it. For a signal handler."""

    def __init__(self) -> None:
        self.count = 0
        self._box: Box | None = None

    def press(self) -> None:
        """Note one more interrupt; may be called from a signal handler or another thread."""
        self.count += 1
        if self._box is not None:
            self._box.put(None)

    def wake(self, box: Box) -> None:
        """Put None into `box` at every press from now on."""
        self._box = box
