"""`logs`: copy and show the logs of a job."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.cli.common import end, whole_number
from ascendboot.cli.known_jobs import JOB_HELP, REPORT_FILE, FoundJob, find_job, folder_held, now
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import NodeError, OutputError, UnreachableError
from ascendboot.jobs.gather import LogGatherer, Selection
from ascendboot.jobs.job_report import report_on
from ascendboot.jobs.logs import MatchingLines, chosen_pattern, chosen_ranks, chosen_time
from ascendboot.jobs.output import Lines as LogLines
from ascendboot.jobs.output import (
    LineView,
    RankOutput,
    by_node,
    plain,
    show_copy,
    size_at,
    start_of_last_lines,
    start_of_line,
)
from ascendboot.jobs.status import duration_of
from ascendboot.launch.plan import rank_log, rank_marks
from ascendboot.model.job import JobState
from ascendboot.model.names import fold, ranks_named
from ascendboot.state import Run

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Selects the lines of a rank's log to print; all by default."""

    pattern: re.Pattern[str] | None
    since: datetime | None
    tail: int | None


@dataclass(frozen=True, kw_only=True)
class LogSelection:
    """The ranks and lines to print, and where."""

    ranks: tuple[int, ...]
    cut: Cut
    output: RankOutput
    coloured: bool
    """Whether matches are shown in red."""
    prefix: Callable[[str, int], bytes]
    """The prefix of each line, by node and rank."""

    def view(self, node: str, rank: int) -> LineView:
        """Return the view that selects and formats the lines of a rank."""
        prefix = self.prefix(node, rank)
        if self.cut.pattern is None:
            return LogLines(prefix)
        return MatchingLines(prefix, self.cut.pattern, coloured=self.coloured)


@dataclass(frozen=True)
class Gathered:
    """Errors and notes of the copying, to print after the lines."""

    errors: Mapping[str, NodeError]
    """By node whose logs could not be read."""
    notes: list[str]


def gather(found: FoundJob, wanted: LogSelection, *, follow: bool) -> Gathered:
    """Complete the copies of a job's logs and print the selected lines."""
    with folder_held(found.job.folder) as may_write:
        if not may_write:
            return Gathered(found.errors, _show_only(found, wanted, follow=follow))
        return _follow(found, wanted) if follow else _complete(found, wanted)


def _follow(found: FoundJob, wanted: LogSelection) -> Gathered:
    """Print existing lines and new ones, until the job ends."""
    record = found.job.record
    if wanted.cut.since is not None or wanted.cut.tail is not None:
        _gathering(found, wanted, {}, follow=False)
    starts, notes = _starts(found, wanted)
    shown = {
        rank: Selection(wanted.view(record.ranks[rank].node, rank), starts[rank])
        for rank in wanted.ranks
    }
    return _ended(found, _gathering(found, wanted, shown, follow=True), notes)


def _complete(found: FoundJob, wanted: LogSelection) -> Gathered:
    """Complete the copies, then print them."""
    gathering = _gathering(found, wanted, {}, follow=False)
    return _ended(found, gathering, _show_copies(found, wanted))


def _ended(found: FoundJob, gathering: LogGatherer, notes: list[str]) -> Gathered:
    record = found.job.record
    errors = {**found.errors, **gathering.errors}
    notes = [*notes, *gathering.problems]
    if gathering.is_gone and found.job.final is None:
        notes.append(f"{record.primary}: has no files of job {record.job_id} (any more)")
    if not errors and not gathering.is_gone:
        _write_report(found, gathering)
    return Gathered(errors, notes)


def _gathering(
    found: FoundJob, wanted: LogSelection, shown: Mapping[int, Selection], *, follow: bool
) -> LogGatherer:
    gathering = LogGatherer(
        found.job.record,
        found.transports,
        folder=found.job.folder,
        output=wanted.output,
        shown=shown,
        forks=found.forks,
    )
    try:
        if follow:
            gathering.follow()
        gathering.complete()
    finally:
        gathering.close()
    return gathering


def _show_only(found: FoundJob, wanted: LogSelection, *, follow: bool) -> list[str]:
    """Print the copies only, because another process is writing them."""
    notes = _show_copies(found, wanted)
    words = "another ascendboot follows this job and copies its logs; only existing lines are shown"
    return [*notes, f"{words}; to follow the job, use that one" if follow else words]


def _show_copies(found: FoundJob, wanted: LogSelection) -> list[str]:
    """Print the copies; return notes about lines that could not be selected."""
    starts, notes = _starts(found, wanted)
    for rank in wanted.ranks:
        view = wanted.view(found.job.record.ranks[rank].node, rank)
        path = found.job.folder / rank_log(rank)
        show_copy(path, view, wanted.output, start=starts[rank])
    return notes


