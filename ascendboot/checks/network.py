"""Checks of networks, addresses and ports."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, TypeVar

from ascendboot.checks.devices import DRIVER
from ascendboot.checks.finding import (
    Finding,
    Level,
    devices,
    differences,
    error,
    unanswered,
    warning,
)
from ascendboot.checks.hosts import same_machines
from ascendboot.facts.derive import (
    answered_nodes,
    carriers_of,
    device_ids,
    network_of,
    pods_of,
    product_of,
)
from ascendboot.facts.query import Answer, Answered, Unanswered, value_of
from ascendboot.hccl.variables import INTRA_ROCE
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.facts.node_facts import NodeFacts
    from ascendboot.facts.npus import DeviceNetwork
    from ascendboot.facts.parsers.system import Interface
    from ascendboot.model.cluster import Cluster, Node

T = TypeVar("T")


def port_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module; about the devices that a job would use."""
    needs_ip = _needs_ip(cluster, facts)
    for node, node_facts in answered_nodes(cluster, facts):
        of_a3 = product_of(node_facts) == "a3"
        yield from unanswered("device-networks-unknown", node, node_facts.device_networks, DRIVER)
        used = _used(node, node_facts)
        yield from _silent(node, {n.device_id: n.addresses for n in used}, "ip", "read the IP of")
        yield from _silent(node, {n.device_id: n.link_up for n in used}, "link", "read the link of")
        yield from _silent(
            node, {n.device_id: n.tls_enabled for n in used}, "tls", "read the TLS switch of"
        )
        yield from _without_ip(node, used, is_needed=needs_ip)
        yield from _not_as_stated(node, used)
        yield from _links_down(node, used, is_a3=cluster.product == "a3" or of_a3)
        yield from _at_boot(node, node_facts, used)
    yield from _doubled(cluster, facts)
    yield from _tls(cluster, facts)


def _used(node: Node, node_facts: NodeFacts) -> tuple[DeviceNetwork, ...]:
    networks = value_of(node_facts.device_networks) or ()
    ids = device_ids(node, node_facts)
    return tuple(network for network in networks if not ids or network.device_id in ids)


def _silent(
    node: Node, answers: Mapping[int, Answer[T]], what: str, purpose: str
) -> Iterator[Finding]:
    """One finding per reason, however many devices share it."""
    reasons: dict[tuple[str, Level], list[int]] = {}
    for device_id, answer in answers.items():
        if isinstance(answer, Unanswered) and answer.kind != "not-asked":
            reason = answer.why.replace(f"-i {device_id} ", "-i ID ")
            # jobs run without knowing the TLS switch; a tool that cannot tell it is no obstacle
            is_harmless = what == "tls" and answer.kind == "failed"
            reasons.setdefault((reason, "warning" if is_harmless else "error"), []).append(
                device_id
            )
    for (reason, level), ids in reasons.items():
        yield Finding(
            id=f"device-{what}-unknown",
            level=level,
            nodes=(node.name,),
            text=f"could not {purpose} {devices(ids)}: {reason.replace('-i ID ', f'-i {ids[0]} ')}",
        )


