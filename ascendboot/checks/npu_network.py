"""Checks before `setup` sets the network ports of NPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ascendboot.checks import finding
from ascendboot.checks.devices import DRIVER
from ascendboot.facts.installed import Installed
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster

IN_USE = "npu-network-in-use"
NOT_AS_STATED = "the network of the NPUs is not as stated"


def ports_to_set(cluster: Cluster, hosts: Mapping[str, Installed]) -> dict[str, list[int]]:
    """By node the devices whose ports are not as stated, of nodes that answered."""
    found: dict[str, list[int]] = {}
    for node in cluster.nodes:
        ports = value_of(hosts[node.name].ports) if node.name in hosts else None
        for device_id, port in (ports or {}).items():
            if port.wrong(node.npu_ports[device_id]):
                found.setdefault(node.name, []).append(device_id)
    return found


def npu_network_rules(
    cluster: Cluster,
    facts: Mapping[str, NodeFacts],
    hosts: Mapping[str, Installed],
    changing: Mapping[str, Collection[int]],
) -> finding.Findings:
    """Ports that are unknown or in use; `hosts` of host sides, `changing` of `ports_to_set`."""
    for node in (node for node in cluster.nodes if node.name in hosts):
        yield from finding.unanswered("npu-network-unknown", node, hosts[node.name].ports, DRIVER)
        if node.name in changing:
            answer, ids = facts[node.name].npu_processes, changing[node.name]
            yield from finding.unanswered("npu-network-unknown", node, answer, DRIVER)
            users = ((p.pid, p.device_id) for p in value_of(answer) or () if p.device_id in ids)
            for pid, used in finding.grouped(users).items():
                text = f"{finding.devices_are(used)} used by pid {pid}, and {NOT_AS_STATED}"
                yield finding.error(IN_USE, (node.name,), text, "Wait for its end, or end it")
