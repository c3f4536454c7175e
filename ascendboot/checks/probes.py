"""TCP and RoCE probes between nodes and their results."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ascendboot.checks.launchers import needs_openmpi, ports_of_hccl
from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.derive import devices_of, places_of, product_of
from ascendboot.facts.npus import CALL_TIMEOUT_S, hccn_tool_output
from ascendboot.facts.parsers import hccn_tool
from ascendboot.facts.parsers.base import Section, lines_of
from ascendboot.facts.query import Answer, Sections, Unanswered, attempt, value_of
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ascendboot.facts.node_facts import NodeFacts
    from ascendboot.facts.parsers.hccn_tool import Ping
    from ascendboot.model.cluster import Cluster, Node

_GIVEN_OUT: Final = 40000
"""Inside Linux's default range of ephemeral ports."""
_FIRST_OF_RANKS: Final = "1024"
"""Open MPI 4.1.4: each rank takes the first one that is free from here on."""

_DAEMONS_OF_MPIRUN: Final = 64
"""Open MPI 4.1 (routed radix): so many daemons talk to mpirun alone, further ones through these."""


@dataclass(frozen=True)
class RequiredPort:
    """A port of a node that is tried."""

    port: int
    use: str
    """What needs it."""
    is_open: bool = False
    """Whether the cluster's sshd listens there now."""


def required_ports(
    cluster: Cluster, facts: Mapping[str, NodeFacts], node: Node
) -> Iterator[RequiredPort]:
    """Ports that a job needs on a node, without the cluster's sshd; one port of each range."""
    for ports in ports_of_hccl(cluster, node)[:1]:
        yield RequiredPort(ports[0], "HCCL")
    if not needs_openmpi(cluster, facts):
        yield RequiredPort(_given_out(facts[node.name]), "gloo")
        return
    if node.name == cluster.primary_name or len(cluster.nodes) > _DAEMONS_OF_MPIRUN + 1:
        yield RequiredPort(_of_daemons(cluster) or _given_out(facts[node.name]), "Open MPI")
    first = _parameter(cluster.mpi_args, "btl_tcp_port_min_v4") or cluster.env_of(node).get(
        "OMPI_MCA_btl_tcp_port_min_v4", _FIRST_OF_RANKS
    )
    yield RequiredPort(_first_number(first) or int(_FIRST_OF_RANKS), "Open MPI's ranks")


def _of_daemons(cluster: Cluster) -> int | None:
    """The first port that mpirun gives its daemons; it does not see a node's own variables."""
    name = "oob_tcp_dynamic_ipv4_ports"
    stated = _parameter(cluster.mpi_args, name) or cluster.env.get(f"OMPI_MCA_{name}", "")
    return _first_number(stated)


def _given_out(facts: NodeFacts) -> int:
    kernel = value_of(facts.kernel_ports)
    if kernel is None or kernel.first <= _GIVEN_OUT <= kernel.last:
        return _GIVEN_OUT
    return kernel.first


def _parameter(words: Sequence[str], name: str) -> str:
    """The value of one of Open MPI's parameters among words for mpirun; empty: not stated."""
    following = (word for before, word in pairwise(words) if before == name)
    return next(following, "")


def _first_number(text: str) -> int | None:
    found = re.match(r"[0-9]{1,5}", text)
    return int(found[0]) if found else None


Coverage: TypeAlias = Literal["once", "ring", "all-pairs"]
"""`once`: each device pings one of the next node; `ring`: also one of the node before; both with
a few more at random. `all-pairs`: every device every device of every other node."""

_SAMPLES: dict[Coverage, int] = {"once": 2, "ring": 4, "all-pairs": 0}
_DRAWS = 200
"""The most draws for samples: some may repeat, or lead nowhere."""


@dataclass(frozen=True)
class Npu:
    """One end of a ping: a device with one of its addresses."""

    node: str
    device_id: int
    address: str

    def __str__(self) -> str:
        return f"device {self.device_id} of {self.node} ({self.address})"


PingCommand: TypeAlias = Literal["ping", "hccs_ping"]
"""What hccn_tool calls it: over the devices' network, or over the fabric of a super pod (A3)."""


@dataclass(frozen=True)
class PingProbe:
    """A ping from a device to an address of a device of another node."""

    source: Npu
    target: Npu
    command: PingCommand = "ping"


@dataclass(frozen=True)
class TcpProbe:
    """A TCP connection from a node to a port of another; `use` names what needs the port."""

    source: str
    target: str
    address: str
    port: int
    use: str
    is_open: bool = False
    """The cluster's sshd listens there: a refused connection is an error, too."""


