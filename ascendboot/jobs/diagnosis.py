"""Finds the cause of a job's failure, and the rank that failed first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM
from typing import Final

from ascendboot.jobs.error_codes import known_of_launcher
from ascendboot.jobs.evidence import Collector
from ascendboot.jobs.first_cause import first_cause
from ascendboot.jobs.progress import OF_A_LOST_LAUNCHER, Progress, signal_of
from ascendboot.launch.events import ENDING
from ascendboot.launch.plan import JobRecord, LaunchPlan
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.job import CauseKind, Followed, JobCause, RankEnd
from ascendboot.model.names import ranks_named

_LOST_BY_TORCHRUN: Final = re.compile(
    re.escape(ENDING) + r"(\S+): (?:lost it|heard nothing|torchrun ended with (\d+); nodes left)"
)
_LOOK: Final = (
    "see whether the node, and its container, still run and have room: dmesg -T, docker ps -a, df"
)


def diagnose(
    plan: LaunchPlan | JobRecord,
    progress: Progress,
    ends: tuple[RankEnd, ...],
    launcher_words: tuple[str, ...],
    lost: tuple[str, ...],
    *,
    folder: Path,
    clocks: NodeClocks,
) -> JobCause | None:
    """Why the job failed; `lost` are the nodes that mpirun lost."""
    words = next((w for w in launcher_words if _LOST_BY_TORCHRUN.search(w)), "")
    if match := _LOST_BY_TORCHRUN.search(words):
        cause = _lost_nodes(plan, (match[1],), words, killed_by=signal_of(int(match[2] or 0)))
    elif lost:
        cause = _lost_nodes(plan, lost, "", killed_by=None)
    else:
        collector = Collector(plan, progress, folder=folder, clocks=clocks)
        found = first_cause(
            collector.evidence(ends),
            collector.named_by_launcher(),
            uncertainty_s=2 * clocks.uncertainty_s,  # between two nodes
        )
        if found is None:
            found = _failed_launcher(plan, progress, launcher_words)
        elif progress.launcher_over and progress.launcher_code is None and not found.words:
            # Signals that end ranks with a launcher that is gone are no cause.
            signals = {end.signal for end in ends if end.rank in found.ranks}
            found = None if signals <= OF_A_LOST_LAUNCHER else found
        if found is None:
            return None
        cause = found
    # A node with a full disk may be lost, and its ranks may not log why they fail.
    full = [node for node in cause.nodes if node in progress.full_disks]
    if not full or (cause.meaning and cause.kind is not CauseKind.NODE):
        return cause
    meanings = [*filter(None, [cause.meaning]), f"the disk of {', '.join(full)} is full"]
    return replace(cause, meaning="; ".join(meanings), remedy="make room there: df -h")


def first_failure(
    plan: LaunchPlan | JobRecord,
    progress: Progress,
    ends: tuple[RankEnd, ...],
    cause: JobCause | None,
    clocks: NodeClocks,
) -> tuple[RankEnd, int] | None:
    """The rank of the cause, or else the first to fail; and the exit code of the whole job."""

    def followed(end: RankEnd) -> bool:
        return progress.was_ended(end.rank, plan.nodes.index(end.node))

    def ended_at(end: RankEnd) -> tuple[float, int]:
        # Without a recorded end the launcher named this rank: then it was the first.
        seen = progress.ended.get(end.rank)
        return (clocks.here(end.node, seen.at) if seen else 0.0, end.rank)

    failed = sorted((end for end in ends if end.exit_code), key=ended_at)
    earliest = next((end for end in failed if not followed(end)), None)
    first = earliest
    if cause is not None and cause.kind not in (CauseKind.NODE, CauseKind.ONE_OF):
        first = next((end for end in failed if end.rank in cause.ranks), earliest)
    if first is None:
        return None
    was_ended = followed(first) or first.signal == SIGTERM
    ended_job = earliest if earliest is not None and was_ended else first
    return first, ended_job.exit_code or 1


def _failed_launcher(
    plan: LaunchPlan | JobRecord, progress: Progress, words: tuple[str, ...]
) -> JobCause | None:
    """Where no rank failed: a known error of the launcher."""
    code = progress.launcher_code
    known = known_of_launcher(words) if progress.launcher_over and code else None
    if known is None:
        return None
    line, meaning = known
    return JobCause(
        kind=CauseKind.LAUNCHER,
        title=f"{plan.primary}: the launcher failed, with exit code {code}",
        ranks=(),
        nodes=(plan.primary,),
        words=line,
        source="launcher.log",
        meaning=meaning.meaning,
        remedy=meaning.remedy,
        why="no rank failed before it was ended",
    )


def _lost_nodes(
    plan: LaunchPlan | JobRecord, nodes: tuple[str, ...], words: str, *, killed_by: int | None
) -> JobCause:
    ranks = {node: tuple(rank.rank for rank in plan.ranks_on(node)) for node in nodes}
    titles = (
        f"{node}: was lost in the middle of the job, with {ranks_named(ranks[node])}"
        for node in nodes
    )
    others = tuple(rank.rank for rank in plan.ranks if rank.node not in nodes)
    meaning = "the launcher has no contact with it any more"
    why = "no end of any of its ranks was seen"
    if killed_by:
        meaning = f"a signal ended torchrun there: {killed_by}"
        why = "the ranks of other nodes failed after that"
    return JobCause(
        kind=CauseKind.NODE,
        title="; ".join(titles),
        ranks=tuple(rank for node in nodes for rank in ranks[node]),
        nodes=nodes,
        words=words,
        source="launcher.log",
        meaning=meaning,
        remedy=_LOOK,
        why=why,
        followed=(Followed(others, "ended with the job"),) if others else (),
    )
