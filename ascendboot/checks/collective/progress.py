"""Follows a collective run: which rank has got how far."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from signal import SIGTERM
from typing import TYPE_CHECKING, Any, Final

from ascendboot.checks.collective import rank as rank_module
from ascendboot.checks.collective.rank import COME_S, HEAR_S, MARK
from ascendboot.checks.finding import Finding, Level, error
from ascendboot.errors import NodeError, NotUnderstoodError
from ascendboot.jobs.start import not_started_anywhere
from ascendboot.launch.launchers.registry import traits_of
from ascendboot.launch.plan import rank_log
from ascendboot.model.job import CauseKind, JobReport, JobState
from ascendboot.model.names import ranks_named
from ascendboot.transport.api import Command, Effect, Transport
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from ascendboot.launch.request import LaunchRequest
    from ascendboot.model.cluster import Placement

STAGES = ("", "start", *rank_module.STAGES)
"""What a rank does, in this order; empty: nothing was heard of it."""


@dataclass(frozen=True)
class Place:
    """Where a rank should be."""

    rank: int
    node: str
    server_id: str
    device_id: int
    local_rank: int
    env: Mapping[str, str] = field(default_factory=dict)
    """What the inventory states for its node alone."""


@dataclass(frozen=True, kw_only=True)
class RankNotes:
    """One rank's words."""

    at: str = ""
    """The last of `STAGES` that it began."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """As the program on the nodes gives them; empty: it never came so far."""
    digest: str = ""
    """Of the facts as they were written."""
    library: str = ""
    """Through which it met the others, with its version."""
    digests: tuple[str, ...] = ()
    """What all ranks gave to this one, in the order of the collective."""
    wrong: tuple[float, ...] = ()
    """Place, value and right value of the first wrong number of the sum."""
    clock: float | None = None
    """The time of its node just after the sum."""
    failed: str = ""
    """Why it gave up, in the stage `at`."""
    after_s: float = 0.0
    """How long it had been in that stage when it gave up."""
    silent: int | None = None
    """The rank that it did not hear."""
    is_late: bool = False
    """It took too long for the stage, and so it ended itself."""
    others: tuple[str, ...] = ()
    """What else is in its log."""


def places(placement: Placement) -> tuple[Place, ...]:
    """Where every rank should be, in rank order."""
    return tuple(
        Place(
            rank,
            slot.node.name,
            slot.node.server_id,
            slot.device_id,
            slot.local_rank,
            slot.node.env,
        )
        for rank, slot in enumerate(placement.slots)
    )


def read(folder: Path, ranks: Sequence[int]) -> dict[int, RankNotes]:
    """What each rank said, by the copies of the logs in a folder; a rank without one said nothing.

    Raises:
        NotUnderstoodError: a note has another form than the program on the nodes gives it.
    """
    return {rank: rank_notes(_text(folder / rank_log(rank))) for rank in ranks}


def rank_notes(text: str) -> RankNotes:
    """What a rank said, by the text of its log; a last line that has no end yet does not count.

    Raises:
        NotUnderstoodError: as for `read`.
    """
    known: dict[str, Any] = {"at": ""}
    others = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        # What a library writes without an end of the line stands before.
        before, mark, rest = line.partition(MARK)
        if before.strip():
            others.append(before)
        if mark:
            try:
                known.update(_noted(json.loads(rest)))
            except (KeyError, TypeError, ValueError) as error:
                raise NotUnderstoodError(
                    "the preflight's notes", number, line[:200], "a stage and what belongs to it"
                ) from error
    is_late = any(line.startswith("Timeout (") for line in others)
    return RankNotes(**known, is_late=is_late, others=tuple(others))


def _noted(note: Mapping[str, Any]) -> dict[str, Any]:
    """What a note adds to all before it."""
    if not note:
        raise ValueError(note)
    known = {name: _READ[name](value) for name, value in dict(note).items()}
    if "facts" in note:
        known["digest"] = sha256(note["facts"].encode()).hexdigest()
    return known


def _stage(name: str) -> str:
    if name not in STAGES:
        raise ValueError(name)
    return name


def _listed(values: Sequence[Any] | None) -> tuple[Any, ...]:
    return tuple(values or ())


def _as_it_is(value: Any) -> Any:  # noqa: ANN401 (a JSON value)
    return value


_READ: Mapping[str, Callable[[Any], Any]] = {
    "at": _stage,
    "facts": json.loads,
    "library": str,
    "digests": _listed,
    "wrong": _listed,
    "clock": float,
    "failed": str,
    "after_s": float,
    "silent": _as_it_is,
}
"""What a note may hold, and how it is read."""


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""


def ranks_shown(ranks: Collection[int], places: Sequence[Place]) -> str:
    """`ranks 8-15`; of one alone also the device."""
    if len(ranks) == 1:
        [rank] = ranks
        return f"rank {rank} on device {places[rank].device_id}"
    return ranks_named(ranks)


def nodes_of(ranks: Collection[int], places: Sequence[Place]) -> tuple[str, ...]:
    """Names of the nodes of some ranks, in rank order."""
    return tuple(dict.fromkeys(places[rank].node for rank in sorted(ranks)))


MODULES: Final = {"mpi": "mpi4py", "gloo": "torch"}
"""By the way in which the ranks meet."""
NEEDED: Final = {
    "mpi": "mpi4py, built with the Open MPI of mpirun",
    "gloo": "torch with gloo",
}
"""The same for a person."""

_LOOK = r"""
[ ! -r "$1/env/node.env" ] || . "$1/env/node.env" >/dev/null 2>&1
shift
exec "$@" </dev/null
"""
_LACKS = """\
import importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is None:
        print("lacks", name)
