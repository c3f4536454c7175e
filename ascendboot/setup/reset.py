"""Removes from the nodes what setup and train left there."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ascendboot.checks.containers import obstacles
from ascendboot.errors import CommandError, NodeError, NotUnderstoodError
from ascendboot.facts.container import container_exec, container_query
from ascendboot.facts.installed import base_script
from ascendboot.facts.query import answer_to, query, value_of
from ascendboot.jobs.probe import JobProbe, probe_below, probe_result, running_nodes
from ascendboot.model.report import Cause, Outcome, StepResult
from ascendboot.setup.lock import Lock, Locks, held_lock
from ascendboot.setup.results import Progress, failed, ok
from ascendboot.setup.sync import SentCode, parse_sent_code, sent_code_query, sent_code_removal
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, HostSide, Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ascendboot.model.cluster import Cluster, ContainerExec, Node
    from ascendboot.setup.survey import Connect


@dataclass(frozen=True)
class Leftovers:
    """Files of ascendboot on a node, and other files in its folder."""

    base: str
    files: int
    """How many files are ascendboot's."""
    has_empty: bool
    """Whether there are empty folders of its own."""
    foreign: tuple[str, ...]
    """Files in its folder that are not; they are never touched."""
    sshd: int | None
    """Pid of the cluster's own sshd; None: it does not run."""
    problems: tuple[str, ...] = ()
    """What could not be removed."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not self.files and self.sshd is None and not self.has_empty


def leftovers_query(cluster: str) -> Command:
    """Queries what there is to remove; `parse_leftovers` reads the answer."""
    return _command(cluster, "look", "look for what ascendboot left", Effect.READ)


def removal(cluster: str) -> Command:
    """Ends the cluster's own sshd and removes all files that ascendboot made, and no others."""
    return _command(cluster, "remove", "remove what ascendboot left", Effect.WRITE)


def parse_leftovers(result: Result) -> Leftovers:
    """Parses the output of either command: what was there before.

    Raises:
        CommandError: the command failed on the node, or its answer was not understood.
    """
    lines = result.checked().lines
    values: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        kind, _, rest = line.partition(" ")
        if kind not in {"base", "ours", "empty", "foreign", "sshd", "problem", "end"}:
            problem = NotUnderstoodError("leftovers", number, line, "base, ours, foreign, sshd")
            raise CommandError(result.node, f"could not {result.command.purpose}: {problem}")
        values.setdefault(kind, []).append(rest)
    if lines[-1:] != ("end",):
        raise CommandError(result.node, f"could not {result.command.purpose}: it did not end")
    return Leftovers(
        base=values["base"][0],
        has_empty="empty" in values,
        files=int(values["ours"][0]),
        foreign=tuple(values.get("foreign", ())),
        sshd=int(values["sshd"][0]) if "sshd" in values else None,
        problems=tuple(values.get("problem", ())),
    )


def _command(cluster: str, mode: str, purpose: str, effect: Effect) -> Command:
    text = base_script(cluster) + script("setup-reset.sh", mode=mode)
    return Command(argv=("bash", "-c", text), purpose=purpose, effect=effect, timeout_s=60.0)


_SHOWN = 5


@dataclass(frozen=True)
class SideLeftovers:
    """What is left on one side of a node."""

    container: ContainerExec | None
    """How to run commands in the container; None: the host side."""
    left: Leftovers
    code: SentCode

    @classmethod
    def read(cls, container: ContainerExec | None, left: Result, code: Result) -> SideLeftovers:
        """Parses the output of both queries, or both removals."""
        return cls(container, parse_leftovers(left), parse_sent_code(code))


@dataclass(frozen=True)
class NodeLeftovers:
    """What is left on a node, the workload side first, and its jobs."""

    parts: tuple[SideLeftovers, ...]
    jobs: dict[str, JobProbe]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return all(part.left.is_empty and not part.code.files for part in self.parts)


def find(cluster: Cluster, node: Node, host: HostSide, former: Node | None = None) -> NodeLeftovers:
    """Query a node, in one execution per side; a removed container left nothing.

    `former`: the node as it was at the last setup, where that knew it by another container.

    Raises:
        NodeError: it could not be queried, or its container cannot be entered.
    """
    found = _find(cluster, node, host)
    if former is None:
        return found
    before = _find(cluster, former, host)
    inside = tuple(part for part in before.parts if part.container is not None)
    return NodeLeftovers((*inside, *found.parts), {**before.jobs, **found.jobs})


