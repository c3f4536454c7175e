"""Queries all nodes once, gathers their facts and checks them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ascendboot.checks import containers, devices, launchers, network, rank_table
from ascendboot.checks import hosts as host_checks
from ascendboot.checks.finding import Finding, error, grouped, in_order, warning
from ascendboot.errors import NodeError, UnreachableError
from ascendboot.facts.container import container_exec, container_query, is_foreign
from ascendboot.facts.derive import leaves_by_lldp
from ascendboot.facts.installed import Installed, base_script, installed_query, parse_installed
from ascendboot.facts.node_facts import NodeFacts, host_queries, queries, with_stated, work_queries
from ascendboot.facts.query import NOT_QUERIED, Answer, Fact, Unanswered, answer_to, query, value_of
from ascendboot.jobs.probe import probe_below, probe_result, running_nodes
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.files import Authority, Control, fingerprint
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup.cluster_plan import NO_FACTS, ClusterFacts, Context, plan_cluster
from ascendboot.setup.create import Pending, pending
from ascendboot.setup.lock import Lock, Locks, held_lock
from ascendboot.setup.phases import CHECK, CONTAINERS, QUERY, REACH
from ascendboot.setup.results import Progress, failed, found
from ascendboot.setup.sync import CodeSender
from ascendboot.transport.api import HostSide, Sides, Transport
from ascendboot.transport.hostkeys import HostKeyChangedError
from ascendboot.value import Value, field, replace

RunQuery = Callable[[Transport, Mapping[str, Fact[Any]]], Mapping[str, Answer[Any]]]
Connect = Callable[[Sequence[Node]], tuple[Mapping[str, HostSide], Mapping[str, NodeError]]]
_RECORDED = "was not compared, and counts as the last setup left it"
_WHEN_BACK = "Run setup again when it is back"
_UNKNOWN = (
    "Setup of other nodes needs its devices, host key and versions, and no setup has recorded them "
    "for this inventory: bring it back, or take it out of the inventory"
)


class NodeAnswers(Value):
    """What one node answered: its facts, and what is installed on it."""

    facts: NodeFacts
    sides: Sides
    installed: Installed
    sshd_side: Installed | None = None
    """What is installed where the cluster's sshd runs, if that is not the workload side."""
    unused_host: Installed | None = None
    """What is installed on a host side that no step is about."""
    lock: Lock = field(default_factory=Lock)
    """How the lock was taken; on the primary only."""
    old_container: str = ""
    """The container of an earlier inventory in which the cluster's sshd still runs."""
    pending: Pending | None = None
    """What setup has to do about the container first; its facts were not kept then."""


class Surveyed(Value):
    """The facts of all nodes, and transports to their sides."""

    facts: ClusterFacts
    sides: Mapping[str, Sides]
    """Both sides of each reached node; twice the host where no container can be entered."""
    context: Context | None
    """For steps; None where something blocks them, or containers are pending."""
    pending: Mapping[str, Pending]
    """What setup has to do about containers first, by node."""


def installed_fact(cluster: Cluster) -> Fact[Installed]:
    """The query for what is installed on a node."""
    return Fact(installed_query(cluster.name, with_firewall=cluster.firewall), parse_installed)


