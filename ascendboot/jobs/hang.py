"""Detects a job that makes no progress."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ascendboot.model.names import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ascendboot.launch.events import NodeSample
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.transport.api import Transport

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
        self._reported_hang = False
        self._reported_silence = False

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
        return self._checked()

    def forget(self, node: str) -> None:
        """The job goes on without this node: what it says, or does not say, counts no longer."""
        self._views.pop(node, None)
        self._due.discard(node)

    def _checked(self) -> Standstill | None:
        views = [view for view in self._views.values() if view is not None]
        silent_s = min(view.silent_s for view in views)
        idle_s = min(view.idle_s for view in views)
        is_hang = idle_s >= self._timeout_s
        if not is_hang:
            self._reported_hang = False
        if silent_s < self._timeout_s or not any(view.last.ranks for view in views):
            return None
        if self._reported_hang if is_hang else self._reported_silence:
            return None
        self._reported_silence = True
        self._reported_hang = is_hang
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


_SAMPLES: Final = 10
"""In the time after which a job counts as hanging."""
_MOST_SELDOM_S: Final = 60


@dataclass(frozen=True, kw_only=True)
class HangRules:
    """What is done about a job that stands still."""

    timeout_s: float = 0.0
    """Without output and work for so long it hangs; 0: nobody looks."""
    stops: bool = False
    """It is stopped then; otherwise it is only told."""
    tell: Callable[[str], None] = lambda _words: None
    """Tells the operator at once."""

    @property
    def sample_s(self) -> int:
        """How often the nodes say what their ranks use; 0: never."""
        if not self.timeout_s:
            return 0
        return max(1, min(_MOST_SELDOM_S, int(self.timeout_s / _SAMPLES)))

    def beat_s(self, usual_s: float) -> float:
        """How often a follower gives a sign of life, so that it can say so."""
        return min(usual_s, self.sample_s) if self.sample_s else usual_s


@dataclass(frozen=True)
class HungJob:
    """A job was found to stand still, and where its ranks are."""

    words: str
    is_hang: bool


class HangWatch:
    """Takes samples from the threads that read them; looks where ranks wait in one of its own."""

    def __init__(
        self,
        rules: HangRules,
        plan: LaunchPlan,
        transports: Mapping[str, Transport],
        folder: Path,
        on_found: Callable[[HungJob], None],
        *,
        forks: int,
    ) -> None:
        self._plan = plan
        self._transports = transports
        self._folder = folder
        self._on_found = on_found
        self._forks = forks
        self._lock = threading.Lock()
        self._detector = Detector(plan.nodes, rules.timeout_s)

    def take(self, node: str, sample: NodeSample) -> None:
        """What a node says of its ranks."""
        with self._lock:
            found = self._detector.take(node, sample)
        if found is not None:
            threading.Thread(target=self._look, args=(found,), name="hang", daemon=True).start()

    def forget(self, node: str) -> None:
        """The job goes on without this node."""
        with self._lock:
            self._detector.forget(node)

    def _look(self, found: Standstill) -> None:
        # A job that goes on needs nothing of this.
        from ascendboot.jobs.stacks import read_stacks  # noqa: PLC0415

        plan = self._plan
        seen = read_stacks(
            self._transports,
            plan.job_folder,
            plan.python,
            folder=self._folder,
            why="hang",
            forks=self._forks,
        )
        words = [headline(plan.job_id, found), *(f"  {line}" for line in seen.lines)]
        if seen.file is not None:
            words.append(f"  All of it is in {seen.file}")
        self._on_found(HungJob("\n".join(words), found.is_hang))


def headline(job_id: str, found: Standstill) -> str:
    """That the job stands still, and since when."""
    if found.is_hang:
        return f"job {job_id} hangs: no rank has put out or computed anything for " + (
            span(found.idle_s)
        )
    return (
        f"job {job_id}: no rank has put out anything for {span(found.silent_s)}, while ranks use "
        "their processors: they compute, or spin in a collective that does not end"
    )
