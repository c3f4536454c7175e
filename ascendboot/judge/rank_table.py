"""Rules about the rank table that ranks get: is it one that the HCCL of these NPUs takes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.judge.devices import devices_of
from ascendboot.judge.finding import Finding, judged_nodes
from ascendboot.judge.resources import product_of
from ascendboot.ranktable.build import Member, MemberDevice, build
from ascendboot.ranktable.rule import CALLED, PRODUCTS
from ascendboot.ranktable.rules import BY_PRODUCT
from ascendboot.ranktable.source import from_text
from ascendboot.ranktable.validate import PRODUCTS_OF, validate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.ranktable.problem import Problem
    from ascendboot.ranktable.rule import Product
    from ascendboot.ranktable.source import Source
    from ascendboot.ranktable.validate import Generation

_MADE: Generation = "1.0"
"""What setup makes."""


def rank_table_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    if cluster.resource_mode != "rank-table":
        return
    products = {node.name: _product(cluster, seen) for node, seen in judged_nodes(cluster, facts)}
    for name, product in products.items():
        yield from _generation(cluster, name, product)
    known = set(products.values())
    # nodes that do not answer are left out, and there is no table without the primary
    is_whole = cluster.primary_name in products and len(products) == len(cluster.nodes)
    if is_whole and len(known) == 1 and None not in known:
        yield from _refused(cluster, facts, known.pop())


def _product(cluster: Cluster, seen: NodeFacts) -> Product | None:
    word = product_of(seen) if cluster.product == "auto" else cluster.product
    return next((product for product in PRODUCTS if product == word), None)


def _generation(cluster: Cluster, name: str, product: Product | None) -> Iterator[Finding]:
    if product is None:
        return
    stated = cluster.own_table.generation if cluster.own_table else _MADE
    if not any(stated == g and product in readers for g, readers in PRODUCTS_OF.items()):
        wanted = " or ".join(g for g, readers in PRODUCTS_OF.items() if product in readers)
        yield Finding(
            id="rank-table-generation",
            level="error",
            nodes=(name,),
            text=f"the NPUs are of {CALLED[product]}, whose HCCL reads rank tables of {wanted}, "
            f"and this one is of {stated}",
            remedy="Merge the servers' own tables with ranktable.convert and name the result as "
            "`resources: {file: …}`"
            if product == "a5"
            else "Make one: ranktable.write",
        )
    elif product == "a3" and stated == _MADE and len(cluster.nodes) > 1:
        yield Finding(
            id="rank-table-without-pods",
            level="info",
            nodes=(name,),
            text="the rank table says nothing of super pods",
            remedy="Where the nodes are in one: ranktable.write --output FILE, and "
            "`resources: {file: FILE}`",
        )


def _refused(
    cluster: Cluster, facts: Mapping[str, NodeFacts], product: Product | None
) -> Iterator[Finding]:
    """What only this product's HCCL refuses; the rest is found elsewhere."""
    source = _table(cluster, facts)
    for problem in validate(source, product=product):
        if problem.level == "error" and problem.id in BY_PRODUCT:
            yield Finding(
                id="rank-table-refused",
                level="error",
                nodes=(_node(cluster, source, problem).name,),
                text=f"HCCL would refuse the rank table: {problem.text}",
                remedy=problem.remedy,
            )


def _table(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Source:
    if cluster.own_table is not None:
        return from_text("rank table", cluster.own_table.text)
    members = [
        Member(
            node.server_id,
            tuple(MemberDevice(i, address) for i, address in devices_of(node, facts[node.name])),
        )
        for node in cluster.rank_order
    ]
    return from_text("rank table", build(members, _MADE, "given", None).to_json())


def _node(cluster: Cluster, source: Source, problem: Problem) -> Node:
    """The node whose entry is meant; the primary where no single one is."""
    document = source.document
    match problem.path, document:
        case ("server_list", int(index), *_), {"server_list": list(servers)}:
            wanted = servers[index].get("server_id")
            return next((n for n in cluster.nodes if n.server_id == wanted), cluster.primary)
        case _:
            return cluster.primary
