"""What a job's end means: from events and logs to a JobReport, without touching a machine."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.launch.course import Course
from ascendboot.launch.minding import ENDING
from ascendboot.launch.plan import rank_log, start_log
from ascendboot.model.job import FirstFailure, JobReport, JobState, RankEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ascendboot.launch.cause.merge import Failure
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.record import JobRecord

NOT_STARTED = 125
INTERRUPTED = 130
STOPPED = 143
HUNG = 124
_LAST_LINES = 5
_TAIL_BYTES = 16_384
_SIGNALLED = 128
_HIGHEST_SIGNAL = 64
_LOST = "has lost communication with a remote daemon"
"""Open MPI 4.1, of a node that went away; a daemon that ends in good order it does not miss."""

_KILLED = (
    re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)"),
    re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: -(\d+) \(pid: \d+\)"),
)
"""How mpirun (4.1) and torchrun (2.13) name a rank that a signal ended, lines joined."""


_OVERDUE = "every rank{left} ended well; the launcher did not end after them and was ended"


def report_on(
    plan: LaunchPlan | JobRecord,
    course: Course,
    *,
    folder: Path,
    started: str,
    duration_s: float,
    clock_offsets: Mapping[str, float],
    clock_uncertainty_s: float = 0.0,
) -> JobReport:
    """The report of a job that is over; `clock_offsets` says by how much each node is ahead.

    Two nodes' times may be wrong against each other by twice `clock_uncertainty_s`.
    """
    said = {node: tuple(_lines(folder / log)) for node, log in _start_logs(plan).items()}
    ends = _killed_with_wrapper(_ends(plan, course), said.values())
    if course.is_overdue and _all_went_well(plan, course, ends):
        late = _OVERDUE.format(left=" that was left" if course.left else "")
        course = replace(course, launcher_code=0, endings={}, notes=(*course.notes, late))
    if course.lives or course.left:
        # Elastic jobs alone need it.
        from ascendboot.launch.lives import notes, settled  # noqa: PLC0415

        told = (*course.notes, *notes(plan, course, clock_offsets))
        course = replace(settled(plan, course), notes=told)
    words = _words_of_the_first(plan, course, said, clock_offsets)
    lost = lost_nodes(ends, words)
    failure, cause = None, None
    if course.has_trouble and not (course.interrupted or course.stopped or course.hung):
        # Most jobs need none of it.
        from ascendboot.launch.cause.merge import Merged  # noqa: PLC0415

        merged = Merged(
            plan,
            course,
            ends,
            folder=folder,
            clock_offsets=clock_offsets,
            clock_uncertainty_s=clock_uncertainty_s,
        )
        cause = merged.cause(words, lost)
        failure = None if lost else merged.first_failure(cause)
    state, exit_code, message = _judged(course, failure, _lost_words(lost) or words)
    return JobReport(
        job_id=plan.job_id,
        state=state,
        exit_code=exit_code,
        started=started,
        command=plan.command_line,
        first_failure=None if failure is None else _explained(failure.end, folder),
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
        first_failure=None,
        ranks=_ends(plan, Course()),
        duration_s=0.0,
        folder=folder,
    )


def signal_of(exit_code: int) -> int | None:
    """The signal that a shell's exit code stands for; None when it stands for none."""
    number = exit_code - _SIGNALLED
    return number if 0 < number <= _HIGHEST_SIGNAL else None


def last_lines(path: Path) -> tuple[str, ...]:
    """The last lines of a log that are not empty, at most five."""
    return tuple(_lines(path)[-_LAST_LINES:])


def _ends(plan: LaunchPlan | JobRecord, course: Course) -> tuple[RankEnd, ...]:
    ends = []
    for rank in plan.ranks:
        seen = course.ended.get(rank.rank)
        ends.append(
            RankEnd(
                rank=rank.rank,
                node=rank.node,
                device=rank.device_id,
                exit_code=None if seen is None else seen.exit_code,
                signal=None if seen is None else signal_of(seen.exit_code),
            )
        )
    return tuple(ends)


