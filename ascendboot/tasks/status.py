"""`status`: how a job stands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit
from invoke.tasks import task

from ascendboot.console import Screen
from ascendboot.errors import UnreachableError
from ascendboot.model.job import JobState
from ascendboot.model.names import fold
from ascendboot.state import State
from ascendboot.tasks.common import (
    FORKS_HELP,
    INVENTORY_HELP,
    JSON_HELP,
    reports_errors,
    wanted_cluster,
)
from ascendboot.tasks.jobs import JOB_HELP, find_job
from ascendboot.tasks.session import Session

if TYPE_CHECKING:
    from ascendboot.launch.status import JobStatus, NodeStatus
    from ascendboot.model.job import RankEnd


@task(
    help={
        "job": JOB_HELP,
        "inventory": INVENTORY_HELP,
        "lines": "Show the last line that each rank wrote",
        "forks": FORKS_HELP,
        "json": JSON_HELP,
    },
)
@reports_errors
def status(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    job: str | None = None,
    inventory: str | None = None,
    lines: bool = False,
    forks: int = 32,
    json: bool = False,
) -> None:
    """Show how a job stands, asked from its nodes; nothing is written there.

    Without an id: the job that runs, else the last one that was started from this folder.

    Examples:
      invoke status                           the job that runs, or the last one
      invoke status --lines --job 20260102-030405-train-ab12
      invoke status --json | jq .state

    Exit codes: 0 told, 2 no such job, 4 a node of it is unreachable.
    """
    _, cluster = wanted_cluster(inventory, with_own_table=False)
    state, screen = State.here(), Screen(json_mode=json)
    run = state.new_run("status")
    with Session.opened(cluster, state, run, accept_new=False, forks=forks) as session:
        found = find_job(session, job, last_lines=lines)
    _show(screen, found.status)
    if json:
        screen.json(found.status.to_json())
    for error in found.errors.values():
        screen.error(str(error))
    if found.errors:
        raise Exit(code=UnreachableError.exit_code)


def _show(screen: Screen, found: JobStatus) -> None:
    report = found.report
    words = report.state.value.replace("_", " ")
    span = "for" if report.state is JobState.RUNNING else "after"
    code = "" if report.exit_code is None else f", exit code {report.exit_code}"
    screen.say(
        f"job {report.job_id}  {words} {span} {report.duration_s:.0f} s{code}, "
        f"started {report.started}. Logs in {os.path.relpath(report.folder)}"
    )
    if report.message:
        screen.say(f"  {report.message}")
    if report.cause is not None:
        for line in report.cause.lines():
            screen.say(f"  {line}")
    elif failure := report.first_failure:
        screen.say(f"  {failure.end.node}: rank {failure.end.rank} failed first")
    ends = {end.rank: end for end in report.ranks}
    for node in found.nodes:
        screen.say(f"  {node.node}  {_node_words(node, ends)}")
        for rank, line in node.last_lines:
            screen.say(f"    {node.node}:{rank} | {line}")
    for note in report.notes:
        screen.say(f"  {note}", "yellow")


def _node_words(node: NodeStatus, ends: dict[int, RankEnd]) -> str:
    if node.problem:
        return "unreachable"
    by_code: dict[str, list[int]] = {}
    for rank in node.ranks:
        code = ends[rank].exit_code
        if rank in node.alive:
            words = "alive"
        elif code is not None:
            words = f"ended with {code}"
        else:
            words = "not seen"
        by_code.setdefault(words, []).append(rank)
    parts = [f"rank {fold(map(str, ranks))} {words}" for words, ranks in by_code.items()]
    if node.launcher_alive is not None:
        parts.append("launcher alive" if node.launcher_alive else "launcher gone")
    return ", ".join(parts)
