"""How the meeting of a preflight went: who did not come, failed, was not heard, or got a wrong sum.

Pure: from the notes of the ranks and the launcher's report.
"""

from __future__ import annotations

from signal import SIGTERM
from typing import TYPE_CHECKING

from ascendboot.judge.finding import Finding
from ascendboot.launch.prepare import nowhere
from ascendboot.model.cause import CauseKind
from ascendboot.model.job import JobState
from ascendboot.preflight.library import NEEDED
from ascendboot.preflight.notes import STAGES
from ascendboot.preflight.program import COME_S, HEAR_S
from ascendboot.preflight.who import nodes_of, ranks_shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.judge.finding import Level
    from ascendboot.model.job import JobReport
    from ascendboot.preflight.notes import Place, Said

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


def course(
    places: Sequence[Place], said: Mapping[int, Said], report: JobReport, *, by: str
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
    lines = [line for line in report.message.splitlines() if line != nowhere(report.job_id)]
    return Finding(
        id="preflight-not-run",
        level="error",
        nodes=nodes_of(range(len(places)), places),
        text="the preflight could not be run: " + "; ".join(lines),
    )


def _silences(places: Sequence[Place], said: Mapping[int, Said]) -> Iterator[Finding]:
    for rank, one in said.items():
        if one.silent is not None:
            here, there = places[rank].node, places[one.silent].node
            who = f"{ranks_shown([rank], places)} of {here}"
            whom = f"{ranks_shown([one.silent], places)} of {there}"
            yield Finding(
                id="preflight-silent",
                level="error",
                nodes=tuple(dict.fromkeys((here, there))),
                text=f"{who}: heard nothing from {whom} within {HEAR_S:g} s",
                remedy=_CONNECT,
            )


def _missed(said: Mapping[int, Said]) -> Mapping[int, Said]:
    """Those that gave up only because others had not even begun to meet them."""
    meet = STAGES.index("meet")
    if all(STAGES.index(one.at) >= meet for one in said.values()):
        return {}
    return {
        rank: one
        for rank, one in said.items()
        if one.at == "meet" and one.failed and one.after_s >= COME_S
    }


def _failures(places: Sequence[Place], said: Mapping[int, Said], by: str) -> Iterator[Finding]:
    groups: dict[tuple[str, str], list[int]] = {}
    for rank, one in said.items():
        if one.failed and one.silent is None:
            groups.setdefault((one.at, one.failed), []).append(rank)
    for (at, why), ranks in groups.items():
        remedy = f"Install {NEEDED[by]} there" if at == "load" else _CONNECT
        yield _finding(places, ranks, f"failed {DOING[at]}: {why}", remedy)


def _ended(
    places: Sequence[Place], said: Mapping[int, Said], report: JobReport
) -> Iterator[Finding]:
    """The rank that ended first, where it neither said why nor took too long."""
    failure = report.first_failure
    if failure is None:
        return
    end = failure.end
    one = said[end.rank]
    if one.failed or one.is_late:
        return
    if end.signal == SIGTERM and report.cause and report.cause.kind is CauseKind.LEFT:
        return  # the others missed it, and it was ended with them
    how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
    where = DOING.get(one.at, "before it said anything")
    last = f": {one.others[-1]}" if one.others else ""
    words = f"ended with {how} {where}{last}"
    yield _finding(places, [end.rank], words, f"Read its log: {failure.log}")


def _hang(
    places: Sequence[Place],
    said: Mapping[int, Said],
    report: JobReport,
    missed: Mapping[int, Said],
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


def _strangers(places: Sequence[Place], said: Mapping[int, Said]) -> Iterator[Finding]:
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


def _sums(places: Sequence[Place], said: Mapping[int, Said]) -> Iterator[Finding]:
    groups: dict[tuple[float, ...], list[int]] = {}
    for rank, one in said.items():
        if one.wrong:
            groups.setdefault(one.wrong, []).append(rank)
    for (place, value, right), ranks in groups.items():
        words = f"got a wrong sum: number {place:.0f} is {value:g} and should be {right:g}"
        yield Finding(
            id="preflight-sum",
            level="error",
            nodes=nodes_of(ranks, places),
            text=f"{ranks_shown(ranks, places)}: {words}",
            remedy="Memory or network of these nodes alter data: take them out and test them",
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
