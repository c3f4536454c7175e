"""What every phase of setup works with: facts, their plan, rendered templates, the record."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache, cached_property
from pathlib import PurePosixPath
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ascendboot import __version__
from ascendboot.checks import hosts, launchers
from ascendboot.checks.finding import Finding, error, grouped, in_order, port_holders
from ascendboot.checks.rank_table import rank_table_text, rank_table_words
from ascendboot.errors import NodeError
from ascendboot.facts.derive import common_networks, crosses_pods, devices_of, leaves_by_lldp
from ascendboot.facts.installed import Installed
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.system import Listener
from ascendboot.facts.query import NOT_QUERIED, value_of
from ascendboot.hccl.profiles import packages_of, profile_paths
from ascendboot.launch.launchers import traits_of
from ascendboot.model.cluster import Cluster, DeviceOfNode, LauncherChoice, Node, Placement
from ascendboot.model.files import Authority, Control, Owner, fingerprint
from ascendboot.model.names import fold
from ascendboot.setup.record import NodeRecord, SetupRecord, digest
from ascendboot.templates import digest as templates_digest
from ascendboot.templates import installed_templates
from ascendboot.value import Value, asdict, field, replace

CANDIDATE_PORTS = range(12345, 12445)
"""Below the kernel's ephemeral ports; 12345 is the one that Rec SDK's manual takes."""
_PASSING = (
    *("clock", "code_tree", "confinement", "disk", "first_process", "free_memory", "health"),
    *("listeners", "npu_processes"),
)


class ClusterFacts(Value):
    """The facts of all nodes, by node name."""

    nodes: Mapping[str, NodeFacts]
    installed: Mapping[str, Installed]
    """What setup installed on the workload sides."""
    sshd_sides: Mapping[str, Installed] = field(default_factory=dict)
    """What it installed where the cluster's sshd runs, if that is not the workload side."""
    unused_hosts: Mapping[str, Installed] = field(default_factory=dict)
    """What it installed on host sides that no step is about."""
    old_containers: Mapping[str, str] = field(default_factory=dict)
    """Containers of an earlier inventory in which the cluster's sshd still runs."""

    def sshd_side(self, name: str) -> Installed:
        """What setup installed on the side of a node where the cluster's sshd runs."""
        return self.sshd_sides.get(name, self.installed[name])

    def host_side(self, name: str) -> Installed:
        """What setup installed on the host side of a node."""
        return self.unused_hosts.get(name) or self.sshd_side(name)

    def part(self, names: Collection[str]) -> ClusterFacts:
        """Those of some nodes."""
        fields = asdict(self).items()
        return ClusterFacts(**{f: {n: v for n, v in by.items() if n in names} for f, by in fields})

    def joined(self, others: ClusterFacts) -> ClusterFacts:
        """These, and those of other nodes."""
        theirs = asdict(others)
        return ClusterFacts(**{f: {**by, **theirs[f]} for f, by in asdict(self).items()})


NO_FACTS: Final = ClusterFacts(nodes={}, installed={})


class ClusterPlan(Value, kw_only=True):
    """The desired state that all nodes share."""

    port: int
    """Of the cluster's own sshd, the same on all nodes."""
    placement: Placement
    networks: tuple[str, ...]
    """CIDRs that hold the nodes' cluster addresses."""
    base: PurePosixPath
    """The cluster's folder, at the same path on all nodes."""
    mpirun: str
    """Absolute path on the primary."""
    launcher: LauncherChoice
    rank_table: str = ""
    """Its text; empty without a rank table."""
    launcher_env: Mapping[str, str] = field(default_factory=dict)
    """What the profile sets for horovodrun, which loads what the ranks load."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of the choices that the inventory leaves open, by name."""


