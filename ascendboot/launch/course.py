"""Course: what has been seen of a job so far, event by event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.launch.arrivals import Arrivals
    from ascendboot.launch.events import Event


@dataclass(kw_only=True)
class Course:
    """What has been seen of a job so far."""

    started: set[int] = field(default_factory=set)
    ended: dict[int, RankEnded] = field(default_factory=dict)
    told: dict[int, bytes] = field(default_factory=dict)
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
    lives: list[RankNumbered] = field(default_factory=list)
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
    def has_trouble(self) -> bool:
        """Whether anything of it was seen to fail."""
        return bool(
            (self.launcher_over and self.launcher_code != 0)
            or self.endings
            or any(end.exit_code for end in self.ended.values())
        )

    def was_ended(self, rank: int, node_rank: int) -> bool:
        """Whether a rank of that node ended because it was ended on purpose."""
        seen = self.ended.get(rank)
        return seen is not None and seen.at >= self.ending_began(rank, node_rank)

    def ending_began(self, rank: int, node_rank: int) -> float:
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
                self.told[rank] = error
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
        for known in (self.ended, self.told, self.rank_endings):
            known.pop(rank, None)
        self.log_begins[rank] = numbered.log_bytes
        if rank == 0:
            self.lives.append(numbered)
