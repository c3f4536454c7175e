"""Who tries to reach whom: pings between NPUs and TCP connections between nodes; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ascendboot.facts.api import value_of
from ascendboot.judge.devices import devices_of
from ascendboot.judge.product import product_of
from ascendboot.judge.super_pods import places_of
from ascendboot.network.ports import Door, doors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

Coverage: TypeAlias = Literal["once", "ring", "all-pairs"]
"""`once`: each device pings one of the next node; `ring`: also one of the node before; both with
a few more at random. `all-pairs`: every device every device of every other node."""

_SAMPLES: dict[Coverage, int] = {"once": 2, "ring": 4, "all-pairs": 0}
_DRAWS = 200
"""So often a sample is drawn at most: some may be there already, or lead nowhere."""


@dataclass(frozen=True)
class Npu:
    """One end of a ping: a device with one of its addresses."""

    node: str
    device_id: int
    address: str

    def __str__(self) -> str:
        return f"device {self.device_id} of {self.node} ({self.address})"


Way: TypeAlias = Literal["ping", "hccs_ping"]
"""What hccn_tool calls it: over the devices' network, or over the fabric of a super pod (A3)."""


@dataclass(frozen=True)
class Ends:
    """A ping from a device to an address of a device of another node."""

    source: Npu
    target: Npu
    way: Way = "ping"


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
    """False on A3 where super pods are not known: inside one of them devices reach each other
    without the network of the plain pings."""


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
    devices = {node.name: _devices(node, facts[node.name]) for node in nodes}
    knocks = _knocks(cluster, nodes, facts, coverage, ssh_ports)
    names = [name for name in devices if devices[name]]
    pods_known = all(d.super_pod is not None for name in names for d in devices[name])
    return {
        node.name: Attempts(
            pings=tuple(_pings(cluster.name, names, node.name, devices, coverage)),
            knocks=tuple(knock for knock in knocks if knock.source == node.name),
            pings_decide=pods_known or not _is_a3(cluster, facts[node.name]),
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

    def to(self, other: _Device) -> Ends | None:
        """The ping to a device of another node; None where no way leads there."""
        if self.vnic and other.vnic and self.super_pod == other.super_pod is not None:
            return Ends(self._at(self.vnic), other._at(other.vnic), "hccs_ping")
        if self.address and other.address:
            return Ends(self._at(self.address), other._at(other.address))
        return None

    def _at(self, address: str) -> Npu:
        return Npu(self.node, self.device_id, address)


def _devices(node: Node, facts: NodeFacts) -> tuple[_Device, ...]:
    """Without IPv6 addresses: how the tool is told to ping those is documented nowhere."""
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
) -> Iterator[Ends]:
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


def _without_none(pings: Iterable[Ends | None]) -> Iterator[Ends]:
    return (ping for ping in pings if ping is not None)


def _knocks(
    cluster: Cluster,
    nodes: Sequence[Node],
    facts: Mapping[str, NodeFacts],
    coverage: Coverage,
    ssh_ports: Mapping[str, int],
) -> list[Knock]:
    of_jobs = {node.name: tuple(doors(cluster, facts, node)) for node in nodes}
    ours = {
        name: Door(port, "the cluster's sshd", is_open=True) for name, port in ssh_ports.items()
    }
    return [
        Knock(source.name, target.name, target.cluster_address, door.port, door.use, door.is_open)
        for source, target in _pairs(cluster, nodes, coverage)
        for door in (*filter(None, (ours.get(target.name),)), *of_jobs[target.name])
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
