"""The progress of a job according to its events."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from signal import SIGHUP, SIGKILL, SIGPIPE, SIGTERM

from ascendboot.jobs.loss import BadLoss
from ascendboot.launch import events
from ascendboot.launch.plan import Job
from ascendboot.value import Struct, field, replace

_APART_S = 0.2
_MOST_MARKS = 600
PRECISION_S = 0.5
"""Nodes poll for new output five times a second and send it in blocks."""


class Arrivals:
    """When a log had which size, by the control machine's clock; old entries are thinned out."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._times: list[float] = []
        self._begun = float("-inf")
        self.first: float | None = None
        self.last: float | None = None
        self.longest_s = 0.0
        """The longest time between two arrivals."""
        self.longest_since: float | None = None

    def note(self, size: int, at: float) -> None:
        """The log has `size` bytes now."""
        self.first = at if self.first is None else self.first
        before, self.last = at if self.last is None else self.last, at
        if at - before > self.longest_s:
            self.longest_s, self.longest_since = at - before, before
        if at - self._begun < _APART_S:
            self._sizes[-1], self._times[-1] = size, at
            return
        self._begun = at
        self._sizes.append(size)
        self._times.append(at)
        if len(self._sizes) > _MOST_MARKS:
            del self._sizes[: _MOST_MARKS // 2 : 2], self._times[: _MOST_MARKS // 2 : 2]

    def of(self, offset: int) -> float | None:
        """Return the latest time at which the byte at `offset` arrived; None: it did not."""
        index = bisect_right(self._sizes, offset)
        return self._times[index] if index < len(self._times) else None


class Progress(Struct, kw_only=True):
    """The state of a job after its events so far."""

    started: set[int] = field(default_factory=set)
    on_start: Callable[[int], None] = lambda _up: None
    """Gets the number of ranks that are up whenever one starts."""
    began: dict[int, float] = field(default_factory=dict)
    """When the starts of ranks were seen, by the clock of the control machine."""
    ended: dict[int, events.RankEnded] = field(default_factory=dict)
    error_files: dict[int, bytes] = field(default_factory=dict)
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)
    """When which part of which log arrived, where the job was followed."""
    launcher_over: bool = False
    launcher_code: int | None = None
    launcher_ended_at: float | None = None
    """By the primary's clock."""
    endings: dict[int, float] = field(default_factory=dict)
    """By node rank: since when, by its clock, the ranks there were ended on purpose."""
    rank_endings: dict[int, float] = field(default_factory=dict)
    """By rank: since when, by its node's clock, it was ended on purpose."""
    is_overdue: bool = False
    """The launcher did not end in time, and ascendboot ended it."""
    overdue: events.StartOverdue | None = None
    """Why it was ended before all ranks had started."""
    interrupted: bool = False
    stopped: bool = False
    """`stop` ended it."""
    hung: str = ""
    """Why it was stopped as hung; empty when it was not."""
    replaced: str = ""
    """Why a supervisor ended it, in order to start the next generation."""
    not_started: str = ""
    """Why the job was not started; empty when it was."""
    lost: dict[str, str] = field(default_factory=dict)
    """The nodes whose loss ended the job, and what was seen."""
    unverified: set[str] = field(default_factory=set)
    """The nodes on which processes of the job may still run."""
    losses: tuple[BadLoss, ...] = ()
    full_disks: dict[str, str] = field(default_factory=dict)
    """The job's folder by node whose disk is almost full."""
    unsure: tuple[str, ...] = ()
    """Why processes of the job may still run."""
    notes: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether anything of it failed."""
        return bool(
            (self.launcher_over and self.launcher_code != 0)
            or self.endings
            or self.lost
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

    def note(self, event: events.Event) -> None:
        """Add an event of any node."""
        match event:
            case events.RankStarted(rank=rank):
                self.started.add(rank)
                self.on_start(len(self.started))
            case events.RankEnded(rank=rank):
                self.started.add(rank)
                self.ended[rank] = event
            case events.RankErrorFile(rank=rank, error=error):
                self.error_files[rank] = error
            case events.RankEndingBegan(rank=rank, at=at):
                self.rank_endings.setdefault(rank, at)
            case events.LauncherEnded(exit_code=code, at=at):
                self.launcher_over, self.launcher_code, self.launcher_ended_at = True, code, at
            case events.EndingBegan(node_rank=node_rank, at=at):
                self.endings[node_rank] = at
            case events.StopRequested():
                self.stopped = True
            case events.StartOverdue(late=late, awaited=awaited):
                first = self.overdue or event  # under torchrun each node records its own
                late = tuple(sorted({*first.late, *late}))
                self.overdue = replace(first, late=late, awaited=first.awaited or awaited)
            case _:
                pass  # starts of launchers, and agents, change nothing here


SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a process."""
_HIGHEST_SIGNAL = 64
BY_LAUNCHER = frozenset({SIGTERM, SIGKILL})
OF_A_LOST_LAUNCHER = BY_LAUNCHER | {SIGHUP, SIGPIPE}


def signal_of(exit_code: int) -> int | None:
    """Return the signal for a shell's exit code; None if no signal ended the process."""
    number = exit_code - SIGNALLED
    return number if 0 < number <= _HIGHEST_SIGNAL else None


def has_started(plan: Job, progress: Progress) -> bool:
    """Whether all ranks have started."""
    return len(progress.started) == len(plan.ranks)


def will_end(plan: Job, event: events.Event, progress: Progress) -> bool:
    """Whether the launcher ends soon: after an order, a failure, or the end of all ranks."""
    if isinstance(event, events.RankEnded):
        return bool(event.exit_code) or len(progress.ended) == len(plan.ranks)
    return isinstance(event, events.StopRequested | events.EndingBegan | events.RankEndingBegan)


_KILLED = (
    re.compile(r"process rank (\d{1,7}) with PID \d+ on node \S+ exited on\s+signal (\d{1,3})"),
    re.compile(r"rank\s*: (\d{1,7}) \(local_rank: \d+\)\s+exitcode\s*: -(\d{1,3}) "),
)
"""Messages of mpirun (4.1) and torchrun (2.13) about a rank that a signal ended."""


def codes_of_killed(texts: Iterable[str]) -> dict[int, int]:
    """Return the exit codes of the ranks that signals ended, as launchers report them."""
    found = (match for text in texts for form in _KILLED for match in form.findall(text))
    codes = {int(rank): SIGNALLED + int(signal) for rank, signal in found}
    return {rank: code for rank, code in codes.items() if signal_of(code) is not None}