def plan_cluster(cluster: Cluster, facts: ClusterFacts) -> ClusterPlan | tuple[Finding, ...]:
    """The plan, or the findings that block it.

    Expects facts without errors.
    """
    port = choose_port(cluster, facts)
    findings: list[Finding] = [] if isinstance(port, int) else [port]
    findings += [*_bad_bases(cluster, facts), *in_order(_without_nft(cluster, facts))]
    findings += in_order(hosts.open_above([*facts.installed.items(), *facts.sshd_sides.items()]))
    if not isinstance(port, int) or findings:
        return tuple(findings)
    primary = facts.nodes[cluster.primary_name]
    openmpi = value_of(primary.openmpi)
    table = rank_table_text(cluster, facts.nodes) if cluster.resource_mode == "rank-table" else ""
    launcher = launchers.choose_launcher(cluster, facts.nodes)
    words = {
        "launcher": launcher.words,
        "rank-table": rank_table_words(cluster, facts.nodes, table) if table else "",
        "topology": cluster.order_words,
    }
    return ClusterPlan(
        port=port,
        placement=Placement.on(cluster, devices_in_order(cluster, facts.nodes)),
        networks=common_networks(cluster, facts.nodes),
        base=facts.installed[cluster.primary_name].base,
        mpirun=openmpi.path if openmpi else "mpirun",
        launcher=launcher,
        rank_table=table,
        launcher_env=library_paths(cluster, primary) if traits_of(launcher).loads_libraries else {},
        words={name: text for name, text in words.items() if text},
    )


def library_paths(cluster: Cluster, facts: NodeFacts) -> dict[str, str]:
    """The variables by which the profile's libraries are found beside the node's Python."""
    python = value_of(facts.python)
    if python is None:
        return {}
    return profile_paths(cluster.profile, packages_of(python.path, python.version))


def devices_in_order(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[DeviceOfNode, ...]:
    """The devices of the job: nodes in the cluster's rank order, devices in their own order."""
    return tuple(
        (node.name, *device)
        for node in cluster.rank_order
        for device in devices_of(node, facts[node.name])
    )


def choose_port(cluster: Cluster, facts: ClusterFacts) -> int | Finding:
    """The stated port, or one that is free on all nodes; a port in use by the cluster stays."""
    taken = {node.name: _taken_ports(cluster, node, facts) for node in cluster.nodes}
    if (stated := cluster.ssh_port) is not None:
        holders = {name: ports[stated] for name, ports in taken.items() if stated in ports}
        if not holders:
            return stated
        by = ", ".join(sorted(set(holders.values())))
        text = f"could not use port {stated} for the cluster's sshd: it is taken by {by}"
        return error("ssh-port-taken", (*holders,), text, "State another ssh.port, or `auto`")
    used: Counter[int] = Counter()
    for node in cluster.nodes:
        configured = facts.sshd_side(node.name).port
        used.update(sshd_ports(node, facts) or ([] if configured is None else [configured]))
    candidates: list[int] = [*(port for port, _ in used.most_common()), *CANDIDATE_PORTS]
    for port in candidates:
        if not any(port in ports for ports in taken.values()):
            return port
    tried = f"{CANDIDATE_PORTS.start} to {CANDIDATE_PORTS.stop - 1}"
    text = f"could not find a port for the cluster's sshd: none of {tried} is free on all nodes"
    return error("ssh-port-taken", (*taken,), text, "State a free one as ssh.port")


def _taken_ports(cluster: Cluster, node: Node, facts: ClusterFacts) -> dict[int, str]:
    """Ports that the cluster's sshd cannot have, and what has them."""
    meeting = {cluster.chief_port: "the ranks, to meet (resources.chief_port)"}
    listeners = value_of(facts.nodes[node.name].listeners) or ()
    others = (each for each in listeners if not _is_cluster_sshd(node, each, facts))
    return (meeting if cluster.has_meeting_port else {}) | port_holders(others)


def _is_cluster_sshd(node: Node, listener: Listener, facts: ClusterFacts) -> bool:
    """Whether the cluster's own sshd listens there."""
    installed = facts.sshd_side(node.name)
    if node.container is None or node.name in facts.sshd_sides:
        return listener.pid in installed.sshd_pids
    # The container has process ids of its own.
    return bool(installed.sshd_pids) and listener.port == installed.port


def sshd_ports(node: Node, facts: ClusterFacts) -> list[int]:
    """The ports on which the cluster's own sshd listens on a node; none where it does not run."""
    listeners = value_of(facts.nodes[node.name].listeners) or ()
    return [item.port for item in listeners if _is_cluster_sshd(node, item, facts)]


def _without_nft(cluster: Cluster, facts: ClusterFacts) -> Iterator[Finding]:
    """Hosts on which setup cannot close the ports of jobs, where the inventory requires that."""
    what = "could not close the ports of jobs (`firewall`)"
    for node in cluster.nodes if cluster.firewall else ():
        table = facts.host_side(node.name).firewall
        if table is not None and table.state == "missing":
            remedy = "Install the package nftables on the host, or remove `firewall`"
            yield error("nft-missing", (node.name,), f"{what}: the host has no nft", remedy)
        elif table is not None and table.state == "refused":
            remedy = "Log in as root (`user`), or remove `firewall`"
            text = f"{what}: nft does not list its tables: {table.detail}"
            yield error("nft-refused", (node.name,), text, remedy)


def _bad_bases(cluster: Cluster, facts: ClusterFacts) -> Iterator[Finding]:
    """Cluster folders that differ, or that the job's software refuses."""
    nodes_of = grouped((facts.installed[node.name].base, node.name) for node in cluster.nodes)
    if len(nodes_of) > 1:
        words = "; ".join(f"{fold(nodes)} {base}" for base, nodes in nodes_of.items())
        text = f"the cluster's folder must lie at one path on all nodes, but is {words}"
        names = tuple(node.name for node in cluster.nodes)
        yield error("base-differs", names, text, "Use the same user on all nodes")
    if cluster.profile != "rec-sdk-tf" or cluster.resource_mode != "rank-table":
        return
    for node in cluster.nodes:
        installed = facts.installed[node.name]
        if installed.leads_to:  # mx_rec's hccl_mgmt.py refuses it
            where = f"{installed.base} leads through a symbolic link to {installed.leads_to}"
            why = "mx_rec takes no rank table that lies behind one"
            remedy = "Mount the place there (`mount --bind`) instead of linking to it"
            text = f"the cluster's folder {where}, and {why}"
            yield error("base-linked", (node.name,), text, remedy)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(installed_templates()),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - shell and sshd files, not HTML; values go through `q`
    )
    environment.filters["q"] = shlex.quote
    return environment


