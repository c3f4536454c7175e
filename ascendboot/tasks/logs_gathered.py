"""What `logs` gathers from the nodes and prints; or prints alone, while another gathers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.launch.copies import show_copy
from ascendboot.launch.demux import Lines as LogLines
from ascendboot.launch.gather import Gathering, Shown
from ascendboot.launch.kept import size_at, start_of_last_lines, start_of_line
from ascendboot.launch.matching import MatchingLines
from ascendboot.launch.plan import rank_log, rank_marks
from ascendboot.launch.status import duration_of
from ascendboot.launch.verdict import report_on
from ascendboot.model.job import JobState
from ascendboot.model.names import fold, ranks_named
from ascendboot.state import Run
from ascendboot.tasks.jobs import REPORT_FILE, folder_held, now

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from ascendboot.errors import NodeError
    from ascendboot.launch.copies import RankOutput
    from ascendboot.launch.demux import LineView
    from ascendboot.tasks.jobs import FoundJob


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Which lines of a rank's log are printed; all where nothing is said."""

    pattern: re.Pattern[str] | None
    since: datetime | None
    tail: int | None


@dataclass(frozen=True, kw_only=True)
class Wanted:
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


def gather(found: FoundJob, wanted: Wanted, *, follow: bool) -> Gathered:
    """Complete the logs of a job here and print what is wanted of them."""
    with folder_held(found.job.folder) as may_write:
        if not may_write:
            return Gathered(found.errors, _show_only(found, wanted, follow=follow))
        return _follow(found, wanted) if follow else _complete(found, wanted)


def _follow(found: FoundJob, wanted: Wanted) -> Gathered:
    """Print what is here and what comes, until the job ends."""
    record = found.job.record
    if wanted.cut.since is not None or wanted.cut.tail is not None:
        _gathering(found, wanted, {}, follow=False)
    starts, notes = _starts(found, wanted)
    shown = {
        rank: Shown(wanted.view(record.ranks[rank].node, rank), starts[rank])
        for rank in wanted.ranks
    }
    return _ended(found, _gathering(found, wanted, shown, follow=True), notes)


def _complete(found: FoundJob, wanted: Wanted) -> Gathered:
    """Print what is here, once it is all that there is so far."""
    gathering = _gathering(found, wanted, {}, follow=False)
    return _ended(found, gathering, _show_copies(found, wanted))


def _ended(found: FoundJob, gathering: Gathering, notes: list[str]) -> Gathered:
    record = found.job.record
    errors = {**found.errors, **gathering.errors}
    notes = [*notes, *gathering.problems]
    if gathering.is_gone and found.job.final is None:
        notes.append(f"{record.primary}: has nothing of job {record.job_id} (any more)")
    if not errors and not gathering.is_gone:
        _write_report(found, gathering)
    return Gathered(errors, notes)


def _gathering(
    found: FoundJob, wanted: Wanted, shown: Mapping[int, Shown], *, follow: bool
) -> Gathering:
    gathering = Gathering(
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
        clocks=record.clocks,
    )
    if report.state is not JobState.NOT_STARTED and found.status.report.state is not (
        JobState.NOT_STARTED
    ):
        run = Run(record.job_id, found.job.folder, found.secrets)
        run.write_json(REPORT_FILE, report.to_json())
