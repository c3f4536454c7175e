"""`logs`: the output of a job's ranks, gathered from the nodes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit

from ascendboot.console import Screen
from ascendboot.errors import UnreachableError
from ascendboot.launch.choice import chosen_pattern, chosen_ranks, chosen_time
from ascendboot.launch.copies import Screen as Lines
from ascendboot.launch.copies import show_copy
from ascendboot.launch.demux import Lines as LogLines
from ascendboot.launch.gather import Gathering, Shown
from ascendboot.launch.kept import size_at, start_of_last_lines, start_of_line
from ascendboot.launch.matching import MatchingLines
from ascendboot.launch.plan import rank_log, rank_marks
from ascendboot.launch.status import duration_of
from ascendboot.launch.verdict import report_on
from ascendboot.model.job import JobState
from ascendboot.model.names import fold
from ascendboot.state import Run, State
from ascendboot.tasks.common import (
    FORKS,
    FORKS_HELP,
    INVENTORY_HELP,
    JSON_HELP,
    forks_of,
    reports_errors,
    wanted_cluster,
    whole_number,
)
from ascendboot.tasks.flags import task
from ascendboot.tasks.jobs import JOB_HELP, REPORT_FILE, find_job, folder_held, now
from ascendboot.tasks.session import Session

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from ascendboot.errors import NodeError
    from ascendboot.launch.demux import View
    from ascendboot.tasks.jobs import FoundJob


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be printed, to whom."""

    ranks: tuple[int, ...]
    output: Lines
    since: datetime | None
    tail: int | None
    pattern: re.Pattern[str] | None
    coloured: bool

    def view(self, node: str, rank: int) -> View:
        """Turns a log into what is printed of it."""
        prefix = f"{node}:{rank} | ".encode()
        if self.pattern is None:
            return LogLines(prefix)
        return MatchingLines(prefix, self.pattern, coloured=self.coloured)


