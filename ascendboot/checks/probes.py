"""TCP and RoCE probes between nodes and their results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, Literal, TypeAlias

from ascendboot.checks.launchers import needs_openmpi
from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.derive import devices_of, places_of, product_of
from ascendboot.facts.node_facts import FactsByNode, NodeFacts
from ascendboot.facts.npus import CALL_TIMEOUT_S, hccn_tool_output
from ascendboot.facts.parsers import hccn_tool
from ascendboot.facts.parsers.base import Section
from ascendboot.facts.query import ENDED_BY_TIMEOUT, Answer, Sections, Unanswered, attempt, value_of
from ascendboot.hccl.variables import hccl_ports
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.ports import openmpi_value
from ascendboot.templates import script
from ascendboot.transport.api import Command, Result, read_script
from ascendboot.value import Value, field

_EPHEMERAL: Final = 40000
"""Inside Linux's default range of ephemeral ports."""
_FIRST_OF_RANKS: Final = 1024
"""Open MPI 4.1.4: each rank takes the first port that is free from here on."""
_DAEMONS_OF_MPIRUN: Final = 64
"""Open MPI 4.1 (routed radix): so many daemons talk to mpirun alone, further ones through these."""

Coverage: TypeAlias = Literal["once", "ring", "all-pairs"]
"""`once`: each device pings one of the next node; `ring`: also one of the node before;
`all-pairs`: every device every device of every other node."""


class Npu(Value):
    """One end of a ping: a device with one of its addresses."""

    node: str
    device_id: int
    address: str

    def __str__(self) -> str:
        return f"device {self.device_id} of {self.node} ({self.address})"


class PingProbe(Value):
    """A ping from a device to an address of a device of another node."""

    source: Npu
    target: Npu
    command: Literal["ping", "hccs_ping"] = "ping"
    """What hccn_tool calls it: over the devices' network, or over a super pod's fabric (A3)."""


class TcpProbe(Value):
    """A TCP connection from a node to a port of another; `use` names what needs the port."""

    source: str
    target: str
    address: str
    port: int
    use: str
    is_open: bool = False
    """The cluster's sshd listens there: a refused connection is an error, too."""


class NodeProbes(Value):
    """All probes of one node."""

    pings: tuple[PingProbe, ...] = ()
    tcp: tuple[TcpProbe, ...] = ()
    failed_pings_are_errors: bool = True
    """False on A3 if super pods are not known: inside one of them devices reach each other
    without the network of the plain pings."""


def probes_of(
    cluster: Cluster, facts: FactsByNode, coverage: Coverage, *, ssh_ports: Mapping[str, int]
) -> dict[str, NodeProbes]:
    """The probes of each node that answered, by name; equal for equal arguments.

    `ssh_ports` holds the nodes on which the cluster's own sshd runs, with its port.
    """
    nodes = [node for node in cluster.nodes if node.name in facts]
    found = {node.name: _devices(node, facts[node.name]) for node in nodes}
    devices = {name: of_node for name, of_node in found.items() if of_node}
    tcp = _tcp_probes(cluster, facts, coverage, ssh_ports)
    pods_known = all(d.super_pod is not None for of_node in devices.values() for d in of_node)
    return {
        node.name: NodeProbes(
            pings=tuple(_pings(node.name, devices, coverage)),
            tcp=tuple(probe for probe in tcp if probe.source == node.name),
            failed_pings_are_errors=pods_known
            or "a3" not in (cluster.product, product_of(facts[node.name])),
        )
        for node in nodes
    }


def _required_ports(cluster: Cluster, facts: FactsByNode, node: Node) -> Iterator[tuple[int, str]]:
    """Ports that a job needs on a node, and for what; one port of each range."""
    for ports in hccl_ports(cluster.env_of(node))[:1]:
        yield ports[0], "HCCL"
    kernel, ephemeral = value_of(facts[node.name].kernel_ports), _EPHEMERAL
    if kernel is not None and not kernel.first <= _EPHEMERAL <= kernel.last:
        ephemeral = kernel.first
    if not needs_openmpi(cluster, facts):
        yield ephemeral, "gloo"
        return
    if node.name == cluster.primary_name or len(cluster.nodes) > _DAEMONS_OF_MPIRUN + 1:
        # mpirun does not see a node's own variables
        yield _mpi_port(cluster, "oob_tcp_dynamic_ipv4_ports", cluster.env) or ephemeral, "Open MPI"
    first = _mpi_port(cluster, "btl_tcp_port_min_v4", cluster.env_of(node))
    yield first or _FIRST_OF_RANKS, "Open MPI's ranks"


def _mpi_port(cluster: Cluster, name: str, env: Mapping[str, str]) -> int | None:
    """The first port in a parameter of Open MPI, from words for mpirun or a variable."""
    number = re.match(r"[0-9]{1,5}", openmpi_value(cluster, name, env))
    return int(number[0]) if number else None


class _Device(Value):
    """A device with one of its addresses, and where it is in which super pod."""

    node: str
    device_id: int
    address: str
    vnic: str | None
    super_pod: int | None

    def to(self, other: _Device) -> PingProbe | None:
        """The ping to a device of another node; None if no way leads there."""
        if self.vnic and other.vnic and self.super_pod == other.super_pod is not None:
            return PingProbe(self._at(self.vnic), other._at(other.vnic), "hccs_ping")
        if self.address and other.address:
            return PingProbe(self._at(self.address), other._at(other.address))
        return None

    def _at(self, address: str) -> Npu:
        return Npu(self.node, self.device_id, address)


