"""All rules together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.judge.code import code_rules
from ascendboot.judge.container import container_rules
from ascendboot.judge.devices import device_rules
from ascendboot.judge.finding import in_order
from ascendboot.judge.hccl_ports import hccl_port_rules
from ascendboot.judge.hccl_settings import hccl_setting_rules
from ascendboot.judge.host import host_rules
from ascendboot.judge.launcher import launcher_rules
from ascendboot.judge.network import network_rules
from ascendboot.judge.ports import port_rules
from ascendboot.judge.product import product_rules
from ascendboot.judge.rank_table import rank_table_rules
from ascendboot.judge.resources import resource_rules
from ascendboot.judge.surroundings import surroundings_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.judge.finding import Finding
    from ascendboot.model.cluster import Cluster


def judge(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[Finding, ...]:
    """What is wrong or worth knowing, errors first, in an order that does not depend on timing.

    Nodes without facts are not judged, and neither are questions that were not put.
    """
    rules = (
        *(container_rules, host_rules, code_rules, network_rules, device_rules, port_rules),
        *(product_rules, hccl_port_rules, hccl_setting_rules, resource_rules),
        *(rank_table_rules, launcher_rules, surroundings_rules),
    )
    return in_order(finding for rule in rules for finding in rule(cluster, facts))
