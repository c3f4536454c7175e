"""`train --supervise`: plans and follows each generation of a job on the nodes that are left."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ascendboot.cli.known_jobs import REPORT_FILE, folder_held, now
from ascendboot.cli.session import Session
from ascendboot.console.screen import Screen
from ascendboot.errors import LaunchError, NodeError, UnreachableError, UsageError
from ascendboot.facts.query import Unanswered, query, value_of
from ascendboot.jobs.follow import Interrupts
from ascendboot.jobs.node_watch import NodeWatch
from ascendboot.jobs.progress import Progress
from ascendboot.jobs.stop import Terminated, stop_job
from ascendboot.jobs.supervisor import NotReadyError, Supervised, Supervisor
from ascendboot.launch.plan import (
    PLAN_FILE,
    LaunchPlan,
    LaunchRequest,
    generation_id,
    read_record,
    record_of,
)
from ascendboot.launch.planner import plan as plan_launch
from ascendboot.model.cluster import CheckpointRules, Cluster, NodeClocks, Parallel
from ascendboot.model.job import JobReport
from ascendboot.model.names import counted, fold
from ascendboot.model.topology import pick
from ascendboot.ranktable.convert import subset
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.text import from_text
from ascendboot.readiness.queries import JobRequirements, host_queries, job_requirements
from ascendboot.setup.record import SetupRecord
from ascendboot.state import Run
from ascendboot.supervise.checkpoints import (
    Checkpoint,
    Listing,
    checkpoint_query,
    newest,
    resume_words,
)
from ascendboot.supervise.core import Core, Launch, OnEvent, Pick, keep_members
from ascendboot.supervise.policy import Fault, FaultKind, Limits
from ascendboot.supervise.shape import legal_world, why_not_legal
from ascendboot.supervise.store import Store
from ascendboot.transport.api import Command, Effect, FileWrite, Transport
from ascendboot.transport.pool import on_each

Ready: TypeAlias = Callable[[Cluster, SetupRecord, str], "tuple[LaunchRequest, NodeClocks]"]
"""Checks the nodes of a cluster before a job with an id, and describes the job."""
Follow: TypeAlias = Callable[[LaunchPlan, NodeClocks, Path, Progress], JobReport]
"""Starts a planned job and follows it; its logs go into a folder."""

_FOLDER = "supervise"
"""Of a supervised job, in the folder of its run."""
LINK_DOWN_S = 20.0
"""Shorter interruptions of a link are ignored, as MindCluster does."""
_SEVERE = ("Alarm", "Critical")
_PORTS = 100
"""Each generation meets at a port of its own: what a killed one left open is in nobody's way."""