def _find(cluster: Cluster, node: Node, host: HostSide) -> NodeLeftovers:
    queries = [
        sent_code_query(cluster.name),
        leftovers_query(cluster.name),
        probe_below(base_script(cluster.name)),
    ]
    fact = container_query(node).get("container")
    if fact is None:
        code, left, jobs = host.run_all(queries)
        return NodeLeftovers((SideLeftovers.read(None, left, code),), probe_result(jobs))
    code, left, engines_result = host.run_all([*queries[:2], fact.command])
    on_host = SideLeftovers.read(None, left, code)
    answer = answer_to(fact, engines_result)
    container = container_exec(node, answer)
    if container is not None:
        code, left, jobs = host.inside(container).run_all(queries)
        return NodeLeftovers(
            (SideLeftovers.read(container, left, code), on_host), probe_result(jobs)
        )
    engines = value_of(answer)
    if engines is not None and engines.container is None and not engines.refused:
        return NodeLeftovers((on_host,), {})
    why = next(iter(obstacles(node, answer)))
    what = f"could not look at what setup left in the container {node.container}"
    raise CommandError(node.name, f"{what}: {why.text}; {why.remedy}, or remove it")


def remove_found(cluster: Cluster, found: NodeLeftovers, host: HostSide) -> NodeLeftovers:
    """Remove everything, the host side last. Returns what was there, with problems.

    Raises:
        NodeError: a side could not be reached.
    """
    work = (sent_code_removal(cluster.name), removal(cluster.name))
    parts = []
    for part in found.parts:
        side = host.inside(part.container) if part.container else host
        code, left = side.run_all(work)
        parts.append(SideLeftovers.read(part.container, left, code))
    return replace(found, parts=tuple(parts))


def results(
    node: str, found: NodeLeftovers, done: Outcome, duration_s: float = 0.0
) -> list[StepResult]:
    """What was or would be removed on one node."""
    step_results = [r for part in found.parts for r in _of_part(node, part, done, duration_s)]
    if not any(result.step in {"sshd", "files", "code"} for result in step_results):
        words = "nothing of ascendboot is here"
        step_results.insert(0, _result(node, "files", Outcome.OK, words, duration_s))
    return step_results


def _of_part(
    node: str, part: SideLeftovers, done: Outcome, duration_s: float
) -> Sequence[StepResult]:
    left, step_results = part.left, []
    place = f" in the container {part.container.container}" if part.container else ""
    would = "would be " if done is Outcome.WOULD_CHANGE else ""
    if part.code.files:
        words = f"{would}removed{place}, {part.code.files} files of the code that setup sent"
        step_results.append(_result(node, "code", done, words, duration_s))
    if left.sshd is not None:
        words = f"the cluster's sshd{place} {would}stopped"
        step_results.append(_result(node, "sshd", done, words, duration_s))
    if left.files or left.has_empty:
        words = f"{left.base}{place} {would}removed, {left.files} files of ascendboot"
        step_results.append(_result(node, "files", done, words, duration_s))
    remedy = "keep what is wanted and remove the rest by hand"
    cause = Cause(id="not-ours", level="warning", nodes=(node,), remedy=remedy)
    for step, paths, where in (
        ("foreign", left.foreign, f"in {left.base}{place}, not made by ascendboot"),
        ("code", part.code.changed, f"of the code that setup sent{place}, changed since"),
    ):
        if paths:
            names = ", ".join(paths[:_SHOWN]) + (", …" if len(paths) > _SHOWN else "")
            words = f"left alone {where}: {names}"
            found = _result(node, step, Outcome.OK, words, duration_s)
            step_results.append(replace(found, cause=cause))
    return [
        *step_results,
        *(
            _result(node, "files", Outcome.FAILED, f"{node}: {words}{place}", duration_s)
            for words in (*left.problems, *part.code.problems)
        ),
    ]


def _result(node: str, step: str, outcome: Outcome, detail: str, duration_s: float) -> StepResult:
    return StepResult(
        node=node,
        phase="reset",
        step=step,
        outcome=outcome,
        detail=detail,
        duration_s=duration_s,
    )


HERE = "here"
"""Stands for the control machine where a report names nodes."""

_QUERY = "Query every node"


