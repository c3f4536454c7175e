"""A job that failed while nobody followed it: judged by what lies on its nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ascendboot.launch.plan import rank_log
from ascendboot.launch.status import status_of
from ascendboot.launch.tails import fetch_tails
from ascendboot.model.job import JobState
from ascendboot.tasks.jobs import now

if TYPE_CHECKING:
    from ascendboot.launch.status import JobStatus
    from ascendboot.model.job import JobReport
    from ascendboot.tasks.jobs import FoundJob


def judged(found: FoundJob) -> JobStatus:
    """How the job stands, with the cause that `logs` would find, too: by the ends of its logs.

    Asks only where that is not known yet; a node that cannot give them changes nothing.
    """
    report = found.status.report
    by_itself = report.state in (JobState.FAILED, JobState.NOT_STARTED)
    failed = by_itself and found.status.is_over
    if found.job.final is not None or not failed:
        return found.status
    with TemporaryDirectory(prefix="ascendboot-") as place:
        if fetch_tails(found.job.record, found.transports, Path(place), forks=found.forks):
            return found.status
        anew = status_of(found.job.record, found.looks, folder=Path(place), final=None, now=now())
    return replace(anew, report=_at_home(anew.report, found.job.folder)).without(found.secrets)


def _at_home(report: JobReport, folder: Path) -> JobReport:
    """The report, its paths where the logs will be."""
    failure = report.first_failure
    if failure is not None:
        failure = replace(failure, log=str(folder / rank_log(failure.end.rank)))
    return replace(report, folder=str(folder), first_failure=failure)