def _needs_ip(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> bool:
    """Whether HCCL wants an address of each device (hcomm `topoinfo_ranktableConcise.cc`).

    Between the devices of one server, or of one super pod, it needs none unless it goes over
    RoCE there, too.
    """
    if any(cluster.env_of(node).get(INTRA_ROCE) == "1" for node in cluster.nodes):
        return True
    pods = pods_of(cluster, facts).values()
    in_one_pod = all(pods) and len(set().union(*pods)) == 1
    return len(cluster.nodes) > 1 and not in_one_pod


def _without_ip(node: Node, used: Sequence[DeviceNetwork], *, is_needed: bool) -> Iterator[Finding]:
    ids = [network.device_id for network in used if network.addresses == Answered(())]
    if ids:
        yield Finding(
            id="device-ip-missing",
            level="error" if is_needed else "warning",
            nodes=(node.name,),
            text=f"{devices(ids)} {'has' if len(ids) == 1 else 'have'} no IP address",
            remedy=f"Set it: hccn_tool -i {ids[0]} -ip -s address ADDRESS netmask MASK",
        )


def _not_as_stated(node: Node, used: Sequence[DeviceNetwork]) -> Iterator[Finding]:
    stated = {device.device_id: device.device_ip for device in node.devices if device.device_ip}
    for network in used:
        wanted, ip = stated.get(network.device_id), network.device_ip
        if wanted and ip and _addresses(wanted) != _addresses(ip):
            yield error(
                "device-ip-differs",
                (node.name,),
                f"device {network.device_id} has the IP {ip}; the inventory states {wanted}",
                "Correct the inventory, or set the IP of the device with hccn_tool",
            )


def _links_down(node: Node, used: Sequence[DeviceNetwork], *, is_a3: bool) -> Iterator[Finding]:
    ids = [network.device_id for network in used if network.link_up == Answered(value=False)]
    if ids:
        yield Finding(
            id="link-down",
            # inside an A3 super pod devices reach each other without this link
            level="warning" if is_a3 else "error",
            nodes=(node.name,),
            text=f"the link of {devices(ids)} is down",
            remedy="Look at cable and switch port; "
            f"hccn_tool -i {ids[0]} -link_stat -g shows since when",
        )


def _at_boot(node: Node, node_facts: NodeFacts, used: Sequence[DeviceNetwork]) -> Iterator[Finding]:
    if used:
        yield from unanswered(
            "hccn-conf-unknown", node, node_facts.hccn_conf, level=_conf_level(node_facts)
        )
    conf = value_of(node_facts.hccn_conf)
    for network in used:
        ip = network.device_ip
        written = conf.addresses.get(network.device_id) if conf else None
        if written and ip and not _addresses(written) <= _addresses(ip):
            yield warning(
                "hccn-conf-differs",
                (node.name,),
                f"/etc/hccn.conf gives device {network.device_id} the IP {written}, "
                f"but the device has {ip}",
                "Find out which is right and set it: "
                f"hccn_tool -i {network.device_id} -ip -s address ADDRESS netmask MASK",
            )


def _conf_level(node_facts: NodeFacts) -> Level:
    """A missing or unreadable file is no problem; one that is not understood is."""
    answer = node_facts.hccn_conf
    return (
        "warning" if isinstance(answer, Unanswered) and answer.kind == "not-understood" else "info"
    )


def _doubled(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    aliases = {name for names in same_machines(cluster, facts) for name in names[1:]}
    holders: dict[str, list[tuple[str, str]]] = {}
    for node in cluster.nodes:
        for address in sorted(_addresses(f"{node.address},{node.cluster_address}")):
            holders.setdefault(address, []).append((node.name, ""))
    for node, node_facts in answered_nodes(cluster, facts):
        for network in _used(node, node_facts) if node.name not in aliases else ():
            for address in sorted(_addresses(network.device_ip or "")):
                holders.setdefault(address, []).append((node.name, f"device {network.device_id}"))
    for address, who in holders.items():
        if len(who) < 2 or not any(device for _, device in who):  # noqa: PLR2004  "twice" is two
            continue
        names = " and ".join(f"{name} {device}".strip() for name, device in who)
        times = "twice" if len(who) == 2 else f"{len(who)} times"  # noqa: PLR2004
        yield error(
            "device-ip-twice",
            tuple(dict.fromkeys(name for name, _ in who)),
            f"device IP {address} is used {times}: {names}",
            "Give each device an IP of its own with hccn_tool",
        )


def _tls(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """An error where devices talk by these ports: not on one node, nor inside A3's super pods."""
    switches = {
        node.name: {
            network.device_id: network.tls_enabled.value
            for network in _used(node, node_facts)
            if isinstance(network.tls_enabled, Answered)
        }
        for node, node_facts in answered_nodes(cluster, facts)
    }
    of_a3 = cluster.product == "a3" or any(
        product_of(node_facts) == "a3" for node_facts in facts.values()
    )
    is_needed = len(cluster.nodes) > 1 and not of_a3
    yield from tls_findings(switches, "error" if is_needed else "warning")


def tls_findings(switches: Mapping[str, Mapping[int, bool]], level: Level) -> Iterator[Finding]:
    """All devices must agree, across nodes: the fewer are named, with their devices."""
    by_state: dict[bool, dict[str, list[int]]] = {True: {}, False: {}}
    for name, of_node in switches.items():
        for device_id, is_on in of_node.items():
            by_state[is_on].setdefault(name, []).append(device_id)
    counts = {state: sum(map(len, nodes.values())) for state, nodes in by_state.items()}
    if not all(counts.values()):
        return
    # 0 on all is the vendor's advice, so that on a tie the devices with 1 are the odd ones
    odd = counts[True] <= counts[False]
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, ids in by_state[odd].items():
        groups.setdefault(tuple(ids), []).append(name)
    where = "; ".join(f"{fold(names)} {devices(ids)}" for ids, names in groups.items())
    yield Finding(
        id="tls-differs",
        level=level,
        nodes=tuple(by_state[odd]),
        text=f"the TLS switch of {where} is {_switch(on=odd)}, "
        f"that of the {counts[not odd]} other devices {_switch(on=not odd)}",
        remedy="Set it alike on all: hccn_tool -i ID -tls -s enable 0",
    )


def _switch(*, on: bool) -> str:
    return "on" if on else "off"


def _addresses(text: str) -> frozenset[str]:
    """The addresses in a list with commas, each in its one canonical form; names are left out."""
    return frozenset(filter(None, map(_address, text.split(","))))


def _address(word: str) -> str | None:
    try:
        return str(ipaddress.ip_address(word.strip()))
    except ValueError:
        return None


def network_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, node_facts in answered_nodes(cluster, facts):
        yield from unanswered("interfaces-unknown", node, node_facts.interfaces)
        if value_of(node_facts.interfaces) is not None:
            yield from _device_address(node, node_facts)
    networks = {
        node.name: network_of(node, node_facts)
        for node, node_facts in answered_nodes(cluster, facts)
    }
    yield from differences(
        "networks-differ",
        {name: network for name, network in networks.items() if network},
        has="the cluster address in ",
        level="info",
        remedy="Make sure that they route to each other",
    )


def _device_address(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    interfaces = value_of(node_facts.interfaces) or ()
    has = ", ".join(
        f"{interface.name} {address.address}"
        for interface in interfaces
        for address in interface.addresses
        if address.scope == "global"
    )
    carriers = [interface.name for interface, _ in carriers_of(node, node_facts)]
    if not carriers:
        yield error(
            "address-missing",
            (node.name,),
            f"no interface carries the cluster address {node.cluster_address}; "
            f"the node has {has or 'no address'}",
            "Correct `cluster_address`",
        )
        return
    yield from _down(node, interfaces, carriers[0])
    if node.interface is not None and node.interface not in carriers:
        yield error(
            "interface-differs",
            (node.name,),
            f"the inventory states interface {node.interface}, but {carriers[0]} carries "
            f"the cluster address {node.cluster_address}",
            "Correct `interface` or `cluster_address`",
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