@dataclass(frozen=True)
class NodeProbes:
    """All probes of one node."""

    pings: tuple[PingProbe, ...] = ()
    tcp: tuple[TcpProbe, ...] = ()
    failed_pings_are_errors: bool = True
    """False on A3 where super pods are not known: inside one of them devices reach each other
    without the network of the plain pings."""


def probes_of(
    cluster: Cluster,
    facts: Mapping[str, NodeFacts],
    coverage: Coverage,
    *,
    ssh_ports: Mapping[str, int],
) -> dict[str, NodeProbes]:
    """The probes of each node that answered, by name; equal for equal arguments.

    `ssh_ports` holds the nodes on which the cluster's own sshd runs, with its port.
    """
    nodes = [node for node in cluster.nodes if node.name in facts]
    devices = {node.name: _devices(node, facts[node.name]) for node in nodes}
    tcp = _tcp_probes(cluster, nodes, facts, coverage, ssh_ports)
    names = [name for name in devices if devices[name]]
    pods_known = all(d.super_pod is not None for name in names for d in devices[name])
    return {
        node.name: NodeProbes(
            pings=tuple(_pings(cluster.name, names, node.name, devices, coverage)),
            tcp=tuple(probe for probe in tcp if probe.source == node.name),
            failed_pings_are_errors=pods_known or not _is_a3(cluster, facts[node.name]),
        )
        for node in nodes
    }


def _is_a3(cluster: Cluster, facts: NodeFacts) -> bool:
    return "a3" in (cluster.product, product_of(facts))


@dataclass(frozen=True)
class _Device:
    """A device with one of its addresses, and where it is in which super pod."""

    node: str
    device_id: int
    address: str
    vnic: str | None
    super_pod: int | None

    def to(self, other: _Device) -> PingProbe | None:
        """The ping to a device of another node; None where no way leads there."""
        if self.vnic and other.vnic and self.super_pod == other.super_pod is not None:
            return PingProbe(self._at(self.vnic), other._at(other.vnic), "hccs_ping")
        if self.address and other.address:
            return PingProbe(self._at(self.address), other._at(other.address))
        return None

    def _at(self, address: str) -> Npu:
        return Npu(self.node, self.device_id, address)


def _devices(node: Node, facts: NodeFacts) -> tuple[_Device, ...]:
    """Without IPv6 addresses: no document says how hccn_tool pings those."""
    if facts.stated:
        return ()  # its tools cannot be read
    networks = value_of(facts.device_networks) or ()
    vnics = {network.device_id: value_of(network.vnic) for network in networks}
    pods = {device_id: place.super_pod_id for device_id, place in places_of(facts).items()}
    found = (
        _Device(
            node.name,
            device_id,
            "" if ":" in address else address,
            vnics.get(device_id),
            pods.get(device_id),
        )
        for device_id, addresses in devices_of(node, facts)
        for address in (addresses or "").split(",")
    )
    return tuple(device for device in found if device.address or device.vnic)


def _pings(
    seed: str,
    names: Sequence[str],
    name: str,
    devices: Mapping[str, tuple[_Device, ...]],
    coverage: Coverage,
) -> Iterator[PingProbe]:
    """Without doubles; none where no other node has a device with an address."""
    if name not in names or len(names) == 1:
        return
    mine = devices[name]
    others = [device for other in names if other != name for device in devices[other]]
    if coverage == "all-pairs":
        yield from _without_none(source.to(target) for source in mine for target in others)
        return
    place = names.index(name)
    after, before = devices[names[(place + 1) % len(names)]], devices[names[place - 1]]
    wanted = [source.to(after[i % len(after)]) for i, source in enumerate(mine)]
    if coverage == "ring":
        # one device further on: with two nodes both neighbours are the same
        wanted += [source.to(before[(i + 1) % len(before)]) for i, source in enumerate(mine)]
    chosen = dict.fromkeys(_without_none(wanted))
    enough = min(len(chosen) + _SAMPLES[coverage], len(mine) * len(others))
    chance = random.Random(f"{seed} {name}")  # noqa: S311 - the same again next time, no secret
    for _ in range(_DRAWS):
        if len(chosen) >= enough:
            break
        ping = chance.choice(mine).to(chance.choice(others))
        if ping is not None:
            chosen[ping] = None
    yield from chosen


def _without_none(pings: Iterable[PingProbe | None]) -> Iterator[PingProbe]:
    return (ping for ping in pings if ping is not None)


