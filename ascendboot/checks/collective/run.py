"""Running a preflight: the request of a job becomes that of a preflight, and its end a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.checks.collective.findings import compare
from ascendboot.checks.collective.progress import (
    chosen_way,
    collective_findings,
    lacks,
    no_library,
    places,
    read,
)
from ascendboot.checks.finding import Finding, in_order
from ascendboot.jobs.job_report import not_started_report
from ascendboot.jobs.run import run
from ascendboot.jobs.start import discard
from ascendboot.launch.launchers.registry import traits_of
from ascendboot.launch.plan import LaunchPlan, preflight_id
from ascendboot.launch.planner import plan
from ascendboot.model.job import JobReport, JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ascendboot.jobs.follow import Interrupts
    from ascendboot.launch.request import LaunchRequest
    from ascendboot.transport.api import Transport

_GRACE_S = {"mpi": 1.0, "gloo": 3.0}
"""Ranks have nothing to save; torchrun itself takes seconds to end on a busy node."""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """How it ended."""

    findings: tuple[Finding, ...]
    report: JobReport
    ranks: int
    library: str
    """Through which the ranks met; empty where they did not."""

    @property
    def passed(self) -> bool:
        """Whether a job may start."""
        return not any(finding.level == "error" for finding in self.findings)

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody ended it before its end."""
        return self.report.state in (JobState.INTERRUPTED, JobState.STOPPED)

    @property
    def words(self) -> str:
        """That it went well, in one line."""
        return (
            f"{self.ranks} ranks met by {self.library}, agree, and have the right sum, "
            f"after {self.report.duration_s:.1f} s"
        )


def preflight_plan(request: LaunchRequest, by: str) -> LaunchPlan:
    """The preflight of the job that `request` asks for: all as for the job, but for the program."""
    firsts = [rank for rank, slot in enumerate(request.placement.slots) if slot.local_rank == 0]
    program = resources.files("ascendboot.checks.collective").joinpath("rank.py").read_bytes()
    asked = replace(
        request,
        job_id=preflight_id(request.job_id),
        script=PurePosixPath("preflight.py"),
        script_content=program,
        script_args=(by, ",".join(map(str, firsts))),
        workdir=None,
        min_nodes=None,
        notes=(),
        grace_s=_GRACE_S[by],
    )
    if by == "gloo" and request.chief:
        chief = request.chief
        meeting = {"MASTER_ADDR": chief["CM_CHIEF_IP"], "MASTER_PORT": chief["CM_CHIEF_PORT"]}
        asked = replace(asked, meeting=meeting)
    return plan(replace(asked, meeting_point=meeting_point(asked)))


def meeting_point(request: LaunchRequest) -> str:
    """Where the ranks will meet for certain: with a rank table only torchrun makes them."""
    if request.chief:
        return f"{request.chief['CM_CHIEF_IP']}/{request.chief['CM_CHIEF_PORT']}"
    if request.rank_table and not traits_of(request.launcher).sets_meeting:
        return ""
    return f"{request.meeting['MASTER_ADDR']}/{request.meeting['MASTER_PORT']}"


def meet(
    request: LaunchRequest,
    transports: Mapping[str, Transport],
    *,
    folder: Path,
    interrupts: Interrupts,
    known: Callable[[LaunchPlan], AbstractContextManager[None]],
    forks: int,
) -> Preflight:
    """Run the preflight of a job; on the nodes nothing is left of it.

    `known(plan)` is held while there may be something of the plan on the nodes.

    Raises:
        UnreachableError: the primary was lost meanwhile; the ranks end by themselves.
        NotUnderstoodError: a rank noted what nobody knows.
    """
    lacking = lacks(request, transports, forks=forks)
    by = chosen_way(request, lacking)
    planned = preflight_plan(request, by)
    all_answered = len(lacking) == len(planned.nodes)
    if all_answered and (why := no_library(by, request.python, lacking)):
        return _not_run(planned, why, folder)
    with known(planned):
        report = run(
            planned,
            transports,
            folder=folder,
            sink=lambda _: None,
            interrupts=interrupts,
            forks=forks,
        )
        discard(planned, transports, forks=forks)
    return preflight_result(request, report, folder, by=by)


def preflight_result(
    request: LaunchRequest, report: JobReport, folder: Path, *, by: str
) -> Preflight:
    """What the end of a preflight means, with the logs of its ranks in `folder`.

    Raises:
        NotUnderstoodError: as for `meet`.
    """
    where = places(request.placement)
    said = read(folder, [place.rank for place in where])
    found = [
        *collective_findings(where, said, report, by=by),
        *compare(where, said, request.rank_table_sha256),
    ]
    return Preflight(
        findings=in_order(found),
        report=report,
        ranks=len(where),
        library=next((one.library for one in said.values() if one.library), ""),
    )


def _not_run(planned: LaunchPlan, why: Finding, folder: Path) -> Preflight:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    report = not_started_report(planned, now, str(folder), why.message)
    return Preflight(findings=(why,), report=report, ranks=len(planned.ranks), library="")
