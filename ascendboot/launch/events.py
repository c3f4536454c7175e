"""Reads what the nodes record of a job: its events, and samples of what its ranks use."""

from __future__ import annotations

import base64
import logging
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ascendboot.errors import NotUnderstoodError
from ascendboot.model.names import fold, ranks_named

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ascendboot.launch.plan import JobRecord, LaunchPlan

_PID = re.compile(r"(rank|launcher|agent|supervisor) (\d+|-) pid (\d+) start (\d+)")
_LATE = re.compile(
    r"(?:launcher -|agent \d+) late (\d+(?:,\d+)*) awaited (\d+(?:,\d+)*|-)"
    r" after (\d+) at (\d+\.\d+)"
)
_STOP = re.compile(r"launcher - stop at (\d+\.\d+)")
_ENDING = re.compile(r"(launcher|agent|rank) (\d+|-) ends at (\d+\.\d+)")
_LEFT = re.compile(r"agent (\d+) left at (\d+\.\d+): (.+)")
_NUMBERED_ANEW = re.compile(r"rank (\d+) is (\d+) of (\d+) from (\d+) at (\d+\.\d+)")
_LOST = re.compile(r"agent (\d+) lost")
_EXIT = re.compile(
    r"(rank|launcher|agent) (\d+|-) exit (\d+) at (\d+\.\d+)"
    r"(?: zone ([+-])(\d\d)(\d\d))?(?: oom (\d+))?"
)
_TOLD = re.compile(r"rank (\d+) error ([A-Za-z0-9+/=]*)")
_NUMBERED = ("rank", "agent")
_SAMPLE = re.compile(r"sample (\d+\.\d+)((?: \d+:\S:\d+:\d+)*)")
_KIB = 1024

ENDING: Final = "ascendboot: ends torchrun on this node: "
"""Begins the line in which a supervisor says why; later lines of torchrun are only consequences."""


@dataclass(frozen=True)
class RankStarted:
    """A rank runs."""

    rank: int
    pid: int
    start: int


@dataclass(frozen=True)
class RankNumbered:
    """A rank of an elastic job is about to run, for the first time or again.

    `rank` is its place in the plan, which names its log and its events; `number` is what the
    script finds as its rank.
    """

    rank: int
    number: int
    world_size: int
    log_bytes: int
    """How long its log is: what it says from now on comes after."""
    at: float
    """Seconds since 1970 by its node's clock."""


@dataclass(frozen=True)
class RankEnded:
    """A rank ended; `at` is seconds since 1970 by its node's clock."""

    rank: int
    exit_code: int
    at: float
    zone_s: int | None = None
    """How far its local time was ahead of UTC."""
    out_of_memory: bool = False
    """While it ran the kernel ended processes of its node for want of memory."""


@dataclass(frozen=True)
class RankTold:
    """A rank left an error file, as scripts with torchelastic's `@record` do."""

    rank: int
    error: bytes
    """The file as it was, up to its first 32 kB."""


@dataclass(frozen=True)
class LauncherStarted:
    """The launcher runs on the primary."""

    pid: int
    start: int


@dataclass(frozen=True)
class LauncherEnded:
    """The launcher ended, and with it the job; no code when nobody was left to see its end."""

    exit_code: int | None
    at: float | None = None
    """Seconds since 1970 by the primary's clock."""


@dataclass(frozen=True)
class AgentStarted:
    """The launcher's agent runs on a node other than the primary."""

    node_rank: int
    pid: int
    start: int


@dataclass(frozen=True)
class AgentEnded:
    """The agent of a node ended; no code when nobody was left to see its end."""

    node_rank: int
    exit_code: int | None
    at: float | None = None
    """Seconds since 1970 by the node's clock."""


@dataclass(frozen=True)
class NodeLeft:
    """The primary has given up a node of an elastic job."""

    node_rank: int
    at: float
    """Seconds since 1970 by the primary's clock."""
    why: str


@dataclass(frozen=True)
class EndingBegan:
    """From here on the ranks of a node are ended on purpose: they only follow."""

    node_rank: int
    at: float
    """Seconds since 1970 by the node's clock."""


@dataclass(frozen=True)
class RankEndingBegan:
    """From here on one rank is ended on purpose: it only follows."""

    rank: int
    at: float
    """Seconds since 1970 by its node's clock."""


@dataclass(frozen=True)
class StopAsked:
    """Somebody asked for the job's end with `stop`."""

    at: float


@dataclass(frozen=True)
class StartOverdue:
    """The start is given up, because not every rank has begun in time.

    The primary knows it of all nodes; under torchrun each knows it of itself.
    """

    late: tuple[int, ...]
    """The ranks that are known not to have."""
    awaited: tuple[int, ...]
    """Node ranks of those that ssh on the primary waits for: the launcher's, or that which asks."""
    within_s: float
    at: float
    """Seconds since 1970 by the node's clock."""

    def and_also(self, other: StartOverdue) -> StartOverdue:
        """With what another node says."""
        late = tuple(sorted({*self.late, *other.late}))
        return replace(self, late=late, awaited=self.awaited or other.awaited)


@dataclass(frozen=True)
class SupervisorStarted:
    """What waits for the launcher runs."""

    pid: int
    start: int


Event: TypeAlias = (
    RankStarted
    | RankNumbered
    | RankEnded
    | RankTold
    | LauncherStarted
    | LauncherEnded
    | AgentStarted
    | AgentEnded
    | NodeLeft
    | EndingBegan
    | RankEndingBegan
    | StopAsked
    | StartOverdue
    | SupervisorStarted
)


