"""Shows and gathers the logs of a job: `logs`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.cli.common import end, whole_number
from ascendboot.cli.jobs import JOB_HELP, REPORT_FILE, find_job, folder_held, now
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import OutputError, UnreachableError
from ascendboot.jobs.gather import LogGatherer, Selection
from ascendboot.jobs.logs import MatchingLines, chosen_pattern, chosen_ranks, chosen_time
from ascendboot.jobs.output import Lines as LogLines
from ascendboot.jobs.output import (
    RankOutput,
    by_node,
    plain,
    show_copy,
    size_at,
    start_of_last_lines,
    start_of_line,
)
from ascendboot.jobs.report import report_on
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

    from ascendboot.cli.jobs import FoundJob
    from ascendboot.errors import NodeError
    from ascendboot.jobs.output import LineView


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Which lines of a rank's log are printed; all where nothing is said."""

    pattern: re.Pattern[str] | None
    since: datetime | None
    tail: int | None


@dataclass(frozen=True, kw_only=True)
class LogSelection:
    """What is to be printed, to whom."""

    ranks: tuple[int, ...]
    cut: Cut
    output: RankOutput
    coloured: bool
    """What is found is shown in red."""
    prefix: Callable[[str, int], bytes]
    """Of a node and a rank; stands before each line."""

    def view(self, node: str, rank: int) -> LineView:
        """Turns a log into what is printed of it."""
        prefix = self.prefix(node, rank)
        if self.cut.pattern is None:
            return LogLines(prefix)
        return MatchingLines(prefix, self.cut.pattern, coloured=self.coloured)


@dataclass(frozen=True)
class Gathered:
    """What is to be told of the gathering, once all is printed."""

    errors: Mapping[str, NodeError]
    """Nodes that did not give what they have."""
    notes: list[str]


def gather(found: FoundJob, wanted: LogSelection, *, follow: bool) -> Gathered:
    """Complete the logs of a job here and print what is wanted of them."""
    with folder_held(found.job.folder) as may_write:
        if not may_write:
            return Gathered(found.errors, _show_only(found, wanted, follow=follow))
        return _follow(found, wanted) if follow else _complete(found, wanted)


def _follow(found: FoundJob, wanted: LogSelection) -> Gathered:
    """Print what is here and what comes, until the job ends."""
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
    """Print what is here, once it is all that there is so far."""
    gathering = _gathering(found, wanted, {}, follow=False)
    return _ended(found, gathering, _show_copies(found, wanted))


def _ended(found: FoundJob, gathering: LogGatherer, notes: list[str]) -> Gathered:
    record = found.job.record
    errors = {**found.errors, **gathering.errors}
    notes = [*notes, *gathering.problems]
    if gathering.is_gone and found.job.final is None:
        notes.append(f"{record.primary}: has nothing of job {record.job_id} (any more)")
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
    """Another process gathers these logs right now: nothing is written, so nothing is doubled."""
    notes = _show_copies(found, wanted)
    words = "another ascendboot follows this job and gathers its logs: shown is what is there"
    return [*notes, f"{words}; to follow it, look there" if follow else words]


def _show_copies(found: FoundJob, wanted: LogSelection) -> list[str]:
    """Print what is here; what is not as it was asked for."""
    starts, notes = _starts(found, wanted)
    for rank in wanted.ranks:
        view = wanted.view(found.job.record.ranks[rank].node, rank)
        path = found.job.folder / rank_log(rank)
        show_copy(path, view, wanted.output, start=starts[rank])
    return notes


def _starts(found: FoundJob, wanted: LogSelection) -> tuple[dict[int, int], list[str]]:
    """From where on each rank's copy is to be shown; and of which ranks that is not known."""
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
    return starts, [f"{who}: nothing here says when its lines came, so --since leaves none out"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _write_report(found: FoundJob, gathering: LogGatherer) -> None:
    """What the operator that was lost would have written at the end."""
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
        "follow": "Go on until the job ends; Ctrl-C only ends the viewing",
        "since": "Only what came since then, up to 5 s more: 30s, 10m, 2h, 1d, or 2026-01-31T08:00",
        "tail": "Only the last so many lines of each rank",
        "grep": "Of these, only lines with a match of this regular expression; (?i) ignores case",
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
    """Gather what is missing of a job's logs from its nodes, and print them as `NODE:RANK | line`.

    All logs are completed in the folder of the job's run, whichever ranks are printed. Once the job
    is over its report is written there, too, if that is still missing. Nothing is written on nodes.

    Examples:
      invoke logs                             all ranks of the job that runs, or of the last one
      invoke logs --rank 0,8-15               these ranks alone
      invoke logs --node atlas-2 --follow     what is written there, as it comes
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
