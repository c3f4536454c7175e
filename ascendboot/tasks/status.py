"""`status`: how a job stands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature

from ascendboot.console import Screen
from ascendboot.errors import UnreachableError
from ascendboot.model.job import JobState
from ascendboot.model.names import fold, ranks_named
from ascendboot.model.spans import span
from ascendboot.state import State
from ascendboot.tasks.common import (
    FORKS,
    FORKS_HELP,
    INVENTORY_HELP,
    JSON_HELP,
    forks_of,
    reports_errors,
    wanted_cluster,
)
from ascendboot.tasks.ending import end
from ascendboot.tasks.flags import task
from ascendboot.tasks.job_rows import SINGLE_ROWS, rank_rows, standstill
from ascendboot.tasks.jobs import JOB_HELP, find_job
from ascendboot.tasks.judged import judged
from ascendboot.tasks.places import places_json, shown_places, where_ranks_are
from ascendboot.tasks.session import Session, run_to_look

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.launch.status import JobStatus, NodeStatus
    from ascendboot.model.job import JobReport, RankEnd


@task(
    help={
        "job": JOB_HELP,
        "inventory": INVENTORY_HELP,
        "lines": "A row for every rank, however many there are, with its whole last line",
        "stacks": "Also see where the ranks are: py-spy where it is found, else /proc",
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
    stacks: bool = False,
    forks: str = FORKS,
    json: bool = False,
) -> None:
    """Show how a job stands, asked from its nodes; nothing is written there.

    Of each rank that runs: since when it has put out nothing, its share of one processor, its
    memory, and its last line. With more than 16 ranks those that do alike are one row.

    Without an id: the job that runs, else the last one that was started from this folder.

    Examples:
      invoke status                           the job that runs, or the last one
      invoke status --stacks                  where its ranks wait, the odd ones first
      invoke status --lines --job 20260102-030405-train-ab12
      invoke status --json | jq .state

    Exit codes: 0 told, 2 no such job, 4 a node of it is unreachable.
    """
    workers = forks_of(forks)
    _, cluster = wanted_cluster(inventory, with_own_table=False)
    state, screen = State.here(), Screen(json_mode=json)
    run = run_to_look(state, "status", cluster.secrets)
    with Session.opened(
        cluster, state, run, accept_new=False, forks=workers, screen=screen
    ) as session:
        found = find_job(session, job, closely=True)
        status_now = judged(found)
        seen = where_ranks_are(found, cluster.python) if stacks else None
    _show(screen, status_now, every=lines)
    for line in shown_places(seen):
        screen.say(f"  {line}")
    for error in found.errors.values():
        screen.error(str(error))
    code = UnreachableError.exit_code if found.errors else 0
    end(screen, code, {**status_now.to_json(), **places_json(seen)} if json else None)


def _show(screen: Screen, found: JobStatus, *, every: bool) -> None:
    report = found.report
    words = report.state.value.replace("_", " ")
    how_long = "for" if report.state is JobState.RUNNING else "after"
    code = "" if report.exit_code is None else f", exit code {report.exit_code}"
    screen.say(
        f"job {report.job_id}  {words} {how_long} {span(report.duration_s)}{code}, "
        f"started {report.started}. Logs in {os.path.relpath(report.folder)}"
    )
    for line in how_it_ended(report):
        screen.say(f"  {line}")
    ends = {end.rank: end for end in report.ranks}
    for nodes, words in _node_rows(found.nodes, ends):
        screen.say(f"  {nodes}  {words}")
    is_running = report.state is JobState.RUNNING
    for row in rank_rows(found.nodes, every=every) if every or is_running else ():
        screen.say(f"    {row}")
    if is_running and (words := standstill(found.nodes)):
        screen.say(f"  {words}", "yellow")
    for note in report.notes:
        screen.say(f"  {note}", "yellow")


def how_it_ended(report: JobReport) -> list[str]:
    """The message, and the cause or else the first failure; what both say is said once."""
    cause = [] if report.cause is None else list(report.cause.lines())
    lines = [report.beside_cause] if report.beside_cause else []
    if not cause and (failure := report.first_failure):
        lines.append(f"{failure.end.node}: rank {failure.end.rank} failed first")
    return lines + cause


def _node_rows(nodes: Sequence[NodeStatus], ends: dict[int, RankEnd]) -> list[tuple[str, str]]:
    """A row for each node; many nodes that are alike share one, few first."""
    if len(nodes) <= SINGLE_ROWS:
        return [(node.node, _node_words(node, ends, counted=False)) for node in nodes]
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(_node_words(node, ends, counted=True), []).append(node.node)
    return [(fold(names), words) for words, names in sorted(groups.items(), key=_few_first)]


def _few_first(group: tuple[str, list[str]]) -> int:
    return len(group[1])


def _node_words(node: NodeStatus, ends: dict[int, RankEnd], *, counted: bool) -> str:
    """How its ranks are; `counted` says how many instead of which, where all are alike."""
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
    parts = [f"{ranks_named(ranks)} {words}" for words, ranks in by_code.items()]
    if counted and len(by_code) == 1:
        parts = [f"all {len(node.ranks)} ranks {words}" for words in by_code]
    if node.launcher_alive is not None:
        parts.append("launcher alive" if node.launcher_alive else "launcher gone")
    return ", ".join(parts)
