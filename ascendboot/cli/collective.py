"""The collective preflight, for `train --preflight` and `check --collective`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import resources
from pathlib import PurePosixPath

from ascendboot.checks.collective.run import Preflight, meet
from ascendboot.checks.finding import error as error_of
from ascendboot.cli.common import on_interrupt
from ascendboot.cli.known_jobs import folder_held, now
from ascendboot.cli.session import Session, code_sender, work_side
from ascendboot.console.screen import Screen
from ascendboot.errors import AscendbootError, InterruptedRunError, LaunchError, UnreachableError
from ascendboot.jobs.follow import Interrupts
from ascendboot.launch.plan import (
    PLAN_FILE,
    PREFLIGHT,
    LaunchPlan,
    LaunchRequest,
    preflight_id,
    record_of,
)
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.report import StepResult
from ascendboot.readiness.ready import check_readiness, job_request
from ascendboot.setup.record import SetupRecord
from ascendboot.setup.results import found
from ascendboot.state import Run
from ascendboot.transport.api import Transport
from ascendboot.transport.pool import connect_all

PHASE = "collective"


def promises(what: str) -> tuple[str, str]:
    """Return the messages for the first and second Ctrl-C while a job or preflight runs."""
    return (
        f"stopping the {what} on all nodes; press Ctrl-C again to kill it",
        f"killing the {what} on all nodes; press Ctrl-C again to leave it as it is",
    )


def pass_preflight(session: Session, request: LaunchRequest, screen: Screen) -> None:
    """Check before a job that its ranks can communicate.

    Raises:
        LaunchError: the job cannot start; the message lists all reasons.
        InterruptedRunError: the operator pressed Ctrl-C.
    """
    screen.say(f"preflight: {len(request.placement.slots)} ranks connect before the job starts")
    try:
        ended = _meet(session, request, session.transports, screen)
    except UnreachableError as error:
        raise LaunchError(_lost(session, error), "The job was not started.") from error
    if ended.is_interrupted:
        raise InterruptedRunError("interrupted in the preflight; the job was not started")
    if not ended.passed:
        errors = [f.message for f in ended.findings if f.level == "error"]
        logs = f"The job was not started. Logs in {session.run.shown}/{PREFLIGHT}"
        raise LaunchError(*errors, logs)
    for finding in ended.findings:
        screen.say(f"preflight: {finding.level}: {finding.message}", "yellow")
    screen.say(f"preflight: passed: {ended.words}", "green")


def check_collective(session: Session, screen: Screen) -> tuple[list[StepResult], bool]:
    """Run a preflight without a job; return its results and whether it was interrupted.

    It uses the open connections of the session. It writes on the nodes and removes everything.
    """
    cluster = session.cluster
    names = tuple(node.name for node in cluster.nodes)
    screen.working("Check communication between ranks")
    try:
        transports = _sides(session)
        ended = _meet(session, _request(session, transports), transports, screen)
    except AscendbootError as error:
        screen.rest()
        words = _lost(session, error) if isinstance(error, UnreachableError) else str(error)
        reason = error_of("preflight-not-run", names, f"the preflight could not be run: {words}")
        return found(PHASE, "allreduce", {}, [reason]), False
    screen.rest()
    if ended.is_interrupted:
        return [], True
    well = dict.fromkeys(names, ended.words if ended.passed else "no findings")
    return found(PHASE, "allreduce", well, ended.findings), False


def _meet(
    session: Session, request: LaunchRequest, transports: Mapping[str, Transport], screen: Screen
) -> Preflight:
    interrupts, folder = Interrupts(), session.run.folder / PREFLIGHT

    @contextmanager
    def known(plan: LaunchPlan) -> Iterator[None]:
        """Record the preflight, so that `status` and `stop` find it if this process is killed."""
        started = now().isoformat(timespec="milliseconds")
        record = record_of(plan, started=started, clocks=NodeClocks())
        Run(plan.job_id, folder).write_json(PLAN_FILE, record)
        with folder_held(folder):
            yield
        (folder / PLAN_FILE).unlink()

    with on_interrupt(interrupts.press, screen, *promises("preflight")):
        ended = meet(
            request,
            transports,
            folder=folder,
            interrupts=interrupts,
            known=known,
            connect=session.connect_again,
            tell=screen.error,
            forks=session.forks,
        )
    document = {**ended.report.to_json(), "findings": [asdict(f) for f in ended.findings]}
    session.run.write_json("preflight.json", document)
    return ended


def _request(session: Session, transports: Mapping[str, Transport]) -> LaunchRequest:
    """Build the request of `train` for the preflight script.

    Raises:
        LaunchError: the nodes have changed since setup, or setup was not run from here.
        InventoryError: the code on the control machine cannot be read.
    """
    cluster, document = session.cluster, session.state.applied(session.cluster.name)
    if document is None:
        raise LaunchError("the cluster was not set up from here; run setup")
    applied = SetupRecord.from_json(document)
    if outdated := applied.why_outdated(cluster):
        raise LaunchError(f"{outdated}; run setup again")
    cluster = cluster.with_leaves(applied.leaves)
    script = resources.files("ascendboot.checks.collective").joinpath("rank.py")
    with resources.as_file(script) as file:
        ready = check_readiness(
            cluster,
            applied,
            transports,
            str(file),
            hosts=session.hosts,
            forks=session.forks,
            sending=code_sender(cluster, threading.Event()),
        )
        if ready.problems:
            raise LaunchError("; ".join(ready.problems))
        anywhere = replace(ready, is_copied=True, script=PurePosixPath(file.name))
        return job_request(
            cluster, applied, anywhere, script=str(file), job_id=session.run.run_id, grace_s=0.0
        )


def _sides(session: Session) -> Mapping[str, Transport]:
    """Return the workload sides of all nodes, over the open connections.

    Raises:
        NodeError: a node is not connected, or its container cannot be entered.
    """
    cluster = session.cluster
    lost = [node.name for node in cluster.nodes if node.name not in session.hosts]
    if lost:
        raise LaunchError(f"not all nodes are reachable: {', '.join(lost)}")
    sides, errors = connect_all(
        cluster.nodes,
        lambda node: work_side(node, session.hosts[node.name]),
        forks=session.forks,
    )
    for error in errors.values():
        raise error
    return sides


def _lost(session: Session, error: UnreachableError) -> str:
    words = f"stop --job {preflight_id(session.run.run_id)} ends them at once"
    return f"{error.node}: lost in the preflight; its ranks end within minutes; {words}"
