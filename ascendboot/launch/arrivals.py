"""When which part of a log came in, for lines that tell no time."""

from __future__ import annotations

from bisect import bisect_right

_APART_S = 0.2
_MOST_MARKS = 600
PRECISION_S = 0.5
"""What is followed is looked at ten times a second on its node, and comes in blocks."""


class Arrivals:
    """The times at which a log had grown to some sizes, by the clock here; old ones get sparse."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._times: list[float] = []
        self._begun = float("-inf")

    def note(self, size: int, at: float) -> None:
        """The log has `size` bytes now."""
        if at - self._begun < _APART_S:
            self._sizes[-1], self._times[-1] = size, at
            return
        self._begun = at
        self._sizes.append(size)
        self._times.append(at)
        if len(self._sizes) > _MOST_MARKS:
            del self._sizes[: _MOST_MARKS // 2 : 2], self._times[: _MOST_MARKS // 2 : 2]

    def of(self, offset: int) -> float | None:
        """When the byte at `offset` was here at the latest; None when it has not come."""
        index = bisect_right(self._sizes, offset)
        return self._times[index] if index < len(self._times) else None
