"""What has been seen of a job, and what it means for its state."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from signal import SIGHUP, SIGKILL, SIGPIPE, SIGTERM
from typing import TYPE_CHECKING, Protocol

from ascendboot.launch.events import (
    AgentEnded,
    EndingBegan,
    LauncherEnded,
    NodeLeft,
    RankEnded,
    RankEndingBegan,
    RankNumbered,
    RankStarted,
    RankTold,
    StartOverdue,
    StopAsked,
)
from ascendboot.model.job import RankEnd
from ascendboot.model.names import ranks_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.launch.events import Event
    from ascendboot.launch.plan import JobRecord, LaunchPlan
    from ascendboot.model.cluster import NodeClocks

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


@dataclass(kw_only=True)
class Progress:
    """What has been seen of a job so far."""

    started: set[int] = field(default_factory=set)
    ended: dict[int, RankEnded] = field(default_factory=dict)
    error_files: dict[int, bytes] = field(default_factory=dict)
    """The error files that ranks left."""
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)
    """When which part of which log came in, where somebody followed."""
    launcher_over: bool = False
    launcher_code: int | None = None
    launcher_ended_at: float | None = None
    """By the primary's clock."""
    agents: dict[int, AgentEnded] = field(default_factory=dict)
    """The agents that ended, by node rank."""
    endings: dict[int, float] = field(default_factory=dict)
    """By node rank: since when, by its clock, the ranks there were ended on purpose."""
    rank_endings: dict[int, float] = field(default_factory=dict)
    """By rank: since when, by its node's clock, it was ended on purpose."""
    left: dict[int, NodeLeft] = field(default_factory=dict)
    """The nodes that an elastic job gave up, by node rank."""
    starts: list[RankNumbered] = field(default_factory=list)
    """Each time that the ranks of an elastic job began: its first rank, which is always there."""
    log_begins: dict[int, int] = field(default_factory=dict)
    """By rank: how long its log was when it began for the last time, where that is not 0."""
    is_overdue: bool = False
    """The launcher did not end within the time that it has, and was ended by us."""
    overdue: StartOverdue | None = None
    """Why it was ended before all ranks had begun."""
    interrupted: bool = False
    stopped: bool = False
    """Somebody asked for its end with `stop`."""
    hung: str = ""
    """Why it was stopped when it stood still; empty when it was not."""
    not_started: str = ""
    """Why the job has to be called not started; empty when it was."""
    full_disks: dict[str, str] = field(default_factory=dict)
    """By node on which next to nothing is free: the job's folder there."""
    unsure: tuple[str, ...] = ()
    """Why it cannot be said that nothing of the job is left."""
    notes: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether anything of it was seen to fail."""
        return bool(
            (self.launcher_over and self.launcher_code != 0)
            or self.endings
            or any(end.exit_code for end in self.ended.values())
        )

    def was_ended(self, rank: int, node_rank: int) -> bool:
        """Whether a rank of that node ended because it was ended on purpose."""
        seen = self.ended.get(rank)
        return seen is not None and seen.at >= self.ending_started(rank, node_rank)

    def ending_started(self, rank: int, node_rank: int) -> float:
        """When, by its node's clock, a rank of that node was ended on purpose; infinite: never."""
        never = float("inf")
        return min(self.endings.get(node_rank, never), self.rank_endings.get(rank, never))

    def note(self, event: Event) -> None:
        """Take in an event of any node."""
        match event:
            case RankStarted(rank=rank):
                self.started.add(rank)
            case RankNumbered():
                self._begin(event)
            case RankTold(rank=rank, error=error):
                self.error_files[rank] = error
            case RankEndingBegan(rank=rank, at=at):
                self.rank_endings.setdefault(rank, at)
            case RankEnded(rank=rank):
                self.started.add(rank)
                self.ended[rank] = event
            case _:
                self._note_of_node(event)

    def _note_of_node(self, event: Event) -> None:
        match event:
            case LauncherEnded(exit_code=code, at=at):
                self.launcher_over, self.launcher_code, self.launcher_ended_at = True, code, at
            case AgentEnded(node_rank=node_rank):
                self.agents[node_rank] = event
            case NodeLeft(node_rank=node_rank):
                self.left[node_rank] = event
            case EndingBegan(node_rank=node_rank, at=at):
                self.endings[node_rank] = at
            case StopAsked():
                self.stopped = True
            case StartOverdue():
                self.overdue = event if self.overdue is None else self.overdue.and_also(event)
            case _:
                pass  # who starts something is not looked at here

    def _begin(self, numbered: RankNumbered) -> None:
        """What is known of the life of the rank before counts no longer."""
        rank = numbered.rank
        for known in (self.ended, self.error_files, self.rank_endings):
            known.pop(rank, None)
        self.log_begins[rank] = numbered.log_bytes
        if rank == 0:
            self.starts.append(numbered)


SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a process."""
_HIGHEST_SIGNAL = 64
BY_LAUNCHER = frozenset({SIGTERM, SIGKILL})
"""By which launchers end ranks."""
OF_A_LOST_LAUNCHER = BY_LAUNCHER | {SIGHUP, SIGPIPE}
"""What ends ranks whose launcher is gone."""


def ends_of(plan: LaunchPlan | JobRecord, progress: Progress) -> tuple[RankEnd, ...]:
    """The end of every rank, in rank order; one without an exit code was not seen to end."""
    ends = []
    for rank in plan.ranks:
        seen = progress.ended.get(rank.rank)
        ends.append(
            RankEnd(
                rank=rank.rank,
                node=rank.node,
                device=rank.device_id,
                exit_code=None if seen is None else seen.exit_code,
                signal=None if seen is None else signal_of(seen.exit_code),
            )
        )
    return tuple(ends)


def signal_of(exit_code: int) -> int | None:
    """The signal that a shell's exit code stands for; None when it stands for none."""
    number = exit_code - SIGNALLED
    return number if 0 < number <= _HIGHEST_SIGNAL else None


def after_restarts(plan: LaunchPlan | JobRecord, progress: Progress) -> Progress:
    """The course without what the job has got over.

    That is what ended on nodes that it gave up and, while it goes on, the ends of ranks that begin
    again. Of a job that failed everything counts: its end may have begun on such a node.
    """
    if progress.launcher_code or 0 in progress.endings:
        return progress
    gone = _gone(plan, progress)
    ended = {
        rank: end
        for rank, end in progress.ended.items()
        if rank not in gone and (progress.launcher_over or end.exit_code == 0)
    }
    endings = {node: at for node, at in progress.endings.items() if node not in progress.left}
    return replace(progress, ended=ended, endings=endings)


def restart_notes(
    plan: LaunchPlan | JobRecord, progress: Progress, clocks: NodeClocks
) -> tuple[str, ...]:
    """Which node was lost when and why, and each time that the ranks began again, in that order."""

    def when(at: float) -> str:
        return f"{datetime.fromtimestamp(clocks.here(plan.primary, at), timezone.utc):%H:%M:%S} UTC"

    notes = [
        (left.at, f"{_lost(plan, left.node_rank)} at {when(left.at)}: {left.why}")
        for left in progress.left.values()
    ]
    for before, life in zip(progress.starts, progress.starts[1:], strict=False):
        same = life.world_size == before.world_size
        sizes = f"{life.world_size} of them, {'as' if same else before.world_size} before"
        notes.append((life.at, f"the ranks began again at {when(life.at)}: {sizes}"))
    return tuple(words for _, words in sorted(notes))


def _lost(plan: LaunchPlan | JobRecord, node_rank: int) -> str:
    node = plan.nodes[node_rank]
    return f"{node}: lost with {ranks_named(tuple(r.rank for r in plan.ranks_on(node)))}"


def _gone(plan: LaunchPlan | JobRecord, progress: Progress) -> frozenset[int]:
    return frozenset(
        rank.rank for number in progress.left for rank in plan.ranks_on(plan.nodes[number])
    )


class Lifecycle(Protocol):
    """What the events of a job mean for it as a whole."""

    def has_started(self, progress: Progress) -> bool:
        """Whether all began that it waits for."""
        ...

    def will_end(self, event: Event, progress: Progress) -> bool:
        """Whether its launcher ends soon, now that `event` has come."""
        ...


class WholeJobLifecycle:
    """A job that needs all of its ranks."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def has_started(self, progress: Progress) -> bool:
        """Every rank has."""
        return len(progress.started) == self._ranks

    def will_end(self, event: Event, progress: Progress) -> bool:
        """A rank failed or is ended, or all are through."""
        match event:
            case RankEnded(exit_code=code):
                return bool(code) or len(progress.ended) == self._ranks
            case StopAsked() | EndingBegan() | RankEndingBegan():
                return True
            case _:
                return False


class ElasticLifecycle:
    """An elastic job: ranks begin again, and nodes may go."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._node_ranks = {rank.rank: plan.nodes.index(rank.node) for rank in plan.ranks}

    def has_started(self, progress: Progress) -> bool:
        """The first rank has: it waits for as many nodes as are needed."""
        return 0 in progress.started

    def will_end(self, event: Event, progress: Progress) -> bool:
        """The primary ends it, or all ranks are through on the nodes that are left."""
        match event:
            case StopAsked() | EndingBegan(node_rank=0):
                return True
            case RankEnded() | NodeLeft():
                ends = {
                    n: progress.ended.get(n)
                    for n, on in self._node_ranks.items()
                    if on not in progress.left
                }
                return all(end is not None and end.exit_code == 0 for end in ends.values())
            case _:
                return False


def lifecycle_of(plan: LaunchPlan) -> Lifecycle:
    """Those of the kind of job that it plans."""
    return WholeJobLifecycle(len(plan.ranks)) if plan.min_nodes is None else ElasticLifecycle(plan)