def rendered(template: str, **values: object) -> str:
    """A template with `values` filled in; a name that is missing raises jinja2.UndefinedError."""
    return _environment().get_template(template).render(values)


class Context(Value, kw_only=True, dict=True):
    """Everything that steps are made from."""

    cluster: Cluster
    plan: ClusterPlan
    facts: ClusterFacts
    authority: Authority | None = None
    """Who signs certificates; None where trust needs none, or its keys are not made yet."""
    control: Control | None = None
    """The control folder, which nodes record; None: they record none."""
    only: Collection[str] = ()
    """The nodes that are changed; others may have no host key yet. Empty: all."""
    now: float = field(default_factory=time.time)
    """The time of the control machine, in seconds since the epoch."""

    @cached_property
    def resources(self) -> Mapping[str, str]:
        """Path and text of every file below `resources/`; equal on all nodes.

        Both files have the nodes in the order of the ranks.
        """
        placement, table = self.plan.placement, self.plan.rank_table
        hostfile = "".join(
            f"{n.cluster_address} slots={len(placement.ranks_on(n))}\n" for n in placement.nodes
        )
        tables = {f"resources/{placement.table_name}": table} if table else {}
        return {**tables, "resources/hostfile": hostfile}

    @cached_property
    def owner(self) -> Owner | None:
        """What every node records of the control folder; None while its key is not made yet.

        A record of the same key stays as it is: control folders may share the key.
        """
        certified = self.cluster.trust == "ca"
        made = fingerprint(self.authority.host) if self.authority else ""
        key = made if certified else (self.control.id if self.control else "")
        if self.control is None or not key:
            return None
        there = (self.facts.sshd_side(node.name).owner for node in self.cluster.nodes)
        return next((o for o in there if o and o.key == key), self.control.owner(key))

    def text(self, template: str, **values: object) -> str:
        """A template with `values` and those of the cluster filled in."""
        cluster, plan = self.cluster, self.plan
        of_cluster = {"cluster": cluster.name, "primary": cluster.primary_name, "port": plan.port}
        return rendered(template, **{**of_cluster, "base": str(plan.base), **values})

    def user(self, node: Node) -> str:
        """The name of the user on a node, on the side where the cluster's sshd runs."""
        facts = self.facts.nodes[node.name]
        system = value_of(facts.host if node.name in self.facts.sshd_sides else facts.system)
        return system.user if system else node.ssh.user


