"""Queries all nodes once and gathers their facts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ascendboot.checks.all import cluster_findings
from ascendboot.checks.hosts import (
    elsewhere_findings,
    job_findings,
    left_findings,
    one_session,
    set_up_elsewhere,
)
from ascendboot.errors import NodeError
from ascendboot.facts.container import container_exec, container_query
from ascendboot.facts.installed import Installed, base_script, installed_query, parse_installed
from ascendboot.facts.node_facts import NodeFacts, host_queries, queries, with_stated, work_queries
from ascendboot.facts.query import Answer, Fact, Unanswered, answer_to, query, value_of
from ascendboot.jobs.probe import probe_below, probe_result, running_nodes
from ascendboot.model.files import Authority, CodeTree, Control, fingerprint
from ascendboot.setup.cluster_plan import ClusterFacts, ClusterPlan, plan_cluster
from ascendboot.setup.context import Context, Templates
from ascendboot.setup.lock import Lock, Locks, held_lock
from ascendboot.setup.phases import CHECK, QUERY, REACH
from ascendboot.setup.results import Progress, failed, found, from_findings, ok
from ascendboot.transport.api import HostSide, Sides, Transport

if TYPE_CHECKING:
    from ascendboot.checks.finding import Finding
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.report import StepResult
    from ascendboot.setup.sync import CodeSender

RunQuery = Callable[["Transport", Mapping[str, Fact[Any]]], Mapping[str, Answer[Any]]]


@dataclass(frozen=True)
class NodeAnswers:
    """What one node answered: its facts, and what is installed on it."""

    facts: NodeFacts
    sides: Sides
    installed: Installed
    sshd_side: Installed | None = None
    """What is installed where the cluster's sshd runs, if that is not the workload side."""
    unused_host: Installed | None = None
    """What is installed on a host side that no step is about."""
    old_container: str = ""
    """The container of an earlier inventory in which the cluster's sshd still runs."""
    was_locked: bool = False
    """Another run held the lock: other nodes' answers may be out of date."""
    broke: str = ""
    """The former holder of a lock that was broken."""

    def after(self, lock: Lock) -> NodeAnswers:
        """The same answers, with how the lock was taken."""
        return replace(self, was_locked=lock.was_waited_for, broke=lock.broke)


def installed_fact(cluster: Cluster) -> Fact[Installed]:
    """The query for what is installed on a node."""
    return Fact(installed_query(cluster.name), parse_installed)


def query_node(
    cluster: Cluster,
    node: Node,
    host: HostSide,
    *,
    locks: Locks | None,
    asker: RunQuery,
    of_code: Mapping[str, Fact[CodeTree]],
) -> NodeAnswers:
    """All answers of a node, in one execution per side; `locks` are taken first.

    `of_code` queries the workload side for the code that it should have.

    Where nothing can run in the node's container, its workload side is not queried, and the facts
    hold the reason.

    Raises:
        NodeError: a side could not be queried, or another run holds the lock.
    """
    installed = {"own": installed_fact(cluster)}
    work_too: dict[str, Fact[Any]] = {**of_code, **installed}
    first = {"lock": locks.on_host} if locks is not None else {}
    if node.container is None:
        answers = asker(host, {**first, **queries(cluster, node), **work_too})
        _refuse_one_session(host)
        lock = _lock(node, answers.get("lock"))
        facts = NodeFacts.from_answers(node.name, answers)
        own_there = _own(node, answers)
        return NodeAnswers(facts, Sides(host, host), own_there).after(lock)
    answers = asker(host, {**first, **host_queries(cluster, node), **installed})
    _refuse_one_session(host)
    lock = _lock(node, answers.get("lock"))
    there = _own(node, answers)
    way = container_exec(node, answers["container"])
    if way is None:
        facts = NodeFacts.from_answers(node.name, answers)
        return NodeAnswers(facts, Sides(host, host), Installed(there.base)).after(lock)
    work = host.inside(way)
    if locks is not None:
        answer = answer_to(locks.inside, work.hold(locks.inside.command))
        lock = lock.and_then(_lock(node, answer))
    inside = asker(work, {**work_queries(cluster, node), **work_too})
    return NodeAnswers(
        NodeFacts.from_answers(node.name, {**inside, **answers}),
        Sides(host, work),
        _own(node, inside),
        sshd_side=there if cluster.serves_from_host(node) else None,
        unused_host=None if cluster.serves_from_host(node) else there,
    ).after(lock)


