"""Ranks before a job: `train --preflight`, and the flags of `check` that start ranks."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import PurePosixPath
from typing import TypeAlias

from ascendboot import errors
from ascendboot.checks.collective import hccl_test, node_check
from ascendboot.checks.collective.findings import Notes, read_notes
from ascendboot.checks.collective.hccl_test import HcclPlan, HcclTest
from ascendboot.checks.collective.run import Preflight, Runner, meet, program_plan
from ascendboot.checks.finding import error as error_of
from ascendboot.checks.finding import grouped, in_order
from ascendboot.cli.common import stopped_in_steps
from ascendboot.cli.known_jobs import folder_held, now
from ascendboot.cli.session import Session, code_sender, setup_record_of, work_side
from ascendboot.errors import AscendbootError, LaunchError, NodeError, UnreachableError
from ascendboot.jobs.follow import Interrupts
from ascendboot.launch import plan as planning
from ascendboot.launch.launchers import traits_of
from ascendboot.launch.plan import PLAN_FILE, PREFLIGHT, LaunchPlan, LaunchRequest
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
from ascendboot.value import Value, as_json, field, replace

COLLECTIVE = "collective"
NODE_CHECK = "node-check"
HCCL_TEST = "hccl-test"
"""Phases, and the beginnings of the names of their folders in that of the run."""
_CHECKS = {
    NODE_CHECK: (
        "Measure devices and pairs of nodes",
        *(node_check.NOT_RUN, "the nodes could not be checked"),
    ),
    COLLECTIVE: (
        "Check communication between ranks",
        *("preflight-not-run", "the preflight could not be run"),
    ),
    HCCL_TEST: ("Run HCCL Test", hccl_test.NOT_RUN, "HCCL Test could not be run"),
}
"""Title, and id and words of the finding that it could not be run."""
Results: TypeAlias = tuple[list[StepResult], bool]
"""The results of a check, and whether it was interrupted."""


def pass_preflight(session: Session, request: LaunchRequest) -> None:
    """Check before a job that its ranks can communicate; LaunchError with all reasons if not."""
    screen = session.screen
    screen.say(f"preflight: {len(request.placement.slots)} ranks connect before the job starts")
    try:
        ended = Ranks(session, session.transports).meet(request)
    except UnreachableError as error:
        raise LaunchError(_lost(session, error), "Stopped: the job was not started.") from error
    if ended.is_interrupted:
        raise errors.InterruptedRunError("interrupted in the preflight; the job was not started")
    if not ended.passed:
        reasons = [f.message for f in ended.findings if f.level == "error"]
        logs = f"Stopped: the job was not started. Logs in {session.run.shown}/{PREFLIGHT}"
        raise LaunchError(*reasons, logs)
    for finding in ended.findings:
        screen.say(f"preflight: {finding.level}: {finding.message}", "yellow")
    screen.say(f"preflight: passed: {ended.words}", "green")


def run_check(session: Session, phase: str, check: Callable[[Ranks], Results]) -> Results:
    """Run and show one of the checks below, over the open connections.

    It writes on the nodes and removes everything. If it cannot run, that is a finding.
    """
    screen = session.screen
    title, id_, what = _CHECKS[phase]
    screen.working(title)
    try:
        results, interrupted = check(Ranks.of(session))
    except AscendbootError as error:
        words = _lost(session, error) if isinstance(error, UnreachableError) else str(error)
        names = tuple(node.name for node in session.cluster.nodes)
        results = found(phase, id_, {}, [error_of(id_, names, f"{what}: {words}")])
        interrupted = False
    finally:
        screen.rest()
    screen.phase(title, results)
    return results, interrupted


def check_collective(ranks: Ranks) -> Results:
    """Run a preflight without a job."""
    session = ranks.session
    names = [node.name for node in session.cluster.nodes]
    if lost := [name for name in names if name not in session.hosts]:
        raise LaunchError(f"not all nodes are reachable: {', '.join(lost)}")
    for error in ranks.errors.values():
        raise error
    ready, request = ranks.request(*_applied(session))
    if ready.problems:
        raise LaunchError("; ".join(ready.problems))
    ended = ranks.meet(request)
    if ended.is_interrupted:
        return [], True
    well = dict.fromkeys(names, ended.words if ended.passed else "no findings")
    return found(COLLECTIVE, "allreduce", well, ended.findings), False


def check_nodes(ranks: Ranks, only: Collection[str]) -> Results:
    """Measure devices and pairs of nodes, or of `only` these.

    Nodes that are not ready for a job, or that a job uses, take no part.
    """
    session = ranks.session
    request, left_out = ranks.idle_part(only or [n.name for n in session.cluster.nodes])
    titles = {"device": "Measure every device", "pair": "Exchange data within pairs"}
    with ranks.runner("node check") as runner:
        start = ranks.rounds(request, runner, NODE_CHECK, titles, script("measure.py"))
        checked = node_check.check_all(request, start, session.cluster.chief_port + 1)
    findings = in_order([*checked.findings, *node_check.skipped(left_out)])
    document = {**checked.to_json(), "findings": as_json(findings)}
    session.run.write_json(f"{NODE_CHECK}.json", document)
    bad = {name for finding in findings if finding.level == "error" for name in finding.nodes}
    well = {n: line for n, line in checked.words(request.placement).items() if n not in bad}
    results = found(NODE_CHECK, "devices", {}, findings) + found(NODE_CHECK, "devices", well, [])
    return results, checked.interrupted


def check_hccl_test(ranks: Ranks, only: Collection[str], wanted: HcclPlan) -> Results:
    """Run HCCL Test on the wanted devices; otherwise as `check_nodes`."""
    session = ranks.session
    request, left_out = ranks.idle_part(only or [n.name for n in session.cluster.nodes])
    request = _for_hccl_test(request, wanted.devices)
    tested = _hccl_test(ranks, request, wanted)
    findings = in_order([*tested.findings, *node_check.skipped(left_out)])
    document = {**tested.to_json(), "rows": tested.rows, "before": tested.before}
    document["findings"] = as_json(findings)
    session.run.write_json(f"{HCCL_TEST}.json", document)
    line = f"{counted(request.placement.world_size, 'device')}: {tested.line}"
    well = dict.fromkeys((n.name for n in request.placement.nodes if tested.rows), line)
    return found(HCCL_TEST, "devices", well, findings), tested.interrupted


def _for_hccl_test(request: LaunchRequest, ids: Collection[int]) -> LaunchRequest:
    """The request for some devices, with a launcher of MPI; LaunchError if the primary has none."""
    chosen = [slot for slot in request.placement.slots if not ids or slot.device_id in ids]
    numbers = defaultdict[str, Iterator[int]](count)
    slots = [replace(slot, local_rank=next(numbers[slot.node.name])) for slot in chosen]
    if not slots or slots[0].node != request.placement.primary:
        raise LaunchError(f"the primary has none of the devices {', '.join(map(str, sorted(ids)))}")
    launcher = request.launcher if traits_of(request.launcher).openmpi else MPIRUN
    return replace(request, placement=Placement(tuple(slots)), launcher=launcher)


def _hccl_test(ranks: Ranks, request: LaunchRequest, wanted: HcclPlan) -> HcclTest:
    session, program = ranks.session, script("hccl_test.py")
    words = (str(request.base), request.python, "-c", program, "find", str(request.mpirun))
    run_python = script("collective-python.sh")
    command = read_script(
        run_python, *words, wanted.operation, purpose="find HCCL Test", timeout_s=30.0
    )
    nodes = [node.name for node in request.placement.nodes]
    answers = on_each(nodes, lambda name: ranks.transports[name].run(command), forks=session.forks)
    found = ((a.lines, n) for n, a in answers.items() if not isinstance(a, NodeError))
    lacking = grouped((lines, n) for lines, n in found if lines and lines[0][:5] != "tool ")
    if lacking:
        errors = [error_of(hccl_test.MISSING, (*n,), *lines[:2]) for lines, n in lacking.items()]
        return HcclTest(findings=errors)
    state, cluster = session.state, session.cluster.name
    places = (f"{slot.node.name}:{slot.device_id}" for slot in request.placement.slots)
    key = f"{wanted.operation} {wanted.least}-{wanted.most} {' '.join(places)}"
    rates = state.recall(cluster, "hccl-test") or {}
    titles = {"pairs": "HCCL Test on pairs of devices", "whole": "HCCL Test on all devices"}
    with ranks.runner("HCCL Test") as runner:
        start = ranks.rounds(request, runner, HCCL_TEST, titles, program)
        tested = hccl_test.check_hccl(request, start, wanted, rates.get(key, {}))
    if tested.rows and session.run.folder.parent == state.runs:
        best = max(tested.peak, tested.before.get("best", 0.0))
        state.remember(cluster, "hccl-test", {**rates, key: {"last": tested.peak, "best": best}})
    return tested


class Ranks(Value):
    """Starts ranks that check something, on the nodes of a session."""

    session: Session
    transports: Mapping[str, Transport]
    """The workload sides."""
    errors: Mapping[str, NodeError] = field(default_factory=dict)
    """Why nodes have none."""

    @classmethod
    def of(cls, session: Session) -> Ranks:
        """Use the open connections of a session."""
        hosts, nodes = session.hosts, session.cluster.nodes
        sides, errors = results_and_errors(
            [node for node in nodes if node.name in hosts],
            lambda node: work_side(node, hosts[node.name]),
            forks=session.forks,
        )
        names = [node.name for node in nodes if node.name not in hosts]
        lost = {name: UnreachableError(name, "it is not reachable") for name in names}
        return cls(session, sides, {**errors, **lost})

    def rounds(
        self,
        request: LaunchRequest,
        runner: Runner,
        name: str,
        titles: Mapping[str, str],
        program: str,
    ) -> node_check.Start:
        """Return what runs a round of a check on all ranks, and keeps its logs in `NAME-N/`."""
        folder, numbers = self.session.run.folder / PREFLIGHT, count(1)

        def start(words: tuple[str, ...]) -> tuple[Notes, JobReport]:
            number = next(numbers)
            self.session.screen.working(f"{titles[words[0]]} (round {number})")
            report = runner.run(program_plan(request, program.encode(), words, grace_s=1.0))
            notes = read_notes(folder, range(request.placement.world_size))
            if folder.exists():
                folder.rename(folder.with_name(f"{name}-{number}"))
            return notes, report

        return start

    def idle_part(self, chosen: Collection[str]) -> tuple[LaunchRequest, Mapping[str, str]]:
        """Return the request of a job on the chosen nodes that could start one, and why not others.

        LaunchError: the primary is left out, setup was not run from here, or is outdated.
        """
        cluster, applied = _applied(self.session)
        primary = cluster.primary_name
        needed = {*chosen, primary}
        reasons = {name: error.message for name, error in self.errors.items() if name in needed}
        while primary not in reasons:
            others = [n for n in chosen if n not in reasons and n != primary]
            ready, request = self.request(*applied.part_of(cluster, [primary, *others]))
            if not ready.problems and not ready.leftovers:
                # Each pair makes its own group: neither a rank table nor CM_ variables may be set.
                return replace(request, rank_table=None, rank_table_sha256="", chief={}), reasons
            old = [(name, job.job_id) for job in ready.leftovers for name in job.pids]
            left = {name: f"job {job_id} left processes" for name, job_id in old}
            if not ready.unready and not left:
                raise LaunchError("; ".join((*ready.problems, *ready.left)))
            reasons |= {**left, **ready.unready}
        raise LaunchError(f"the primary, {primary}, cannot take part: {reasons[primary]}")

    def request(self, cluster: Cluster, applied: SetupRecord) -> tuple[Readiness, LaunchRequest]:
        """Query the nodes, and build the request of `train` for the preflight script."""
        session, file = self.session, installed_templates() / "scripts/meet.py"
        ready = check_readiness(
            cluster,
            applied,
            self.transports,
            str(file),
            hosts=session.hosts,
            forks=session.forks,
            sending=code_sender(cluster, threading.Event()),
        )
        anywhere = replace(ready, is_copied=True, script=PurePosixPath(file.name))
        return ready, job_request(
            cluster, applied, anywhere, script=str(file), job_id=session.run.run_id, grace_s=0.0
        )

    def meet(self, request: LaunchRequest) -> Preflight:
        """Have all ranks of a request connect, and keep what they found."""
        with self.runner("preflight") as runner:
            ended = meet(request, runner)
        document = {**ended.report.to_json(), "findings": as_json(ended.findings)}
        self.session.run.write_json("preflight.json", document)
        return ended

    @contextmanager
    def runner(self, what: str) -> Iterator[Runner]:
        """Provide what runs preflights; Ctrl-C ends them."""
        interrupts, folder = Interrupts(), self.session.run.folder / PREFLIGHT

        @contextmanager
        def known(plan: LaunchPlan) -> Iterator[None]:
            """Record it, so that `status` and `stop` find it if this process is killed."""
            started = now().isoformat(timespec="milliseconds")
            record = planning.record_of(plan, started=started, clocks=NodeClocks())
            Run(plan.job_id, folder).write_json(PLAN_FILE, record)
            with folder_held(folder):
                yield
            (folder / PLAN_FILE).unlink()

        with stopped_in_steps(interrupts.press, self.session.screen, what):
            yield Runner(
                transports=self.transports,
                folder=folder,
                interrupts=interrupts,
                known=known,
                connect=self.session.connect_again,
                tell=self.session.screen.error,
                forks=self.session.forks,
            )


def _applied(session: Session) -> tuple[Cluster, SetupRecord]:
    """Return the cluster with one rank per device, and its record; LaunchError if outdated."""
    applied = setup_record_of(session.state, session.cluster)
    if applied is None:
        raise LaunchError("the cluster was not set up from here; run setup")
    if outdated := applied.why_outdated(session.cluster):
        raise LaunchError(outdated)
    one_each = replace(session.cluster, ranks_per_node=None, ranks_per_device=1)
    return one_each.with_leaves(applied.leaves), applied


def _lost(session: Session, error: UnreachableError) -> str:
    words = f"stop --job {planning.preflight_id(session.run.run_id)} ends them at once"
    return f"{error.node}: lost in the preflight; its ranks end within minutes; {words}"
