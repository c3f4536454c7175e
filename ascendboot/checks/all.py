"""All rules together."""

from __future__ import annotations

from collections.abc import Mapping

from ascendboot.checks import containers, devices, hosts, launchers, network, rank_table
from ascendboot.checks.finding import Finding, in_order
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.model.cluster import Cluster


def cluster_findings(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[Finding, ...]:
    """What is wrong or worth knowing, errors first, in an order that does not depend on timing.

    Nodes without facts are not checked, and neither are queries that were not made.
    """
    rules = (
        *(containers.container_rules, hosts.host_rules, containers.code_rules),
        *(network.network_rules, devices.device_rules, network.port_rules, devices.product_rules),
        *(launchers.hccl_port_rules, launchers.hccl_setting_rules, launchers.resource_rules),
        *(rank_table.rank_table_rules, launchers.launcher_rules, hosts.environment_rules),
    )
    return in_order(finding for rule in rules for finding in rule(cluster, facts))
