"""`logs`: the output of a job's ranks, gathered from the nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit
from invoke.tasks import task

from ascendboot.console import Screen
from ascendboot.errors import UnreachableError, UsageError
from ascendboot.launch.copies import Screen as Lines
from ascendboot.launch.copies import show_copy
from ascendboot.launch.gather import Gathering
from ascendboot.launch.plan import rank_log
from ascendboot.launch.status import duration_of
from ascendboot.launch.verdict import report_on
from ascendboot.model.job import JobState
from ascendboot.state import Run, State
from ascendboot.tasks.common import (
    FORKS_HELP,
    INVENTORY_HELP,
    JSON_HELP,
    reports_errors,
    wanted_cluster,
)
from ascendboot.tasks.jobs import JOB_HELP, REPORT_FILE, find_job, folder_held, now
from ascendboot.tasks.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.errors import NodeError
    from ascendboot.launch.record import JobRecord
    from ascendboot.tasks.jobs import FoundJob

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@task(
    help={
        "job": JOB_HELP,
        "rank": "Only these ranks, for example 3,8-15",
        "node": "Only the ranks of this node",
        "follow": "Go on until the job ends; Ctrl-C only ends the viewing",
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
    inventory: str | None = None,
    forks: int = 32,
    json: bool = False,
) -> None:
    """Gather what is missing of a job's logs from its nodes, and print them as `NODE:RANK | line`.

    All logs are completed in the folder of the job's run, whichever ranks are printed. Once the job
    is over its report is written there, too, if that is still missing. Nothing is written on nodes.

    Examples:
      invoke logs                             all ranks of the job that runs, or of the last one
      invoke logs --rank 0,8-15               these ranks alone
      invoke logs --node atlas-2 --follow     what is written there, as it comes

    Exit codes: 0 done, 2 no such job, rank or node, 4 a node is unreachable, 130 after Ctrl-C.
    """
    _, cluster = wanted_cluster(inventory, with_own_table=False)
    state, screen = State.here(), Screen(json_mode=True)
    run = state.new_run("logs")
    with Session.opened(cluster, state, run, accept_new=False, forks=forks) as session:
        found = find_job(session, job)
        record = found.job.record
        shown = _wanted_ranks(record, rank, node)
        output = Lines(Screen.raw(to_stderr=json))
        with folder_held(found.job.folder) as may_write:
            if may_write:
                errors, notes = _gather(found, output, shown, follow=follow)
            else:
                errors, notes = found.errors, _show_only(found, output, shown, follow=follow)
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
    found: FoundJob, output: Lines, shown: tuple[int, ...], *, follow: bool
) -> tuple[Mapping[str, NodeError], list[str]]:
    record, folder = found.job.record, found.job.folder
    gathering = Gathering(
        record,
        found.transports,
        folder=folder,
        screen=output,
        shown=shown if follow else (),
    )
    try:
        if follow:
            gathering.follow()
        gathering.complete()
    finally:
        gathering.close()
    errors = {**found.errors, **gathering.errors}
    if not follow:
        _show_copies(record, found, output, shown)
    notes = list(gathering.problems)
    if gathering.is_gone and found.job.final is None:
        notes.append(f"{record.primary}: has nothing of job {record.job_id} (any more)")
    if not errors and not gathering.is_gone:
        _write_report(found, gathering)
    return errors, notes


def _show_only(
    found: FoundJob, output: Lines, shown: tuple[int, ...], *, follow: bool
) -> list[str]:
    """Another process gathers these logs right now: nothing is written, so nothing is doubled."""
    _show_copies(found.job.record, found, output, shown)
    words = "another ascendboot follows this job and gathers its logs: shown is what is there"
    return [f"{words}; to follow it, look there" if follow else words]


def _show_copies(record: JobRecord, found: FoundJob, output: Lines, shown: tuple[int, ...]) -> None:
    for planned in record.ranks:
        if planned.rank in shown:
            prefix = f"{planned.node}:{planned.rank} | ".encode()
            show_copy(found.job.folder / rank_log(planned.rank), prefix, output)


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


def _wanted_ranks(record: JobRecord, ranks: str | None, node: str | None) -> tuple[int, ...]:
    """The ranks to print.

    Raises:
        UsageError: a rank or the node is none of the job's.
    """
    if node is not None and node not in record.nodes:
        raise UsageError(
            f'logs: --node: "{node}" has no rank of job {record.job_id}; '
            f"its nodes are {', '.join(record.nodes)}"
        )
    wanted = None if ranks is None else _ranks(ranks, len(record.ranks))
    return tuple(
        planned.rank
        for planned in record.ranks
        if (node is None or planned.node == node) and (wanted is None or planned.rank in wanted)
    )


def _ranks(text: str, count: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise UsageError(f'logs: --rank: "{part}" is neither a rank nor a range such as 8-15')
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last >= count:
            raise UsageError(
                f'logs: --rank: "{part}" is not within the ranks of the job, 0 to {count - 1}'
            )
        found.update(range(first, last + 1))
    return found


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