class Survey(Value, kw_only=True):
    """Reaches, queries and checks the nodes."""

    progress: Progress
    locks: Locks | None = None
    """Taken on the primary before any query; None where nothing will be written."""
    run_query: RunQuery = query
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
    recorded: ClusterFacts = NO_FACTS
    """What the last setup recorded, for nodes that are left out and cannot be reached."""
    keep: Callable[[ClusterFacts], None] = lambda _facts: None
    """Records what is known of the nodes."""
    former: Mapping[str, Node] = field(default_factory=dict)
    """Nodes that had another container at the last setup, as they were then."""

    @property
    def cluster(self) -> Cluster:
        """The cluster to which the nodes belong."""
        return self.progress.cluster

    def look(self, connect: Connect, *, creates: bool = False) -> Surveyed:
        """Reach, query and check the nodes.

        `creates`: pending containers are created first, if nothing blocks setup.

        Raises:
            Stopped: a container could not be created, or the operator interrupted.
        """
        hosts, absent = self._reach(connect)
        answers = self._query(hosts)
        nodes = {node.name: node for node in self.cluster.nodes}
        while True:
            answered = ClusterFacts(
                nodes={n: with_stated(self.cluster, nodes[n], a.facts) for n, a in answers.items()},
                installed={n: a.installed for n, a in answers.items()},
                sshd_sides={n: a.sshd_side for n, a in answers.items() if a.sshd_side},
                unused_hosts={n: a.unused_host for n, a in answers.items() if a.unused_host},
                old_containers={n: a.old_container for n, a in answers.items() if a.old_container},
            )
            facts = answered.joined(absent)
            sides = {name: Sides(host, host) for name, host in hosts.items()}
            sides |= {name: answer.sides for name, answer in answers.items()}
            # For all that follows: steps compare nodes with those of the cluster.
            leaves = leaves_by_lldp(self.cluster, facts.nodes)
            self.progress.cluster = self.cluster.with_leaves(leaves)
            todo = {name: answer.pending for name, answer in answers.items() if answer.pending}
            busy = {name: (each.why, each.users) for name, each in todo.items() if each.users}
            findings = [*containers.busy_findings(busy), *self._findings(facts, sides)]
            is_blocked = len(facts.nodes) < len(nodes) or any(f.level == "error" for f in findings)
            mine = {name: todo[name] for name in self.progress.chosen(todo)}
            if is_blocked or not (creates and mine):
                break
            self._create(hosts, mine)
            answers |= self._query({name: hosts[name] for name in mine}, again=True)
            self.progress.stop_if_bad()
        context = self._report(facts, findings, is_blocked=is_blocked or bool(todo))
        return Surveyed(facts, sides, context, todo)

    def _create(self, hosts: Mapping[str, HostSide], todo: Mapping[str, Pending]) -> None:
        """Create, re-create or start the containers of some nodes."""

        def work(node: Node) -> StepResult:
            each, began = todo[node.name], time.monotonic()
            hosts[node.name].run(each.command).checked()
            words, took = f"{each.why}: {each.done}", time.monotonic() - began
            result = StepResult(node.name, "containers", "container", Outcome.CHANGED, words, took)
            return replace(result, action=each.action)

        self.progress.begin(CONTAINERS)
        done = self.progress.for_each(todo, work).values()
        results = [
            failed("containers", "container", r) if isinstance(r, NodeError) else r for r in done
        ]
        self.progress.end(CONTAINERS, results)
        self.progress.stop_if_bad()

    def _reach(self, connect: Connect) -> tuple[Mapping[str, HostSide], ClusterFacts]:
        """The host sides of all nodes that can be reached, and what is recorded of others.

        Only nodes that setup does not change may be out of reach.
        """
        self.progress.display.working(REACH)
        began = time.monotonic()
        hosts, errors = connect(self.cluster.nodes)
        took = time.monotonic() - began
        # A node with another host key may be another server: what is recorded is not about it.
        lost = {
            name: error
            for name, error in errors.items()
            if isinstance(error, UnreachableError) and not isinstance(error, HostKeyChangedError)
        }
        others = {*lost}.difference(self.progress.chosen(lost))
        absent = self.recorded.part(others)
        results = []
        for node in self.cluster.nodes:
            if (error := errors.get(node.name)) is None:
                result = StepResult(node.name, "reach", "connect", Outcome.OK, "connected", took)
                results.append(result)
            elif node.name not in absent.nodes:
                result = failed("reach", "connect", error, took)
                more = f". {_UNKNOWN}" if node.name in others else ""
                results.append(replace(result, detail=result.detail + more))
        unseen = [
            warning("node-not-compared", (n,), f"{_RECORDED}: {lost[n].message}", _WHEN_BACK)
            for n in absent.nodes
        ]
        self.progress.end(REACH, [*results, *found("reach", "connect", {}, in_order(unseen))])
        return hosts, absent

    def _query(
        self, hosts: Mapping[str, HostSide], *, again: bool = False
    ) -> dict[str, NodeAnswers]:
        """Query every node that was reached; one node's error does not stop the others.

        `again`: their containers were pending before. The lock on the server is held already.
        """

        def work(node: Node) -> NodeAnswers:
            return self._query_node(node, hosts[node.name], again=again)

        self.progress.begin(QUERY)
        began = time.monotonic()
        answers = self.progress.for_each(hosts, work)
        primary = answers.get(self.cluster.primary_name)
        if isinstance(primary, NodeAnswers) and primary.lock.was_waited_for:
            # Another run held the lock until now and may have changed the other nodes.
            answers |= self.progress.for_each({*hosts} - {self.cluster.primary_name}, work)
        took = time.monotonic() - began
        answered, results = dict[str, NodeAnswers](), list[StepResult]()
        for name, answer in answers.items():
            if isinstance(answer, NodeError):
                if hosts[name].has_one_session:
                    results += found("ask", "questions", {}, [host_checks.one_session(name)])
                else:
                    results.append(failed("ask", "questions", answer, took))
                continue
            answered[name] = answer
            results.append(StepResult(name, "ask", "questions", Outcome.OK, "answered", took))
            if answer.lock.broke:
                words = f"broke the lock of {answer.lock.broke}"
                results.append(StepResult(name, "ask", "lock", Outcome.OK, words, took))
        self.progress.end(QUERY, results)
        return answered

    def _query_node(self, node: Node, host: HostSide, *, again: bool) -> NodeAnswers:
        """All answers of a node, in one execution per side, after its lock is taken.

        Where nothing can run in the node's container, its workload side is not queried, and the
        facts hold the reason.
        """
        cluster = self.cluster
        locks = self.locks if node == cluster.primary else None
        first = {"lock": locks.on_host} if locks is not None and not again else {}
        of_code = self.sender.questions() if self.sender else {}
        own = {"own": installed_fact(cluster)}
        of_host = {**queries(cluster, node), **of_code}
        if node.container is not None:
            of_host = host_queries(cluster, node)
        answers = self.run_query(host, {**first, **of_host, **own})
        if host.has_one_session:
            raise NodeError(host.node, host_checks.one_session(host.node).text)
        there = NodeAnswers(
            NodeFacts.from_answers(node.name, answers),
            Sides(host, host),
            _installed(node, answers),
            lock=held_lock(node.name, answers["lock"]) if first else Lock(),
            old_container=self._old_container(node, host),
        )
        if node.container is None:
            return there
        todo = None if again else pending(cluster, node, with_stated(cluster, node, there.facts))
        if todo is not None:
            kept = {name: answer for name, answer in answers.items() if name != "container"}
            there = replace(there, pending=todo, facts=NodeFacts.from_answers(node.name, kept))
        if not (has_sshd := cluster.serves_from_host(node)):
            there = replace(there, unused_host=there.installed)
        inside = container_exec(node, answers["container"])
        if inside is None or is_foreign(cluster, node, answers["container"]):
            return replace(there, installed=Installed(there.installed.base))
        work = host.inside(inside)
        of_work = self.run_query(work, {**work_queries(cluster, node), **of_code, **own})
        if todo is None:
            there = replace(there, facts=NodeFacts.from_answers(node.name, {**of_work, **answers}))
        sshd_side, installed = there.installed if has_sshd else None, _installed(node, of_work)
        return replace(there, sides=Sides(host, work), installed=installed, sshd_side=sshd_side)

    def _old_container(self, node: Node, host: HostSide) -> str:
        """The node's former container, if something of setup is still in it; else ""."""
        former = self.former.get(node.name)
        if former is None or former.container is None:
            return ""
        engines = container_query(former)["container"]
        inside = container_exec(former, answer_to(engines, host.run(engines.command)))
        if inside is None:  # it is gone, or nothing can run in it
            return ""
        own = installed_fact(self.cluster)
        installed = value_of(answer_to(own, host.inside(inside).run(own.command)))
        return inside.container if installed and (installed.sshd_pids or installed.files) else ""

    def _of_control(self, facts: ClusterFacts, sides: Mapping[str, Sides]) -> list[Finding]:
        """Nodes that another control folder set up; to take them over, no job may run there."""
        if self.control is None:
            return []
        by, here = self.authority, self.control.folder
        ca = [fingerprint(key) for key in (by.host, by.user)] if by else []
        owns = {name: facts.sshd_side(name) for name in facts.installed}
        elsewhere = host_checks.set_up_elsewhere(owns, {*self.control.known, *ca})
        if self.cluster.trust == "ca":
            here = f"{here}, with {f'CA {ca[0]}' if ca else 'no CA of this cluster'}"
        findings = [
            *host_checks.elsewhere_findings(elsewhere, here=here, take_over=self.take_over),
            *host_checks.left_findings(self.left),
        ]
        affected = {*facts.installed} if self.rekeys else {*elsewhere} if self.take_over else set()
        flag = "removing a node" if self.rekeys else "the takeover"
        why = f"{flag} would replace the keys that it uses"
        jobs = self._jobs_on(affected, sides)
        return [*findings, *host_checks.job_findings("job-needs-keys", jobs, why)]

    def _jobs_on(
        self, affected: Collection[str], sides: Mapping[str, Sides]
    ) -> Mapping[str, Sequence[str]]:
        """The jobs that run on these nodes, each with its nodes."""
        probe, nodes = probe_below(base_script(self.cluster.name)), sides.keys() & affected
        jobs = self.progress.for_each(
            nodes, lambda node: probe_result(sides[node.name].work.run(probe))
        )
        return running_nodes(jobs)

    def _findings(self, facts: ClusterFacts, sides: Mapping[str, Sides]) -> list[Finding]:
        """What is found on the nodes that answered."""
        known = tuple(node for node in self.cluster.nodes if node.name in facts.nodes)
        findings = self._of_control(facts, sides)
        hosts = {name: facts.host_side(name) for name in facts.installed}
        changing = network.ports_to_set(self.cluster, hosts)
        jobs = self._jobs_on(changing, sides)
        findings += network.npu_network_rules(self.cluster, facts.nodes, hosts, changing, jobs)
        findings += _left_servers(self.cluster, facts)
        if known:
            findings += cluster_findings(replace(self.cluster, nodes=known), facts.nodes)
        return findings

    def _report(
        self, facts: ClusterFacts, findings: Sequence[Finding], *, is_blocked: bool
    ) -> Context | None:
        """Report all findings; the context for steps if none of them blocks."""
        plan = None if is_blocked else plan_cluster(self.cluster, facts)
        if isinstance(plan, tuple):
            findings, plan = [*plan, *findings], None
        words = dict.fromkeys(facts.nodes, "fit the inventory and each other")
        results = found("judge", "facts", words, findings, as_error=Outcome.BLOCKED)
        for choice, text in plan.words.items() if plan else ():
            primary = self.cluster.primary_name
            results.append(StepResult(primary, "judge", choice, Outcome.OK, text))
        self.progress.end(CHECK, results)
        if plan is None:
            return None
        by, control = self.authority, self.control
        context = Context(
            cluster=self.cluster, plan=plan, facts=facts, authority=by, control=control
        )
        return replace(context, only=self.progress.only)


