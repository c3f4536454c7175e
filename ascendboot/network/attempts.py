"""Who tries to reach whom: pings between NPUs and TCP connections between nodes; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ascendboot.facts.api import value_of
from ascendboot.judge import devices_of
from ascendboot.judge.hccl_ports import hccl_ports
from ascendboot.judge.resources import product_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

Coverage: TypeAlias = Literal["once", "ring", "all-pairs"]
"""`once`: each device pings one of the next node; `ring`: also one of the node before; both with
a few more at random. `all-pairs`: every device every device of every other node."""

_SAMPLES: dict[Coverage, int] = {"once": 2, "ring": 4, "all-pairs": 0}
_ANY_PORT = 40000
"""Inside of what Linux gives to outgoing connections unless told otherwise."""


@dataclass(frozen=True)
class Npu:
    """One end of a ping: a device with one of its addresses."""

    node: str
    device_id: int
    address: str

    def __str__(self) -> str:
        return f"device {self.device_id} of {self.node} ({self.address})"


@dataclass(frozen=True)
class Ends:
    """A ping from a device to an address of a device of another node."""

    source: Npu
    target: Npu


@dataclass(frozen=True)
class Knock:
    """A TCP connection from a node to a port of another; `use` says who needs the port."""

    source: str
    target: str
    address: str
    port: int
    use: str
    is_open: bool = False
    """Something of ours listens there, so that a refusal is a fault too."""


@dataclass(frozen=True)
class Attempts:
    """All that one node tries."""

    pings: tuple[Ends, ...] = ()
    knocks: tuple[Knock, ...] = ()
    pings_decide: bool = True
    """False on A3: inside a super pod devices reach each other without the network of the pings."""


def attempts(
    cluster: Cluster,
    facts: Mapping[str, NodeFacts],
    coverage: Coverage,
    *,
    ssh_ports: Mapping[str, int],
) -> dict[str, Attempts]:
    """What each node that answered tries, by name; equal for equal arguments.

    `ssh_ports` holds the nodes on which the cluster's own sshd runs, with its port.
    """
    nodes = [node for node in cluster.nodes if node.name in facts]
    npus = {node.name: _npus(node, facts[node.name]) for node in nodes}
    knocks = _knocks(cluster, nodes, facts, coverage, ssh_ports)
    names = [name for name in npus if npus[name]]
    return {
        node.name: Attempts(
            pings=tuple(_pings(cluster.name, names, node.name, npus, coverage)),
            knocks=tuple(knock for knock in knocks if knock.source == node.name),
            pings_decide=not _is_a3(cluster, facts[node.name]),
        )
        for node in nodes
    }


def _is_a3(cluster: Cluster, facts: NodeFacts) -> bool:
    return "a3" in (cluster.product, product_of(facts))


def _npus(node: Node, facts: NodeFacts) -> tuple[Npu, ...]:
    """Without IPv6 addresses: how the tool is told to ping those is documented nowhere."""
    return tuple(
        Npu(node.name, device_id, address)
        for device_id, addresses in devices_of(node, facts)
        for address in (addresses or "").split(",")
        if address and ":" not in address
    )


def _pings(
    seed: str,
    names: Sequence[str],
    name: str,
    npus: Mapping[str, tuple[Npu, ...]],
    coverage: Coverage,
) -> Iterator[Ends]:
    """Without doubles; none where no other node has an NPU with an address."""
    if name not in names or len(names) == 1:
        return
    others = [npu for other in names if other != name for npu in npus[other]]
    if coverage == "all-pairs":
        yield from (Ends(source, target) for source in npus[name] for target in others)
        return
    place = names.index(name)
    after, before = npus[names[(place + 1) % len(names)]], npus[names[place - 1]]
    wanted = [Ends(s, after[i % len(after)]) for i, s in enumerate(npus[name])]
    if coverage == "ring":
        # one device further on: with two nodes both neighbours are the same
        wanted += [Ends(s, before[(i + 1) % len(before)]) for i, s in enumerate(npus[name])]
    chosen = dict.fromkeys(wanted)
    enough = min(len(chosen) + _SAMPLES[coverage], len(npus[name]) * len(others))
    chance = random.Random(f"{seed} {name}")  # noqa: S311 - the same again next time, no secret
    while len(chosen) < enough:
        chosen[Ends(chance.choice(npus[name]), chance.choice(others))] = None
    yield from chosen


def _knocks(
    cluster: Cluster,
    nodes: Sequence[Node],
    facts: Mapping[str, NodeFacts],
    coverage: Coverage,
    ssh_ports: Mapping[str, int],
) -> list[Knock]:
    ports = {node.name: tuple(_ports(cluster, node, facts[node.name], ssh_ports)) for node in nodes}
    return [
        Knock(source.name, target.name, target.cluster_address, port, use, is_open)
        for source, target in _pairs(cluster, nodes, coverage)
        for port, use, is_open in ports[target.name]
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


def _ports(
    cluster: Cluster, node: Node, facts: NodeFacts, ssh_ports: Mapping[str, int]
) -> Iterator[tuple[int, str, bool]]:
    """Ports of a node to be tried: port, who needs it, whether something of ours listens."""
    if node.name in ssh_ports:
        yield ssh_ports[node.name], "the cluster's sshd", True
    hccl = hccl_ports(cluster)
    if hccl:
        yield hccl[0], "HCCL", False
    kernel = value_of(facts.kernel_ports)
    if kernel is None or not kernel.first <= _ANY_PORT <= kernel.last:
        yield (kernel.first if kernel else _ANY_PORT), "Open MPI", False
    else:
        yield _ANY_PORT, "Open MPI", False
