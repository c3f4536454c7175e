"""`logs`: the output of a job's ranks, gathered from the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature

from ascendboot.console import Screen
from ascendboot.errors import OutputError, UnreachableError
from ascendboot.launch.choice import chosen_pattern, chosen_ranks, chosen_time
from ascendboot.launch.copies import RankOutput
from ascendboot.launch.plan import rank_log
from ascendboot.launch.prefixes import by_node, plain
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
from ascendboot.tasks.ending import end
from ascendboot.tasks.flags import task
from ascendboot.tasks.jobs import JOB_HELP, find_job, now
from ascendboot.tasks.logs_gathered import Cut, Wanted, gather
from ascendboot.tasks.session import Session

if TYPE_CHECKING:
    from ascendboot.tasks.jobs import FoundJob
    from ascendboot.tasks.logs_gathered import Gathered


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
    cut = Cut(
        pattern=None if grep is None else chosen_pattern(grep),
        since=None if since is None else chosen_time(since, now()),
        tail=None if tail is None else whole_number("logs: --tail", tail, at_least=1),
    )
    workers = forks_of(forks)
    _, cluster = wanted_cluster(inventory, with_own_table=False)
    state = State.here()
    run = state.new_run("logs", hidden=cluster.secrets)
    with Session.opened(cluster, state, run, accept_new=False, forks=workers) as session:
        found = find_job(session, job)
        coloured = Screen.shows_colours(to_stderr=json)
        wanted = Wanted(
            ranks=chosen_ranks(found.job.record, rank, node),
            cut=cut,
            output=RankOutput(Screen.raw(to_stderr=json)),
            coloured=coloured,
            prefix=by_node(found.job.record.nodes) if coloured else plain,
        )
        gathered = gather(found, wanted, follow=follow)
    screen = Screen(json_mode=True)
    _tell(screen, found, gathered)
    lost = OutputError.exit_code if wanted.output.lost else 0
    code = UnreachableError.exit_code if gathered.errors else lost
    end(screen, code, _document(found, gathered) if json else None)


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
