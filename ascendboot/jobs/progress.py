"""The progress of a job by its events, and what it means for its state."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from signal import SIGHUP, SIGKILL, SIGPIPE, SIGTERM
from typing import TYPE_CHECKING, Protocol

from ascendboot.launch.events import (
    AgentEnded,
    EndingBegan,
    Event,
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

    from ascendboot.launch.plan import JobRecord, LaunchPlan
    from ascendboot.model.cluster import NodeClocks

_APART_S = 0.2
_MOST_MARKS = 600
PRECISION_S = 0.5
"""Nodes look for new output five times a second and send it in blocks."""


class Arrivals:
    """When a log had which size, by the control machine's clock; old entries are thinned out."""

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
        """The latest time at which the byte at `offset` arrived; None: it did not."""
        index = bisect_right(self._sizes, offset)
        return self._times[index] if index < len(self._times) else None


@dataclass(kw_only=True)
class Progress:
    """What the events of a job say so far."""

    started: set[int] = field(default_factory=set)
    ended: dict[int, RankEnded] = field(default_factory=dict)
    error_files: dict[int, bytes] = field(default_factory=dict)
    """The error files that ranks left."""
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)
    """When which part of which log arrived, where the job was followed."""
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
    """Each start of the ranks of an elastic job, as an event of rank 0."""
    log_begins: dict[int, int] = field(default_factory=dict)
    """By rank: the size of its log at its last start, where that is not 0."""
    is_overdue: bool = False
    """The launcher did not end in time, and ascendboot ended it."""
    overdue: StartOverdue | None = None
    """Why it was ended before all ranks had started."""
    interrupted: bool = False
    stopped: bool = False
    """`stop` ended it."""
    hung: str = ""
    """Why it was stopped as hung; empty when it was not."""
    not_started: str = ""
    """Why the job was not started; empty when it was."""
    full_disks: dict[str, str] = field(default_factory=dict)
    """The job's folder by node whose disk is almost full."""
    unsure: tuple[str, ...] = ()
    """Why processes of the job may be left."""
    notes: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether anything of it failed."""
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
        """When, by its node's clock, it began to be ended on purpose; infinite: never."""
        never = float("inf")
        return min(self.endings.get(node_rank, never), self.rank_endings.get(rank, never))

    def note(self, event: Event) -> None:
        """Add an event of any node."""
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
                pass  # starts of launchers and agents change nothing here

    def _begin(self, numbered: RankNumbered) -> None:
        """Drop what is known of the rank before this start."""
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
"""Signals by which launchers end ranks."""
OF_A_LOST_LAUNCHER = BY_LAUNCHER | {SIGHUP, SIGPIPE}
"""Signals that end ranks whose launcher is gone."""


def ends_of(plan: LaunchPlan | JobRecord, progress: Progress) -> tuple[RankEnd, ...]:
    """The end of every rank, in rank order; without an exit code where its end was not recorded."""
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
    """The progress without failures that the job has survived.

    These are the ends on nodes that it gave up and, while it goes on, of ranks that start again.
    Of a failed job everything counts: its failure may have begun on such a node.
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
    """Notes about lost nodes and restarts of ranks, by time."""

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
    """Detects from a job's events that it has started or is about to end."""

    def has_started(self, progress: Progress) -> bool:
        """Whether all ranks that it needs have started."""
        ...

    def will_end(self, event: Event, progress: Progress) -> bool:
        """Whether its launcher ends soon after `event`."""
        ...


class WholeJobLifecycle:
    """A job that needs all of its ranks."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def has_started(self, progress: Progress) -> bool:
        """Every rank has."""
        return len(progress.started) == self._ranks

    def will_end(self, event: Event, progress: Progress) -> bool:
        """A rank failed or is being ended, or all have ended."""
        match event:
            case RankEnded(exit_code=code):
                return bool(code) or len(progress.ended) == self._ranks
            case StopAsked() | EndingBegan() | RankEndingBegan():
                return True
            case _:
                return False


class ElasticLifecycle:
    """An elastic job: ranks may restart, and nodes may leave."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._node_ranks = {rank.rank: plan.nodes.index(rank.node) for rank in plan.ranks}

    def has_started(self, progress: Progress) -> bool:
        """The first rank has: it waits for the other nodes that are needed."""
        return 0 in progress.started

    def will_end(self, event: Event, progress: Progress) -> bool:
        """The primary ends it, or all ranks have ended well on the nodes that are left."""
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
    """The lifecycle of the planned kind of job."""
    return (
        WholeJobLifecycle(len(plan.ranks))
        if plan.request.min_nodes is None
        else ElasticLifecycle(plan)
    )
