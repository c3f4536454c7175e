"""Ranks before a job: `train --preflight`, and the flags of `check` that start ranks."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import PurePosixPath

from ascendboot.checks.collective.findings import Notes, read_notes
from ascendboot.checks.collective.hccl_test import MISSING, NOT_RUN, HcclPlan, HcclTest, check_hccl
from ascendboot.checks.collective.node_check import Start, check_all, not_run, skipped
from ascendboot.checks.collective.run import Preflight, Runner, meet, program_plan
from ascendboot.checks.finding import error as error_of
from ascendboot.checks.finding import grouped, in_order
from ascendboot.cli.common import on_interrupt
from ascendboot.cli.known_jobs import folder_held, now
from ascendboot.cli.session import Session, code_sender, work_side
from ascendboot.console.screen import Screen
from ascendboot.errors import (
    AscendbootError,
    InterruptedRunError,
    LaunchError,
    NodeError,
    UnreachableError,
)
from ascendboot.jobs.follow import Interrupts
from ascendboot.launch.launchers import traits_of
from ascendboot.launch.plan import (
    PLAN_FILE,
    PREFLIGHT,
    LaunchPlan,
    LaunchRequest,
    preflight_id,
    record_of,
)
from ascendboot.model.cluster import MPIRUN, Cluster, NodeClocks, Placement
from ascendboot.model.job import JobReport
from ascendboot.model.names import counted
from ascendboot.model.report import StepResult
from ascendboot.readiness.ready import Readiness, check_readiness, job_request
from ascendboot.setup.record import SetupRecord
from ascendboot.setup.results import found
from ascendboot.state import Run
from ascendboot.templates import installed_templates, script
from ascendboot.transport.api import Transport, read_script
from ascendboot.transport.pool import on_each, results_and_errors
from ascendboot.value import as_json, replace

PHASE = "collective"
NODE_CHECK = "node-check"
HCCL_TEST = "hccl-test"
"""Phases, and the beginnings of the names of their folders in that of the run."""


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
    try:
        transports, errors = _sides(session)
        if lost := [name for name in names if name not in session.hosts]:
            raise LaunchError(f"not all nodes are reachable: {', '.join(lost)}")
        for error in errors.values():
            raise error
        ready, request = _request(session, *_applied(session), transports)
        if ready.problems:
            raise LaunchError("; ".join(ready.problems))
        ended = _meet(session, request, transports, screen)
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


def check_nodes(session: Session, screen: Screen) -> tuple[list[StepResult], bool]:
    """Measure devices and pairs of nodes; return results and whether it was interrupted.

    Nodes that are not ready for a job, or that a job uses, take no part.
    """
    names = tuple(node.name for node in session.cluster.nodes)
    try:
        transports, errors = _sides(session)
        request, left_out = _idle_part(session, transports, errors, names)
        titles = {"device": "Measure every device", "pair": "Exchange data within pairs"}
        with _runner(session, transports, screen, "node check") as runner:
            program = script("measure.py")
            start = _rounds(
                session, request, runner, screen, NODE_CHECK, titles=titles, program=program
            )
            checked = check_all(request, start, session.cluster.chief_port + 1)
    except AscendbootError as error:
        screen.rest()
        words = _lost(session, error) if isinstance(error, UnreachableError) else str(error)
        return found(NODE_CHECK, "devices", {}, [not_run(names, words)]), False
    screen.rest()
    findings = in_order([*checked.findings, *skipped(left_out)])
    document = {**checked.to_json(), "findings": as_json(findings)}
    session.run.write_json(f"{NODE_CHECK}.json", document)
    bad = {name for finding in findings if finding.level == "error" for name in finding.nodes}
    well = {n: line for n, line in checked.words(request.placement).items() if n not in bad}
    results = found(NODE_CHECK, "devices", {}, findings) + found(NODE_CHECK, "devices", well, [])
    return results, checked.interrupted


def check_hccl_test(
    session: Session, screen: Screen, wanted: HcclPlan
) -> tuple[list[StepResult], bool]:
    """Run HCCL Test on the wanted nodes and devices; otherwise as `check_nodes`."""
    names, tested = tuple(node.name for node in session.cluster.nodes), HcclTest()
    try:
        transports, errors = _sides(session)
        request, left_out = _idle_part(session, transports, errors, wanted.nodes or names)
        request = _for_hccl_test(request, wanted.devices)
        tested = _hccl_test(session, request, transports, screen, wanted)
    except AscendbootError as error:
        words = _lost(session, error) if isinstance(error, UnreachableError) else str(error)
        text = f"HCCL Test could not be run: {words}"
        return found(HCCL_TEST, "devices", {}, [error_of(NOT_RUN, names, text)]), False
    finally:
        screen.rest()
    findings = in_order([*tested.findings, *skipped(left_out)])
    document = {**tested.to_json(), "rows": tested.rows, "before": tested.before}
    document["findings"] = as_json(findings)
    session.run.write_json(f"{HCCL_TEST}.json", document)
    line = f"{counted(request.placement.world_size, 'device')}: {tested.line}"
    well = dict.fromkeys((n.name for n in request.placement.nodes if tested.rows), line)
    return found(HCCL_TEST, "devices", well, findings), tested.interrupted


def _for_hccl_test(request: LaunchRequest, ids: Collection[str]) -> LaunchRequest:
    """The request for some devices, with a launcher of MPI.

    Raises:
        LaunchError: the primary has none of the devices.
    """
    chosen = [slot for slot in request.placement.slots if not ids or str(slot.device_id) in ids]
    numbers = defaultdict[str, Iterator[int]](count)
    slots = [replace(slot, local_rank=next(numbers[slot.node.name])) for slot in chosen]
    if not slots or slots[0].node != request.placement.primary:
        raise LaunchError(f"the primary has none of the devices {', '.join(sorted(ids))}")
    launcher = request.launcher if traits_of(request.launcher).openmpi else MPIRUN
    return replace(request, placement=Placement(tuple(slots)), launcher=launcher)


def _hccl_test(
    session: Session,
    request: LaunchRequest,
    transports: Mapping[str, Transport],
    screen: Screen,
    wanted: HcclPlan,
) -> HcclTest:
    program, mpirun = script("hccl_test.py"), str(request.mpirun)
    words = (str(request.base), request.python, "-c", program, "find", mpirun, wanted.operation)
    run_python = script("collective-python.sh")
    command = read_script(run_python, *words, purpose="find HCCL Test", timeout_s=30.0)
    nodes = [node.name for node in request.placement.nodes]
    answers = on_each(nodes, lambda name: transports[name].run(command), forks=session.forks)
    found = ((a.lines, n) for n, a in answers.items() if not isinstance(a, NodeError))
    lacking = grouped((lines, n) for lines, n in found if lines and lines[0][:5] != "tool ")
    if lacking:
        errors = [error_of(MISSING, (*n,), *lines[:2]) for lines, n in lacking.items()]
        return HcclTest(findings=errors)
    state, cluster = session.state, session.cluster.name
    places = (f"{slot.node.name}:{slot.device_id}" for slot in request.placement.slots)
    key = f"{wanted.operation} {wanted.least}-{wanted.most} {' '.join(places)}"
    rates = state.hccl_rates(cluster)
    titles = {"pairs": "HCCL Test on pairs of devices", "whole": "HCCL Test on all devices"}
    with _runner(session, transports, screen, "HCCL Test") as runner:
        start = _rounds(session, request, runner, screen, HCCL_TEST, titles=titles, program=program)
        tested = check_hccl(request, start, wanted, rates.get(key, {}))
    if tested.rows and session.run.folder.parent == state.runs:
        best = max(tested.peak, tested.before.get("best", 0.0))
        state.remember_hccl_rates(cluster, {**rates, key: {"last": tested.peak, "best": best}})
    return tested


def _rounds(
    session: Session,
    request: LaunchRequest,
    runner: Runner,
    screen: Screen,
    name: str,
    *,
    titles: Mapping[str, str],
    program: str,
) -> Start:
    """Return what runs a round of a check on all ranks, and keeps its logs in `NAME-N/`."""
    folder, numbers = session.run.folder / PREFLIGHT, count(1)

    def start(words: tuple[str, ...]) -> tuple[Notes, JobReport]:
        number = next(numbers)
        screen.working(f"{titles[words[0]]} (round {number})")
        report = runner.run(program_plan(request, program.encode(), words, grace_s=1.0))
        notes = read_notes(folder, range(request.placement.world_size))
        if folder.exists():
            folder.rename(folder.with_name(f"{name}-{number}"))
        return notes, report

    return start


def _idle_part(
    session: Session,
    transports: Mapping[str, Transport],
    errors: Mapping[str, NodeError],
    chosen: Collection[str],
) -> tuple[LaunchRequest, Mapping[str, str]]:
    """Return the request of a job on all chosen nodes that could start one, and why others cannot.

    Raises:
        LaunchError: the primary is left out, setup was not run from here, or is outdated.
    """
    cluster, applied = _applied(session)
    primary = cluster.primary_name
    reasons = {name: error.message for name, error in errors.items() if name in {*chosen, primary}}
    while primary not in reasons:
        others = [n for n in chosen if n not in reasons and n != primary]
        part = applied.part_of(cluster, [primary, *others])
        ready, request = _request(session, *part, transports)
        if not ready.problems and not ready.leftovers:
            # Each pair makes its own group: neither a rank table nor CM_ variables may be set.
            return replace(request, rank_table=None, rank_table_sha256="", chief={}), reasons
        left = {
            name: f"job {it.job_id} left processes" for it in ready.leftovers for name in it.pids
        }
        if not ready.unready and not left:
            raise LaunchError("; ".join((*ready.problems, *ready.left)))
        reasons |= {**left, **ready.unready}
    raise LaunchError(f"the primary, {primary}, cannot take part: {reasons[primary]}")


def _meet(
    session: Session, request: LaunchRequest, transports: Mapping[str, Transport], screen: Screen
) -> Preflight:
    with _runner(session, transports, screen, "preflight") as runner:
        ended = meet(request, runner)
    document = {**ended.report.to_json(), "findings": as_json(ended.findings)}
    session.run.write_json("preflight.json", document)
    return ended


@contextmanager
def _runner(
    session: Session, transports: Mapping[str, Transport], screen: Screen, what: str
) -> Iterator[Runner]:
    """Provide what runs preflights; Ctrl-C ends them."""
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

    with on_interrupt(interrupts.press, screen, *promises(what)):
        yield Runner(
            transports=transports,
            folder=folder,
            interrupts=interrupts,
            known=known,
            connect=session.connect_again,
            tell=screen.error,
            forks=session.forks,
        )


def _request(
    session: Session,
    cluster: Cluster,
    applied: SetupRecord,
    transports: Mapping[str, Transport],
) -> tuple[Readiness, LaunchRequest]:
    """Query the nodes, and build the request of `train` for the preflight script.

    Raises:
        InventoryError: the code on the control machine cannot be read.
    """
    file = installed_templates() / "scripts/meet.py"
    ready = check_readiness(
        cluster,
        applied,
        transports,
        str(file),
        hosts=session.hosts,
        forks=session.forks,
        sending=code_sender(cluster, threading.Event()),
    )
    anywhere = replace(ready, is_copied=True, script=PurePosixPath(file.name))
    return ready, job_request(
        cluster, applied, anywhere, script=str(file), job_id=session.run.run_id, grace_s=0.0
    )


def _applied(session: Session) -> tuple[Cluster, SetupRecord]:
    """Return the cluster as `setup` left it, and its record.

    Raises:
        LaunchError: setup was not run from here, or is outdated.
    """
    document = session.state.applied(session.cluster.name)
    if document is None:
        raise LaunchError("the cluster was not set up from here; run setup")
    applied = SetupRecord.from_json(document)
    if outdated := applied.why_outdated(session.cluster):
        raise LaunchError(f"{outdated}; run setup again")
    return session.cluster.with_leaves(applied.leaves), applied


def _sides(session: Session) -> tuple[dict[str, Transport], dict[str, NodeError]]:
    """Return the workload sides of the nodes over the open connections, and why some have none."""
    hosts, nodes = session.hosts, session.cluster.nodes
    sides, errors = results_and_errors(
        [node for node in nodes if node.name in hosts],
        lambda node: work_side(node, hosts[node.name]),
        forks=session.forks,
    )
    lost = {
        n.name: UnreachableError(n.name, "it is not reachable")
        for n in nodes
        if n.name not in hosts
    }
    return dict(sides), {**errors, **lost}


def _lost(session: Session, error: UnreachableError) -> str:
    words = f"stop --job {preflight_id(session.run.run_id)} ends them at once"
    return f"{error.node}: lost in the preflight; its ranks end within minutes; {words}"