class _FoundError(NodeError):
    """A finding because of which a node is not queried any further."""

    def __init__(self, node: str, finding: Finding) -> None:
        super().__init__(node, finding.text)
        self.finding = finding


def _refuse_one_session(host: HostSide) -> None:
    if host.has_one_session:
        raise _FoundError(host.node, one_session(host.node))


def left_behind(cluster: Cluster, former: Node, host: HostSide) -> str:
    """The node's former container, if the cluster's sshd still runs in it; else "".

    Raises:
        NodeError: the node could not be queried.
    """
    engines = container_query(former)["container"]
    way = container_exec(former, answer_to(engines, host.run(engines.command)))
    if way is None:  # it is gone, or nothing can run in it
        return ""
    question = installed_fact(cluster)
    installed = value_of(answer_to(question, host.inside(way).run(question.command)))
    return way.container if installed is not None and installed.sshd_pids else ""


def _own(node: Node, answers: Mapping[str, Answer[Any]]) -> Installed:
    found: Answer[Installed] = answers["own"]
    if isinstance(found, Unanswered):
        raise NodeError(node.name, found.message)
    return found.value


def _lock(node: Node, answer: Answer[Lock] | None) -> Lock:
    return Lock() if answer is None else held_lock(node.name, answer)


Connect = Callable[[Sequence["Node"]], tuple[Mapping[str, "HostSide"], Mapping[str, NodeError]]]


