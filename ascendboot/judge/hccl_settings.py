"""Rules about HCCL's variables, once the nodes have said of which product they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.hccl import why_not, why_not_read
from ascendboot.judge.finding import Finding, judged_nodes
from ascendboot.judge.product import product_of
from ascendboot.profiles import profile_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster


def hccl_setting_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module; a product that is stated was judged with the inventory."""
    if cluster.product != "auto":
        return
    of_profile = profile_env(cluster.profile)
    for node, seen in judged_nodes(cluster, facts):
        product = product_of(seen) or ""
        for name, value in cluster.env_of(node).items():
            if of_profile.get(name) == value:
                continue
            wrong, unread = why_not(name, value, product), why_not_read(name, product)
            if wrong or unread:
                yield Finding(
                    id="hccl-setting",
                    level="error" if wrong else "warning",
                    nodes=(node.name,),
                    text=f"{name}: {wrong or unread}",
                    remedy="Correct it in the inventory",
                )