def setup_record(
    cluster: Cluster, plan: ClusterPlan, facts: ClusterFacts, paths: Mapping[str, Collection[str]]
) -> SetupRecord:
    """The record of a setup.

    `paths` holds the files of setup's steps by node: other files in the cluster's folder may
    change.
    """
    leaves = leaves_by_lldp(cluster, facts.nodes)
    return SetupRecord(
        cluster=cluster.name,
        version=__version__,
        inventory_digest=digest(cluster),
        templates=templates_digest(),
        base=plan.base,
        port=plan.port,
        networks=plan.networks,
        mpirun=plan.mpirun,
        launcher=plan.launcher,
        launcher_env=plan.launcher_env,
        slots=devices_in_order(cluster.with_leaves(leaves), facts.nodes),
        crosses_pods=crosses_pods(cluster, facts.nodes),
        leaves=leaves,
        nodes={node.name: _node_record(node, facts, paths[node.name]) for node in cluster.nodes},
    )


class FactsRecord(Value):
    """What setup knew of the nodes, for one of other nodes while these cannot be reached."""

    facts: ClusterFacts
    inventories: Mapping[str, str]
    """By node, a digest of what the inventory stated for it."""

    @classmethod
    def of(cls, cluster: Cluster, facts: ClusterFacts) -> FactsRecord:
        """The record without facts that soon are others."""
        passing: Any = dict.fromkeys(_PASSING, NOT_QUERIED)
        nodes = {name: replace(known, **passing) for name, known in facts.nodes.items()}
        return cls(replace(facts, nodes=nodes), _inventories(cluster, nodes))

    def fitting(self, cluster: Cluster) -> ClusterFacts:
        """The facts of the nodes for which the inventory still states the same."""
        stated = _inventories(cluster, self.inventories)
        fitting = {n for n, known in self.inventories.items() if stated.get(n) == known}
        return self.facts.part(fitting)


def _inventories(cluster: Cluster, names: Collection[str]) -> dict[str, str]:
    """By node, a digest of what concerns it; what all share, and the primary, is read once."""
    shared = f"{templates_digest()} {digest(replace(cluster, nodes=(cluster.primary,)))}"
    return {n.name: f"{shared} {digest(n)}" for n in cluster.nodes if n.name in names}


def _node_record(node: Node, facts: ClusterFacts, paths: Collection[str]) -> NodeRecord:
    installed, host = facts.installed[node.name], facts.sshd_sides.get(node.name)
    answers = facts.nodes[node.name]
    system, engines = value_of(answers.system), value_of(answers.container)
    container = engines.container if engines else None
    if system is None:  # the checks let no such node pass
        why = "the user that ranks run as is unknown"
        raise NodeError(node.name, f"could not record the setup: {why}")
    expires: dict[str, float] = {}
    for side in (installed, *([host] if host else [])):
        for path, certificate in side.certificates.items():
            if end := certificate.valid_to:
                expires[path] = min(end, expires.get(path, end))
    return NodeRecord(
        files={path: file for path, file in installed.files.items() if path in paths},
        sshd=installed.daemon.identity if installed.daemon else "",
        host_files={p: file for p, file in host.files.items() if p in paths} if host else {},
        host_sshd=host.daemon.identity if host and host.daemon else "",
        expires=expires,
        uid=system.uid,
        user=system.user,
        home=system.home,
        engine=container.engine if container else "",
        container=node.container or "",
    )
