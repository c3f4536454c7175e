"""What a job's end means: from events and logs to a JobReport, without touching a machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.launch.course import Course
from ascendboot.launch.deadline import words_on
from ascendboot.launch.ends import ends_of
from ascendboot.launch.plan import rank_log
from ascendboot.model.job import FirstFailure, JobReport, JobState

if TYPE_CHECKING:
    from pathlib import Path

    from ascendboot.launch.cause.merge import Failure
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.record import JobRecord
    from ascendboot.model.clocks import NodeClocks
    from ascendboot.model.job import RankEnd

NOT_STARTED = 125
INTERRUPTED = 130
STOPPED = 143
HUNG = 124

_OVERDUE = "every rank{left} ended well; the launcher did not end after them and was ended"


def report_on(
    plan: LaunchPlan | JobRecord,
    course: Course,
    *,
    folder: Path,
    started: str,
    duration_s: float,
    clocks: NodeClocks,
) -> JobReport:
    """The report of a job that is over."""
    # No start of a job waits for what only its end needs.
    from ascendboot.launch import last_words  # noqa: PLC0415

    said = last_words.said_on(plan, folder)
    ends = last_words.with_killed(ends_of(plan, course), said.values())
    course = _settled(plan, course, ends, clocks)
    words = last_words.of_the_first(plan, course, said, clocks)
    lost = last_words.lost_nodes(ends, words)
    failure, cause = None, None
    if course.has_trouble and not _was_ended(course):
        # Most jobs need none of it.
        from ascendboot.launch.cause.merge import Merged  # noqa: PLC0415

        merged = Merged(plan, course, ends, folder=folder, clocks=clocks)
        cause = merged.cause(words, lost)
        failure = None if lost else merged.first_failure(cause)
    gist = cause.title if cause is not None and lost else last_words.gist(words)
    state, exit_code, message = _judged(course, failure, gist)
    if state is JobState.NOT_STARTED and (quoted := last_words.quoted(said)):
        message = f"{message}\nwhat was started said last:\n{quoted}"
    return JobReport(
        job_id=plan.job_id,
        state=state,
        exit_code=exit_code,
        started=started,
        command=plan.command_line,
        script=plan.script_json,
        first_failure=None
        if failure is None or not failure.is_certain
        else _explained(failure.end, folder),
        ranks=ends,
        duration_s=duration_s,
        folder=str(folder),
        message=message,
        notes=(*plan.notes, *course.unsure, *course.notes),
        cause=cause,
    )


def running_report(plan: LaunchPlan, started: str, folder: str) -> JobReport:
    """The report of a job that was just started."""
    return JobReport(
        job_id=plan.job_id,
        state=JobState.RUNNING,
        exit_code=None,
        started=started,
        command=plan.command_line,
        script=plan.script_json,
        first_failure=None,
        ranks=ends_of(plan, Course()),
        duration_s=0.0,
        folder=folder,
    )


def not_started_report(plan: LaunchPlan, now: str, folder: str, why: str) -> JobReport:
    """The report of a job of which nothing was done on any node."""
    report = running_report(plan, now, folder)
    return replace(report, state=JobState.NOT_STARTED, exit_code=NOT_STARTED, message=why)


def _was_ended(course: Course) -> bool:
    """Whether it was ended for a reason that is known."""
    return bool(course.interrupted or course.not_started or course.stopped or course.hung)


def _settled(
    plan: LaunchPlan | JobRecord,
    course: Course,
    ends: tuple[RankEnd, ...],
    clocks: NodeClocks,
) -> Course:
    """What was seen, without what counts for nothing in the end."""
    if course.is_overdue and _all_went_well(plan, course, ends):
        late = _OVERDUE.format(left=" that was left" if course.left else "")
        course = replace(course, launcher_code=0, endings={}, notes=(*course.notes, late))
    if course.overdue is not None and not course.not_started:
        course = replace(course, not_started=words_on(plan, course.overdue))
    if not (course.lives or course.left):
        return course
    # Elastic jobs alone need it.
    from ascendboot.launch.lives import notes, settled  # noqa: PLC0415

    told = (*course.notes, *notes(plan, course, clocks))
    return replace(settled(plan, course), notes=told)


def _all_went_well(plan: LaunchPlan | JobRecord, course: Course, ends: tuple[RankEnd, ...]) -> bool:
    """Whether no rank failed on the nodes that the job still has."""
    lost = {plan.nodes[node_rank] for node_rank in course.left}
    return all(end.exit_code == 0 for end in ends if end.node not in lost)


def _judged(
    course: Course, failure: Failure | None, launcher_gist: str
) -> tuple[JobState, int, str]:
    if course.interrupted:
        return JobState.INTERRUPTED, INTERRUPTED, ""
    if course.not_started:
        return JobState.NOT_STARTED, NOT_STARTED, course.not_started
    if course.stopped:
        return JobState.STOPPED, STOPPED, "somebody stopped the job"
    if course.hung:
        return JobState.HUNG, HUNG, course.hung
    if failure is not None:
        return JobState.FAILED, failure.job_exit_code, ""
    return _judged_without_failure(course, launcher_gist)


def _judged_without_failure(course: Course, launcher_gist: str) -> tuple[JobState, int, str]:
    if course.launcher_code is None:
        return JobState.FAILED, 1, "the launcher is gone and nobody saw how it ended"
    if course.launcher_code:
        return JobState.FAILED, course.launcher_code, launcher_gist
    if course.unsure:
        return JobState.FAILED, 1, "\n".join(course.unsure)
    return JobState.SUCCEEDED, 0, ""


def _explained(end: RankEnd, folder: Path) -> FirstFailure:
    from ascendboot.launch.last_words import last_lines  # noqa: PLC0415 - as in `report_on`

    path = folder / rank_log(end.rank)
    return FirstFailure(end=end, message="\n".join(last_lines(path)), log=str(path))
