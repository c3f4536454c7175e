"""Rules about HCCL's variables, once the nodes have said of which product they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ascendboot.hccl import why_not, why_not_read
from ascendboot.judge.devices import logic_ids
from ascendboot.judge.finding import Finding, judged_nodes, numbers
from ascendboot.judge.product import product_of
from ascendboot.profiles import profile_env

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node, OwnTable

_VISIBLE, _RETRY = "ASCEND_RT_VISIBLE_DEVICES", "HCCL_OP_RETRY_ENABLE"


def hccl_setting_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    yield from _values(cluster, facts)
    for node, seen in judged_nodes(cluster, facts):
        yield from _visible_devices(cluster, node, seen)
        yield from _retry(cluster, node, seen)


def _values(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """By themselves; where a product is stated, they were judged with the inventory."""
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


def _visible_devices(cluster: Cluster, node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """Local rank N gets the Nth of this list: that must be its device."""
    stated, used = cluster.env_of(node).get(_VISIBLE), logic_ids(node, seen)
    if stated is None or why_not(_VISIBLE, stated) or not used:
        return
    ids = [int(word) for word in stated.split(",")]
    if ids[: len(used)] != list(used):
        yield Finding(
            id="hccl-setting",
            level="error",
            nodes=(node.name,),
            text=f"{_VISIBLE} shows {numbers(ids)}, and the ranks of this node have the devices "
            f"with the logic ids {numbers(used)}",
            remedy="Leave it out, and state the ones to use as `devices`",
        )


def _retry(cluster: Cluster, node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """HCCL's manual: a step is repeated only where ranks find each other's hosts in the table."""
    product = product_of(seen) if cluster.product == "auto" else cluster.product
    is_on = ":1" in cluster.env_of(node).get(_RETRY, "")
    if product != "a3" or cluster.resource_mode != "rank-table" or not is_on:
        return
    if cluster.own_table is None or not _has_hosts(cluster.own_table):
        yield Finding(
            id="hccl-setting",
            level="warning",
            nodes=(node.name,),
            text=f"{_RETRY}: nothing is repeated, because the rank table does not state a host_ip "
            "for every server",
            remedy="Give a table that does as `resources.file`, or switch it off",
        )


def _has_hosts(table: OwnTable) -> bool:
    match json.loads(table.text):
        case {"server_list": list(servers)}:
            return all(isinstance(server, dict) and server.get("host_ip") for server in servers)
        case _:
            return False