"""


def ways(request: LaunchRequest) -> tuple[str, ...]:
    """What the ranks may meet by, the first that is there: `mpi`, `gloo`; torchrun has gloo."""
    return traits_of(request.launcher).collective_ways


def lacks(
    request: LaunchRequest, transports: Mapping[str, Transport], *, forks: int
) -> dict[str, frozenset[str]]:
    """By node: the ways in which its ranks cannot meet any other, for want of the library.

    One that cannot be asked, or has no such Python, is left out: making it ready for the preflight
    says what is wrong.
    """
    wanted = {MODULES[way]: way for way in ways(request)}
    python = (request.python, "-c", _LACKS, *wanted)
    command = Command(
        argv=("bash", "-c", _LOOK, "look", str(request.base), *python),
        purpose="see by what ranks can meet",
        effect=Effect.READ,
    )
    found = {}
    nodes = [node.name for node in request.placement.nodes]
    for node, answer in on_each(nodes, lambda n: transports[n].run(command), forks=forks).items():
        if isinstance(answer, NodeError) or not answer.as_expected:
            continue
        lines = answer.lines
        found[node] = frozenset(way for name, way in wanted.items() if f"lacks {name}" in lines)
    return found


def chosen_way(request: LaunchRequest, lacking: Mapping[str, Collection[str]]) -> str:
    """The first way that any node has, else the first: then it is said who lacks it."""
    possible = ways(request)
    return next(
        (way for way in possible if any(way not in of_node for of_node in lacking.values())),
        possible[0],
    )


def no_library(way: str, python: str, lacking: Mapping[str, Collection[str]]) -> Finding | None:
    """That some nodes lack what the ranks were to meet by; None where all have it."""
    nodes = tuple(node for node, of_node in lacking.items() if way in of_node)
    if not nodes:
        return None
    # What only some lack is what the others have: they would not meet by anything else.
    other = " (or torch, for gloo)" if way == "mpi" and len(nodes) == len(lacking) else ""
    return error(
        "preflight-not-run",
        nodes,
        f"the preflight could not be run: no module {MODULES[way]} for {python}",
        f"It needs {NEEDED[way]}{other}; install it there, or state another code.python",
    )


# Pure: from the notes of the ranks and the launcher's report.

DOING = {
    "start": "before it loaded the library of the collective",
    "load": "while it loaded the library of the collective",
    "meet": "while it met the others",
    "neighbours": "while it talked with the next node",
    "gather": "in the gather",
    "sum": "in the allreduce",
    "done": "at the very end",
}
"""What a rank was doing in each stage."""
_CONNECT = (
    "Let all ports between the nodes through, and see with check whether they reach each other"
)
_ALONE = "See what holds it up on its own node; its log is in the run's folder"


def collective_findings(
    places: Sequence[Place], said: Mapping[int, RankNotes], report: JobReport, *, by: str
) -> Iterator[Finding]:
    """Everything for which the ranks did not meet, or not as they should; nothing if they did."""
    if report.state is JobState.NOT_STARTED:
        yield _not_started(places, report)
        return
    if report.state in (JobState.INTERRUPTED, JobState.STOPPED):
        return
    missed = _missed(said)
    told = {rank: one for rank, one in said.items() if rank not in missed}
    blamed = [
        *_silences(places, said),
        *_failures(places, told, by),
        *_ended(places, said, report),
    ]
    yield from blamed or _hang(places, said, report, missed)
    yield from _strangers(places, said)
    yield from _sums(places, said)


def _not_started(places: Sequence[Place], report: JobReport) -> Finding:
    lines = [
        line for line in report.message.splitlines() if line != not_started_anywhere(report.job_id)
    ]
    return error(
        "preflight-not-run",
        nodes_of(range(len(places)), places),
        "the preflight could not be run: " + "; ".join(lines),
    )


def _silences(places: Sequence[Place], said: Mapping[int, RankNotes]) -> Iterator[Finding]:
    for rank, one in said.items():
        if one.silent is not None:
            here, there = places[rank].node, places[one.silent].node
            who = f"{ranks_shown([rank], places)} of {here}"
            whom = f"{ranks_shown([one.silent], places)} of {there}"
            yield error(
                "preflight-silent",
                tuple(dict.fromkeys((here, there))),
                f"{who}: heard nothing from {whom} within {HEAR_S:g} s",
                _CONNECT,
            )


def _missed(said: Mapping[int, RankNotes]) -> Mapping[int, RankNotes]:
    """Those that gave up only because others had not even begun to meet them."""
    meet = STAGES.index("meet")
    if all(STAGES.index(one.at) >= meet for one in said.values()):
        return {}
    return {
        rank: one
        for rank, one in said.items()
        if one.at == "meet" and one.failed and one.after_s >= COME_S
    }


def _failures(places: Sequence[Place], said: Mapping[int, RankNotes], by: str) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[int]] = {}
    for rank, one in said.items():
        if one.failed and one.silent is None:
            groups.setdefault((one.at, one.failed), []).append(rank)
    for (at, why), ranks in groups.items():
        remedy = f"Install {NEEDED[by]} there" if at == "load" else _CONNECT
        yield _finding(places, ranks, f"failed {DOING[at]}: {why}", remedy)


def _ended(
    places: Sequence[Place], said: Mapping[int, RankNotes], report: JobReport
) -> Iterator[Finding]:
    """The rank that ended first, where it neither said why nor took too long."""
    end = report.first_failure
    if end is None:
        return
    one = said[end.rank]
    if one.failed or one.is_late:
        return
    if end.signal == SIGTERM and report.cause and report.cause.kind is CauseKind.LEFT:
        return  # the others missed it, and it was ended with them
    how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
    where = DOING.get(one.at, "before it said anything")
    last = f": {one.others[-1]}" if one.others else ""
    words = f"ended with {how} {where}{last}"
    yield _finding(places, [end.rank], words, f"Read its log: {end.log}")


def _hang(
    places: Sequence[Place],
    said: Mapping[int, RankNotes],
    report: JobReport,
    missed: Mapping[int, RankNotes],
) -> Iterator[Finding]:
    """The ranks that came least far, where the meeting did not end."""
    first = min(STAGES.index(one.at) for one in said.values())
    if report.exit_code == 0 and STAGES[first] == "done":
        return
    behind = [rank for rank, one in said.items() if STAGES.index(one.at) == first]
    others = f"{ranks_shown(missed, places)} waited in vain" if missed else "nobody failed"
    by_launcher = f" ({'; '.join(report.message.splitlines())})" if report.message else ""
    level: Level = "error"
    if not first:
        words = "never came: nothing was heard of it" + (f"; {others}" if missed else "")
        remedy = "See whether the node runs, and read the launcher's log"
    elif STAGES[first] == "done":
        words, remedy = "had the sum, and the end took too long", "Read the launcher's log"
        if all(end.exit_code == 0 for end in report.ranks):
            level = "warning"
    else:
        words = f"came no further, {DOING[STAGES[first]]}; {others}"
        remedy = _CONNECT if first >= STAGES.index("meet") else _ALONE
    yield _finding(places, behind, words + by_launcher, remedy, level=level)


def _strangers(places: Sequence[Place], said: Mapping[int, RankNotes]) -> Iterator[Finding]:
    """Ranks whose words came to rank 0 by the collective other than they stand in their logs."""
    for one in said.values():
        odd = [
            rank
            for rank, digest in enumerate(one.digests)
            if rank in said and said[rank].digest != digest
        ]
        if odd:
            words = "gave something else to the gather than it wrote into its log"
            yield _finding(places, odd, words, "The launcher and the collective number otherwise")


def _sums(places: Sequence[Place], said: Mapping[int, RankNotes]) -> Iterator[Finding]:
    groups: dict[tuple[float, ...], list[int]] = {}
    for rank, one in said.items():
        if one.wrong:
            groups.setdefault(one.wrong, []).append(rank)
    for (place, value, right), ranks in groups.items():
        words = f"got a wrong sum: number {place:.0f} is {value:g} and should be {right:g}"
        yield error(
            "preflight-sum",
            nodes_of(ranks, places),
            f"{ranks_shown(ranks, places)}: {words}",
            "Memory or network of these nodes alter data: take them out and test them",
        )


def _finding(
    places: Sequence[Place],
    ranks: Sequence[int],
    words: str,
    remedy: str,
    *,
    level: Level = "error",
) -> Finding:
    return Finding(
        id="preflight-failed",
        level=level,
        nodes=nodes_of(ranks, places),
        text=f"{ranks_shown(ranks, places)}: {words}",
        remedy=remedy,
    )
