"""Derives what a job uses from the facts of nodes: product, devices, super pods, networks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from ascendboot.facts.node_facts import FactsByNode, NodeFacts
from ascendboot.facts.parsers.npu_smi import SuperPodPlace
from ascendboot.facts.parsers.system import Interface, InterfaceAddress
from ascendboot.facts.query import Answer, Answered, value_of
from ascendboot.model.cluster import Cluster, Node

T = TypeVar("T")
_CHIPS = {
    "a5": re.compile(r"Ascend950.*"),
    "a3": re.compile(r"Ascend910_93.*"),
    "a2": re.compile(r"Ascend910B[1-4].*"),
    "910": re.compile(r"Ascend910(A|Pro[AB]|PremiumA)"),
}
"""Names of chips by product. Ascend910B without a digit was once a 910: it decides nothing."""


def answered_nodes(cluster: Cluster, facts: FactsByNode) -> Iterator[tuple[Node, NodeFacts]]:
    """The nodes that answered, in inventory order, each with its facts."""
    return ((node, facts[node.name]) for node in cluster.nodes if node.name in facts)


def known(
    cluster: Cluster, facts: FactsByNode, part: Callable[[NodeFacts], Answer[T]]
) -> dict[str, T]:
    """The known values of one fact, by node."""
    answers = ((node.name, part(its)) for node, its in answered_nodes(cluster, facts))
    return {name: answer.value for name, answer in answers if isinstance(answer, Answered)}


def product_of(node_facts: NodeFacts) -> str | None:
    """The product as the inventory calls it, if the names of the chips show it.

    `npu-smi info -m` prints "Ascend 910A", "Ascend 910B3" (A2), "Ascend910" (A3, two chips a card)
    and "Ascend950PR".
    """
    npus = value_of(node_facts.npus)
    if npus is None:
        return None
    names = {npu.chip_name.replace(" ", "") for npu in npus.npus}
    if names == {"Ascend910"} and any(npu.chip_id for npu in npus.npus):
        return "a3"
    for product, pattern in _CHIPS.items():
        if names and all(pattern.fullmatch(name) for name in names):
            return product
    return None


def stated_or_seen_product(cluster: Cluster, node_facts: NodeFacts) -> str | None:
    """The product in the inventory, otherwise that of the node's chips."""
    return product_of(node_facts) if cluster.product == "auto" else cluster.product


def present_ids(node_facts: NodeFacts) -> tuple[int, ...]:
    """The physical ids of the devices of a node."""
    npus = value_of(node_facts.npus)
    return tuple(npu.device_id for npu in npus.npus) if npus else ()


def device_ids(node: Node, node_facts: NodeFacts) -> tuple[int, ...]:
    """The physical ids of the devices that a job uses, in rank order: as stated, else ascending."""
    return tuple(device.device_id for device in node.devices) or present_ids(node_facts)


def devices_of(node: Node, node_facts: NodeFacts) -> tuple[tuple[int, str | None], ...]:
    """The (device_id, device_ip) that a job uses, in rank order; None: no IP, or not known."""
    ips = {n.device_id: n.device_ip for n in value_of(node_facts.device_networks) or ()}
    return tuple((device_id, ips.get(device_id)) for device_id in device_ids(node, node_facts))


def logic_ids(node: Node, node_facts: NodeFacts) -> tuple[int, ...]:
    """The logic ids of the devices that a job uses, in rank order, as ranks count them."""
    npus = value_of(node_facts.npus)
    by_device = {npu.device_id: npu.logic_id for npu in npus.npus} if npus else {}
    by_device |= renumbered(node, node_facts)
    ids = ((i, by_device.get(i)) for i in device_ids(node, node_facts))
    return tuple(device_id if logic_id is None else logic_id for device_id, logic_id in ids)


def renumbered(node: Node, node_facts: NodeFacts) -> dict[int, int]:
    """The logic ids by physical id in a container that has only some devices of its node.

    The driver counts those from 0 there: of 3 to 7 it calls device 5 number 2 (vllm-ascend #16256).
    """
    npus, given = value_of(node_facts.npus), value_of(node_facts.surroundings)
    if node.container is None or npus is None or given is None:
        return {}
    ordered = sorted(npus.npus, key=lambda npu: (npu.logic_id is None, npu.logic_id, npu.device_id))
    there = [npu.device_id for npu in ordered if npu.device_id in given.device_ids]
    if len(there) == len(ordered):
        return {}
    return {device_id: number for number, device_id in enumerate(there)}


def places_of(node_facts: NodeFacts) -> dict[int, SuperPodPlace]:
    """The places of a node's chips in super pods, by physical id; without those in none."""
    answers = value_of(node_facts.super_pods) or {}
    places = ((device_id, value_of(answer)) for device_id, answer in answers.items())
    return {device_id: place for device_id, place in places if place is not None}


def pods_of(cluster: Cluster, facts: FactsByNode) -> dict[str, set[int]]:
    """The super pods of the devices that a job uses, by node."""
    pods = {}
    for node, node_facts in answered_nodes(cluster, facts):
        places, used = places_of(node_facts), device_ids(node, node_facts)
        pods[node.name] = {place.super_pod_id for id_, place in places.items() if id_ in used}
    return pods


def crosses_pods(cluster: Cluster, facts: FactsByNode) -> bool:
    """Whether devices of a job are in several super pods: they then use their network ports."""
    return len({pod for pods in pods_of(cluster, facts).values() for pod in pods}) > 1


def leaves_by_lldp(cluster: Cluster, facts: FactsByNode) -> dict[str, tuple[tuple[int, str], ...]]:
    """The leaf switch of each device with an LLDP answer, by node; without nodes that have none."""
    leaves = {}
    for node, node_facts in answered_nodes(cluster, facts):
        answers = value_of(node_facts.neighbours) or {}
        seen = ((device_id, value_of(answer)) for device_id, answer in sorted(answers.items()))
        if known := tuple((device_id, found.leaf) for device_id, found in seen if found):
            leaves[node.name] = known
    return leaves


def carriers_of(node: Node, node_facts: NodeFacts) -> list[tuple[Interface, InterfaceAddress]]:
    """The interfaces that have the node's cluster address."""
    wanted = ipaddress.ip_address(node.cluster_address)
    return [
        (interface, address)
        for interface in value_of(node_facts.interfaces) or ()
        for address in interface.addresses
        if ipaddress.ip_address(address.address) == wanted
    ]


def network_of(node: Node, node_facts: NodeFacts) -> str | None:
    """The network in CIDR form that holds the node's cluster address."""
    return next((address.network for _, address in carriers_of(node, node_facts)), None)


def common_networks(cluster: Cluster, facts: FactsByNode) -> tuple[str, ...]:
    """The networks that hold the nodes' cluster addresses, in inventory order."""
    found = (network_of(node, node_facts) for node, node_facts in answered_nodes(cluster, facts))
    return tuple(dict.fromkeys(network for network in found if network))


def carrier_of(node: Node, node_facts: NodeFacts) -> str | None:
    """The name of the interface that has the node's cluster address."""
    return next((interface.name for interface, _ in carriers_of(node, node_facts)), None)
