"""Rules about the rank table that ranks get: is it one that the HCCL of these NPUs takes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.facts.npus import ROOT_INFO
from ascendboot.judge.devices import device_ids
from ascendboot.judge.finding import Finding, judged_nodes
from ascendboot.judge.members import made_table, products
from ascendboot.judge.root_info import root_info_rules
from ascendboot.judge.super_pods import pods_of, super_pod_rules
from ascendboot.ranktable.rule import CALLED
from ascendboot.ranktable.rules import BY_PRODUCT, LOCAL_ID_TWICE, POD_ORDER
from ascendboot.ranktable.source import from_text
from ascendboot.ranktable.validate import (
    NAMED,
    PRODUCTS_OF,
    generation_of,
    table_in,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node, OwnTable
    from ascendboot.ranktable.problem import Problem
    from ascendboot.ranktable.rule import Product
    from ascendboot.ranktable.source import Source

_DOUBTS = {
    POD_ORDER: (
        "super-pods-apart",
        "Name the nodes of a super pod one after the other in the inventory",
    ),
    LOCAL_ID_TWICE: (
        "net-instances-alike",
        f"Give each server a net_instance_id of its own in {ROOT_INFO}",
    ),
}
"""Warnings about a table of ours, and what to do against them here; once per node."""


def rank_table_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    if cluster.resource_mode != "rank-table":
        return
    of_nodes = products(cluster, facts)
    known = sorted({product for product in of_nodes.values() if product})
    product = known[0] if len(known) == 1 else None
    if cluster.own_table is not None:
        for name, of_node in of_nodes.items():
            yield from _generation(cluster.own_table, name, of_node)
        if product == "a3" and cluster.own_table.generation == "1.0":
            yield from _without_pods(cluster, facts)
    elif unmade := [*_unmade(cluster, facts, known)]:
        yield from unmade
        if any(finding.level == "error" for finding in unmade):
            return
    # nodes that do not answer are left out, and there is no table without the primary
    if len(of_nodes) == len(cluster.nodes) and cluster.primary_name in of_nodes and product:
        yield from _refused(cluster, facts, product)


def rank_table_text(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> str:
    """The rank table as every node gets it: the operator's own as it is, else ours.

    Raises:
        RankTableError: the nodes do not tell what it must say.
    """
    own = cluster.own_table
    return made_table(cluster, facts).to_json() if own is None else own.text


def rank_table_words(cluster: Cluster, facts: Mapping[str, NodeFacts], text: str) -> str:
    """What reports say of the rank table that is written: its generation, and for whose HCCL."""
    kinds = sorted({product for product in products(cluster, facts).values() if product})
    readers = f", for {' and '.join(CALLED[product] for product in kinds)}" if kinds else ""
    own = "" if cluster.own_table is None else ", the inventory's own"
    return f"rank table: {NAMED[generation_of(table_in(from_text('', text)))]}{readers}{own}"


def _unmade(
    cluster: Cluster, facts: Mapping[str, NodeFacts], known: Sequence[Product]
) -> Iterator[Finding]:
    """What keeps a table from being made for the products of the nodes."""
    if not any(readers >= set(known) for readers in map(set, PRODUCTS_OF.values())):
        yield Finding(
            id="products-differ",
            level="error",
            nodes=tuple(node.name for node, _ in judged_nodes(cluster, facts)),
            text=f"the NPUs are of {' and '.join(CALLED[product] for product in known)}, and no "
            "rank table is for all of them",
            remedy="Use nodes of one product in a cluster",
        )
    elif known == ["a3"]:
        yield from super_pod_rules(cluster, facts)
    elif known == ["a5"]:
        yield from root_info_rules(cluster, facts)


def _generation(own: OwnTable, name: str, product: Product | None) -> Iterator[Finding]:
    if product is None:
        return
    stated = own.generation
    if not any(stated == g and product in readers for g, readers in PRODUCTS_OF.items()):
        wanted = " or ".join(g for g, readers in PRODUCTS_OF.items() if product in readers)
        yield Finding(
            id="rank-table-generation",
            level="error",
            nodes=(name,),
            text=f"the NPUs are of {CALLED[product]}, whose HCCL reads rank tables of {wanted}, "
            f"and this one is of {stated}",
            remedy="Leave `resources.file` out, or make another: ranktable.write",
        )


def _without_pods(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    if len(cluster.nodes) == 1:
        return
    for name, pods in pods_of(cluster, facts).items():
        if pods:
            yield Finding(
                id="rank-table-without-pods",
                level="warning",
                nodes=(name,),
                text="the NPUs are in a super pod, and the rank table says nothing of it",
                remedy="Leave `resources.file` out, or make another: ranktable.write",
            )


def _refused(
    cluster: Cluster, facts: Mapping[str, NodeFacts], product: Product
) -> Iterator[Finding]:
    """What only this product's HCCL refuses, or only such tables have; the rest is found elsewhere.

    What 950 needs comes from files of the nodes: there everything is told.
    """
    source = from_text("rank table", rank_table_text(cluster, facts))
    is_of_files = product == "a5" and cluster.own_table is None
    doubts: dict[tuple[str, str], Finding] = {}
    for problem in validate(source, product=product):
        name = _node(cluster, facts, source, problem).name
        if problem.level == "error" and (problem.id in BY_PRODUCT or is_of_files):
            yield Finding(
                id="rank-table-refused",
                level="error",
                nodes=(name,),
                text=f"HCCL would refuse the rank table: {problem.text}",
                remedy=problem.remedy,
            )
        elif problem.id in _DOUBTS and cluster.own_table is None:
            id_, remedy = _DOUBTS[problem.id]
            finding = Finding(
                id=id_, level="warning", nodes=(name,), text=problem.text, remedy=remedy
            )
            doubts.setdefault((id_, name), finding)
    yield from doubts.values()


def _node(
    cluster: Cluster, facts: Mapping[str, NodeFacts], source: Source, problem: Problem
) -> Node:
    """The node whose entry is meant; the primary where no single one is."""
    match problem.path, source.document:
        case ("server_list", int(index), *_), {"server_list": list(servers)}:
            wanted = servers[index].get("server_id")
            return next((n for n in cluster.nodes if n.server_id == wanted), cluster.primary)
        case ("rank_list", int(index), *_), _:
            nodes = [n for n in cluster.rank_order for _ in device_ids(n, facts[n.name])]
            return nodes[index] if index < len(nodes) else cluster.primary
        case _:
            return cluster.primary