def _starts(found: FoundJob, wanted: LogSelection) -> tuple[dict[int, int], list[str]]:
    """Return where to start in each rank's copy, and notes about ranks without times."""
    job, folder = found.job.record, found.job.folder
    starts = dict.fromkeys(wanted.ranks, 0)
    unknown: list[int] = []
    for rank in wanted.ranks:
        path = folder / rank_log(rank)
        with suppress(FileNotFoundError):
            if wanted.cut.since is not None:
                at = job.clocks.there(job.ranks[rank].node, wanted.cut.since.timestamp())
                size = size_at(_read(folder / rank_marks(rank)), at)
                starts[rank] = start_of_line(path, size or 0)
                unknown += [rank] if size is None else []
            if wanted.cut.tail is not None:
                starts[rank] = max(starts[rank], start_of_last_lines(path, wanted.cut.tail))
    if not unknown:
        return starts, []
    who = f"{fold(job.ranks[r].node for r in unknown)}: {ranks_named(unknown)}"
    return starts, [f"{who}: the times of its lines are unknown, so --since shows all of them"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _write_report(found: FoundJob, gathering: LogGatherer) -> None:
    """Write the report that the lost `train` would have written."""
    over = found.status.is_over or gathering.progress.launcher_over
    if found.job.final is not None or not over:
        return
    record = found.job.record
    report = report_on(
        record,
        gathering.progress,
        folder=found.job.folder,
        started=record.started,
        duration_s=duration_of(record, gathering.progress, now()),
        clocks=record.clocks,
    )
    if report.state is not JobState.NOT_STARTED and found.status.report.state is not (
        JobState.NOT_STARTED
    ):
        run = Run(record.job_id, found.job.folder, found.secrets)
        run.write_json(REPORT_FILE, report.to_json())


@cluster_verb(
    help={
        "job": JOB_HELP,
        "rank": "Only these ranks, for example 3,8-15",
        "node": "Only the ranks of these nodes, for example atlas-[01-03]",
        "follow": "Continue until the job ends; Ctrl-C ends only the viewing",
        "since": "Only newer lines, with up to 5 s more: 30s, 10m, 2h, 1d, or 2026-01-31T08:00",
        "tail": "Only the last N lines of each rank",
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

    Completes all logs in the job's folder, whichever ranks are printed. When the job is over, also
    writes its report there if it is missing. Writes nothing on the nodes.

    Examples:
      invoke logs                             all ranks of the running job, or of the last one
      invoke logs --rank 0,8-15               only these ranks
      invoke logs --node atlas-2 --follow     live output of a node
      invoke logs --since 10m --grep '(?i)error|nan'
      invoke logs --tail 20                   the last lines of every rank

    Exit codes: 0 done, 2 no such job, rank or node, 4 a node is unreachable, 130 after Ctrl-C.
    """
    cut = Cut(
        pattern=None if grep is None else chosen_pattern(grep),
        since=None if since is None else chosen_time(since, now()),
        tail=None if tail is None else whole_number("logs: --tail", tail, at_least=1),
    )
    screen = Screen(json_mode=True)  # standard output is for the lines of the ranks
    with call.session("logs", call.cluster(), screen=screen) as session:
        found = find_job(session, job)
        coloured = Screen.shows_colours(to_stderr=call.json)
        wanted = LogSelection(
            ranks=chosen_ranks(found.job.record, rank, node),
            cut=cut,
            output=RankOutput(Screen.raw(to_stderr=call.json)),
            coloured=coloured,
            prefix=by_node(found.job.record.nodes) if coloured else plain,
        )
        gathered = gather(found, wanted, follow=follow)
    _tell(screen, found, gathered)
    lost = OutputError.exit_code if wanted.output.lost else 0
    code = UnreachableError.exit_code if gathered.errors else lost
    end(screen, code, _document(found, gathered) if call.json else None)


def _tell(screen: Screen, found: FoundJob, gathered: Gathered) -> None:
    for note in gathered.notes:
        screen.say(note, "yellow")
    for error in gathered.errors.values():
        screen.error(str(error))
    shown = Run("", found.job.folder).shown
    screen.say(f"Logs of job {found.job.record.job_id} are in {shown}")


def _document(found: FoundJob, gathered: Gathered) -> dict[str, object]:
    record = found.job.record
    return {
        "job_id": record.job_id,
        "folder": str(found.job.folder),
        "state": found.status.report.state.value,
        "logs": [
            {"rank": planned.rank, "node": planned.node, "log": rank_log(planned.rank)}
            for planned in record.ranks
        ],
        "problems": [*map(str, gathered.errors.values()), *gathered.notes],
    }
