"""The report at the end of a job."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.errors import excerpt
from ascendboot.jobs.diagnosis import Failure, diagnose, first_failure
from ascendboot.jobs.progress import (
    SIGNALLED,
    Progress,
    after_restarts,
    ends_of,
    restart_notes,
)
from ascendboot.launch.events import ENDING, overdue_message
from ascendboot.launch.plan import JobRecord, LaunchPlan, rank_log, start_log
from ascendboot.model.job import FirstFailure, JobReport, JobState, RankEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ascendboot.model.cluster import NodeClocks

_LAST_LINES = 5
_MOST_QUOTED = 20
_TAIL_BYTES = 16_384
_LOST = "has lost communication with a remote daemon"
"""What Open MPI 4.1 prints of a node that it lost."""

_KILLED = (
    re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)"),
    re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: -(\d+) \(pid: \d+\)"),
)
"""How mpirun (4.1) and torchrun (2.13) name a rank that a signal ended, lines joined."""


def launcher_output(plan: LaunchPlan | JobRecord, folder: Path) -> dict[str, tuple[str, ...]]:
    """The last lines of each node's launcher log."""
    logs = {node: start_log(number) for number, node in enumerate(plan.nodes)}
    return {
        node: tuple(_lines(folder / log)) for node, log in logs.items() if log in plan.logs_on(node)
    }


def with_killed(ends: tuple[RankEnd, ...], said: Iterable[tuple[str, ...]]) -> tuple[RankEnd, ...]:
    """The ends, with ranks of which only the launcher recorded that a signal ended them."""
    texts = [" ".join(lines) for lines in said]
    killed = {
        int(rank): int(signal)
        for text in texts
        for form in _KILLED
        for rank, signal in form.findall(text)
    }
    return tuple(
        RankEnd(
            rank=end.rank,
            node=end.node,
            device=end.device,
            exit_code=SIGNALLED + killed[end.rank],
            signal=killed[end.rank],
        )
        if end.exit_code is None and end.rank in killed
        else end
        for end in ends
    )


def words_of_first_to_end(
    plan: LaunchPlan | JobRecord,
    progress: Progress,
    said: Mapping[str, tuple[str, ...]],
    clocks: NodeClocks,
) -> tuple[str, ...]:
    """The output of the launcher, or of the agent that was the first to end the job."""

    def began_to_end(number: int) -> float:
        return clocks.here(plan.nodes[number], progress.endings[number])

    # An elastic job goes on without lost nodes.
    standing = [number for number in progress.endings if number not in progress.left]
    node = plan.nodes[min(standing, key=began_to_end, default=0)]
    words = said.get(node, ())
    return words if node == plan.primary else tuple(f"{node}: {line}" for line in words)


