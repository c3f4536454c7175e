"""Launching a job on nodes that are ready: shown, left to itself or followed to its end.

`train` loads this, and all that a launch needs with it, while the nodes look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.console import Screen
from ascendboot.errors import LaunchError, UnreachableError
from ascendboot.launch.detached import start_detached
from ascendboot.launch.patience import Interrupts
from ascendboot.launch.planning import plan as plan_launch
from ascendboot.launch.prefixes import by_node, plain
from ascendboot.launch.record import PLAN_FILE, record_of
from ascendboot.launch.run import run as run_launch
from ascendboot.launch.verdict import running_report
from ascendboot.launch.watch import HangRules
from ascendboot.model.names import counted
from ascendboot.tasks.before_start import settle
from ascendboot.tasks.common import on_interrupt
from ascendboot.tasks.ending import end, exit_with
from ascendboot.tasks.job_request import job_request
from ascendboot.tasks.jobs import REPORT_FILE, folder_held, now

if TYPE_CHECKING:
    from ascendboot.applied import Applied
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.request import LaunchRequest
    from ascendboot.model.clocks import NodeClocks
    from ascendboot.model.job import JobReport
    from ascendboot.ready import Readiness
    from ascendboot.tasks.order import Order
    from ascendboot.tasks.session import Session


def launch(session: Session, applied: Applied, ready: Readiness, order: Order) -> None:
    """Plan the job, then show the plan, or start the job and leave or follow it.

    Raises:
        LaunchError: it cannot be, or nothing of it was started.
        Exit: it was not to end with 0.
    """
    screen, run = Screen(json_mode=True), session.run
    settle(
        ready,
        session.transports,
        order.rules,
        screen,
        planning=order.plan,
        grace_s=order.grace_s,
        forks=session.forks,
    )
    request = job_request(
        session.cluster,
        applied,
        ready,
        script=order.script,
        job_id=run.run_id,
        grace_s=order.grace_s,
        min_nodes=order.min_nodes,
        notes=order.rules.notes,
    )
    if order.min_nodes is not None:
        from ascendboot.launch.elastic import refuse_clocks_apart  # noqa: PLC0415 - if asked for

        refuse_clocks_apart(ready.clocks)
    plan = plan_launch(request)
    if order.plan:
        _show(screen, plan, as_json=order.json)
        if order.preflight:
            screen.say("before it, started in the same way: the collective preflight")
        return
    if order.preflight:
        _pass_preflight(session, request, screen)
    started = now().isoformat(timespec="milliseconds")
    run.write_json(PLAN_FILE, record_of(plan, started=started, clocks=ready.clocks))
    if order.detach:
        _detach(session, plan, screen, started=started, as_json=order.json)
        return
    with folder_held(run.folder):
        report = _run(session, plan, ready.clocks, screen, order).without(run.secrets)
        _keep_report(session, report, screen)
    screen.job(report, run.shown)
    end(screen, report.exit_code or 0, report.to_json() if order.json else None)


def _show(screen: Screen, launch: LaunchPlan, *, as_json: bool) -> None:
    if as_json:
        screen.json(launch.to_json())
    else:
        screen.text(launch.describe())


def _pass_preflight(session: Session, request: LaunchRequest, screen: Screen) -> None:
    from ascendboot.tasks.preflight import pass_preflight  # noqa: PLC0415 - only if asked for

    pass_preflight(session, request, screen)


def _detach(
    session: Session, launch: LaunchPlan, screen: Screen, *, started: str, as_json: bool
) -> None:
    """Start the job, or nothing of it, and say how to go on."""
    try:
        start_detached(launch, session.transports, forks=session.forks)
    except LaunchError:
        (session.run.folder / PLAN_FILE).unlink()
        raise
    job = launch.job_id
    screen.say(f"job {job}: started. It goes on without you:")
    screen.say(f"  {launch.script_words}")
    for verb in (f"status --job {job}", f"logs --follow --job {job}", f"stop --job {job}"):
        screen.say(f"  invoke {verb}")
    if as_json:
        screen.json(running_report(launch, started, str(session.run.folder)).to_json())
    else:
        screen.text(job)


def _run(
    session: Session,
    launch: LaunchPlan,
    clocks: NodeClocks,
    screen: Screen,
    order: Order,
) -> JobReport:
    """Start the job and follow it to its end."""
    ranks, nodes = counted(len(launch.ranks), "rank"), counted(len(launch.nodes), "node")
    screen.say(f"job {launch.job_id}: starting {ranks} on {nodes}")
    screen.say(launch.script_words)
    in_colours = Screen.shows_colours(to_stderr=order.json)
    interrupts = Interrupts()
    promises = (
        "stopping the job on all nodes; press Ctrl-C again to kill it",
        "killing the job on all nodes; press Ctrl-C again to leave it as it is",
    )
    with on_interrupt(interrupts.press, screen, *promises):
        try:
            return run_launch(
                launch,
                session.transports,
                folder=session.run.folder,
                sink=Screen.raw(to_stderr=order.json),
                prefix=by_node(launch.nodes) if in_colours else plain,
                interrupts=interrupts,
                clocks=clocks,
                connect=session.connect_again,
                forks=session.forks,
                hangs=HangRules(
                    timeout_s=order.hangs.timeout_s, stops=order.hangs.stops, tell=screen.error
                ),
            )
        except UnreachableError as error:  # the job was started and goes on without us
            job = {"job_id": launch.job_id, "folder": str(session.run.folder)}
            raise exit_with(str(error), error.exit_code, {"json": order.json}, job) from error


def _keep_report(session: Session, report: JobReport, screen: Screen) -> None:
    """The job is over: what cannot be kept of it here changes nothing of its exit code."""
    try:
        session.run.write_json(REPORT_FILE, report.to_json())
    except OSError as error:
        screen.error(f"could not keep the report: {error}")
    if session.problem:
        screen.error(session.problem)