@dataclass(kw_only=True, eq=False)
class OnNodes:
    """The generations of one supervised job on the nodes of a cluster."""

    session: Session
    job: Run
    """The run of the job, also where this run continues it."""
    record: SetupRecord
    screen: Screen
    ready: Ready
    follow: Follow
    _clocks: NodeClocks = field(default_factory=NodeClocks)
    _table: str = ""
    """The rank table that setup wrote, once it was read."""
    _down: dict[str, dict[int, float]] = field(default_factory=dict)
    """By node: the devices whose link is down, and since when."""
    _noted: set[str] = field(default_factory=set)
    """What was printed about checkpoints."""
    _listings: dict[str, Listing] = field(default_factory=dict)
    """What each node last saw of the folder of checkpoints."""

    @property
    def shape(self) -> Parallel:
        """How the job divides its model and its batch."""
        return self.session.cluster.parallel or Parallel()

    def plan(self, launch: Launch) -> LaunchPlan:
        """Check the nodes of a generation and plan it; nothing is started.

        Raises:
            NotReadyError: some nodes cannot take part.
            LaunchError: the generation cannot start on any nodes.
        """
        cluster, record = part_of(self.session.cluster, self.record, launch)
        self._connect(launch.nodes)
        job_id = generation_id(self.job.run_id, launch.generation)
        request, self._clocks = self.ready(cluster, record, job_id)
        size = request.placement.world_size
        words = f"{counted(size, 'rank')} on {counted(len(launch.nodes), 'node')}"
        self.tell(f"generation {launch.generation}: {words}: {fold(launch.nodes)}")
        return plan_launch(self._own_resources(request, launch))

    def run(self, plan: LaunchPlan, progress: Progress) -> JobReport:
        """Start a planned generation and follow it to its end; `progress` is filled."""
        run, part = self.job, plan.job_id.rpartition(".")[2]
        started = now().isoformat(timespec="milliseconds")
        document = record_of(plan, started=started, clocks=self._clocks)
        run.write_json(f"{part}/{PLAN_FILE}", document)
        with folder_held(run.folder / part):
            report = self.follow(plan, self._clocks, run.folder / part, progress)
            report = report.without(run.secrets)
            run.write_json(f"{part}/{REPORT_FILE}", report.to_json())
        self.screen.job(report, f"{run.shown}/{part}")
        return report

    def stop(self, generation: int) -> Collection[str]:
        """End a generation that another supervisor started; return the nodes not verified."""
        record = read_record(self.job.folder / f"g{generation}")
        if record is None:
            return ()  # it is written before anything is started
        self.tell(f"generation {generation}: is ended on {fold(record.nodes)}")
        nodes = [self.session.cluster.node(name) for name in record.nodes]
        sides, lost = self.session.connect(nodes)
        found = stop_job(
            sides,
            record.job_folder,
            primary=record.primary,
            grace_s=record.grace_s,
            forks=self.session.forks,
        )
        bad = [name for name, it in found.items() if not isinstance(it, Terminated) or it.left]
        return (*lost, *bad)

    def newest_step(self, nodes: Sequence[str]) -> int | None:
        """The step of the newest complete checkpoint that these nodes have; None: none is known."""
        rules = self.session.cluster.checkpoint
        found = self._newest(rules, nodes) if rules else None
        return found.step if found else None

    def _newest(self, rules: CheckpointRules, nodes: Sequence[str]) -> Checkpoint | None:
        """Query the nodes for checkpoints; notes about newer ones are printed."""
        fact, sides = checkpoint_query(rules), self.session.transports

        def listing(node: str) -> Listing:
            answer = query(sides[node], {"checkpoints": fact})["checkpoints"]
            if isinstance(answer, Unanswered):
                raise NodeError(node, answer.message)
            found: Listing = answer.value
            return found

        answers = on_each(nodes, listing, forks=self.session.forks)
        for node, answer in answers.items():
            if not isinstance(answer, NodeError):
                self._listings[node] = answer
                continue
            self._listings.pop(node, None)
            if not isinstance(answer, UnreachableError):  # its loss is reported elsewhere
                self._say_once(f"{answer}; its checkpoints are not known")
        lost = [node for node in self._listings if node not in nodes]
        found = newest(self._listings, rules, needed=nodes, lost=lost)
        for note in found.notes:
            self._say_once(note)
        return found.checkpoint

    def _say_once(self, words: str) -> None:
        if words not in self._noted:
            self._noted.add(words)
            self.screen.say(words, "yellow")

    @property
    def may_grow(self) -> bool:
        """Whether a node that returns could load the checkpoint of the others."""
        rules = self.session.cluster.checkpoint
        return rules is not None and rules.shared

    def has_returned(self, node: str) -> bool:
        """Whether a node answers, and is as ready for a job as at the start of a generation."""
        return self._is_ready(node) or (self._is_connected_again(node) and self._is_ready(node))

    def _is_connected_again(self, node: str) -> bool:
        try:
            self.session.connect_again(node)
        except NodeError:
            return False
        return True

    def _is_ready(self, node: str) -> bool:
        if node not in self.session.transports:
            return False
        alone = part_of(self.session.cluster, self.record, Launch(1, (node,), 0.0, None))
        try:
            self.ready(*alone, self.job.run_id)
        except LaunchError:  # told again when it is to take part
            return False
        return True

    def faults(self, nodes: Collection[str], at: float) -> Sequence[Fault]:
        """What is wrong with the NPUs and links of these nodes; nodes without an answer are not."""
        found = on_each(nodes, lambda name: self._faults_of(name, at), forks=self.session.forks)
        return [
            fault for each in found.values() if not isinstance(each, NodeError) for fault in each
        ]

    @cached_property
    def _needs(self) -> JobRequirements:
        return job_requirements(self.session.cluster, self.record, None, ())

    def _faults_of(self, node: str, at: float) -> list[Fault]:
        """Query the devices of one node.

        Raises:
            NodeError: it did not answer.
        """
        facts = host_queries(self._needs, self.session.cluster.node(node))
        answers = query(self.session.hosts[node], facts)
        health = value_of(answers["health"]) if "health" in answers else None
        ports = value_of(answers["ports"]) if "ports" in answers else None
        used = self._needs.devices[node]
        ill = [f"device {i} is {health[i]}" for i in used if health and health.get(i) in _SEVERE]
        down = [i for i, up in (ports.link if ports else {}).items() if value_of(up) is False]
        self._down[node] = {i: self._down.get(node, {}).get(i, at) for i in down}
        long = [i for i, since in self._down[node].items() if at - since >= LINK_DOWN_S]
        words = [f"the link of device {i} is down" for i in long]
        return [
            *(Fault(kind=FaultKind.NPU_FAULT, at=at, node=node, words=each) for each in ill),
            *(Fault(kind=FaultKind.LINK_DOWN, at=at, node=node, words=each) for each in words),
        ]

    def tell(self, words: str) -> None:
        """Print what happened."""
        self.screen.say(words)

    def _connect(self, names: Sequence[str]) -> None:
        """Connect to the nodes that have no connection.

        Raises:
            NotReadyError: some cannot be reached.
        """
        missing = [self.session.cluster.node(n) for n in names if n not in self.session.transports]
        _, errors = self.session.connect(missing)
        if errors:
            raise NotReadyError({name: e.message for name, e in errors.items()}, errors)

    def _own_resources(self, request: LaunchRequest, launch: Launch) -> LaunchRequest:
        """Add the variables of a generation and, unless it has all ranks, its own rank table."""
        variables = {
            "ASCENDBOOT_GENERATION": str(launch.generation),
            "ASCENDBOOT_DP": str(request.placement.world_size // self.shape.model_devices),
        }
        words: tuple[str, ...] = ()
        rules = self.session.cluster.checkpoint
        if rules and (found := self._newest(rules, launch.nodes)):
            variables["ASCENDBOOT_RESUME_STEP"] = str(found.step)
            words = resume_words(rules, found)
            self.tell(f"generation {launch.generation}: resumes at step {found.step}: {found.path}")
        request = replace(request, variables=variables, script_args=(*request.script_args, *words))
        slots = [(s.node.name, s.device_id, s.device_ip) for s in request.placement.slots]
        if request.rank_table is None or slots == list(self.record.slots):
            return request
        ranks = [self.record.slots.index(slot) for slot in slots]
        text = subset(table_of(from_text("", self._table_of_setup())), ranks).to_json().encode()
        path = request.folder / request.placement.table_name
        return replace(
            request,
            rank_table=path,
            rank_table_sha256=hashlib.sha256(text).hexdigest(),
            files=(FileWrite(path, text, 0o644),),
        )

    def _table_of_setup(self) -> str:
        """Read the rank table that setup wrote from a node that has it unchanged.

        Raises:
            LaunchError: no node has.
        """
        for node, side in self.session.transports.items():
            if not self._table:
                path = self.record.nodes[node].rank_table
                expected = self.record.nodes[node].files[path].sha256
                self._table = _text_of(side, str(self.record.base / path), expected)
        if not self._table:
            raise LaunchError("no node has the rank table as setup wrote it; run setup")
        return self._table


def _text_of(side: Transport, path: str, sha256: str) -> str:
    """Return a file of a node; "" if it cannot be read or has another digest."""
    look = Command(argv=("cat", "--", path), purpose="read the rank table", effect=Effect.READ)
    try:
        found = side.run(look).checked()
    except NodeError:
        return ""
    return found.text if hashlib.sha256(found.stdout).hexdigest() == sha256 else ""


def part_of(cluster: Cluster, record: SetupRecord, launch: Launch) -> tuple[Cluster, SetupRecord]:
    """Return the nodes of a generation as a cluster of their own, in the order of their ranks."""
    port = cluster.chief_port + (launch.generation - 1) % _PORTS
    nodes = tuple(cluster.node(name) for name in launch.nodes)
    part = replace(cluster, nodes=nodes, primary_name=nodes[0].name, chief_port=port)
    order = nodes if cluster.own_table else part.rank_order
    names = [node.name for node in order]
    slots = tuple(slot for name in names for slot in record.slots if slot[0] == name)
    return part, replace(record, slots=slots, nodes={name: record.nodes[name] for name in names})


def chooser(cluster: Cluster) -> Pick:
    """Choose a node that can start jobs first, and the others on few leaf switches if known."""
    heads = [node.name for node in cluster.heads]
    leaves = cluster.leaves if cluster.follows_leaves else {}

    def choose(candidates: Sequence[str], count: int, keep: Sequence[str]) -> tuple[str, ...]:
        head = next((name for name in heads if name in candidates), None)
        if head is None:
            return ()
        wanted = list(dict.fromkeys((head, *(n for n in candidates if n in keep))))[:count]
        if leaves:
            chosen = pick({name: leaves[name] for name in candidates}, count, keep=wanted)
        else:
            chosen = keep_members(candidates, count, wanted)
        return (head, *(name for name in chosen if name != head))

    return choose


def supervised_run(session: Session, job_id: str) -> Run:
    """Return the run of a supervised job that was started from here.

    Raises:
        UsageError: there is no such job.
    """
    folder = session.state.runs / job_id
    if folder.parent != session.state.runs or not Store(folder / _FOLDER).state.is_file():
        known = sorted(
            path.parts[-3] for path in session.state.runs.glob(f"*/{_FOLDER}/state.json")
        )
        words = f"the last one is {known[-1]}" if known else "start one with train --supervise"
        raise UsageError(f'--resume: no supervised job "{job_id}" was started from here; {words}')
    return Run(job_id, folder, session.run.secrets)


def run_generations(generations: OnNodes, limits: Limits, interrupts: Interrupts) -> Supervised:
    """Run a job in generations until it has ended, and keep its state in the folder of the run.

    Raises:
        LaunchError: no generation of it can ever start.
        UsageError: it cannot be continued.
    """
    store = Store(generations.job.folder / _FOLDER)
    with store.writing(now().isoformat(timespec="seconds")) as writer:
        core = _core(generations, limits, store.read_state(), writer.event)

        def keep() -> None:
            writer.state(core.to_json())

        watch = NodeWatch(
            core=core, nodes=generations, interrupts=interrupts, clock=time.monotonic, keep=keep
        )
        return Supervisor(
            core=core,
            generations=generations,
            interrupts=interrupts,
            watch=watch,
            keep=keep,
        ).run()


def _core(
    generations: OnNodes, limits: Limits, before: Mapping[str, Any] | None, on_event: OnEvent
) -> Core:
    """Return the core of a new job, or of one that is continued from its state `before`."""
    cluster, record = generations.session.cluster, generations.record
    order = list(dict.fromkeys(name for name, *_ in record.slots))
    pick_nodes = chooser(cluster)
    if before is not None:
        core = Core.from_json(before, at=time.monotonic(), pick=pick_nodes, on_event=on_event)
        if {*core.nodes} == {*order}:
            return core
        raise UsageError(
            f"--resume {generations.job.run_id}: the nodes of {cluster.name} have changed since; "
            "start the job anew with --supervise"
        )
    counts = {sum(slot[0] == name for slot in record.slots) for name in order}
    cannot = f"{cluster.source}: could not supervise the job"
    if len(counts) > 1:
        raise LaunchError(
            f"{cannot}: its nodes have {_device_counts(record)} devices, and a node can replace "
            "another only if both have equally many; state `devices` so, or leave --supervise or "
            "--elastic out"
        )
    if cluster.checkpoint and not cluster.checkpoint.reshardable:
        limits = replace(limits, min_nodes=len(order), max_nodes=len(order))
        generations.tell(
            "only as many ranks as wrote a checkpoint can load it: all nodes are needed"
        )
    shape, devices = generations.shape, counts.pop()
    if legal_world(shape, len(order), devices, at_least=limits.min_nodes) is None:
        why = why_not_legal(shape, len(order), devices, limits.min_nodes)
        raise LaunchError(f"{cannot}: {why}; or state a smaller --min-nodes")
    return Core(order, devices, shape, limits, pick_nodes, on_event=on_event)


def _device_counts(record: SetupRecord) -> str:
    """Return how many devices which nodes have."""
    counts: dict[int, list[str]] = {}
    for name in dict.fromkeys(name for name, *_ in record.slots):
        counts.setdefault(sum(slot[0] == name for slot in record.slots), []).append(name)
    return " and ".join(f"{count} ({fold(names)})" for count, names in sorted(counts.items()))
