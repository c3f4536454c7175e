"""All rules together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.checks.containers import code_rules, container_rules
from ascendboot.checks.devices import device_rules, product_rules
from ascendboot.checks.finding import Finding, in_order
from ascendboot.checks.hosts import environment_rules, host_rules
from ascendboot.checks.launchers import (
    hccl_port_rules,
    hccl_setting_rules,
    launcher_rules,
    resource_rules,
)
from ascendboot.checks.network import network_rules, port_rules
from ascendboot.checks.rank_table import rank_table_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.facts.node_facts import NodeFacts
    from ascendboot.model.cluster import Cluster


def cluster_findings(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[Finding, ...]:
    """What is wrong or worth knowing, errors first, in an order that does not depend on timing.

    Nodes without facts are not checked, and neither are queries that were not made.
    """
    rules = (
        *(container_rules, host_rules, code_rules, network_rules, device_rules, port_rules),
        *(product_rules, hccl_port_rules, hccl_setting_rules, resource_rules),
        *(rank_table_rules, launcher_rules, environment_rules),
    )
    return in_order(finding for rule in rules for finding in rule(cluster, facts))
