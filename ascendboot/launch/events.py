"""Reads what the nodes record of a job: its events, and samples of what its ranks use."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from ascendboot.errors import NotUnderstoodError
from ascendboot.launch.plan import Job
from ascendboot.model.names import fold, ranks_named
from ascendboot.value import Value, from_json

log = logging.getLogger(__name__)

ENDING: Final = "ascendboot: ends torchrun on this node: "
"""Begins the line in which a supervisor gives its reason; later lines are consequences."""


def _zone(text: str | None) -> int | None:
    """Return the seconds ahead of UTC of a zone such as `+0530`."""
    offset = datetime.strptime(text, "%z").utcoffset() if text else None
    return None if offset is None else int(offset.total_seconds())


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "zone_s": _zone,
    "out_of_memory": bool,
    "late": lambda text: text.split(","),
    "awaited": lambda text: [] if text == "-" else text.split(","),
    "node_rank": lambda text: 0 if text == "-" else text,
}
"""How the text of a field is read where it is not just a number, or Base64 for bytes."""

# `at` is in seconds since 1970, by the clock of the node that recorded the event: that of the rank
# or agent, otherwise the primary.


class RankStarted(Value):
    """A rank runs."""

    rank: int


class RankEnded(Value):
    """A rank ended."""

    rank: int
    exit_code: int
    at: float
    zone_s: int | None = None
    """How far its local time was ahead of UTC."""
    out_of_memory: bool = False
    """While it ran, the kernel ended processes of its node because memory was short."""


class RankErrorFile(Value):
    """A rank wrote an error file, as scripts with torchelastic's `@record` do."""

    rank: int
    error: bytes
    """The first 32 kB of the file."""


class RankEndingBegan(Value):
    """From here on one rank is ended on purpose."""

    rank: int
    at: float


class LauncherStarted(Value):
    """The launcher runs on the primary."""


class LauncherEnded(Value):
    """The launcher ended, and with it the job; no code if its end was not observed."""

    exit_code: int | None
    at: float | None = None


class HelperChanged(Value):
    """The supervisor of the launcher runs, or its agent on a node; or that agent ended."""


class EndingBegan(Value):
    """From here on the ranks of a node are ended on purpose."""

    node_rank: int
    at: float


class StopRequested(Value):
    """An operator requested the job's end with `stop`."""

    at: float


class StartOverdue(Value):
    """The start is given up, because not every rank has begun in time.

    The primary records it for all nodes; under torchrun each node records it for itself.
    """

    late: tuple[int, ...]
    """The ranks that are known not to have begun."""
    awaited: tuple[int, ...]
    """Node ranks of the nodes for which an ssh of the primary still waits."""
    within_s: float
    at: float


_RankEvent: TypeAlias = RankStarted | RankEnded | RankErrorFile | RankEndingBegan
_StartEvent: TypeAlias = LauncherStarted | LauncherEnded | HelperChanged
Event: TypeAlias = _RankEvent | _StartEvent | EndingBegan | StopRequested | StartOverdue