def _left_servers(cluster: Cluster, facts: ClusterFacts) -> Iterator[Finding]:
    """Sshds of the cluster on the wrong side, and what is in containers of an earlier inventory."""
    sides = {**facts.unused_hosts, **{name: facts.installed[name] for name in facts.sshd_sides}}
    names = tuple(
        name
        for name, there in sides.items()
        if there.sshd_pids or "sshd/sshd_config" in there.files
    )
    if names:
        where = "in the container" if cluster.ssh_via == "engine" else "on the host side"
        text = f"the cluster's sshd {where} is left from another `ssh.via` or `container`"
        yield error("ssh-via-changed", names, text, "Run reset, then setup")
    left = grouped((container, name) for name, container in facts.old_containers.items())
    for container, nodes in left.items():
        where = f"the container {container}, which the inventory no longer names"
        text = f"what setup installed is still in {where}"
        remedy = "Run reset, then setup; or remove that container"
        yield error("container-left", tuple(nodes), text, remedy)


def _installed(node: Node, answers: Mapping[str, Answer[Any]]) -> Installed:
    answer: Answer[Installed] = answers["own"]
    if isinstance(answer, Unanswered):
        raise NodeError(node.name, answer.message)
    return replace(answer.value, ports=answers.get("ports", NOT_QUERIED))


def cluster_findings(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[Finding, ...]:
    """What is wrong or worth knowing, errors first, in an order that does not depend on timing.

    Nodes without facts are not checked, and neither are queries that were not made.
    """
    rules = (
        *(containers.container_rules, host_checks.host_rules, containers.code_rules),
        *(network.network_rules, devices.device_rules, network.port_rules, devices.product_rules),
        *(launchers.hccl_port_rules, launchers.hccl_setting_rules, launchers.resource_rules),
        launchers.elastic_rules,
        *(rank_table.rank_table_rules, launchers.launcher_rules, host_checks.environment_rules),
        network.leaf_rules,
    )
    return in_order(finding for rule in rules for finding in rule(cluster, facts))
