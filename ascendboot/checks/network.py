"""Checks of networks, addresses and links, of devices and of nodes."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from ascendboot.checks import finding
from ascendboot.checks.devices import DRIVER
from ascendboot.checks.hosts import job_findings, same_machines
from ascendboot.facts import derive
from ascendboot.facts.installed import Installed
from ascendboot.facts.node_facts import FactsByNode, NodeFacts
from ascendboot.facts.npus import DeviceNetwork
from ascendboot.facts.parsers.hccn_tool import LldpNeighbour
from ascendboot.facts.query import NOT_QUERIED, Answer, Answered, Unanswered, value_of
from ascendboot.hccl.variables import forces_roce
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.names import fold

T = TypeVar("T")
_IN_USE = "npu-network-in-use"
_NOT_AS_STATED = "the network of the NPUs is not as stated"
_SET_IP = "hccn_tool -i {} -ip -s address ADDRESS netmask MASK"


def port_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """Addresses, links and TLS switches of the devices that a job would use."""
    needs_ip = _needs_ip(cluster, facts)
    for node, node_facts in derive.answered_nodes(cluster, facts):
        answer, used = node_facts.device_networks, _used(node, node_facts)
        yield from finding.unanswered("device-networks-unknown", node, answer, DRIVER)
        for what, purpose, answers in (
            ("ip", "read the IP of", {n.device_id: n.addresses for n in used}),
            ("link", "read the link of", {n.device_id: n.link_up for n in used}),
            ("tls", "read the TLS switch of", {n.device_id: n.tls_enabled for n in used}),
        ):
            for (reason, kind), ids in unanswered_devices(answers).items():
                # jobs run without knowing the TLS switch; a tool without it is no obstacle
                level: finding.Level = "warning" if (what, kind) == ("tls", "failed") else "error"
                text = f"could not {purpose} {finding.devices(ids)}: {reason}"
                is_root = node.ssh.user == "root" or node.ssh.sudo != "none"
                is_refused = "permission" in reason and not is_root
                remedy = "State `sudo` for the node, or log in as root" if is_refused else ""
                yield finding.Finding(f"device-{what}-unknown", level, (node.name,), text, remedy)
        if ids := [network.device_id for network in used if network.addresses == Answered(())]:
            level = "error" if needs_ip else "warning"
            text = f"{finding.devices(ids)} {'has' if len(ids) == 1 else 'have'} no IP address"
            remedy = f"Set it: {_SET_IP.format(ids[0])}"
            yield finding.Finding("device-ip-missing", level, (node.name,), text, remedy)
        if ids := [n.device_id for n in used if n.link_up == Answered(value=False)]:
            # inside an A3 super pod devices reach each other without this link
            is_a3 = "a3" in (cluster.product, derive.product_of(node_facts))
            is_needed = not is_a3 or derive.crosses_pods(cluster, facts) or forced_roce(cluster)
            yield link_down(node.name, ids, "error" if is_needed else "warning")
        yield from _not_as_written(node, node_facts, used)
    yield from _doubled(cluster, facts)
    yield from _tls(cluster, facts)


def link_down(node: str, ids: Sequence[int], level: finding.Level) -> finding.Finding:
    """The finding about devices without a link."""
    remedy = f"Look at cable and switch port; hccn_tool -i {ids[0]} -link_stat -g shows since "
    remedy += "when; or state the other devices under `devices`"
    text = f"the link of {finding.devices(ids)} is down"
    return finding.Finding("link-down", level, (node,), text, remedy)


def unanswered_devices(answers: Mapping[int, Answer[T]]) -> dict[tuple[str, str], list[int]]:
    """The devices without an answer by reason and its kind; the reason quotes the first device."""
    shapes = finding.grouped(
        ((answer.why.replace(f"-i {device_id} ", "-i ID "), answer.kind), device_id)
        for device_id, answer in answers.items()
        if isinstance(answer, Unanswered) and answer.kind != "not-queried"
    )
    return {
        (shape.replace("-i ID ", f"-i {ids[0]} "), kind): ids
        for (shape, kind), ids in shapes.items()
    }


def _used(node: Node, node_facts: NodeFacts) -> tuple[DeviceNetwork, ...]:
    networks = value_of(node_facts.device_networks) or ()
    ids = derive.device_ids(node, node_facts)
    return tuple(network for network in networks if not ids or network.device_id in ids)


def _needs_ip(cluster: Cluster, facts: FactsByNode) -> bool:
    """Whether HCCL wants an address of each device (hcomm `topoinfo_ranktableConcise.cc`).

    Between the devices of one server, or of one super pod, it needs none unless it goes over
    RoCE there, too.
    """
    if forced_roce(cluster):
        return True
    pods = derive.pods_of(cluster, facts).values()
    in_one_pod = all(pods) and len(set().union(*pods)) == 1
    return len(cluster.nodes) > 1 and not in_one_pod


def forced_roce(cluster: Cluster) -> bool:
    """Whether a variable has devices talk by their ports where they otherwise would not."""
    servers = len(cluster.nodes)
    return any(forces_roce(cluster.env_of(node), servers=servers) for node in cluster.nodes)


def _not_as_written(
    node: Node, node_facts: NodeFacts, used: Sequence[DeviceNetwork]
) -> finding.Findings:
    """Addresses other than in the inventory or in /etc/hccn.conf, if that is there and readable."""
    answer = node_facts.hccn_conf
    if used:
        is_odd = isinstance(answer, Unanswered) and answer.kind == "not-understood"
        level: finding.Level = "warning" if is_odd else "info"
        yield from finding.unanswered("hccn-conf-unknown", node, answer, level=level)
    stated = {device.device_id: device.device_ip for device in node.devices}
    conf = value_of(answer) or {}
    for network in used:
        id_, ip = network.device_id, network.device_ip
        wanted, written = stated.get(id_), conf.get(id_)
        if wanted and ip and _addresses(wanted) != _addresses(ip):
            text = f"device {id_} has the IP {ip}; the inventory states {wanted}"
            remedy = "Correct the inventory, or set the IP of the device with hccn_tool"
            yield finding.error("device-ip-differs", (node.name,), text, remedy)
        if written and ip and not _addresses(written) <= _addresses(ip):
            text = f"/etc/hccn.conf gives device {id_} the IP {written}, but the device has {ip}"
            remedy = f"Find out which is right and set it: {_SET_IP.format(id_)}"
            yield finding.warning("hccn-conf-differs", (node.name,), text, remedy)


def _doubled(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """Addresses of devices that another device or a node has, too."""
    aliases = {name for names in same_machines(cluster, facts) for name in names[1:]}
    holders = [
        (address, (node.name, ""))
        for node in cluster.nodes
        for address in sorted(_addresses(f"{node.address},{node.cluster_address}"))
    ]
    holders += [
        (address, (node.name, f"device {network.device_id}"))
        for node, node_facts in derive.answered_nodes(cluster, facts)
        if node.name not in aliases
        for network in _used(node, node_facts)
        for address in sorted(_addresses(network.device_ip or ""))
    ]
    for address, who in finding.grouped(holders).items():
        if len(who) > 1 and any(device for _, device in who):
            names = " and ".join(f"{name} {device}".strip() for name, device in who)
            times = "twice" if len(who) == 2 else f"{len(who)} times"  # noqa: PLR2004
            nodes = tuple(dict.fromkeys(name for name, _ in who))
            text = f"device IP {address} is used {times}: {names}"
            remedy = "Give each device an IP of its own, in `npu_network` or with hccn_tool"
            yield finding.error("device-ip-twice", nodes, text, remedy)


def _tls(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """An error where devices talk by these ports, as they do between servers without a fabric."""
    switches = {
        node.name: {n.device_id: n.tls_enabled for n in _used(node, node_facts)}
        for node, node_facts in derive.answered_nodes(cluster, facts)
    }
    products = {cluster.product, *map(derive.product_of, facts.values())}
    by_ports = "a3" not in products or derive.crosses_pods(cluster, facts)
    is_needed = (len(cluster.nodes) > 1 and by_ports) or forced_roce(cluster)
    yield from tls_findings(switches, "error" if is_needed else "warning")


def tls_findings(
    switches: Mapping[str, Mapping[int, Answer[bool | None]]], level: finding.Level
) -> finding.Findings:
    """All devices must agree, across nodes: the fewer are named, with their devices."""
    by_state: dict[bool, dict[str, list[int]]] = {True: {}, False: {}}
    for name, of_node in switches.items():
        for device_id, answer in of_node.items():
            if (is_on := value_of(answer)) is not None:
                by_state[is_on].setdefault(name, []).append(device_id)
    counts = {state: sum(map(len, nodes.values())) for state, nodes in by_state.items()}
    if not all(counts.values()):
        return
    # 0 on all is the vendor's advice, so that on a tie the devices with 1 are the odd ones
    odd = counts[True] <= counts[False]
    groups = finding.grouped((tuple(ids), name) for name, ids in by_state[odd].items())
    where = "; ".join(f"{fold(names)} {finding.devices(ids)}" for ids, names in groups.items())
    text = f"the TLS switch of {where} is {'on' if odd else 'off'}, "
    text += f"that of the {counts[not odd]} other devices {'off' if odd else 'on'}"
    remedy = "Set it alike on all: hccn_tool -i ID -tls -s enable 0"
    yield finding.Finding("tls-differs", level, tuple(by_state[odd]), text, remedy)


def _addresses(text: str) -> frozenset[str]:
    """The addresses in a list with commas, each in its one canonical form; names are left out."""
    found = set()
    for word in text.split(","):
        with suppress(ValueError):
            found.add(str(ipaddress.ip_address(word.strip())))
    return frozenset(found)


def ports_to_set(cluster: Cluster, hosts: Mapping[str, Installed]) -> dict[str, list[int]]:
    """By node the devices whose ports setup would set as `npu_network` states; of host sides."""
    known = ((n, value_of(hosts[n.name].ports) or {}) for n in cluster.nodes if n.name in hosts)
    wrong = ((n.name, i) for n, ports in known for i, p in ports.items() if p.wrong(n.npu_ports[i]))
    return finding.grouped(wrong)


def npu_network_rules(
    cluster: Cluster,
    facts: FactsByNode,
    hosts: Mapping[str, Installed],
    changing: Mapping[str, Collection[int]],
    jobs: Mapping[str, Collection[str]],
) -> finding.Findings:
    """Ports that are unknown or in use; `changing` as `ports_to_set`, `jobs` run on those nodes."""
    for node in (node for node in cluster.nodes if node.name in hosts):
        yield from finding.unanswered("npu-network-unknown", node, hosts[node.name].ports, DRIVER)
        if node.name in changing:
            answer, ids = facts[node.name].npu_processes, changing[node.name]
            yield from finding.unanswered("npu-network-unknown", node, answer, DRIVER)
            users = ((p.pid, p.device_id) for p in value_of(answer) or () if p.device_id in ids)
            for pid, used in finding.grouped(users).items():
                text = f"{finding.devices_are(used)} used by pid {pid}, and {_NOT_AS_STATED}"
                yield finding.error(_IN_USE, (node.name,), text, "Wait for its end, or end it")
    yield from job_findings(_IN_USE, jobs, _NOT_AS_STATED)


def network_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """The interfaces that carry the cluster addresses, and their networks."""
    networks = {}
    for node, node_facts in derive.answered_nodes(cluster, facts):
        yield from finding.unanswered("interfaces-unknown", node, node_facts.interfaces)
        if value_of(node_facts.interfaces) is not None:
            yield from _interface(node, node_facts)
        if network := derive.network_of(node, node_facts):
            networks[node.name] = network
    id_, has = "networks-differ", "the cluster address in "
    remedy = "Make sure that they route to each other"
    yield from finding.differences(id_, networks, has=has, level="info", remedy=remedy)


def _interface(node: Node, node_facts: NodeFacts) -> finding.Findings:
    carriers = [interface for interface, _ in derive.carriers_of(node, node_facts)]
    if not carriers:
        has = ", ".join(
            f"{interface.name} {address.address}"
            for interface in value_of(node_facts.interfaces) or ()
            for address in interface.addresses
            if address.scope == "global"
        )
        text = f"no interface carries the cluster address {node.cluster_address}; the node has "
        text += has or "no address"
        yield finding.error("address-missing", (node.name,), text, "Correct `cluster_address`")
        return
    first = carriers[0]
    # Linux answers on an address without a cable, and not on one whose interface is down.
    carries = f"{first.name}, which carries the cluster address {node.cluster_address}"
    if not first.is_up:
        text, remedy = f"{carries}, is down", f"ip link set {first.name} up"
        yield finding.error("interface-down", (node.name,), text, remedy)
    elif not first.has_carrier:
        remedy = "Look at its cable and switch port"
        yield finding.warning("interface-down", (node.name,), f"{carries}, has no link", remedy)
    if node.interface is not None and node.interface not in {each.name for each in carriers}:
        text = f"the inventory states interface {node.interface}, but {first.name} carries "
        text += f"the cluster address {node.cluster_address}"
        remedy = "Correct `interface` or `cluster_address`"
        yield finding.error("interface-differs", (node.name,), text, remedy)


def leaf_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """Leaf switches that are missing, or differ between nodes; facts may be empty."""
    rails = cluster.rails
    is_wanted = cluster.reads_leaves or any(node.leaf is not None for node in cluster.nodes)
    on: dict[str, dict[tuple[int, ...], list[str]]] = {}
    for node in cluster.nodes if is_wanted else ():
        there = facts.get(node.name, NodeFacts(node=node.name))
        used = derive.device_ids(node, there) or rails or tuple(value_of(there.neighbours) or ())
        missing = [i for i in used or (0,) if node.leaf_of(i) is None]
        if missing:
            yield _leaf_unknown(node, missing, there.neighbours)
        leaves = finding.grouped((node.leaf_of(i), i) for i in rails if i in used)
        for leaf, ids in leaves.items():
            if leaf is not None:
                on.setdefault(leaf, {}).setdefault(tuple(ids), []).append(node.name)
    for leaf, by_devices in on.items():
        (usual, most), *rest = sorted(by_devices.items(), key=lambda group: -len(group[1]))
        elsewhere = f"{finding.devices(usual)} of {fold(most)}"
        for odd, names in rest:
            text = f"the leaf {leaf} has {finding.devices(odd)} here, but {elsewhere}"
            remedy = "Correct `leaf` if the cables are not different"
            yield finding.warning("leaf-devices-differ", tuple(names), text, remedy)
    seen = {leaf for node in cluster.nodes for leaf in node.leaf_names}
    absent = [leaf for leaf, _ in cluster.cores if leaf not in seen]
    if cluster.reads_leaves and seen and absent:
        text = f"topology.cores names {', '.join(absent)}, but no node is connected to it"
        remedy = f"Correct `cores`; the leaf switches are {', '.join(sorted(seen))}"
        yield finding.warning("leaf-unknown", (cluster.primary_name,), text, remedy)


def _leaf_unknown(
    node: Node, missing: Sequence[int], answer: Answer[Mapping[int, Answer[LldpNeighbour]]]
) -> finding.Finding:
    """`answer` says why LLDP did not show it."""
    what = finding.devices(missing) if isinstance(node.leaf, tuple) else "the node"
    by_device = value_of(answer) or {}
    answers = (answer, *(by_device.get(device_id) for device_id in missing))
    why = next((each.message for each in answers if isinstance(each, Unanswered)), "")
    if why and answer != NOT_QUERIED:
        text = f"the leaf switch of {what} is unknown: {why}"
        remedy = "Let the switches send LLDP, or state `leaf`"
    else:
        text = f"no leaf switch is stated for {what}, but other leaf switches are stated"
        remedy = "State `leaf`"
    remedy += "; until then the order of ranks assumes a leaf of its own"
    return finding.warning("leaf-unknown", (node.name,), text, remedy)