_RANK = r"rank (?P<rank>\d{1,9})"
_PID, _AT = r"pid \d+ start \d+", r"at (?P<at>\d{1,10}\.\d+)"
_EXIT = rf"exit (?P<exit_code>\d{{1,9}}) {_AT}"
_IN_ZONE = r"(?: zone (?P<zone_s>[+-]\d{4}))?"
_ANY, _MANY = r"(?:launcher -|agent \d+)", r"\d{1,9}(?:,\d{1,9})*"
_WITHIN = r"(?P<within_s>\d{1,9})"
_LATE = rf"late (?P<late>{_MANY})"
_FORMS: Final[tuple[tuple[type[Event], str], ...]] = (
    (RankStarted, rf"{_RANK} {_PID}"),
    (RankEnded, rf"{_RANK} {_EXIT}{_IN_ZONE}(?: oom (?:0|(?P<out_of_memory>\d{{1,18}})))?"),
    (RankErrorFile, rf"{_RANK} error (?P<error>[A-Za-z0-9+/=]*)"),
    (RankEndingBegan, rf"{_RANK} ends {_AT}"),
    (LauncherStarted, rf"launcher - {_PID}"),
    (LauncherEnded, rf"launcher - (?:lost|{_EXIT})"),
    (HelperChanged, rf"(?:agent \d+|supervisor -) {_PID}"),
    (HelperChanged, r"agent \d+ (?:lost|exit \d+ at \d+\.\d+)"),
    (EndingBegan, rf"(?:launcher (?=-)|agent (?=\d))(?P<node_rank>-|\d{{1,9}}) ends {_AT}"),
    (StopRequested, rf"launcher - stop {_AT}"),
    (StartOverdue, rf"{_ANY} {_LATE} awaited (?P<awaited>{_MANY}|-) after {_WITHIN} {_AT}"),
)
"""The line of each event; the names of its groups are the fields."""


def parse_event(line: str, line_number: int) -> Event:
    """Parse one line of a job's events."""
    for kind, form in _FORMS:
        if match := re.fullmatch(form, line):
            found: dict[str, Any] = match.groupdict()
            try:
                found |= {name: _READ[name](found[name]) for name in found.keys() & _READ.keys()}
                return from_json(found, kind, strict=False)
            except ValueError:
                break
    raise NotUnderstoodError(
        "the job's events", line_number, line, "a start or an end of a rank or the launcher"
    )


class EventReader:
    """Passes on the events that a node writes; logs and drops lines with no known form."""

    def __init__(self, node: str, on_event: Callable[[Event], None]) -> None:
        self._node = node
        self._on_event = on_event
        self._rest = b""
        self._lines = 0
        self.size = 0
        """Number of bytes received."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.size += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in filter(None, lines):
            self._lines += 1
            try:
                event = parse_event(line.decode(errors="replace"), self._lines)
            except NotUnderstoodError as error:
                log.warning("%s: %s", self._node, error)
            else:
                self._on_event(event)


def overdue_message(plan: Job, overdue: StartOverdue) -> str:
    """Describe why the primary ended a start."""
    awaited = [plan.nodes[number] for number in overdue.awaited if number < len(plan.nodes)]
    seen = f"ssh from {plan.nodes[0]} waits for {fold(awaited)}; " if awaited else ""
    return not_started_message(plan, overdue.late, overdue.within_s, seen)


def not_started_message(
    plan: Job, missing: Collection[int], within_s: float, seen: str = ""
) -> str:
    """Describe a start that was given up because these ranks did not begin."""
    nodes = dict.fromkeys(rank.node for rank in plan.ranks if rank.rank in missing)
    return (
        f"{fold(nodes)}: could not start {ranks_named(missing)} of job {plan.job_id} within "
        f"{within_s:g} s: the launcher has not started them; {seen}its log is "
        f"{plan.job_folder}/launcher.log"
    )


class NodeSample(Value, kw_only=True):
    """The processor time that the ranks of a node have used at one moment."""

    at_s: float
    """Seconds since the node booted."""
    cpu_s: Mapping[int, float]
    """Of each running rank with all its descendants, since it began."""
    wrote: bool = False
    """Whether any rank of the node wrote output since the previous sample."""


_SAMPLE = re.compile(r"sample (\d+\.\d+)((?: \d+:\d+)*)")


def parse_sample(line: str, *, wrote: bool = False) -> NodeSample | None:
    """Parse a line of `sample` in rank-usage.sh; None when it is incomplete."""
    match = _SAMPLE.fullmatch(line)
    if match is None:
        return None
    cpu_ms = (word.split(":") for word in match[2].split())
    cpu_s = {int(rank): int(ms) / 1000 for rank, ms in cpu_ms}
    return NodeSample(at_s=float(match[1]), cpu_s=cpu_s, wrote=wrote)
