"""`reset`: take back what setup did."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import nullcontext

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit

from ascendboot.console import Screen
from ascendboot.engine.progress import Progress
from ascendboot.errors import UsageError
from ascendboot.model.report import Outcome
from ascendboot.state import State, whoami
from ascendboot.steps.lock import locks
from ascendboot.takeback.leftovers import results
from ascendboot.takeback.reset import HERE, Reset
from ascendboot.tasks.common import (
    FORKS,
    FORKS_HELP,
    INVENTORY_HELP,
    JSON_HELP,
    forks_of,
    on_interrupt,
    reports_errors,
    wanted_cluster,
)
from ascendboot.tasks.ending import end
from ascendboot.tasks.flags import task
from ascendboot.tasks.session import Session
from ascendboot.tasks.walking import OnScreen


@task(
    help={
        "inventory": INVENTORY_HELP,
        "plan": "Show what would be taken back, and change nothing",
        "yes": "Do not ask; needed with --json, and where there is no terminal to ask on",
        "forks": FORKS_HELP,
        "json": JSON_HELP,
    }
)
@reports_errors
def reset(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    inventory: str | None = None,
    plan: bool = False,
    yes: bool = False,
    forks: str = FORKS,
    json: bool = False,
) -> None:
    """Take back what setup did on the nodes and here, and nothing else.

    Ends the cluster's own sshd and removes the cluster's folder on every node, logs of jobs there
    included. Files that ascendboot did not make, such as checkpoints, are left and named. The runs
    kept here stay, and so do the host keys that were accepted. Refused while a job runs.

    Examples:
      invoke reset --plan                     what would be taken back; changes nothing
      invoke reset --inventory two-node.yaml --yes

    Exit codes: 0 done, 1 a job runs or something could not be taken back, 2 wrong use, 4 a node is
    unreachable, 130 interrupted.
    """
    workers = forks_of(forks)
    path, cluster = wanted_cluster(inventory, with_own_table=False)
    state, screen = State.here(), Screen(json_mode=json)
    run = state.new_run("reset")
    guard = nullcontext() if plan else state.locked(cluster.name, run.run_id)
    interrupted = threading.Event()
    promise = "what runs on the nodes is let finish; press Ctrl-C again to stop at once"
    with (
        on_interrupt(interrupted.set, screen, promise),
        guard,
        Session.opened(
            cluster, state, run, accept_new=False, forks=workers, screen=screen
        ) as session,
    ):
        walk = Reset(
            Progress(cluster, OnScreen(screen), interrupted, workers),
            here=state.setup_left_here(cluster.name, path),
            locks=locks(cluster.name, f"run {run.run_id} of {whoami()}"),
            former=session.former,
        )
        if walk.look(session.connect_hosts_to_look):
            if plan:
                walk.plan()
            elif not walk.has_work:
                walk.say_nothing()
            elif _agreed(walk, screen, yes=yes, asks=not json):
                walk.apply(session.hosts)
    report = walk.progress.report(run.run_id)
    run.write_json("report.json", report.to_json())
    screen.summary(report, run.shown, planned=plan)
    end(screen, report.exit_code, report.to_json() if json else None)


def _agreed(walk: Reset, screen: Screen, *, yes: bool, asks: bool) -> bool:
    if yes:
        return True
    if not (asks and sys.stdin.isatty()):
        seen = "there is no terminal" if asks else "--json was said"
        raise UsageError(
            f"reset: could not ask whether to take back the setup of {walk.cluster.name}: {seen}; "
            "see --plan, and say --yes"
        )
    for node, found in walk.found.items():
        for result in results(node, found, Outcome.WOULD_CHANGE):
            screen.say(f"  {node}  {result.detail}")
    for path in walk.here:
        screen.say(f"  {HERE}  {os.path.relpath(path)} would be removed")
    if screen.agrees(f"Take back the setup of {walk.cluster.name}?"):
        return True
    raise Exit("nothing was changed", code=1)
