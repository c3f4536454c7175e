"""Removes from the nodes what setup and train left there."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ascendboot.checks.containers import obstacles
from ascendboot.checks.finding import grouped, warning
from ascendboot.errors import CommandError, NodeError, NotUnderstoodError
from ascendboot.facts.container import container_exec, container_query
from ascendboot.facts.installed import base_script, firewall_table
from ascendboot.facts.query import answer_to, query, value_of
from ascendboot.jobs.probe import JobProbe, probe_below, probe_result, running_nodes
from ascendboot.model.cluster import Cluster, ContainerExec, Node
from ascendboot.model.files import Owner
from ascendboot.model.names import counted
from ascendboot.model.report import Finding, Outcome, StepResult
from ascendboot.setup.lock import Locks, held_lock
from ascendboot.setup.phases import QUERY
from ascendboot.setup.results import Progress, failed, found
from ascendboot.setup.steps import port_call, port_command
from ascendboot.setup.survey import Connect
from ascendboot.templates import script
from ascendboot.transport.api import Command, HostSide, Result, read_script, write_script
from ascendboot.value import Struct, Value, field, replace

HERE = "here"
"""Stands for the control machine where a report names nodes."""
PLAN = "What reset would remove"
REMOVE = "Remove what setup installed"
_SHOWN = 5
_ELSEWHERE = "another control folder set up the cluster here"


class SideLeftovers(Value):
    """What ascendboot left on one side of a node."""

    container: ContainerExec | None
    """How to run commands in the container; None: the host side."""
    base: str
    files: int
    """How many files are ascendboot's."""
    has_empty: bool
    """Whether there are empty folders of its own."""
    foreign: tuple[str, ...]
    """Files in its folder that are not; they are never touched."""
    table: str
    """The cluster's own table of nft, with its family; may be empty."""
    created: tuple[str, ...]
    """Engine, kind and name of each container and volume that setup created."""
    sshd: int | None
    """Pid of the cluster's own sshd; None: it does not run."""
    code_files: int
    """How many files of the sent code are as they were sent; files from before do not count."""
    code_changed: tuple[str, ...]
    """Absolute paths of sent files that have changed since; they are never removed."""
    problems: tuple[str, ...]
    """What could not be removed."""
    ports: tuple[str, ...] = ()
    """`device ID: WHAT VALUE`: what ports of NPUs had before setup; `none` where none was set."""
    restores: bool = False
    """The ports of NPUs are set as they were before setup; otherwise reset only shows that."""
    owner: Owner | None = None
    """The control folder that set it up."""

    @classmethod
    def read(cls, container: ContainerExec | None, code: Result, left: Result) -> SideLeftovers:
        """Parses the output of both queries, or both removals: what was there before."""
        kinds = "base ours owner empty foreign firewall created sshd problem port"
        values = by_kind(left, kinds)
        of_code = by_kind(code, "files changed problem")
        return cls(
            container,
            base=values["base"][0],
            files=int(values["ours"][0]),
            has_empty=bool(values["empty"]),
            foreign=tuple(values["foreign"]),
            table="".join(values["firewall"]),
            created=tuple(values["created"]),
            sshd=int(values["sshd"][0]) if values["sshd"] else None,
            code_files=int(of_code["files"][0]) if of_code["files"] else 0,
            code_changed=tuple(of_code["changed"]),
            problems=(*values["problem"], *of_code["problem"]),
            ports=tuple(values["port"]),
            owner=Owner.parse("".join(values["owner"])),
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not self._removed

    @property
    def _place(self) -> str:
        return f" in the container {self.container.container}" if self.container else ""

    @property
    def _before(self) -> str:
        return f"what was there before: {'; '.join(self.ports)}"

    @property
    def _removed(self) -> list[tuple[str, str]]:
        """The step and the action of all that was or would be removed."""
        place, things = self._place, [thing.partition(" ")[2] for thing in self.created]
        code = f"{self.code_files} files of the code that setup sent{place}"
        files = f"{self.base}{place}, with {counted(self.files, 'file')} of ascendboot"
        ports = self.ports if self.restores else ()
        rows = (
            (self.code_files, "code", f"remove {code}"),
            (self.sshd is not None, "sshd", f"stop the cluster's sshd{place}"),
            (self.table, "firewall", f"remove the table {self.table} of nft"),
            *((True, "container", f"remove the {t}, with all that lies in it") for t in things),
            (self.files or self.has_empty, "files", f"remove {files}"),
            (ports, "npu-network", f"set the network of the NPUs to {self._before}"),
        )
        return [(step, action) for is_there, step, action in rows if is_there]

    def results(self, node: str, done: Outcome, took: float) -> list[StepResult]:
        """What was or would be removed, set back, or left alone."""
        place = self._place
        results = [_removal(node, step, done, action, took) for step, action in self._removed]
        if self.ports and not self.restores:
            words = f"the network of the NPUs stays; reset --npu-network restores {self._before}"
            results.append(StepResult(node, "reset", "npu-network", Outcome.OK, words, took))
        remedy = "keep what is wanted and remove the rest by hand"
        cause = Finding("not-ours", "warning", (node,), "", remedy)
        for step, paths, where in (
            ("foreign", self.foreign, f"in {self.base}{place}, not made by ascendboot"),
            ("code", self.code_changed, f"of the code that setup sent{place}, changed since"),
        ):
            if paths:
                names = ", ".join(paths[:_SHOWN]) + (", …" if len(paths) > _SHOWN else "")
                words = f"left alone {where}: {names}"
                left = StepResult(node, "reset", step, Outcome.OK, words, took)
                results.append(replace(left, cause=cause))
        for problem in self.problems:
            words = f"{node}: {problem}{place}"
            results.append(StepResult(node, "reset", "files", Outcome.FAILED, words, took))
        return results


class NodeLeftovers(Value):
    """What is left on a node, the workload side first, and its jobs."""

    parts: tuple[SideLeftovers, ...]
    jobs: dict[str, JobProbe]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return all(part.is_empty for part in self.parts)

    def results(self, node: str, done: Outcome, took: float = 0.0) -> list[StepResult]:
        """What was or would be removed on the node."""
        results = [r for part in self.parts for r in part.results(node, done, took)]
        if all(result.step == "foreign" for result in results):
            words = "nothing of ascendboot is here"
            results.insert(0, StepResult(node, "reset", "files", Outcome.OK, words, took))
        return results


def leftovers_commands(
    cluster: str, *, removes: bool = False, in_container: bool = False, created: Sequence[str] = ()
) -> tuple[Command, Command]:
    """The commands about the sent code, and about all else that ascendboot left on one side.

    They look, or they end the cluster's sshd and remove what setup wrote and nobody changed, and
    what it `created`.
    """
    verb, mode = ("remove", "remove") if removes else ("look for", "look")
    of_script = write_script if removes else read_script

    def command(name: str, what: str, *words: str, **values: str) -> Command:
        text = base_script(cluster) + script(name, mode=mode, **values)
        return of_script(text, *words, purpose=f"{verb} {what}", timeout_s=120.0)

    code = command("setup-code-remove.sh", "the code that was sent")
    sides = {"side": "container" if in_container else "host", "table": firewall_table(cluster)}
    what, label = "what ascendboot left", f"ascendboot.cluster={cluster}"
    return code, command("setup-reset.sh", what, *created, label=label, **sides)


def by_kind(result: Result, kinds: str) -> dict[str, list[str]]:
    """The lines of an answer by their first word, without it.

    Raises:
        CommandError: the command failed on the node, or its answer was not understood.
    """
    values: dict[str, list[str]] = {kind: [] for kind in kinds.split()}
    *lines, last = result.checked().lines or ("",)
    for number, line in enumerate(lines, 1):
        kind, _, rest = line.partition(" ")
        if kind not in values:
            raise result.failed(NotUnderstoodError("leftovers", number, line, ", ".join(values)))
        values[kind].append(rest)
    if last != "end":
        raise result.failed("it did not end")
    return values


def find(cluster: Cluster, node: Node, host: HostSide, former: Node | None = None) -> NodeLeftovers:
    """Query a node, in one execution per side; a removed container left nothing.

    `former`: the node as it was at the last setup, where that knew it by another container.

    Raises:
        NodeError: it could not be queried, or its container cannot be entered.
    """
    if former is not None:
        now, before = find(cluster, node, host), find(cluster, former, host)
        inside = tuple(part for part in before.parts if part.container is not None)
        return NodeLeftovers(_parts(*inside, *now.parts), {**before.jobs, **now.jobs})
    queries, jobs_query = leftovers_commands(cluster.name), probe_below(base_script(cluster.name))
    fact = container_query(node).get("container")
    if fact is None:
        *both, jobs = host.run_all([*queries, jobs_query])
        return NodeLeftovers((SideLeftovers.read(None, *both),), probe_result(jobs))
    *both, engines_result = host.run_all([*queries, fact.command])
    on_host, others = SideLeftovers.read(None, *both), dict[str, JobProbe]()
    for engine, kind, name in (created.split(" ", 2) for created in on_host.created):
        if kind == "container" and name != node.container:
            with suppress(NodeError):  # nothing runs in it
                others |= probe_result(host.inside(ContainerExec(engine, name)).run(jobs_query))
    answer = answer_to(fact, engines_result)
    container = container_exec(node, answer)
    if container is not None:
        queries = leftovers_commands(cluster.name, in_container=True)
        *both, jobs = host.inside(container).run_all([*queries, jobs_query])
        parts = _parts(SideLeftovers.read(container, *both), on_host)
        return NodeLeftovers(parts, {**others, **probe_result(jobs)})
    engines = value_of(answer)
    if engines is not None and engines.container is None and not engines.refused:
        return NodeLeftovers((on_host,), others)
    why = next(iter(obstacles(node, answer)))
    what = f"could not look at what setup left in the container {node.container}"
    raise CommandError(node.name, f"{what}: {why.text}; {why.remedy}, or remove it")


def _parts(*parts: SideLeftovers) -> tuple[SideLeftovers, ...]:
    """The sides of a node; containers stay if one holds files that are not ascendboot's."""
    if any(part.container and (part.foreign or part.code_changed) for part in parts):
        return tuple(replace(part, created=()) for part in parts)
    return parts


class Reset(Struct):
    """One reset: what was found, and its results."""

    progress: Progress
    here: Sequence[Path]
    """Files on the control machine that would be removed."""
    locks: Locks
    """Taken on the primary before anything is removed."""
    control_keys: Collection[str]
    """The keys under which this control folder set up the cluster."""
    former: Mapping[str, Node]
    """Nodes that had another container at the last setup, as they were then."""
    restores: bool = False
    """As in `SideLeftovers`."""
    skips_lost: bool = False
    """Unreachable nodes do not stop the reset of the others."""
    found: dict[str, NodeLeftovers] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to remove."""
        return bool(self.here) or any(not found.is_empty for found in self.found.values())

    def look(self, connect: Connect) -> bool:
        """Query every node, in one execution; False where something blocks reset."""
        cluster = self.progress.cluster
        results = [*self._query(*connect(cluster.nodes)), *self._set_up_elsewhere()]
        self.progress.end(QUERY, results)
        if self.skips_lost and self.found:
            results = [each for each in results if each.outcome is not Outcome.UNREACHABLE]
            nodes = tuple(node for node in cluster.nodes if node.name in self.found)
            self.progress.cluster = replace(cluster, nodes=nodes, primary_name=nodes[0].name)
        return _all_ok(results)

    def _set_up_elsewhere(self) -> list[StepResult]:
        """Warnings about nodes that another control folder set up."""
        owners = (
            (part.owner.words, name)
            for name, left in self.found.items()
            for part in left.parts
            if part.owner is not None and part.owner.key not in self.control_keys
        )
        remedy = "Make sure that nobody uses the cluster from there"
        findings = [
            warning("set-up-elsewhere", tuple(dict.fromkeys(nodes)), f"{_ELSEWHERE}: {by}", remedy)
            for by, nodes in grouped(owners).items()
        ]
        return found("ask", "questions", {}, findings)

    def results(self, done: Outcome) -> list[StepResult]:
        """What was or would be removed, on the control machine last."""
        nodes = [r for name, found in self.found.items() for r in found.results(name, done)]
        return nodes + self._results_here(done)

    def apply(self, hosts: Mapping[str, HostSide]) -> None:
        """Remove everything under the cluster's lock, in one execution per node."""
        if self.progress.interrupted.is_set():
            return
        if any(not found.is_empty for found in self.found.values()):
            primary = self.progress.cluster.primary_name
            try:
                found = query(hosts[primary], {"lock": self.locks.on_host})
                lock = held_lock(primary, found["lock"])
            except NodeError as error:
                self.progress.end("Lock the cluster", [failed("ask", "lock", error)])
                return
            if lock.broke:
                words = f"broke the lock of {lock.broke}"
                broken = StepResult(primary, "ask", "lock", Outcome.OK, words)
                self.progress.end("Lock the cluster", [broken])
            # A job may have started since the operator was asked.
            results = self._query(hosts, {})
            if not _all_ok(results):
                self.progress.end(QUERY, results)
                return
        began = time.monotonic()
        answers = self.progress.for_each(hosts, lambda node: self._remove(node, hosts[node.name]))
        took = time.monotonic() - began
        results = []
        for name, answer in answers.items():
            if isinstance(answer, NodeError):
                results.append(failed("reset", "files", answer, took))
            else:
                results += answer.results(name, Outcome.CHANGED, took)
        if not any(r.outcome in {Outcome.FAILED, Outcome.UNREACHABLE} for r in results):
            results += self._clear_here()
        self.progress.end(REMOVE, results)

    def _query(
        self, hosts: Mapping[str, HostSide], errors: Mapping[str, NodeError]
    ) -> list[StepResult]:
        """Query the nodes that were reached; jobs that run there block reset."""
        began = time.monotonic()
        cluster, former = self.progress.cluster, self.former
        answers = self.progress.for_each(
            hosts, lambda node: find(cluster, node, hosts[node.name], former.get(node.name))
        )
        took = time.monotonic() - began
        results: list[StepResult] = []
        for name in (node.name for node in cluster.nodes):
            answer = errors.get(name) or answers[name]
            if isinstance(answer, NodeError):
                results.append(failed("ask", "questions", answer, took))
            else:
                parts = tuple(replace(part, restores=self.restores) for part in answer.parts)
                self.found[name] = replace(answer, parts=parts)
                results.append(StepResult(name, "ask", "questions", Outcome.OK, "answered", took))
        jobs = running_nodes({name: found.jobs for name, found in self.found.items()})
        for job_id, names in jobs.items():
            for name in names:
                words = f"{name}: job {job_id} runs; end it first with: stop --job {job_id}"
                results.append(StepResult(name, "ask", "jobs", Outcome.BLOCKED, words))
        return results

    def _remove(self, node: Node, host: HostSide) -> NodeLeftovers:
        """Remove everything, the host side last. Returns what was there, with problems."""
        cluster, parts = self.progress.cluster.name, []
        for part in self.found[node.name].parts:
            inside = part.container is not None
            commands = leftovers_commands(
                cluster, removes=True, in_container=inside, created=part.created
            )
            side = host.inside(part.container) if part.container else host
            last = (restore_command(part.base, part.ports),) if part.restores and part.ports else ()
            code, left, *restored = side.run_all([*commands, *last])
            done = SideLeftovers.read(part.container, code, left)
            bad = [result for result in restored if not result.as_expected]
            lost = (f"could not {r.command.purpose}: {r.outcome()}" for r in bad)
            problems, restores = (*done.problems, *lost), part.restores and not bad
            parts.append(replace(done, problems=problems, restores=restores))
        return NodeLeftovers(tuple(parts), {})

    def _clear_here(self) -> list[StepResult]:
        for path in self.here:
            path.unlink()
            if path.parent.name == "ca":
                with suppress(OSError):  # not empty: other files stay
                    path.parent.rmdir()
        return self._results_here(Outcome.CHANGED)

    def _results_here(self, done: Outcome) -> list[StepResult]:
        """What was or would be removed on the control machine."""
        if not self.here:
            words = "nothing to remove on the control machine"
            return [StepResult(HERE, "reset", "files", Outcome.OK, words)]
        paths = map(os.path.relpath, self.here)
        return [_removal(HERE, "files", done, f"remove {path}") for path in paths]


def _removal(node: str, step: str, done: Outcome, action: str, took: float = 0.0) -> StepResult:
    """Its detail is what the screen shows."""
    result = StepResult(node, "reset", step, done, duration_s=took, action=action)
    return replace(result, detail=result.words)


def restore_command(base: str, ports: Sequence[str]) -> Command:
    """The command that sets ports of NPUs as they were: the last first, but addresses first."""
    noted = (line.replace(":", "", 1).split() for line in reversed(ports))
    ordered = sorted(noted, key=lambda words: words[2] != "ip")
    calls = [port_call(i, what, value) for _, i, what, value in ordered if value != "none"]
    return port_command(base, calls, "restore")


def _all_ok(results: Sequence[StepResult]) -> bool:
    return all(result.outcome is Outcome.OK for result in results)