def _devices(node: Node, facts: NodeFacts) -> tuple[_Device, ...]:
    """Without IPv6 addresses: no document states how hccn_tool pings those."""
    if facts.stated:
        return ()  # its tools cannot be read
    networks = value_of(facts.device_networks) or ()
    vnics = {network.device_id: value_of(network.vnic) for network in networks}
    pods = {device_id: place.super_pod_id for device_id, place in places_of(facts).items()}
    found = (
        _Device(node.name, id_, "" if ":" in address else address, vnics.get(id_), pods.get(id_))
        for id_, addresses in devices_of(node, facts)
        for address in (addresses or "").split(",")
    )
    return tuple(device for device in found if device.address or device.vnic)


def _pings(
    name: str, devices: Mapping[str, tuple[_Device, ...]], coverage: Coverage
) -> Iterator[PingProbe]:
    """Without doubles; none if no other node has a device with an address."""
    if name not in devices or len(devices) == 1:
        return
    mine, names = devices[name], list(devices)
    if coverage == "all-pairs":
        others = [device for other in names if other != name for device in devices[other]]
        yield from filter(None, (source.to(target) for source in mine for target in others))
        return
    place = names.index(name)
    after, before = devices[names[(place + 1) % len(names)]], devices[names[place - 1]]
    wanted = [source.to(after[i % len(after)]) for i, source in enumerate(mine)]
    if coverage == "ring":
        # one device further on: with two nodes both neighbours are the same
        wanted += [source.to(before[(i + 1) % len(before)]) for i, source in enumerate(mine)]
    yield from dict.fromkeys(filter(None, wanted))


def _tcp_probes(
    cluster: Cluster, facts: FactsByNode, coverage: Coverage, ssh_ports: Mapping[str, int]
) -> list[TcpProbe]:
    """To and from the primary, and around a ring; or all pairs."""
    nodes = [node for node in cluster.nodes if node.name in facts]
    ports = {node.name: tuple(_required_ports(cluster, facts, node)) for node in nodes}
    names = [node.name for node in nodes]
    ring = set(zip(names, (*names[1:], *names[:1]), strict=True))
    found = []
    for source in names:
        for target in nodes:
            pair, to = (source, target.name), (source, target.name, target.cluster_address)
            is_wanted = coverage == "all-pairs" or cluster.primary_name in pair or pair in ring
            if source == target.name or not is_wanted:
                continue
            if target.name in ssh_ports:
                port = ssh_ports[target.name]
                found.append(TcpProbe(*to, port, "the cluster's sshd", is_open=True))
            found += [TcpProbe(*to, port, use) for port, use in ports[target.name]]
    return found


_TCP_TIMEOUT_S = 3
_AT_ONCE = 32


class TcpResult(Value):
    """The result of a TCP probe: the exit code of timeout or bash, and bash's reason."""

    exit_code: int
    reason: str

    @property
    def why(self) -> str:
        """Why there is no connection, for messages."""
        if self.exit_code in ENDED_BY_TIMEOUT:
            return f"no answer within {_TCP_TIMEOUT_S} s"
        return self.reason or f"exit code {self.exit_code}"


class ProbeResults(Value):
    """The results of one node's probes; a probe that was not tried is in neither mapping."""

    pings: Mapping[PingProbe, Answer[hccn_tool.Ping]] = field(default_factory=dict)
    tcp: Mapping[TcpProbe, TcpResult] = field(default_factory=dict)
    trouble: Unanswered | None = None
    """Why no NPU of the node pinged."""


def probe_command(probes: NodeProbes) -> Command:
    """The command that runs all probes of a node; what takes too long is left out."""
    lines = [
        f"{ping.command} {number} {ping.source.device_id} {ping.target.address}\n"
        for number, ping in enumerate(probes.pings)
    ]
    lines += [
        f"tcp {number} {probe.address} {probe.port}\n" for number, probe in enumerate(probes.tcp)
    ]
    pings_s = 30 + 2 * len(probes.pings)
    tcp_s = 5 + _TCP_TIMEOUT_S * (1 + len(probes.tcp) // _AT_ONCE)
    return read_script(
        script("checks-probes.sh", limit=_TCP_TIMEOUT_S, call_limit=CALL_TIMEOUT_S, jobs=_AT_ONCE),
        str(pings_s),
        purpose="try the network",
        timeout_s=30.0 + max(pings_s, tcp_s),
        stdin="".join(lines).encode(),
    )


def read_probes(probes: NodeProbes, result: Result) -> ProbeResults:
    """The result of each probe; an error if the script did not end, or printed another form."""
    sections = Sections(result)
    found = attempt("ping from the NPUs", lambda: sections.text("hccn_tool"))
    tcp = {}
    form, expected = "([0-9]+) ([0-9]{1,3}) ?(.*)", "NUMBER EXIT_CODE REASON"
    for number, code, reason in sections.rows("tcp", form, expected):
        if int(number) >= len(probes.tcp):
            raise NotUnderstoodError(sections.script, 1, number, expected)
        tcp[probes.tcp[int(number)]] = TcpResult(int(code), reason.strip())
    return ProbeResults(
        pings={
            ping: attempt(f"ping {ping.target}", partial(_ping, ping, sections[f"ping/{number}"]))
            for number, ping in enumerate(probes.pings)
            if f"ping/{number}" in sections
        },
        tcp=tcp,
        trouble=found if isinstance(found, Unanswered) else None,
    )


def _ping(ping: PingProbe, section: Section) -> hccn_tool.Ping:
    tool = f"hccn_tool -i {ping.source.device_id} -{ping.command} -g address {ping.target.address}"
    return hccn_tool.parse_ping(hccn_tool_output(section, tool), tool)
