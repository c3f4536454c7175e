"""When a job stands still: no rank puts anything out, and none uses its processors; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ascendboot.launch.usage import NodeSample

IDLE: Final = 0.05
"""Of one processor: a rank that uses less does nothing but wait and look at its clock."""


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """No rank has put out anything for as long as was agreed."""

    silent_s: float
    """For how long no rank has put out anything."""
    idle_s: float
    """For how long no rank has used its processors either."""
    is_hang: bool
    """Whether that, too, has been so for as long as was agreed."""


@dataclass
class _NodeView:
    """What was seen of one node: times by its own clock."""

    last: NodeSample
    wrote_at_s: float
    busy_at_s: float

    @property
    def silent_s(self) -> float:
        return self.last.at_s - self.wrote_at_s

    @property
    def idle_s(self) -> float:
        return self.last.at_s - max(self.wrote_at_s, self.busy_at_s)


class Detector:
    """Takes the samples of all nodes, each node's in order, and says when the job stands still.

    Time is counted by the clocks of the nodes, only from sample to sample, and judged when all of
    them have given a new one: who hears nothing of a node, or was stopped in the meantime, takes no
    job for hanging.
    """

    def __init__(self, nodes: Iterable[str], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._views: dict[str, _NodeView | None] = dict.fromkeys(nodes)
        self._due = set(self._views)
        self._told_hang = False
        self._told_silence = False

    def take(self, node: str, sample: NodeSample) -> Standstill | None:
        """What is to be told now, if anything.

        A hang is told once until a rank does something again; silence alone once per job, since a
        program may have nothing to say while it works.
        """
        if node not in self._views:
            return None
        view = self._views[node]
        if view is None:
            self._views[node] = _NodeView(sample, sample.at_s, sample.at_s)
        else:
            if sample.wrote or _has_begun(view.last, sample):
                view.wrote_at_s = sample.at_s
            if _was_busy(view.last, sample):
                view.busy_at_s = sample.at_s
            view.last = sample
        self._due.discard(node)
        if self._due:
            return None
        self._due = set(self._views)
        return self._judged()

    def forget(self, node: str) -> None:
        """The job goes on without this node: what it says, or does not say, counts no longer."""
        self._views.pop(node, None)
        self._due.discard(node)

    def _judged(self) -> Standstill | None:
        views = [view for view in self._views.values() if view is not None]
        silent_s = min(view.silent_s for view in views)
        idle_s = min(view.idle_s for view in views)
        is_hang = idle_s >= self._timeout_s
        if not is_hang:
            self._told_hang = False
        if silent_s < self._timeout_s or not any(view.last.ranks for view in views):
            return None
        if self._told_hang if is_hang else self._told_silence:
            return None
        self._told_silence = True
        self._told_hang = is_hang
        return Standstill(silent_s=silent_s, idle_s=idle_s, is_hang=is_hang)


def _has_begun(before: NodeSample, after: NodeSample) -> bool:
    """Whether a rank is new."""
    return not {use.rank for use in after.ranks} <= {use.rank for use in before.ranks}


def _was_busy(before: NodeSample, after: NodeSample) -> bool:
    """Whether any rank used its processors between two samples."""
    span_s = after.at_s - before.at_s
    was = {use.rank: use.cpu_s for use in before.ranks}
    used = [use.cpu_s - was[use.rank] for use in after.ranks if use.rank in was]
    # Less than before: a process of the rank has gone, and what it had used with it.
    return any(seconds < 0 or seconds > IDLE * span_s for seconds in used)