def lost_nodes(ends: tuple[RankEnd, ...], launcher_words: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes that mpirun lost: the end of none of their ranks was recorded.

    The ranks of other nodes were ended because of that, or failed as they lost a peer.
    """
    if not any(_LOST in line for line in launcher_words):
        return ()
    seen = {end.node for end in ends if end.exit_code is not None}
    return tuple(dict.fromkeys(end.node for end in ends if end.node not in seen))


def launcher_summary(words: tuple[str, ...]) -> str:
    """The first and last lines of a launcher's output: the message of ssh comes first."""
    lines = [line for line in words if line.strip("-*")]
    decided = next((number for number, line in enumerate(lines, 1) if ENDING in line), None)
    lines = lines[:decided]
    if len(lines) > 2 * _LAST_LINES:
        lines = [*lines[:_LAST_LINES], "…", *lines[-_LAST_LINES:]]
    return "\n".join(lines)


def quoted_lines(said: Mapping[str, tuple[str, ...]]) -> str:
    """The last lines by node for a message, without control characters."""
    lines = [
        f"  {node} | {excerpt(''.join(c if c.isprintable() else '?' for c in line))}"
        for node, words in said.items()
        for line in words[-_LAST_LINES:]
    ]
    more = len(lines) - _MOST_QUOTED
    return "\n".join(lines[:_MOST_QUOTED] + ([f"  and {more} lines more"] if more > 0 else []))


def last_lines(path: Path) -> tuple[str, ...]:
    """The last lines of a log that are not empty, at most five."""
    return tuple(_lines(path)[-_LAST_LINES:])


def _lines(path: Path) -> list[str]:
    """The lines at the end of a file that are not empty; none when there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except FileNotFoundError:
        return []
    return [line for line in tail.decode(errors="replace").splitlines() if line.strip()]


NOT_STARTED = 125
INTERRUPTED = 130
STOPPED = 143
HUNG = 124

_OVERDUE = "every rank{left} ended well; the launcher did not end after them and was ended"


def report_on(
    plan: LaunchPlan | JobRecord,
    progress: Progress,
    *,
    folder: Path,
    started: str,
    duration_s: float,
    clocks: NodeClocks,
) -> JobReport:
    """The report of a job that has ended."""
    said = launcher_output(plan, folder)
    ends = with_killed(ends_of(plan, progress), said.values())
    progress = _final_progress(plan, progress, ends, clocks)
    words = words_of_first_to_end(plan, progress, said, clocks)
    lost = lost_nodes(ends, words)
    failure, cause = None, None
    if progress.has_failed and not _was_ended(progress):
        cause = diagnose(plan, progress, ends, words, lost, folder=folder, clocks=clocks)
        failure = None if lost else first_failure(plan, progress, ends, cause, clocks)
    gist = cause.title if cause is not None and lost else launcher_summary(words)
    state, exit_code, message = _outcome(progress, failure, gist)
    if state is JobState.NOT_STARTED and (quoted := quoted_lines(said)):
        message = f"{message}\nlast output of what was started:\n{quoted}"
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
        notes=(*plan.notes, *progress.unsure, *progress.notes),
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
        ranks=ends_of(plan, Progress()),
        duration_s=0.0,
        folder=folder,
    )


def not_started_report(plan: LaunchPlan, now: str, folder: str, why: str) -> JobReport:
    """The report of a job that was not started on any node."""
    report = running_report(plan, now, folder)
    return replace(report, state=JobState.NOT_STARTED, exit_code=NOT_STARTED, message=why)


def _was_ended(progress: Progress) -> bool:
    """Whether it was ended on purpose."""
    return bool(progress.interrupted or progress.not_started or progress.stopped or progress.hung)


def _final_progress(
    plan: LaunchPlan | JobRecord,
    progress: Progress,
    ends: tuple[RankEnd, ...],
    clocks: NodeClocks,
) -> Progress:
    """The progress without failures that the job has survived."""
    if progress.is_overdue and _all_went_well(plan, progress, ends):
        late = _OVERDUE.format(left=" that was left" if progress.left else "")
        progress = replace(progress, launcher_code=0, endings={}, notes=(*progress.notes, late))
    if progress.overdue is not None and not progress.not_started:
        progress = replace(progress, not_started=overdue_message(plan, progress.overdue))
    if not (progress.starts or progress.left):
        return progress
    notes = (*progress.notes, *restart_notes(plan, progress, clocks))
    return replace(after_restarts(plan, progress), notes=notes)


def _all_went_well(
    plan: LaunchPlan | JobRecord, progress: Progress, ends: tuple[RankEnd, ...]
) -> bool:
    """Whether all ranks ended well on the nodes that the job still has."""
    lost = {plan.nodes[node_rank] for node_rank in progress.left}
    return all(end.exit_code == 0 for end in ends if end.node not in lost)


def _outcome(
    progress: Progress, failure: Failure | None, launcher_summary: str
) -> tuple[JobState, int, str]:
    if progress.interrupted:
        return JobState.INTERRUPTED, INTERRUPTED, ""
    if progress.not_started:
        return JobState.NOT_STARTED, NOT_STARTED, progress.not_started
    if progress.stopped:
        return JobState.STOPPED, STOPPED, "somebody stopped the job"
    if progress.hung:
        return JobState.HUNG, HUNG, progress.hung
    if failure is not None:
        return JobState.FAILED, failure.job_exit_code, ""
    return _outcome_without_failure(progress, launcher_summary)


def _outcome_without_failure(
    progress: Progress, launcher_summary: str
) -> tuple[JobState, int, str]:
    if progress.launcher_code is None:
        return JobState.FAILED, 1, "the launcher is gone and its exit code is unknown"
    if progress.launcher_code:
        return JobState.FAILED, progress.launcher_code, launcher_summary
    if progress.unsure:
        return JobState.FAILED, 1, "\n".join(progress.unsure)
    return JobState.SUCCEEDED, 0, ""


def _explained(end: RankEnd, folder: Path) -> FirstFailure:

    path = folder / rank_log(end.rank)
    return FirstFailure(end=end, message="\n".join(last_lines(path)), log=str(path))
