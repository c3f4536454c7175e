"""The report at the end of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ascendboot.errors import excerpt
from ascendboot.jobs.diagnosis import diagnose, first_failure
from ascendboot.jobs.evidence import Collector, shown_time, tail_of
from ascendboot.jobs.loss import BadLoss, LossWatch, loss_words, recorded_losses
from ascendboot.jobs.progress import Arrivals, Progress, codes_of_killed, signal_of
from ascendboot.launch.events import ENDING, overdue_message
from ascendboot.launch.plan import Job, LaunchPlan, PlannedRank, rank_log, start_log
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.job import (
    CauseKind,
    DeviceChange,
    FirstFailure,
    JobReport,
    JobState,
    RankEnd,
    RankTimes,
)
from ascendboot.value import asdict, replace

NOT_STARTED = 125
INTERRUPTED = 130
STOPPED = 143
HUNG = 124

_LAST_LINES = 5
_MOST_CHANGES = 8
_LOOK_AT_DEVICE = "npu-smi info -t health and hccn_tool -link_stat there; reset or replace the NPU"
_MOST_QUOTED = 20
_LOST = "has lost communication with a remote daemon"
"""Open MPI 4.1 prints this about a node that it lost."""


def report_on(
    plan: Job,
    progress: Progress,
    *,
    folder: Path,
    started: str,
    duration_s: float,
    clocks: NodeClocks,
) -> JobReport:
    """The report of a job that has ended."""
    job = Collector(plan, progress, folder, clocks)
    logs = ((node, start_log(number)) for number, node in enumerate(plan.nodes))
    output = {node: _lines(folder / log) for node, log in logs if log in plan.logs_on(node)}
    ends = _ends(job, output)
    job.progress = progress = _final_progress(plan, progress, ends)
    words = _first_words(job, output)
    lost = tuple(progress.lost) or _lost_nodes(ends, words)
    was_ended = progress.interrupted or progress.not_started or progress.stopped or progress.hung
    was_ended = was_ended or progress.replaced
    failure, cause, message = None, None, _launcher_summary(words)
    if progress.has_failed and not was_ended:
        cause = diagnose(job, ends, words, lost)
        failure = None if lost else first_failure(job, ends, cause)
        message = cause.title if cause is not None and lost else message
    state, exit_code, message = _outcome(progress, failure and failure[1], message)
    if state is JobState.NOT_STARTED and (quoted := _quoted(output)):
        message = f"{message}\nlast output of what was started:\n{quoted}"
    explained = None
    if failure is not None and (cause is None or cause.kind is not CauseKind.ONE_OF):
        log = folder / rank_log(failure[0].rank)
        last_lines = "\n".join(_lines(log)[-_LAST_LINES:])
        explained = FirstFailure(**asdict(failure[0]), message=last_lines, log=str(log))
    losses = loss_words(_losses(job))
    return replace(
        running_report(plan, started, str(folder)),
        state=state,
        exit_code=exit_code,
        first_failure=explained,
        ranks=ends,
        duration_s=duration_s,
        message=message,
        notes=(*plan.notes, *progress.unsure, *progress.notes, *(() if cause else losses)),
        cause=cause and replace(cause, losses=losses),
    )


def with_device_changes(
    report: JobReport, changes: Sequence[DeviceChange], notes: Sequence[str]
) -> JobReport:
    """The report with what changed on the devices as evidence; severe changes come first.

    A severe change on the device of the rank that failed explains a failure that nothing else
    explains; one on another device makes the cause uncertain.
    """
    words = [str(change) for change in changes[:_MOST_CHANGES]]
    if more := len(changes) - len(words):
        words.append(f"and {more} more")
    cause = report.cause
    if cause is None:
        return replace(report, notes=(*report.notes, *words, *notes))
    places = {(end.node, end.device) for end in report.ranks if end.rank in cause.ranks}
    severe = [change for change in changes if change.is_severe]
    own = [change for change in severe if (change.node, change.device) in places]
    meaning, remedy, unsure = cause.meaning, cause.remedy, cause.unsure
    if own and not meaning:
        meaning, remedy = f"its device failed: {own[0].text}", _LOOK_AT_DEVICE
    elif severe and not own and not unsure:
        unsure = f"{severe[0]}: that may have been first"
    cause = replace(cause, meaning=meaning, remedy=remedy, unsure=unsure, devices=tuple(words))
    return replace(report, cause=cause, notes=(*report.notes, *notes))


def running_report(plan: Job, started: str, folder: str) -> JobReport:
    """The report of a job that was just started."""
    return JobReport(
        job_id=plan.job_id,
        state=JobState.RUNNING,
        exit_code=None,
        started=started,
        command=plan.command_line,
        script=plan.script,
        first_failure=None,
        ranks=_ends(Collector(plan, Progress(), Path(folder), NodeClocks()), {}),
        duration_s=0.0,
        folder=folder,
    )


def not_started_report(plan: LaunchPlan, now: str, folder: str, why: str) -> JobReport:
    """The report of a job that was not started on any node."""
    report = running_report(plan, now, folder)
    return replace(report, state=JobState.NOT_STARTED, exit_code=NOT_STARTED, message=why)


def _losses(job: Collector) -> Sequence[BadLoss]:
    """Return the losses that went wrong: as they were found, or else in the ends of the logs."""
    plan, progress, folder = job.plan, job.progress, job.folder
    found = tuple(bad for bad in progress.losses if bad.is_first) or recorded_losses(folder)
    if found or progress.losses:
        return found or progress.losses
    ends: list[BadLoss] = []
    for rank in plan.ranks:
        tail, begins_at = tail_of(folder / rank_log(rank.rank))
        watch = LossWatch(rank.rank, rank.node, plan.loss_form, is_first=begins_at == 0)
        ends += watch.look(tail)
    return ends


def _lines(path: Path) -> tuple[str, ...]:
    """Return the last lines of a log without empty ones; none when there is no such file."""
    tail, _ = tail_of(path)
    return tuple(line for line in tail.decode(errors="replace").splitlines() if line.strip())


def _ends(job: Collector, output: Mapping[str, tuple[str, ...]]) -> tuple[RankEnd, ...]:
    """Return the end of every rank, from its event or else from the launcher's output."""
    codes = codes_of_killed(" ".join(lines) for lines in output.values())
    codes |= {rank: end.exit_code for rank, end in job.progress.ended.items()}
    return tuple(
        RankEnd(
            rank=rank.rank,
            node=rank.node,
            device=rank.device_id,
            exit_code=codes.get(rank.rank),
            signal=signal_of(codes.get(rank.rank, 0)),
            times=_times(rank, job.progress, job.clocks),
        )
        for rank in job.plan.ranks
    )


