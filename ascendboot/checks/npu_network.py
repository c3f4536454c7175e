"""Checks before `setup` sets the network ports of NPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ascendboot.checks import finding
from ascendboot.checks.devices import DRIVER
from ascendboot.checks.hosts import job_findings
from ascendboot.facts.installed import Installed
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster

_IN_USE = "npu-network-in-use"
_NOT_AS_STATED = "the network of the NPUs is not as stated"


def ports_to_set(cluster: Cluster, hosts: Mapping[str, Installed]) -> dict[str, list[int]]:
    """By node the devices whose ports are not as stated, of nodes that answered."""
    known = ((n, value_of(hosts[n.name].ports) or {}) for n in cluster.nodes if n.name in hosts)
    wrong = ((n.name, i) for n, ports in known for i, p in ports.items() if p.wrong(n.npu_ports[i]))
    return finding.grouped(wrong)


def npu_network_rules(
    cluster: Cluster,
    facts: Mapping[str, NodeFacts],
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
