"""What is known of a job once `stop` has ended it, kept as its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.model.job import JobState
from ascendboot.state import Run
from ascendboot.tasks.jobs import REPORT_FILE, folder_held, found_again
from ascendboot.tasks.judged import judged

if TYPE_CHECKING:
    from ascendboot.tasks.jobs import FoundJob
    from ascendboot.tasks.session import Session

_NOT_KNOWN = (JobState.NOT_STARTED, JobState.LOST)


def keep_report(session: Session, found: FoundJob) -> None:
    """Keep how the job ended: `reset`, or a node that is taken away, would make it a lost one.

    Nothing is kept where that is not known of all its nodes, and nothing where there is a report,
    or whoever follows the job will write it.
    """
    with folder_held(found.job.folder) as may_write:
        if not may_write or found.job.final is not None:
            return
        again = found_again(session, found)
        status = judged(again)
        report = status.report
        if again.errors or not status.is_over or report.state in _NOT_KNOWN:
            return
        run = Run(found.job.record.job_id, found.job.folder)
        run.write_json(REPORT_FILE, report.to_json())