def parse_event(line: str, line_number: int) -> Event:
    """The event that one line stands for.

    Raises:
        NotUnderstoodError: the line is none that a job's wrapper, launcher or follower writes.
    """
    event = _started(line) or _ended(line) or _changed(line)
    if event is None:
        raise NotUnderstoodError(
            "the job's events", line_number, line, "a start or an end of a rank or the launcher"
        )
    return event


def _started(line: str) -> Event | None:
    match = _PID.fullmatch(line)
    if match is None or (match[1] in _NUMBERED) == (match[2] == "-"):
        return None
    who, number, pid, start = match.groups()
    if who == "rank":
        return RankStarted(int(number), int(pid), int(start))
    if who == "agent":
        return AgentStarted(int(number), int(pid), int(start))
    kind = LauncherStarted if who == "launcher" else SupervisorStarted
    return kind(int(pid), int(start))


def _ended(line: str) -> Event | None:
    if line == "launcher - lost":
        return LauncherEnded(None)
    if match := _STOP.fullmatch(line):
        return StopAsked(float(match[1]))
    if match := _LOST.fullmatch(line):
        return AgentEnded(int(match[1]), None)
    if match := _TOLD.fullmatch(line):
        return _rank_message_event(match)
    return _ended_at(line)


def _changed(line: str) -> Event | None:
    if match := _NUMBERED_ANEW.fullmatch(line):
        rank, number, size, log_bytes = map(int, match.groups()[:4])
        return RankNumbered(rank, number, size, log_bytes, float(match[5]))
    if match := _LEFT.fullmatch(line):
        return NodeLeft(int(match[1]), float(match[2]), match[3])
    if match := _LATE.fullmatch(line):
        late, awaited = (_numbers(match[group]) for group in (1, 2))
        return StartOverdue(late, awaited, float(match[3]), float(match[4]))
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number != "-")


def _ended_at(line: str) -> Event | None:
    match = _ENDING.fullmatch(line) or _EXIT.fullmatch(line)
    if match is None or (match[1] in _NUMBERED) == (match[2] == "-"):
        return None
    number = 0 if match[2] == "-" else int(match[2])
    if match.re is _ENDING:
        kind = RankEndingBegan if match[1] == "rank" else EndingBegan
        return kind(number, float(match[3]))
    code, at = int(match[3]), float(match[4])
    if match[1] == "rank":
        return RankEnded(number, code, at, _zone_s(match), match[8] not in (None, "0"))
    return AgentEnded(number, code, at) if match[1] == "agent" else LauncherEnded(code, at)


def _zone_s(match: re.Match[str]) -> int | None:
    if match[5] is None:
        return None
    seconds = int(match[6]) * 3600 + int(match[7]) * 60
    return -seconds if match[5] == "-" else seconds


def _rank_message_event(match: re.Match[str]) -> Event | None:
    try:
        return RankTold(int(match[1]), base64.b64decode(match[2], validate=True))
    except ValueError:
        return None


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


def overdue_message(plan: LaunchPlan | JobRecord, overdue: StartOverdue) -> str:
    """Say why the primary ended a start."""
    awaited = [plan.nodes[number] for number in overdue.awaited]
    seen = f"ssh from {plan.nodes[0]} waits for {fold(awaited)}; " if awaited else ""
    return not_started_message(plan, overdue.late, overdue.within_s, seen)


def not_started_message(
    plan: LaunchPlan | JobRecord, missing: Collection[int], within_s: float, seen: str = ""
) -> str:
    """Say that a start was abandoned because these ranks did not begin."""
    nodes = dict.fromkeys(rank.node for rank in plan.ranks if rank.rank in missing)
    return (
        f"{fold(nodes)}: could not start {ranks_named(missing)} of job {plan.job_id} "
        f"within {within_s:g} s: "
        f"the launcher has not begun them; {seen}its log is "
        f"{plan.job_folder}/launcher.log"
    )


@dataclass(frozen=True, kw_only=True)
class RankUse:
    """What one rank uses, with all its descendants."""

    rank: int
    state: str
    """State of its own process, one letter as `ps` shows it."""
    cpu_s: float
    """Since it began."""
    memory_bytes: int
    """Resident; memory that its processes share counts for each of them."""


@dataclass(frozen=True, kw_only=True)
class NodeSample:
    """What the ranks of a node use at one moment."""

    at_s: float
    """Seconds since the node booted."""
    ranks: tuple[RankUse, ...]
    """Running ranks, ascending."""
    wrote: bool = False
    """Whether any rank of the node wrote output since the previous sample."""


def parse_sample(line: str, *, wrote: bool = False) -> NodeSample | None:
    """Parse a line of `sample` in rank-usage.sh; None when it is incomplete."""
    match = _SAMPLE.fullmatch(line)
    if match is None:
        return None
    ranks = (_rank_use(*word.split(":")) for word in match[2].split())
    return NodeSample(
        at_s=float(match[1]), ranks=tuple(sorted(ranks, key=lambda use: use.rank)), wrote=wrote
    )


def _rank_use(rank: str, state: str, milliseconds: str, kib: str) -> RankUse:
    return RankUse(
        rank=int(rank),
        state=state,
        cpu_s=int(milliseconds) / 1000,
        memory_bytes=int(kib) * _KIB,
    )
