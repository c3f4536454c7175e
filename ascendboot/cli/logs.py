"""`logs`: copy and show the logs of a job."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from ascendboot.cli.common import whole_number
from ascendboot.cli.known_jobs import JOB_HELP, REPORT_FILE, FoundJob, find_job, folder_held, now
from ascendboot.cli.verbs import STOPPED, Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import NodeError, OutputError, UnreachableError
from ascendboot.jobs import logs as job_logs
from ascendboot.jobs import output
from ascendboot.jobs.follow import Reconnector
from ascendboot.jobs.gather import LogGatherer
from ascendboot.jobs.logs import MatchingLines, fetch_tails
from ascendboot.jobs.status import report_of
from ascendboot.launch.plan import JobRecord, rank_log, rank_marks
from ascendboot.model.job import JobState
from ascendboot.model.names import fold, ranks_named
from ascendboot.state import Run
from ascendboot.transport.guard import ReadOnly
from ascendboot.value import Value


@cluster_verb(
    stopped=STOPPED,
    help={
        "job": JOB_HELP,
        "rank": "Only these ranks, for example 3,8-15. Default: all",
        "node": "Only the ranks of these nodes, for example atlas-[01-03]. Default: all",
        "follow": "Continue until the job ends; Ctrl-C ends only the viewing",
        "since": "Only newer lines, with up to 5 s more: 30s, 10m, 2h, 1d, or 2026-01-31T08:00."
        " Default: all",
        "tail": "Only the last N lines of each rank. Default: all",
        "grep": "Only lines that match this regular expression; (?i) ignores case",
    },
)
def logs(
    call: Call,
    *,
    job: str | None = None,
    rank: str | None = None,
    node: str | None = None,
    follow: bool = False,
    since: str | None = None,
    tail: str | None = None,
    grep: str | None = None,
) -> None:
    """Copy the logs of a job from its nodes, and print them as `NODE:RANK | line`.

    Completes all logs in the job's folder, whichever ranks are printed, and
    writes a missing report of a finished job. Writes nothing on the nodes.

    Examples:
      invoke logs                          all ranks of the running or last job
      invoke logs --rank 0,8-15            only these ranks
      invoke logs --node atlas-2 --follow  live output of a node
      invoke logs --since 10m --grep '(?i)error|nan'
      invoke logs --tail 20                the last lines of every rank

    Exit codes: 0 done, 2 no such job, rank or node, 4 a node is unreachable,
    130 after Ctrl-C.
    """
    pattern = None if grep is None else job_logs.chosen_pattern(grep)
    from_time = None if since is None else job_logs.chosen_time(since, now())
    last = None if tail is None else whole_number("logs: --tail", tail, at_least=1)
    screen = Screen(json_mode=True)  # standard output is for the lines of the ranks
    with call.session("logs", call.cluster(), screen=screen) as session:
        found = find_job(session, job)
        record = found.job.record
        in_colours = Screen.shows_colours(to_stderr=call.json)
        ranks = job_logs.chosen_ranks(record, rank, node, session.cluster.groups)
        wanted = _Wanted(
            views=_views(record, ranks, pattern, in_colours=in_colours),
            since=from_time,
            tail=last,
            sink=output.RankOutput(Screen.raw(to_stderr=call.json)),
        )
        errors, notes = _gather(found, wanted, follow=follow)
        wanted.sink.close()
    for note in notes:
        screen.say(note, "yellow")
    for error in errors.values():
        screen.error(str(error))
    screen.say(f"Logs of job {record.job_id} are in {Run('', found.job.folder).shown}")
    document = {
        "job_id": record.job_id,
        "folder": str(found.job.folder),
        "state": found.status.report.state.value,
        "logs": [{"rank": r.rank, "node": r.node, "log": rank_log(r.rank)} for r in record.ranks],
        "problems": [*map(str, errors.values()), *notes],
    }
    lost = OutputError.exit_code if wanted.sink.lost else 0
    code = UnreachableError.exit_code if errors else lost
    call.end(code, document)


class _Wanted(Value, kw_only=True):
    """The ranks and lines to print, and where."""

    views: Mapping[int, output.Lines]
    """By rank: selects and formats its lines."""
    since: datetime | None
    tail: int | None
    sink: output.RankOutput


def _views(
    record: JobRecord, ranks: Sequence[int], pattern: re.Pattern[str] | None, *, in_colours: bool
) -> dict[int, output.Lines]:
    prefix = output.by_node(record.nodes) if in_colours else output.plain
    prefixes = {rank: prefix(record.ranks[rank].node, rank) for rank in ranks}
    if pattern is None:
        return {rank: output.Lines(text) for rank, text in prefixes.items()}
    return {r: MatchingLines(text, pattern, coloured=in_colours) for r, text in prefixes.items()}


def _gather(
    found: FoundJob, wanted: _Wanted, *, follow: bool
) -> tuple[Mapping[str, NodeError], list[str]]:
    """Complete the copies of a job's logs and print the selected lines.

    Returns errors by node whose logs could not be read, and notes to print after the lines.
    """
    record, kept = found.job.record, found.transports.keys()
    with folder_held(found.job.folder) as may_write:
        if not may_write:
            notes = _show_copies(found, wanted)
            words = "another ascendboot follows this job and copies its logs; only existing lines"
            more = "; to follow the job, use that one" if follow else ""
            return found.errors, [*notes, f"{words} are shown{more}"]
        if follow:
            if wanted.since is not None or wanted.tail is not None:
                _complete_copies(found, wanted)
            starts, notes = _starts(found, wanted)
            shown = {r: (view, starts[r]) for r, view in wanted.views.items()}
            gathering = _complete_copies(found, wanted, shown)
        else:
            gathering = _complete_copies(found, wanted)
            notes = _show_copies(found, wanted)
        errors = {n: e for n, e in found.errors.items() if n not in gathering.nodes.keys() - kept}
        errors |= gathering.errors
        notes += gathering.problems
        if gathering.is_gone and found.job.final is None:
            notes.append(f"{record.primary}: has no files of job {record.job_id} (any more)")
        if not errors and not gathering.is_gone:
            notes += _write_report(found, gathering)
        return errors, notes


def _complete_copies(
    found: FoundJob, wanted: _Wanted, shown: Mapping[int, tuple[output.Lines, int]] | None = None
) -> LogGatherer:
    """Complete the copies of all logs; with `shown` follow the job to its end and print these."""
    tell = found.session.screen.error
    known = {node.name for node in found.session.cluster.nodes} - found.transports.keys()
    goes_on = shown is not None and found.job.final is None and not found.status.is_over
    absent = {n: e for n, e in found.errors.items() if goes_on and n in known}
    for error in absent.values():
        tell(f"{error}; going on without it, and trying again")
    gathering = LogGatherer(
        job=found.job.record,
        transports=dict(found.transports),
        absent=absent,
        folder=found.job.folder,
        output=wanted.sink,
        shown=shown or {},
        forks=found.session.forks,
    )
    try:
        if shown is not None:
            reconnector = Reconnector(
                found.job.record,
                gathering.transports,
                gathering.progress,
                follow=gathering.read,
                on_end=lambda back: gathering.on_reconnected(back.node, back.error),
                connect=lambda name: ReadOnly(found.session.connect_again(name)),
                tell=tell,
                within_s=math.inf,
                known=[*map(str, absent.values())],
            )

            def again(name: str, *, silent_s: float) -> None:
                if silent_s:
                    tell(f"{name}: no data for {silent_s:.0f} s; connecting again")
                reconnector.reconnect(name, silent_s=silent_s)

            gathering.follow(again)
            reconnector.close()
        gathering.complete()
    finally:
        gathering.close()
    return gathering


def _show_copies(found: FoundJob, wanted: _Wanted) -> list[str]:
    """Print the copies; return notes about lines that could not be selected."""
    starts, notes = _starts(found, wanted)
    for rank, view in wanted.views.items():
        path = found.job.folder / rank_log(rank)
        output.show_copy(path, view, wanted.sink, start=starts[rank])
    return notes


def _starts(found: FoundJob, wanted: _Wanted) -> tuple[dict[int, int], list[str]]:
    """Return where to start in each rank's copy, and notes about ranks without times."""
    job, folder = found.job.record, found.job.folder
    starts = dict.fromkeys(wanted.views, 0)
    unknown: list[int] = []
    for rank in wanted.views:
        path, marks = folder / rank_log(rank), folder / rank_marks(rank)
        with suppress(FileNotFoundError):
            if wanted.since is not None:
                at = job.clocks.there(job.ranks[rank].node, wanted.since.timestamp())
                size = output.size_at(marks.read_bytes() if marks.exists() else b"", at)
                starts[rank] = output.start_of_line(path, size or 0)
                unknown += [rank] if size is None else []
            if wanted.tail is not None:
                last = output.start_of_last_lines(path, wanted.tail)
                starts[rank] = max(starts[rank], last)
    if not unknown:
        return starts, []
    who = f"{fold(job.ranks[r].node for r in unknown)}: {ranks_named(unknown)}"
    return starts, [f"{who}: the times of its lines are unknown, so --since shows all of them"]


def _write_report(found: FoundJob, gathering: LogGatherer) -> list[str]:
    """Write the report of a job that is over, as the lost `train` would have written it.

    Returns why CANN's own logs of a failed job could not be read.
    """
    over = found.status.is_over or gathering.progress.launcher_over
    if found.job.final is not None or not over:
        return []
    record, folder, errors = found.job.record, found.job.folder, dict[str, NodeError]()
    if gathering.progress.has_failed:
        forks = found.session.forks
        errors = fetch_tails(record, gathering.transports, folder, has_logs=True, forks=forks)
    report = report_of(record, gathering.progress, folder, now())
    if JobState.NOT_STARTED not in (report.state, found.status.report.state):
        run = Run(record.job_id, folder, found.session.run.secrets)
        run.write_json(REPORT_FILE, report.to_json())
    return [*map(str, errors.values())]