@task(
    help={
        "job": JOB_HELP,
        "rank": "Only these ranks, for example 3,8-15",
        "node": "Only the ranks of these nodes, for example atlas-[01-03]",
        "follow": "Go on until the job ends; Ctrl-C only ends the viewing",
        "since": "Only what came since then, up to 5 s more: 30s, 10m, 2h, 1d, or 2026-01-31T08:00",
        "tail": "Only the last so many lines of each rank",
        "grep": "Of these, only lines with a match of this regular expression; (?i) ignores case",
        "inventory": INVENTORY_HELP,
        "forks": FORKS_HELP,
        "json": JSON_HELP,
    },
)
@reports_errors
def logs(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    job: str | None = None,
    rank: str | None = None,
    node: str | None = None,
    follow: bool = False,
    since: str | None = None,
    tail: str | None = None,
    grep: str | None = None,
    inventory: str | None = None,
    forks: str = FORKS,
    json: bool = False,
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
    pattern = None if grep is None else chosen_pattern(grep)
    moment = None if since is None else chosen_time(since, now())
    count = None if tail is None else whole_number("logs: --tail", tail, at_least=1)
    workers = forks_of(forks)
    _, cluster = wanted_cluster(inventory, with_own_table=False)
    state, screen = State.here(), Screen(json_mode=True)
    run = state.new_run("logs")
    with Session.opened(cluster, state, run, accept_new=False, forks=workers) as session:
        found = find_job(session, job)
        record = found.job.record
        wanted = Wanted(
            ranks=chosen_ranks(record, rank, node),
            output=Lines(Screen.raw(to_stderr=json)),
            since=moment,
            tail=count,
            pattern=pattern,
            coloured=Screen.shows_colours(to_stderr=json),
        )
        with folder_held(found.job.folder) as may_write:
            if may_write:
                errors, notes = _gather(found, wanted, follow=follow)
            else:
                errors, notes = found.errors, _show_only(found, wanted, follow=follow)
    for note in notes:
        screen.say(note, "yellow")
    for error in errors.values():
        screen.error(str(error))
    screen.say(f"Logs of job {record.job_id} are in {Run('', found.job.folder).shown}")
    if json:
        screen.json(_document(found, errors, notes))
    if errors:
        raise Exit(code=UnreachableError.exit_code)


def _gather(
    found: FoundJob, wanted: Wanted, *, follow: bool
) -> tuple[Mapping[str, NodeError], list[str]]:
    record = found.job.record
    notes: list[str] = []
    shown: dict[int, Shown] = {}
    if follow:
        if wanted.since is not None or wanted.tail is not None:
            _gathered(found, wanted, {}, follow=False)
        starts, notes = _starts(found, wanted)
        shown = {
            rank: Shown(wanted.view(record.ranks[rank].node, rank), starts[rank])
            for rank in wanted.ranks
        }
    gathering = _gathered(found, wanted, shown, follow=follow)
    errors = {**found.errors, **gathering.errors}
    if not follow:
        notes = _show_copies(found, wanted)
    notes += gathering.problems
    if gathering.is_gone and found.job.final is None:
        notes.append(f"{record.primary}: has nothing of job {record.job_id} (any more)")
    if not errors and not gathering.is_gone:
        _write_report(found, gathering)
    return errors, notes


def _gathered(
    found: FoundJob, wanted: Wanted, shown: Mapping[int, Shown], *, follow: bool
) -> Gathering:
    gathering = Gathering(
        found.job.record,
        found.transports,
        folder=found.job.folder,
        screen=wanted.output,
        shown=shown,
    )
    try:
        if follow:
            gathering.follow()
        gathering.complete()
    finally:
        gathering.close()
    return gathering


def _show_only(found: FoundJob, wanted: Wanted, *, follow: bool) -> list[str]:
    """Another process gathers these logs right now: nothing is written, so nothing is doubled."""
    notes = _show_copies(found, wanted)
    words = "another ascendboot follows this job and gathers its logs: shown is what is there"
    return [*notes, f"{words}; to follow it, look there" if follow else words]


def _show_copies(found: FoundJob, wanted: Wanted) -> list[str]:
    """Print what is here; what is not as it was asked for."""
    starts, notes = _starts(found, wanted)
    for rank in wanted.ranks:
        view = wanted.view(found.job.record.ranks[rank].node, rank)
        path = found.job.folder / rank_log(rank)
        show_copy(path, view, wanted.output, start=starts[rank])
    return notes


def _starts(found: FoundJob, wanted: Wanted) -> tuple[dict[int, int], list[str]]:
    """From where on each rank's copy is to be shown; and of which ranks that is not known."""
    job, folder = found.job.record, found.job.folder
    starts = dict.fromkeys(wanted.ranks, 0)
    unknown: list[int] = []
    for rank in wanted.ranks:
        path = folder / rank_log(rank)
        with suppress(FileNotFoundError):
            if wanted.since is not None:
                at = wanted.since.timestamp() + job.clock_offsets.get(job.ranks[rank].node, 0.0)
                size = size_at(_read(folder / rank_marks(rank)), at)
                starts[rank] = start_of_line(path, size or 0)
                unknown += [rank] if size is None else []
            if wanted.tail is not None:
                starts[rank] = max(starts[rank], start_of_last_lines(path, wanted.tail))
    if not unknown:
        return starts, []
    who = f"{fold(job.ranks[r].node for r in unknown)}: rank {fold(map(str, unknown))}"
    return starts, [f"{who}: nothing here says when its lines came, so --since leaves none out"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _write_report(found: FoundJob, gathering: Gathering) -> None:
    """What the operator that was lost would have written at the end."""
    over = found.status.is_over or gathering.course.launcher_over
    if found.job.final is not None or not over:
        return
    record = found.job.record
    report = report_on(
        record,
        gathering.course,
        folder=found.job.folder,
        started=record.started,
        duration_s=duration_of(record, gathering.course, now()),
        clock_offsets=record.clock_offsets,
        clock_uncertainty_s=record.clock_uncertainty_s,
    )
    if report.state is not JobState.NOT_STARTED and found.status.report.state is not (
        JobState.NOT_STARTED
    ):
        Run(record.job_id, found.job.folder).write_json(REPORT_FILE, report.to_json())


def _document(
    found: FoundJob, errors: Mapping[str, NodeError], notes: list[str]
) -> dict[str, object]:
    record = found.job.record
    return {
        "job_id": record.job_id,
        "folder": str(found.job.folder),
        "state": found.status.report.state.value,
        "logs": [
            {"rank": planned.rank, "node": planned.node, "log": rank_log(planned.rank)}
            for planned in record.ranks
        ],
        "problems": [*map(str, errors.values()), *notes],
    }