def _all_went_well(plan: LaunchPlan | JobRecord, course: Course, ends: tuple[RankEnd, ...]) -> bool:
    """Whether no rank failed on the nodes that the job still has."""
    lost = {plan.nodes[node_rank] for node_rank in course.left}
    return all(end.exit_code == 0 for end in ends if end.node not in lost)


def _start_logs(plan: LaunchPlan | JobRecord) -> dict[str, str]:
    """The log of what was started on each node, where something was."""
    logs = {node: start_log(number) for number, node in enumerate(plan.nodes)}
    return {node: log for node, log in logs.items() if log in plan.logs_on(node)}


def _killed_with_wrapper(
    ends: tuple[RankEnd, ...], said: Iterable[tuple[str, ...]]
) -> tuple[RankEnd, ...]:
    """Adds what only the launcher saw: a rank killed together with what records its end."""
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
            exit_code=_SIGNALLED + killed[end.rank],
            signal=killed[end.rank],
        )
        if end.exit_code is None and end.rank in killed
        else end
        for end in ends
    )


def lost_nodes(ends: tuple[RankEnd, ...], launcher_words: tuple[str, ...]) -> dict[str, str]:
    """The nodes that mpirun lost, each with its ranks: none of them was seen to end.

    Then the ranks of other nodes were ended because of that, or failed at talking to it.
    """
    if not any(_LOST in line for line in launcher_words):
        return {}
    ranks: dict[str, list[RankEnd]] = {}
    for end in ends:
        ranks.setdefault(end.node, []).append(end)
    return {
        node: _range(of_node)
        for node, of_node in ranks.items()
        if all(end.exit_code is None for end in of_node)
    }


def _lost_words(lost: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{node}: was lost in the middle of the job, with {ranks}: the launcher has no"
        " contact with it any more; see whether the node, and its container, still run"
        for node, ranks in lost.items()
    )


def _range(ends: list[RankEnd]) -> str:
    first, last = ends[0].rank, ends[-1].rank
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


def _words_of_the_first(
    plan: LaunchPlan | JobRecord,
    course: Course,
    said: Mapping[str, tuple[str, ...]],
    clock_offsets: Mapping[str, float],
) -> tuple[str, ...]:
    """What the launcher said, or the agent that was the first to see that the job must end."""

    def began_to_end(number: int) -> float:
        return course.endings[number] - clock_offsets.get(plan.nodes[number], 0.0)

    # What an elastic job has lost it goes on without, unless the primary says otherwise.
    standing = [number for number in course.endings if number not in course.left]
    node = plan.nodes[min(standing, key=began_to_end, default=0)]
    words = said.get(node, ())
    return words if node == plan.primary else tuple(f"{node}: {line}" for line in words)


def _judged(
    course: Course, failure: Failure | None, launcher_words: tuple[str, ...]
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
    return _judged_without_failure(course, launcher_words)


def _judged_without_failure(
    course: Course, launcher_words: tuple[str, ...]
) -> tuple[JobState, int, str]:
    if course.launcher_code is None:
        return JobState.FAILED, 1, "the launcher is gone and nobody saw how it ended"
    if course.launcher_code:
        return JobState.FAILED, course.launcher_code, _gist(launcher_words)
    if course.unsure:
        return JobState.FAILED, 1, "\n".join(course.unsure)
    return JobState.SUCCEEDED, 0, ""


def _explained(end: RankEnd, folder: Path) -> FirstFailure:
    path = folder / rank_log(end.rank)
    return FirstFailure(end=end, message="\n".join(last_lines(path)), log=str(path))


def _gist(words: tuple[str, ...]) -> str:
    """The launcher's words: what ssh said comes first, what is made of it last."""
    lines = [line for line in words if line.strip("-*")]
    decided = next((number for number, line in enumerate(lines, 1) if ENDING in line), None)
    lines = lines[:decided]
    if len(lines) > 2 * _LAST_LINES:
        lines = [*lines[:_LAST_LINES], "…", *lines[-_LAST_LINES:]]
    return "\n".join(lines)


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
