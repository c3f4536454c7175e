"""Checks of the rank table of an inventory against the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.checks.devices import root_info_rules, super_pod_rules
from ascendboot.checks.finding import Finding, error, warning
from ascendboot.errors import RankTableError
from ascendboot.facts.derive import (
    answered_nodes,
    device_ids,
    devices_of,
    places_of,
    pods_of,
    product_of,
)
from ascendboot.facts.npus import ROOT_INFO
from ascendboot.facts.query import value_of
from ascendboot.ranktable.build import build, generation_for
from ascendboot.ranktable.formats.levels import device_places
from ascendboot.ranktable.formats.parts import Member, MemberDevice, Table
from ascendboot.ranktable.generations import FORMATS, generation_of, table_in
from ascendboot.ranktable.rules import (
    BY_PRODUCT,
    CALLED,
    LOCAL_ID_TWICE,
    POD_ORDER,
    PRODUCTS,
    Problem,
    Product,
)
from ascendboot.ranktable.text import Source, from_text
from ascendboot.ranktable.validate import validate_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.facts.node_facts import NodeFacts
    from ascendboot.model.cluster import Cluster, Node, OwnTable
    from ascendboot.ranktable.formats.levels import LevelRank


def products(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> dict[str, Product | None]:
    """Of which product the NPUs of each node are: as stated, or else as their chips are called."""
    stated = cluster.product
    words = {
        node.name: product_of(node_facts) if stated == "auto" else stated
        for node, node_facts in answered_nodes(cluster, facts)
    }
    return {name: next((p for p in PRODUCTS if p == word), None) for name, word in words.items()}


def made_table(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Table:
    """The table that setup writes; rank N is slot N of the placement.

    Raises:
        RankTableError: the nodes do not tell what it must say.
    """
    known = {product for product in products(cluster, facts).values() if product}
    product = known.pop() if len(known) == 1 else None
    members = [member(node, facts[node.name]) for node in cluster.rank_order]
    return build(members, generation_for(product, members), "given", product)


def member(node: Node, node_facts: NodeFacts, ids: Sequence[int] | None = None) -> Member:
    """A node as a rank table has it, with the devices of a job or with `ids` of them."""
    addresses = dict(devices_of(node, node_facts))
    wanted = tuple(addresses) if ids is None else ids
    pods, places = places_of(node_facts), level_places(node_facts)
    in_pods = {pods[i].super_pod_id if i in pods else None for i in wanted}
    pod = in_pods.pop() if len(in_pods) == 1 else None
    devices = tuple(
        MemberDevice(i, addresses[i], pods[i].super_device_id if i in pods else None, places.get(i))
        for i in wanted
    )
    return Member(node.server_id, devices, None if pod is None else str(pod))


def level_places(node_facts: NodeFacts) -> Mapping[int, LevelRank]:
    """The devices in a 950 server's root info; none where it is not understood."""
    info = value_of(node_facts.root_info)
    try:
        return device_places(info.text, ROOT_INFO) if info else {}
    except RankTableError:
        return {}


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
"""Warnings about a generated table, and their remedies; once per node."""


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
    """The rank table of every node: the inventory's own file, else a generated one.

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
    generation = generation_of(table_in(from_text("", text)))
    return f"rank table: {FORMATS[generation].called}{readers}{own}"


def _unmade(
    cluster: Cluster, facts: Mapping[str, NodeFacts], known: Sequence[Product]
) -> Iterator[Finding]:
    """What keeps a table from being made for the products of the nodes."""
    if not any(set(known) <= set(generation.products) for generation in FORMATS.values()):
        yield error(
            "products-differ",
            tuple(node.name for node, _ in answered_nodes(cluster, facts)),
            f"the NPUs are of {' and '.join(CALLED[product] for product in known)}, and no "
            "rank table is for all of them",
            "Use nodes of one product in a cluster",
        )
    elif known == ["a3"]:
        yield from super_pod_rules(cluster, facts)
    elif known == ["a5"]:
        yield from root_info_rules(cluster, facts)


def _generation(own: OwnTable, name: str, product: Product | None) -> Iterator[Finding]:
    if product is None:
        return
    stated = own.generation
    read = [name for name, known in FORMATS.items() if product in known.products]
    if stated not in read:
        wanted = " or ".join(read)
        yield error(
            "rank-table-generation",
            (name,),
            f"the NPUs are of {CALLED[product]}, whose HCCL reads rank tables of {wanted}, "
            f"and this one is of {stated}",
            "Leave `resources.file` out, or make another: ranktable.write",
        )


def _without_pods(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    if len(cluster.nodes) == 1:
        return
    for name, pods in pods_of(cluster, facts).items():
        if pods:
            yield warning(
                "rank-table-without-pods",
                (name,),
                "the NPUs are in a super pod, and the rank table says nothing of it",
                "Leave `resources.file` out, or make another: ranktable.write",
            )


def _refused(
    cluster: Cluster, facts: Mapping[str, NodeFacts], product: Product
) -> Iterator[Finding]:
    """What only this product's HCCL refuses, or only such tables have; the rest is found elsewhere.

    What 950 needs comes from files of the nodes.
    """
    source = from_text("rank table", rank_table_text(cluster, facts))
    is_of_files = product == "a5" and cluster.own_table is None
    doubts: dict[tuple[str, str], Finding] = {}
    for problem in validate_table(source, product=product):
        name = _node(cluster, facts, source, problem).name
        if problem.level == "error" and (problem.id in BY_PRODUCT or is_of_files):
            yield error(
                "rank-table-refused",
                (name,),
                f"HCCL would refuse the rank table: {problem.text}",
                problem.remedy,
            )
        elif problem.id in _DOUBTS and cluster.own_table is None:
            id_, remedy = _DOUBTS[problem.id]
            finding = warning(id_, (name,), problem.text, remedy)
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
