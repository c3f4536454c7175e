"""`train --supervise`: plans and follows each generation of a job on the nodes that are left."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

from ascendboot.checks.finding import grouped
from ascendboot.cli.common import Outputs
from ascendboot.cli.hooks import MetricsFile, hook
from ascendboot.cli.known_jobs import REPORT_FILE, SUPERVISE_FOLDER, folder_held, now, recorded
from ascendboot.cli.session import Session, WorkSides
from ascendboot.errors import AscendbootError, LaunchError, NodeError, UnreachableError, UsageError
from ascendboot.facts.query import Answered, query
from ascendboot.jobs.follow import Interrupts
from ascendboot.jobs.probe import probe_jobs, running_nodes
from ascendboot.jobs.progress import Progress
from ascendboot.jobs.status import status_of, why_not_followed
from ascendboot.jobs.stop import Terminated, stop_job
from ascendboot.jobs.supervisor import NotReadyError, Supervised, Supervisor
from ascendboot.launch import plan as planning
from ascendboot.launch.plan import PLAN_FILE, Job, JobRecord, LaunchPlan, LaunchRequest
from ascendboot.launch.planner import plan as plan_launch
from ascendboot.model.cluster import CHIEF_PORTS, CheckpointRules, Cluster, NodeClocks, Parallel
from ascendboot.model.job import JobReport
from ascendboot.model.names import counted, fold
from ascendboot.model.secrets import masked_json
from ascendboot.model.topology import pick
from ascendboot.ranktable.convert import subset
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.text import from_text
from ascendboot.readiness.device_faults import DeviceFaults
from ascendboot.readiness.queries import job_requirements
from ascendboot.readiness.ready import Readiness, start_stopped_sshd
from ascendboot.setup.record import SetupRecord
from ascendboot.state import Run
from ascendboot.supervise import checkpoints
from ascendboot.supervise.checkpoints import Checkpoint, Listing
from ascendboot.supervise.core import Choice, Core, Launch, OnEvent, keep_members
from ascendboot.supervise.policy import Fault, Limits, legal_world, why_not_legal
from ascendboot.supervise.store import Store
from ascendboot.transport.api import Command, Effect, FileWrite, Sides, Transport
from ascendboot.transport.pool import on_each
from ascendboot.value import Struct, field, replace

Ready: TypeAlias = Callable[[Cluster, SetupRecord, str], tuple[LaunchRequest, Readiness]]
"""Checks the nodes of a cluster before a job with an id, and describes the job."""
Follow: TypeAlias = Callable[[Job, NodeClocks, Path, Progress], JobReport]
"""Starts a planned job and follows it; its logs go into a folder."""


class OnNodes(Struct, kw_only=True, eq=False, dict=True):
    """The `Generations` of one supervised job on the nodes of a cluster."""

    session: Session
    job: Run
    """The run of the job, also where this run continues it."""
    record: SetupRecord
    """Of the nodes and devices of the job."""
    whole: SetupRecord
    choice: Choice
    ready: Ready
    follow: Follow
    least_flag: str = "--min-nodes"
    """The flag that states the least number of nodes."""
    _clocks: NodeClocks = field(default_factory=NodeClocks)
    _completed: JobReport | None = None
    """Of a generation that had ended with exit code 0 when a node of it could not be reached."""
    _listings: dict[str, Listing] = field(default_factory=dict)
    """What each node last had in its folder of checkpoints."""

    def plan(self, launch: Launch) -> LaunchPlan:
        """Check the nodes of a generation and plan it; nothing is started."""
        cluster, record = part_of(self.session.cluster, self.record, launch)
        _, lost = self._connected(launch.nodes)
        if lost:
            raise NotReadyError({name: each.message for name, each in lost.items()}, lost)
        job_id = planning.generation_id(self.job.run_id, launch.generation)
        request, ready = self.ready(cluster, record, job_id)
        self._clocks = ready.clocks
        size = request.placement.world_size
        words = f"{counted(size, 'rank')} on {counted(len(launch.nodes), 'node')}"
        self.tell(f"generation {launch.generation}: {words}: {fold(launch.nodes)}")
        return plan_launch(self._own_resources(request, launch))

    def running(self, generation: int) -> JobRecord | None:
        """The record of a generation that another supervisor started, if it can be followed."""
        record = planning.read_record(self.job.folder / f"g{generation}")
        if record is None:
            return None  # it is written before anything is started
        self._clocks = record.clocks
        ids = [planning.generation_id(self.job.run_id, each + 1) for each in range(generation)]
        sides, errors = self._connected(record.nodes)
        answers = probe_jobs(sides, record.job_folder.parent, ids, forks=self.session.forks)
        probes = {**answers, **errors}
        lost = {name: each for name, each in probes.items() if isinstance(each, NodeError)}
        others = [each for each in running_nodes(probes) if each != record.job_id]
        of_it = {n: p if isinstance(p, NodeError) else p[record.job_id] for n, p in probes.items()}
        why = f"{others[0]} runs, too" if others else why_not_followed(record, of_it)
        if why:
            self.tell(f"generation {generation}: cannot be followed again: {why}")
            return None
        if lost:
            folder = self.job.folder / f"g{generation}"
            self._completed = status_of(record, of_it, folder=folder, final=None, now=now()).report
        self.tell(f"generation {generation}: is followed again on {fold(record.nodes)}")
        return record

    def run(self, plan: Job, progress: Progress) -> JobReport:
        """Start a planned generation and follow it to its end; `progress` is filled."""
        run, part = self.job, plan.job_id.rpartition(".")[2]
        folder = run.folder / part
        if isinstance(plan, LaunchPlan):
            started = now().isoformat(timespec="milliseconds")
            document = planning.record_of(plan, started=started, clocks=self._clocks)
            run.write_json(f"{part}/{PLAN_FILE}", document)
        with folder_held(folder) as may_write:
            if not may_write and isinstance(plan, JobRecord):
                words = "another ascendboot follows it and copies its logs; end that one first"
                raise LaunchError(f"job {plan.job_id}: could not be followed: {words}")
            report = self._completed or self.follow(plan, self._clocks, folder, progress)
            report = report.without(run.secrets)
            run.write_json(f"{part}/{REPORT_FILE}", report.to_json())
        self.session.screen.job(report, f"{run.shown}/{part}")
        return report

    def stop(self, generation: int) -> Collection[str]:
        """End a generation that another supervisor started; return the nodes not verified."""
        record = planning.read_record(self.job.folder / f"g{generation}")
        if record is None:
            return ()  # it is written before anything is started
        self.tell(f"generation {generation}: is ended on {fold(record.nodes)}")
        sides, lost = self._connected(record.nodes)
        found = stop_job(sides, record, forks=self.session.forks)
        bad = [name for name, it in found.items() if not isinstance(it, Terminated) or it.left]
        return (*lost, *bad)

    def newest_step(self, nodes: Sequence[str]) -> int | None:
        """The step of the newest complete checkpoint that these nodes have; None: none is known."""
        rules = self.session.cluster.checkpoint
        found = self._newest(rules, nodes) if rules else None
        return found.step if found else None

    def _newest(self, rules: CheckpointRules, nodes: Sequence[str]) -> Checkpoint | None:
        """Query the nodes; return the newest complete checkpoint that all of them can load."""
        session, facts = self.session, {"listing": checkpoints.checkpoint_query(rules)}
        answers = on_each(
            nodes, lambda n: query(session.transports[n], facts)["listing"], forks=session.forks
        )
        for node, answer in answers.items():
            if isinstance(answer, Answered):
                self._listings[node] = answer.value
                continue
            self._listings.pop(node, None)
            if not isinstance(answer, UnreachableError):  # its loss is reported elsewhere
                words = f"{node}: {answer.message}; its checkpoints are not known"
                session.screen.say_once(words, "yellow")
        lost = [node for node in self._listings if node not in nodes]
        found = checkpoints.newest(self._listings, rules, needed=nodes, lost=lost)
        for note in found.notes:
            session.screen.say_once(note, "yellow")
        return found.checkpoint

    @property
    def may_grow(self) -> bool:
        """Whether a node that returns could load the checkpoint of the others."""
        rules = self.session.cluster.checkpoint
        return rules is not None and rules.shared

    def ready_among(self, nodes: Collection[str]) -> Collection[str]:
        """Those of the nodes that answer, as ready for a job as at the start of a generation."""

        def is_ready(node: str) -> bool:
            return self._is_ready(node) or (self._is_connected_again(node) and self._is_ready(node))

        found = on_each(nodes, is_ready, forks=self.session.forks)
        return [node for node, answer in found.items() if answer is True]

    def _is_connected_again(self, node: str) -> bool:
        try:
            self.session.connect_again(node)
            sides = Sides(self.session.hosts[node], self.session.transports[node])
            if start_stopped_sshd(self.session.cluster.name, self.record.nodes[node], sides):
                self.tell(f"{node}: has booted again: the cluster's sshd was started")
        except AscendbootError:  # `train` looks again soon, and `check` shows what is wrong
            return False
        return True

    def _is_ready(self, node: str) -> bool:
        if node not in self.session.transports:
            return False
        alone = part_of(self.session.cluster, self.record, Launch(1, (node,), 0.0))
        try:
            self.ready(*alone, self.job.run_id)
        except LaunchError:  # told again when it is to take part
            return False
        return True

    def faults(self, nodes: Collection[str], at: float) -> Sequence[Fault]:
        """What is wrong with the NPUs and links of these nodes, as far as it is known."""
        return self._devices.of(nodes, at)

    @cached_property
    def _devices(self) -> DeviceFaults:
        session = self.session
        names = [node.name for node in session.cluster.nodes]
        needs = job_requirements(*self.record.part_of(session.cluster, names), None, ())
        return DeviceFaults(needs=needs, hosts=session.hosts, forks=session.forks)

    def tell(self, words: str) -> None:
        """Print what happened."""
        self.session.screen.say(words)

    def _connected(self, names: Sequence[str]) -> WorkSides:
        """The connections to nodes, opened where there is none."""
        sides = self.session.transports
        _, errors = self.session.connect(
            [self.session.cluster.node(n) for n in names if n not in sides]
        )
        return {name: sides[name] for name in names if name not in errors}, errors

    def _own_resources(self, request: LaunchRequest, launch: Launch) -> LaunchRequest:
        """Add the variables of a generation and, unless it has all ranks, its own rank table."""
        shape = self.session.cluster.parallel or Parallel()
        variables = {
            "ASCENDBOOT_GENERATION": str(launch.generation),
            "ASCENDBOOT_DP": str(request.placement.world_size // shape.model_devices),
        }
        words: tuple[str, ...] = ()
        rules = self.session.cluster.checkpoint
        if rules and (found := self._newest(rules, launch.nodes)):
            variables["ASCENDBOOT_RESUME_STEP"] = str(found.step)
            words = checkpoints.resume_words(rules, found)
            self.tell(f"generation {launch.generation}: resumes at step {found.step}: {found.path}")
        request = replace(
            request,
            variables={**request.variables, **variables},
            script_args=(*request.script_args, *words),
            master_index=replace(self.session.cluster, primary_name=launch.nodes[0]).master_index,
        )
        return with_own_table(request, self.whole, lambda: self._table)

    @cached_property
    def _table(self) -> str:
        return table_of_setup(self.whole, self.session.transports)


def part_of(cluster: Cluster, record: SetupRecord, launch: Launch) -> tuple[Cluster, SetupRecord]:
    """Return the nodes of a generation as a cluster of their own, in the order of their ranks."""
    port = cluster.chief_port + (launch.generation - 1) % CHIEF_PORTS
    part, of_part = record.part_of(cluster, launch.nodes)
    return replace(part, chief_port=port), of_part


def with_own_table(
    request: LaunchRequest, record: SetupRecord, whole: Callable[[], str]
) -> LaunchRequest:
    """The job with a rank table of its own, unless it has all ranks of the `whole` one of setup."""
    slots = [(s.node.name, s.device_id, s.device_ip) for s in request.placement.slots]
    if request.rank_table is None or slots == list(record.slots):
        return request
    ranks = [record.slots.index(slot) for slot in slots]
    text = subset(table_of(from_text("", whole())), ranks).to_json().encode()
    path = request.folder / request.placement.table_name
    return replace(
        request,
        rank_table=path,
        rank_table_sha256=hashlib.sha256(text).hexdigest(),
        files=(FileWrite(path, text, 0o644),),
    )


def table_of_setup(record: SetupRecord, sides: Mapping[str, Transport]) -> str:
    """Read the rank table of setup from a node that has it unchanged; LaunchError if none has."""
    for node, side in sides.items():
        own = record.nodes[node]
        argv = ("cat", "--", str(record.base / own.rank_table))
        look = Command(argv=argv, purpose="read the rank table", effect=Effect.READ)
        with suppress(NodeError):  # another node may have it
            found = side.run(look).checked()
            if hashlib.sha256(found.stdout).hexdigest() == own.files[own.rank_table].sha256:
                return found.text
    raise LaunchError("no node has the rank table as setup wrote it; run setup")


def choose(
    cluster: Cluster, candidates: Sequence[str], count: int, keep: Sequence[str]
) -> tuple[str, ...]:
    """Choose a node that can start jobs first, and the others on few leaf switches if known."""
    head = next((node.name for node in cluster.heads if node.name in candidates), None)
    if head is None:
        return ()
    wanted = list(dict.fromkeys((head, *(n for n in candidates if n in keep))))[:count]
    if cluster.follows_leaves and (leaves := cluster.leaves):
        chosen = pick({name: leaves[name] for name in candidates}, count, keep=wanted)
    else:
        chosen = keep_members(candidates, count, wanted)
    return (head, *(name for name in chosen if name != head))


def run_generations(
    generations: OnNodes, limits: Limits, interrupts: Interrupts, outputs: Outputs
) -> Supervised:
    """Run a job in generations until it has ended, and keep its state in the folder of the run.

    LaunchError if no generation of it can ever start, UsageError if it cannot be continued.
    """
    job, warn = generations.job, generations.tell
    store = Store(job.folder / SUPERVISE_FOLDER)
    with ExitStack() as opened:
        writer = opened.enter_context(store.writing(now().isoformat(timespec="seconds")))
        takers: list[OnEvent] = [writer.event]
        if outputs.on_event:
            takers.append(opened.enter_context(hook(outputs.on_event, warn)))
        figures = MetricsFile(Path(outputs.metrics), job.run_id, store, warn)
        takers.append(figures.changed)
        on_event = recorded(*takers, secrets=job.secrets)
        core = _core(generations, limits, store.read_state(), on_event)
        if outputs.metrics:
            opened.enter_context(figures.of(core))
        begun = time.monotonic() - core.at  # the time without a supervisor does not count

        def clock() -> float:
            return time.monotonic() - begun

        def keep() -> None:
            writer.state(core.to_json())

        def decided(words: str) -> None:
            keep()
            warn(words)

        return Supervisor(
            core=core,
            generations=generations,
            interrupts=interrupts,
            clock=clock,
            keep=keep,
            requested=lambda: store.inbox.carry_out(core, clock(), decided),
        ).run()


def check_supervised(generations: OnNodes, limits: Limits) -> None:
    """Refuse what `run_generations` refuses before it starts anything."""
    before = Store(generations.job.folder / SUPERVISE_FOLDER).read_state()
    _core(generations, limits, before, lambda _event: None)


def _core(
    generations: OnNodes, limits: Limits, before: Mapping[str, Any] | None, on_event: OnEvent
) -> Core:
    """Return the core of a new job, or of one that is continued from its state `before`."""
    cluster, record = generations.session.cluster, generations.record
    known = {node.name for node in cluster.nodes}
    devices = Counter(name for name, *_ in record.slots if name in known)
    order = list(devices)
    pick_nodes, words = partial(choose, cluster), generations.choice.arguments or ()
    is_open = masked_json(words, generations.job.secrets) == [*words]
    kept = replace(generations.choice, arguments=words if is_open else None)
    if before is not None:
        core = Core.from_json(before, pick=pick_nodes, on_event=on_event)
        core.choice = kept
        if {*core.nodes} == {*order}:
            return core
        raise UsageError(
            f"--resume {generations.job.run_id}: the nodes of {cluster.name} have changed since; "
            "start the job anew with --supervise, or state the --nodes that it had"
        )
    counts = sorted(grouped((number, name) for name, number in devices.items()).items())
    cannot = f"{cluster.source}: could not supervise the job"
    if len(counts) > 1:
        differ = " and ".join(f"{number} ({fold(names)})" for number, names in counts)
        raise LaunchError(
            f"{cannot}: its nodes have {differ} devices, and a node can replace "
            "another only if both have equally many; state `devices` so, or leave --supervise or "
            "--elastic out"
        )
    if cluster.checkpoint and not cluster.checkpoint.reshardable:
        limits = replace(limits, min_nodes=len(order), max_nodes=len(order))
        generations.tell(
            "only as many ranks as wrote a checkpoint can load it: all nodes are needed"
        )
    shape, each = cluster.parallel or Parallel(), counts[0][0]
    if legal_world(shape, len(order), each, at_least=limits.min_nodes) is None:
        why = why_not_legal(shape, len(order), each, limits.min_nodes)
        raise LaunchError(f"{cannot}: {why}; or state a smaller {generations.least_flag}")
    core = Core(tuple(order), each, shape, limits, pick=pick_nodes, on_event=on_event)
    core.choice = kept
    return core