@dataclass
class Reset:
    """One reset: what was found, and its results."""

    progress: Progress
    here: Sequence[Path]
    """Files on the control machine that would be removed."""
    locks: Locks
    """Taken on the primary before anything is removed."""
    former: Mapping[str, Node]
    """Nodes that had another container at the last setup, as they were then."""
    found: dict[str, NodeLeftovers] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        """The cluster that is reset."""
        return self.progress.cluster

    @property
    def has_work(self) -> bool:
        """Whether there is anything to remove."""
        return bool(self.here) or any(not found.is_empty for found in self.found.values())

    def look(self, connect: Connect) -> bool:
        """Query every node, in one execution; False where something blocks reset."""
        step_results = self._query(*connect(self.cluster.nodes))
        self.progress.end(_QUERY, step_results)
        return _all_ok(step_results)

    def plan(self) -> None:
        """Report what would be removed."""
        step_results = [
            result
            for node, found in self.found.items()
            for result in results(node, found, Outcome.WOULD_CHANGE)
        ]
        step_results += [self._of_file(path, Outcome.WOULD_CHANGE) for path in self.here]
        self.progress.end("What reset would remove", step_results or [_nothing_to_remove()])

    def report_nothing(self) -> None:
        """Report that there was nothing to remove."""
        step_results = [r for n, found in self.found.items() for r in results(n, found, Outcome.OK)]
        self.progress.end("Remove what setup installed", [*step_results, _nothing_to_remove()])

    def apply(self, hosts: Mapping[str, HostSide]) -> None:
        """Remove everything under the cluster's lock, in one execution per node."""
        if self.progress.interrupted.is_set():
            return
        if any(not found.is_empty for found in self.found.values()):
            try:
                lock = self._locked(hosts[self.cluster.primary_name])
            except NodeError as error:
                self.progress.end("Lock the cluster", [failed("ask", "lock", error, 0.0)])
                return
            if lock.broke:
                words = f"broke the lock of {lock.broke}"
                step_results = [ok(self.cluster.primary_name, "ask", "lock", words, 0.0)]
                self.progress.end("Lock the cluster", step_results)
            # A job may have started since the operator was asked.
            step_results = self._query(hosts, {})
            if not _all_ok(step_results):
                self.progress.end(_QUERY, step_results)
                return
        began = time.monotonic()
        answers = self.progress.for_each(
            hosts, lambda node: remove_found(self.cluster, self.found[node.name], hosts[node.name])
        )
        took = time.monotonic() - began
        step_results = []
        for node, answer in answers.items():
            if isinstance(answer, NodeError):
                step_results.append(failed("reset", "files", answer, took))
            else:
                step_results += results(node, answer, Outcome.CHANGED, took)
        if not any(r.outcome in {Outcome.FAILED, Outcome.UNREACHABLE} for r in step_results):
            step_results += self._clear_here()
        self.progress.end("Remove what setup installed", step_results)

    def _query(
        self, hosts: Mapping[str, HostSide], errors: Mapping[str, NodeError]
    ) -> list[StepResult]:
        """Queries the nodes that were reached, and lists jobs that block reset."""
        began = time.monotonic()
        answers = self.progress.for_each(
            hosts,
            lambda node: find(self.cluster, node, hosts[node.name], self.former.get(node.name)),
        )
        took = time.monotonic() - began
        step_results: list[StepResult] = []
        for node in self.cluster.nodes:
            answer = errors.get(node.name) or answers[node.name]
            if isinstance(answer, NodeError):
                step_results.append(failed("ask", "questions", answer, took))
            else:
                self.found[node.name] = answer
                step_results.append(ok(node.name, "ask", "questions", "answered", took))
        return step_results + _of_running({name: found.jobs for name, found in self.found.items()})

    def _locked(self, host: HostSide) -> Lock:
        """Take the lock through the primary.

        Raises:
            NodeError: another run holds it.
        """
        primary, inside = self.cluster.primary_name, self.locks.inside
        lock = held_lock(primary, query(host, {"lock": self.locks.on_host})["lock"])
        for container in (
            part.container for part in self.found[primary].parts if part.container is not None
        ):
            answer = answer_to(inside, host.inside(container).hold(inside.command))
            lock = lock.and_then(held_lock(primary, answer))
        return lock

    def _clear_here(self) -> list[StepResult]:
        results = []
        for path in self.here:
            path.unlink()
            results.append(self._of_file(path, Outcome.CHANGED))
            if path.parent.name == "ca":
                with suppress(OSError):  # not empty: other files stay
                    path.parent.rmdir()
        return results or [_nothing_to_remove()]

    @staticmethod
    def _of_file(path: Path, outcome: Outcome) -> StepResult:
        words = "removed" if outcome is Outcome.CHANGED else "would be removed"
        detail = f"{os.path.relpath(path)} {words}"
        return StepResult(node=HERE, phase="reset", step="files", outcome=outcome, detail=detail)


def _all_ok(step_results: Sequence[StepResult]) -> bool:
    return all(result.outcome is Outcome.OK for result in step_results)


def _of_running(looks: Mapping[str, dict[str, JobProbe]]) -> list[StepResult]:
    """One result per running job and node where its processes run."""
    return [
        StepResult(
            node=node,
            phase="ask",
            step="jobs",
            outcome=Outcome.BLOCKED,
            detail=f"{node}: job {job_id} runs; end it first with: stop --job {job_id}",
        )
        for job_id, nodes in running_nodes(dict(looks)).items()
        for node in nodes
    ]


def _nothing_to_remove() -> StepResult:
    detail = "nothing to remove on the control machine"
    return StepResult(node=HERE, phase="reset", step="files", outcome=Outcome.OK, detail=detail)