def _tcp_probes(
    cluster: Cluster,
    nodes: Sequence[Node],
    facts: Mapping[str, NodeFacts],
    coverage: Coverage,
    ssh_ports: Mapping[str, int],
) -> list[TcpProbe]:
    of_jobs = {node.name: tuple(required_ports(cluster, facts, node)) for node in nodes}
    ours = {
        name: RequiredPort(port, "the cluster's sshd", is_open=True)
        for name, port in ssh_ports.items()
    }
    return [
        TcpProbe(
            source.name,
            target.name,
            target.cluster_address,
            required.port,
            required.use,
            required.is_open,
        )
        for source, target in _pairs(cluster, nodes, coverage)
        for required in (*filter(None, (ours.get(target.name),)), *of_jobs[target.name])
    ]


def _pairs(cluster: Cluster, nodes: Sequence[Node], coverage: Coverage) -> list[tuple[Node, Node]]:
    """Everyone and the primary both ways, and a ring; or all pairs."""
    names = [node.name for node in nodes]
    pairs = [(source, target) for source in nodes for target in nodes if source != target]
    if coverage == "all-pairs":
        return pairs
    ring = set(zip(names, (*names[1:], *names[:1]), strict=True))
    return [
        (source, target)
        for source, target in pairs
        if cluster.primary_name in (source.name, target.name) or (source.name, target.name) in ring
    ]


TCP_TIMEOUT_S = 3
_TOOL = "the script that tries the network"
_AT_ONCE = 32
_TCP_LINE = re.compile(r"([0-9]+) ([0-9]{1,3}) ?(.*)")


@dataclass(frozen=True)
class TcpResult:
    """The result of a TCP probe: the exit code of timeout or bash, and bash's reason."""

    exit_code: int
    reason: str


@dataclass(frozen=True)
class ProbeResults:
    """The results of one node's probes; a probe that was not tried is in neither mapping."""

    pings: Mapping[PingProbe, Answer[Ping]] = field(default_factory=dict)
    tcp: Mapping[TcpProbe, TcpResult] = field(default_factory=dict)
    trouble: Unanswered | None = None
    """Why no NPU of the node pinged."""


def probe_command(probes: NodeProbes) -> Command:
    """The command that runs all probes of a node, pings one after the other.

    It ends in time: after about two seconds for each ping the rest is left out.
    """
    pings = [
        f"{ping.command} {number} {ping.source.device_id} {ping.target.address}\n"
        for number, ping in enumerate(probes.pings)
    ]
    tcp = [
        f"tcp {number} {probe.address} {probe.port}\n" for number, probe in enumerate(probes.tcp)
    ]
    pings_s = 30 + 2 * len(pings)
    tcp_s = 5 + TCP_TIMEOUT_S * (1 + len(tcp) // _AT_ONCE)
    text = script("checks-probes.sh", limit=TCP_TIMEOUT_S, call_limit=CALL_TIMEOUT_S, jobs=_AT_ONCE)
    return Command(
        argv=("bash", "-c", text, "ascendboot", str(pings_s)),
        purpose="try the network",
        effect=Effect.READ,
        timeout_s=30.0 + max(pings_s, tcp_s),
        stdin="".join([*pings, *tcp]).encode(),
    )


def read_probes(probes: NodeProbes, result: Result) -> ProbeResults:
    """The result of each probe.

    Raises:
        ToolError: the script itself did not come to its end.
        NotUnderstoodError: its answer has an unknown form.
    """
    sections = Sections(result, _TOOL)
    found = attempt("ping from the NPUs", lambda: sections.text("hccn_tool"))
    return ProbeResults(
        pings={
            ping: _pinged(ping, sections[f"ping/{number}"])
            for number, ping in enumerate(probes.pings)
            if f"ping/{number}" in sections
        },
        tcp=_tcp_results(probes, sections.text("tcp")),
        trouble=found if isinstance(found, Unanswered) else None,
    )


def _pinged(ping: PingProbe, section: Section) -> Answer[Ping]:
    tool = f"hccn_tool -i {ping.source.device_id} -{ping.command} -g address {ping.target.address}"
    return attempt(
        f"ping {ping.target}", lambda: hccn_tool.parse_ping(hccn_tool_output(section, tool), tool)
    )


def _tcp_results(probes: NodeProbes, text: str) -> dict[TcpProbe, TcpResult]:
    found = {}
    for line in lines_of(text):
        match = _TCP_LINE.fullmatch(line.text)
        if match is None or int(match[1]) >= len(probes.tcp):
            raise NotUnderstoodError(_TOOL, line.number, line.text, "NUMBER EXIT_CODE REASON")
        found[probes.tcp[int(match[1])]] = TcpResult(int(match[2]), match[3].strip())
    return found