@dataclass(frozen=True)
class Surveyed:
    """The facts of all nodes, and transports to their sides."""

    facts: ClusterFacts
    sides: Mapping[str, Sides]
    """Both sides of each reached node; twice the host where no container can be entered."""
    context: Context | None
    """For steps; None where something blocks them."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Reaches, queries and checks the nodes."""

    progress: Progress
    templates: Templates
    locks: Locks | None = None
    """Taken on the primary before any query; None where nothing will be written."""
    asker: RunQuery = query
    authority: Authority | None = None
    """Who signs certificates; None where trust needs none, or its keys are not made yet."""
    sender: CodeSender | None = None
    """Sends the code to the nodes; None where it is there already."""
    before_writing: Callable[[ClusterFacts], tuple[Authority | None, Control]] | None = None
    """Makes missing keys once nothing blocks a change."""
    control: Control | None = None
    """This control folder; None: who set up the nodes before does not matter."""
    take_over: bool = False
    """What another control folder set up is taken over."""
    rekeys: bool = False
    """The keys are replaced, so that a node that left opens nothing."""
    left: Sequence[Node] = ()
    """Nodes that this folder set up, and that are not in the inventory any more."""
    former: Mapping[str, Node] = field(default_factory=dict)
    """Nodes that had another container at the last setup, as they were then."""

    @property
    def cluster(self) -> Cluster:
        """Whose nodes they are."""
        return self.progress.cluster

    def look(self, connect: Connect) -> Surveyed:
        """Reach, query and check the nodes.

        Raises:
            Stopped: the operator interrupted.
        """
        hosts = self._reach(connect)
        answered = self._query(hosts)
        facts = ClusterFacts(
            nodes={
                node.name: with_stated(self.cluster, node, answered[node.name].facts)
                for node in self.cluster.nodes
                if node.name in answered
            },
            installed={name: answer.installed for name, answer in answered.items()},
            sshd_sides={
                name: a.sshd_side for name, a in answered.items() if a.sshd_side is not None
            },
            unused_hosts={
                name: a.unused_host for name, a in answered.items() if a.unused_host is not None
            },
            old_containers={
                name: a.old_container for name, a in answered.items() if a.old_container
            },
        )
        sides = {name: Sides(host, host) for name, host in hosts.items()}
        sides |= {name: answer.sides for name, answer in answered.items()}
        return Surveyed(facts, sides, self._check(facts, self._of_control(facts, sides)))

    def _reach(self, connect: Connect) -> Mapping[str, HostSide]:
        """The host sides of all nodes that can be reached."""
        self.progress.listener.working(REACH)
        began = time.monotonic()
        hosts, errors = connect(self.cluster.nodes)
        took = time.monotonic() - began
        self.progress.end(
            REACH,
            [
                failed("reach", "connect", errors[node.name], took)
                if node.name in errors
                else ok(node.name, "reach", "connect", "connected", took)
                for node in self.cluster.nodes
            ],
        )
        return hosts

    def _query(self, hosts: Mapping[str, HostSide]) -> dict[str, NodeAnswers]:
        """Query every node that was reached; one node's error does not stop the others."""
        self.progress.begin(QUERY)
        began = time.monotonic()
        answers = self._answers(hosts)
        took = time.monotonic() - began
        answered: dict[str, NodeAnswers] = {}
        results: list[StepResult] = []
        for node in self.cluster.nodes:
            answer = answers.get(node.name)
            if isinstance(answer, _FoundError):
                results += found("ask", "questions", {}, [answer.finding])
            elif isinstance(answer, NodeError):
                results.append(failed("ask", "questions", answer, took))
            elif answer is not None:
                answered[node.name] = answer
                results.append(ok(node.name, "ask", "questions", "answered", took))
                if answer.broke:
                    words = f"broke the lock of {answer.broke}"
                    results.append(ok(node.name, "ask", "lock", words, took))
        self.progress.end(QUERY, results)
        return answered

    def _answers(self, hosts: Mapping[str, HostSide]) -> dict[str, NodeAnswers | NodeError]:
        """All answers; queried again where another run held the lock meanwhile."""
        outdated = threading.Event()

        def work(node: Node) -> NodeAnswers:
            answered = self._query_node(node, hosts[node.name])
            if answered.was_locked:
                outdated.set()
            return answered

        answers = self.progress.for_each(hosts, work)
        if outdated.is_set():
            answers |= self.progress.for_each({*hosts} - {self.cluster.primary_name}, work)
        return answers

    def _query_node(self, node: Node, host: HostSide) -> NodeAnswers:
        answered = query_node(
            self.cluster,
            node,
            host,
            locks=self.locks if node == self.cluster.primary else None,
            asker=self.asker,
            of_code=self.sender.questions() if self.sender else {},
        )
        if node.name in self.former:
            return replace(
                answered, old_container=left_behind(self.cluster, self.former[node.name], host)
            )
        return answered

    def _of_control(self, facts: ClusterFacts, sides: Mapping[str, Sides]) -> list[Finding]:
        """Nodes that another control folder set up; to take them over, no job may run there."""
        if self.control is None:
            return []
        by, here = self.authority, self.control.folder
        ca = [fingerprint(key) for key in (by.host, by.user)] if by else []
        owns = {name: facts.sshd_side(name) for name in facts.installed}
        elsewhere = set_up_elsewhere(owns, {*self.control.known, *ca})
        if self.cluster.trust == "ca":
            here = f"{here}, with {f'CA {ca[0]}' if ca else 'no CA of this cluster'}"
        found = elsewhere_findings(elsewhere, here=here, take_over=self.take_over)
        found = [*found, *left_findings(self.left)]
        affected = {*facts.installed} if self.rekeys else {*elsewhere} if self.take_over else set()
        if not affected:
            return found
        look = probe_below(base_script(self.cluster.name))
        looks = self.progress.for_each(
            affected, lambda node: probe_result(sides[node.name].work.run(look))
        )
        flag = "reset --node" if self.rekeys else "--take-over"
        return [
            *found,
            *job_findings(running_nodes(looks), f"{flag} would replace the keys that it uses"),
        ]

    def _check(self, facts: ClusterFacts, of_control: Sequence[Finding]) -> Context | None:
        known = [node for node in self.cluster.nodes if node.name in facts.nodes]
        findings = (
            cluster_findings(replace(self.cluster, nodes=tuple(known)), facts.nodes)
            if known
            else ()
        )
        findings = (*of_control, *findings)
        plan = None
        if len(known) == len(self.cluster.nodes) and not _errors(findings):
            planned = plan_cluster(self.cluster, facts)
            if isinstance(planned, ClusterPlan):
                plan = planned
            else:
                findings = (*planned, *findings)
        results = from_findings([node.name for node in known], findings)
        if plan is not None:
            primary = self.cluster.primary_name
            results += [ok(primary, "judge", *told) for told in plan.words.items()]
        self.progress.end(CHECK, results)
        if plan is None:
            return None
        return Context(
            cluster=self.cluster,
            plan=plan,
            facts=facts,
            templates=self.templates,
            authority=self.authority,
            control=self.control,
        )


def _errors(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]