def _times(rank: PlannedRank, progress: Progress, clocks: NodeClocks) -> RankTimes | None:
    """Return when a rank started, wrote and ended; None if nothing of it is known."""
    end, began = progress.ended.get(rank.rank), progress.began.get(rank.rank)
    log, silent_s, since = Arrivals(), None, None
    ended = None if end is None else clocks.here(rank.node, end.at)
    if began is not None:  # else its output may have been there before it was followed
        log = progress.arrivals.get(rank_log(rank.rank), log)
        # A start is noted later than output, and than the end of a short job.
        began = min(at for at in (began, log.first, ended) if at is not None)
    if began is not None and log.first is not None:
        silent_s = round(max(log.longest_s, log.first - began), 1)
        since = began if log.first - began >= log.longest_s else log.longest_since
    times = RankTimes(
        started=shown_time(began),
        first_output=shown_time(log.first),
        last_output=shown_time(log.last),
        silent_s=silent_s,
        silent_since=shown_time(since),
        ended=shown_time(ended),
    )
    return None if times == RankTimes() else times


def _first_words(job: Collector, output: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the output of the launcher, or of the agent that first ended the job."""
    nodes, endings = job.plan.nodes, job.progress.endings
    ended = {nodes[number]: at for number, at in endings.items() if number < len(nodes)}
    primary, here = job.plan.primary, job.clocks.here
    node = min(ended, key=lambda node: here(node, ended[node]), default=primary)
    words = output.get(node, ())
    return words if node == primary else tuple(f"{node}: {line}" for line in words)


def _lost_nodes(ends: tuple[RankEnd, ...], launcher_words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes that mpirun lost: those of which no rank recorded an end.

    The ranks of other nodes were ended because of that, or failed because they lost a peer.
    """
    if not any(_LOST in line for line in launcher_words):
        return ()
    seen = {end.node for end in ends if end.exit_code is not None}
    return tuple(dict.fromkeys(end.node for end in ends if end.node not in seen))


def _launcher_summary(words: tuple[str, ...]) -> str:
    """Return the first and last lines of a launcher's output; an error of ssh comes first."""
    lines = [line for line in words if line.strip("-*")]
    decided = next((number for number, line in enumerate(lines, 1) if ENDING in line), None)
    lines = lines[:decided]
    if len(lines) > 2 * _LAST_LINES:
        lines = [*lines[:_LAST_LINES], "…", *lines[-_LAST_LINES:]]
    return "\n".join(lines)


def _quoted(output: Mapping[str, tuple[str, ...]]) -> str:
    """Return the last lines of each node for a message, without control characters."""
    lines = [
        f"  {node} | {excerpt(''.join(c if c.isprintable() else '?' for c in line))}"
        for node, words in output.items()
        for line in words[-_LAST_LINES:]
    ]
    more = len(lines) - _MOST_QUOTED
    return "\n".join(lines[:_MOST_QUOTED] + ([f"  and {more} lines more"] if more > 0 else []))


def _final_progress(plan: Job, progress: Progress, ends: tuple[RankEnd, ...]) -> Progress:
    """Return the progress with what only its end shows: a launcher that hung, a late start."""
    if progress.is_overdue and all(end.exit_code == 0 for end in ends):
        late = "every rank ended with exit code 0; the launcher did not end then and was ended"
        progress = replace(progress, launcher_code=0, endings={}, notes=(*progress.notes, late))
    if progress.overdue is not None and not progress.not_started:
        progress = replace(progress, not_started=overdue_message(plan, progress.overdue))
    return progress


def _outcome(
    progress: Progress, failed_code: int | None, launcher_summary: str
) -> tuple[JobState, int, str]:
    """Return state, exit code and message: the first row that applies."""
    code = progress.launcher_code
    outcomes: tuple[tuple[object, tuple[JobState, int, str]], ...] = (
        (progress.interrupted, (JobState.INTERRUPTED, INTERRUPTED, "")),
        (progress.not_started, (JobState.NOT_STARTED, NOT_STARTED, progress.not_started)),
        (progress.replaced, (JobState.STOPPED, STOPPED, progress.replaced)),
        (progress.stopped, (JobState.STOPPED, STOPPED, "the job was stopped with stop")),
        (progress.hung, (JobState.HUNG, HUNG, progress.hung)),
        (failed_code, (JobState.FAILED, failed_code or 1, "")),
        (code is None, (JobState.FAILED, 1, "the launcher is gone and its exit code is unknown")),
        (code, (JobState.FAILED, code or 0, launcher_summary)),
        (progress.unsure, (JobState.FAILED, 1, "\n".join(progress.unsure))),
    )
    return next((found for applies, found in outcomes if applies), (JobState.SUCCEEDED, 0, ""))
