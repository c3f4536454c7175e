"""Rules about the nodes' own network, the one that MPI uses."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.judge.finding import Finding, differences, judged_nodes, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.parse.ip import Interface


def network_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, seen in judged_nodes(cluster, facts):
        yield from unanswered("interfaces-unknown", node, seen.interfaces)
        if value_of(seen.interfaces) is not None:
            yield from _address(node, seen)
    networks = {node.name: _network(node, seen) for node, seen in judged_nodes(cluster, facts)}
    yield from differences(
        "networks-differ",
        {name: network for name, network in networks.items() if network},
        has="the cluster address in ",
        level="info",
        remedy="Make sure that they route to each other",
    )


def common_networks(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[str, ...]:
    """The networks in CIDR form that hold the nodes' cluster addresses, in inventory order."""
    found = (_network(node, seen) for node, seen in judged_nodes(cluster, facts))
    return tuple(dict.fromkeys(network for network in found if network))


def carrier_of(node: Node, seen: NodeFacts) -> str | None:
    """The name of the interface that has the node's cluster address."""
    for interface in value_of(seen.interfaces) or ():
        if any(_same(each.address, node.cluster_address) for each in interface.addresses):
            return interface.name
    return None


def _address(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    interfaces = value_of(seen.interfaces) or ()
    has = ", ".join(
        f"{interface.name} {address.address}"
        for interface in interfaces
        for address in interface.addresses
        if address.scope == "global"
    )
    carriers = [
        interface.name
        for interface in interfaces
        for address in interface.addresses
        if _same(address.address, node.cluster_address)
    ]
    if not carriers:
        yield Finding(
            id="address-missing",
            level="error",
            nodes=(node.name,),
            text=f"no interface carries the cluster address {node.cluster_address}; "
            f"the node has {has or 'no address'}",
            remedy="Correct `cluster_address`",
        )
        return
    yield from _down(node, interfaces, carriers[0])
    if node.interface is not None and node.interface not in carriers:
        yield Finding(
            id="interface-differs",
            level="error",
            nodes=(node.name,),
            text=f"the inventory states interface {node.interface}, but {carriers[0]} carries "
            f"the cluster address {node.cluster_address}",
            remedy="Correct `interface` or `cluster_address`",
        )


def _down(node: Node, interfaces: Sequence[Interface], carrier: str) -> Iterator[Finding]:
    """Linux answers on an address without a cable, and not on one whose interface is down."""
    [found] = [interface for interface in interfaces if interface.name == carrier]
    if not (found.is_up and found.has_carrier):
        yield Finding(
            id="interface-down",
            level="warning" if found.is_up else "error",
            nodes=(node.name,),
            text=f"{carrier}, which carries the cluster address {node.cluster_address}, "
            f"{'has no link' if found.is_up else 'is down'}",
            remedy="Look at its cable and switch port"
            if found.is_up
            else f"ip link set {carrier} up",
        )


def _network(node: Node, seen: NodeFacts) -> str | None:
    for interface in value_of(seen.interfaces) or ():
        for address in interface.addresses:
            if _same(address.address, node.cluster_address):
                return address.network
    return None


def _same(one: str, other: str) -> bool:
    return ipaddress.ip_address(one) == ipaddress.ip_address(other)
