"""Finds the cause of a job's failure, and the rank that failed first."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from signal import SIGTERM
from typing import TYPE_CHECKING, Final

from ascendboot.jobs.error_codes import known_of_launcher
from ascendboot.jobs.evidence import Collector
from ascendboot.jobs.first_cause import first_cause
from ascendboot.jobs.progress import OF_A_LOST_LAUNCHER, Progress, signal_of
from ascendboot.launch.events import ENDING
from ascendboot.model.job import CauseKind, Followed, JobCause, RankEnd
from ascendboot.model.names import ranks_named

if TYPE_CHECKING:
    from pathlib import Path

    from ascendboot.launch.plan import JobRecord, LaunchPlan
    from ascendboot.model.cluster import NodeClocks

_LOST_BY_TORCHRUN: Final = re.compile(
    re.escape(ENDING) + r"(\S+): (?:lost it|heard nothing|torchrun ended with (\d+); nodes left)"
)
_LOOK: Final = (
    "see whether the node, and its container, still run and have room: dmesg -T, docker ps -a, df"
)
_MAKE_ROOM: Final = "make room there: df -h"


@dataclass(frozen=True)
class Failure:
    """The rank that failed first, and the exit code of the whole job."""

    end: RankEnd
    job_exit_code: int
    is_certain: bool = True
    """False where the cause is one of several ranks."""


class Diagnosis:
    """Diagnoses one job from the evidence of all nodes."""

    def __init__(
        self,
        plan: LaunchPlan | JobRecord,
        progress: Progress,
        ends: tuple[RankEnd, ...],
        *,
        folder: Path,
        clocks: NodeClocks,
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._ends = {end.rank: end for end in ends}
        self._clocks = clocks
        self._collector = Collector(plan, progress, folder=folder, clocks=clocks)

    def cause(self, launcher_words: tuple[str, ...], lost: tuple[str, ...]) -> JobCause | None:
        """Why the job failed; `lost` are the nodes that mpirun lost."""
        cause = self._cause(launcher_words, lost)
        return None if cause is None else self._with_full_disks(cause)

    def _cause(self, launcher_words: tuple[str, ...], lost: tuple[str, ...]) -> JobCause | None:
        words = next((w for w in launcher_words if _LOST_BY_TORCHRUN.search(w)), "")
        if match := _LOST_BY_TORCHRUN.search(words):
            return self._of_lost((match[1],), words, killed_by=signal_of(int(match[2] or 0)))
        if lost:
            return self._of_lost(lost, "")
        cause = first_cause(
            self._plan.ranks,
            self._collector.evidence(tuple(self._ends.values())),
            uncertainty_s=2 * self._clocks.uncertainty_s,  # between two nodes
        )
        if cause is None:
            return self._of_launcher(launcher_words)
        return None if self._went_with_launcher(cause) else cause

    def first_failure(self, cause: JobCause | None) -> Failure | None:
        """The rank of the cause; without one, or where it ended well, the first to fail."""
        ends = [self._ends[rank] for rank in cause.ranks] if cause else []
        earliest = self._first([end for end in self._ends.values() if not self._followed(end)])
        if cause is not None and cause.kind in (CauseKind.NODE, CauseKind.ONE_OF):
            ends = []
        first = self._first(ends) or earliest
        if first is None:
            return None
        own = first
        if earliest is not None and (self._followed(first) or first.signal == SIGTERM):
            own = earliest
        is_certain = cause is None or cause.kind is not CauseKind.ONE_OF
        return Failure(first, own.exit_code or 1, is_certain)

    def _with_full_disks(self, cause: JobCause) -> JobCause:
        """Name full disks: such a node may be lost, and its ranks may not log why they fail."""
        full = [node for node in cause.nodes if node in self._progress.full_disks]
        if not full or (cause.meaning and cause.kind is not CauseKind.NODE):
            return cause
        meaning = f"the disk of {', '.join(full)} is full"
        if cause.meaning:
            meaning = f"{cause.meaning}; {meaning}"
        return replace(cause, meaning=meaning, remedy=_MAKE_ROOM)

    def _first(self, ends: list[RankEnd]) -> RankEnd | None:
        failed = (end for end in ends if end.exit_code)
        return min(failed, key=self._ended_at, default=None)

    def _ended_at(self, end: RankEnd) -> tuple[float, int]:
        # Without a recorded end the launcher named this rank: then it was the first.
        seen = self._progress.ended.get(end.rank)
        at = 0.0 if seen is None else self._clocks.here(end.node, seen.at)
        return (at, end.rank)

    def _followed(self, end: RankEnd) -> bool:
        return self._progress.was_ended(end.rank, self._plan.nodes.index(end.node))

    def _went_with_launcher(self, cause: JobCause) -> bool:
        """Whether its rank was only ended with a launcher that is gone, and logged no error."""
        gone = self._progress.launcher_over and self._progress.launcher_code is None
        signals = {self._ends[rank].signal for rank in cause.ranks}
        return gone and not cause.words and signals <= OF_A_LOST_LAUNCHER

    def _of_launcher(self, words: tuple[str, ...]) -> JobCause | None:
        """Where no rank failed: a known error of the launcher."""
        code = self._progress.launcher_code
        known = known_of_launcher(words) if self._progress.launcher_over and code else None
        if known is None:
            return None
        line, meaning = known
        return JobCause(
            kind=CauseKind.LAUNCHER,
            title=f"{self._plan.primary}: the launcher failed, with exit code {code}",
            ranks=(),
            nodes=(self._plan.primary,),
            words=line,
            source="launcher.log",
            meaning=meaning.meaning,
            remedy=meaning.remedy,
            why="no rank failed before it was ended",
        )

    def _of_lost(
        self, nodes: tuple[str, ...], words: str, *, killed_by: int | None = None
    ) -> JobCause:
        ranks = {node: tuple(r.rank for r in self._plan.ranks_on(node)) for node in nodes}
        names = "; ".join(
            f"{node}: was lost in the middle of the job, with {ranks_named(ranks[node])}"
            for node in nodes
        )
        gone = tuple(rank for node in nodes for rank in ranks[node])
        others = tuple(end.rank for end in self._ends.values() if end.rank not in gone)
        return JobCause(
            kind=CauseKind.NODE,
            title=names,
            ranks=gone,
            nodes=nodes,
            words=words,
            source="launcher.log",
            meaning=f"a signal ended torchrun there: {killed_by}"
            if killed_by
            else "the launcher has no contact with it any more",
            remedy=_LOOK,
            why="the ranks of other nodes failed after that"
            if killed_by
            else "no end of any of its ranks was seen",
            followed=(Followed(others, "ended with the job"),) if others else (),
        )
