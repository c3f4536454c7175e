"""Checks before `setup` sets the network ports of NPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ascendboot.checks import finding
from ascendboot.checks.devices import DRIVER
from ascendboot.facts import derive
from ascendboot.facts.installed import Installed
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.npu_ports import NpuPorts, in_order
from ascendboot.facts.query import Unanswered, value_of
from ascendboot.model.cluster import Cluster, Node

_REMEDIES = {"busy": "Wait until nothing else calls hccn_tool on the node, and run setup again"}
_IN_USE = "npu-network-in-use"


def to_set(node: Node, hosts: Mapping[str, Installed]) -> tuple[int, ...]:
    """The devices of a node whose ports are not as stated, as far as the tools answered."""
    ports = value_of(hosts[node.name].ports)
    states = {} if ports is None else ports.states
    answers = ((port, value_of(states[port.device_id])) for port in node.npu_ports if states)
    return tuple(port.device_id for port, state in answers if state and state.wrong(port))


def npu_network_rules(
    cluster: Cluster, facts: Mapping[str, NodeFacts], hosts: Mapping[str, Installed]
) -> finding.Findings:
    """What keeps ports from being set as `npu_network` states; `hosts` by node, of host sides."""
    for node in (node for node in cluster.nodes if node.name in hosts):
        product = derive.product_of(facts[node.name])
        has_gateway = any("gateway" in dict(port.settings) for port in node.npu_ports)
        if product == "a5" or (product == "910" and has_gateway):
            text, remedy = "hccn_tool of a 950 sets no addresses", "Remove `npu_network`"
            if product == "910":
                text = "the devices of a 910 share their gateways, so that each cannot have its own"
                remedy = "Leave `gateway` out, and set it with hccn_tool"
            yield finding.error("npu-network-unsupported", (node.name,), text, remedy)
            continue
        answer = hosts[node.name].ports
        if isinstance(answer, Unanswered):
            yield from finding.unanswered("npu-network-unknown", node, answer, DRIVER)
            continue
        present = derive.present_ids(facts[node.name])
        stated = [port.device_id for port in node.npu_ports]
        missing = [device_id for device_id in stated if present and device_id not in present]
        if missing:
            text = f"`npu_network` states an address for {finding.devices(missing)}, which "
            text += f"npu-smi info -m does not list; it lists {finding.numbers(present)}"
            remedy = "State one address for each device that is there"
            yield finding.error("npu-network-devices", (node.name,), text, remedy)
            continue
        yield from _unread(node, answer.value)
        if ids := to_set(node, hosts):
            yield from _obstacles(node, ids, answer.value)
    yield from _taken(cluster, facts, hosts)


def _unread(node: Node, ports: NpuPorts) -> finding.Findings:
    """Ports that the tool did not show, and those that DHCP sets."""
    silent = {i: answer for i, answer in ports.states.items() if isinstance(answer, Unanswered)}
    kinds = finding.grouped(((each.kind, each.message), i) for i, each in silent.items())
    for (kind, message), ids in kinds.items():
        id_ = "npu-network-busy" if kind == "busy" else "npu-network-unknown"
        text = f"the port of {finding.devices(ids)}: {message}"
        yield finding.error(id_, (node.name,), text, _REMEDIES.get(kind, ""))
    states = {i: state for i, answer in ports.states.items() if (state := value_of(answer))}
    if in_order(node.npu_ports, states) is None:
        text = "devices would have to swap their addresses, and hccn_tool refuses an address that "
        text += "another device of the server still has"
        remedy = "Set one of them to an unused address first, with hccn_tool"
        yield finding.error("npu-network-swapped", (node.name,), text, remedy)
    if by_dhcp := [i for i, state in states.items() if state.conf.get("udhcpc_enable") == "1"]:
        text = f"{finding.devices(by_dhcp)}: DHCP sets the address (udhcpc_enable)"
        remedy = "Switch DHCP off with hccn_tool, or remove `npu_network`"
        yield finding.error("npu-network-dhcp", (node.name,), text, remedy)


def _obstacles(node: Node, ids: Collection[int], ports: NpuPorts) -> finding.Findings:
    """What keeps ports that are not as stated from being set."""
    if not ports.is_root:
        text = f"{node.ssh.user} is not root, and only root can set the ports of NPUs"
        yield finding.error("npu-network-root", (node.name,), text, "State `user: root`")
    yield from finding.unanswered("npu-network-unknown", node, ports.users)
    used = {i for i in ids if (state := value_of(ports.states[i])) and state.is_used}
    users = [user for user in value_of(ports.users) or () if user.device_id in ids]
    whos: dict[tuple[str, str], list[int]] = {}
    for user in users:
        used.discard(user.device_id)
        who = f"pid {user.pid} ({user.command or 'a process that cannot be seen from here'})"
        remedy = "End it first; a device in use is never changed"
        if user.job_id:
            who = f"job {user.job_id} (pid {user.pid})"
            remedy = f"Wait for its end, or end it where it was started: stop --job {user.job_id}"
        whos.setdefault((who, remedy), []).append(user.device_id)
    for (who, remedy), of_who in whos.items():
        text = f"{finding.devices_are(of_who)} used by {who}, and the network is not as stated"
        yield finding.error(_IN_USE, (node.name,), text, remedy)
    if used:
        text = f"{finding.devices_are(sorted(used))} in use: device hccp process: exist"
        remedy = (
            "Look for its process with npu-smi info, and end it; a device in use is never changed"
        )
        yield finding.error(_IN_USE, (node.name,), text, remedy)


def job_findings(jobs: Mapping[str, Collection[str]]) -> finding.Findings:
    """Jobs of this cluster on nodes where ports are not as stated."""
    for job_id, nodes in jobs.items():
        text = f"job {job_id} runs, and the network of the NPUs is not as stated"
        remedy = f"Wait for its end, or end it where it was started: stop --job {job_id}"
        yield finding.error(_IN_USE, tuple(nodes), text, remedy)


def _taken(
    cluster: Cluster, facts: Mapping[str, NodeFacts], hosts: Mapping[str, Installed]
) -> finding.Findings:
    """Stated addresses that a device has for which none is stated."""
    wanted = {
        dict(port.settings)["ip"][0]: f"{node.name} device {port.device_id}"
        for node in cluster.nodes
        for port in node.npu_ports
        if node.name in hosts
    }
    for node, there in derive.answered_nodes(cluster, facts) if wanted else ():
        own = {port.device_id for port in node.npu_ports}
        for network in value_of(there.device_networks) or ():
            for address in value_of(network.addresses) or ():
                if network.device_id not in own and address.ip in wanted:
                    text = f"device {network.device_id} has {address.ip}, which `npu_network` "
                    text += f"states for {wanted[address.ip]}"
                    remedy = "State another address for one of the two"
                    yield finding.error("npu-network-taken", (node.name,), text, remedy)
