"""Checks of the rank table of an inventory against the facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ascendboot.checks.devices import root_info_rules, super_pod_rules
from ascendboot.checks.finding import Finding, Findings, error, warning
from ascendboot.errors import RankTableError
from ascendboot.facts import derive
from ascendboot.facts.node_facts import FactsByNode, NodeFacts
from ascendboot.facts.npus import ROOT_INFO
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster, Node, OwnTable
from ascendboot.ranktable import rules
from ascendboot.ranktable.convert import build, generation_for
from ascendboot.ranktable.formats import FORMATS, generation_of, table_in
from ascendboot.ranktable.formats.levels import LevelRank, device_places
from ascendboot.ranktable.formats.parts import Member, MemberDevice, Table
from ascendboot.ranktable.text import Source, from_text
from ascendboot.ranktable.validate import validate_table


def products(cluster: Cluster, facts: FactsByNode) -> dict[str, rules.Product | None]:
    """The product of each node's NPUs: as stated, otherwise as their chips are called."""
    known: dict[str | None, rules.Product] = {product: product for product in rules.PRODUCTS}
    return {
        node.name: known.get(derive.stated_or_seen_product(cluster, node_facts))
        for node, node_facts in derive.answered_nodes(cluster, facts)
    }


def known_products(cluster: Cluster, facts: FactsByNode) -> list[rules.Product]:
    """The products of all nodes, each once."""
    return sorted({product for product in products(cluster, facts).values() if product})


def made_table(cluster: Cluster, facts: FactsByNode) -> Table:
    """The table that setup writes, rank N for slot N; a RankTableError if an answer is missing."""
    known = known_products(cluster, facts)
    product = known[0] if len(known) == 1 else None
    members = [member(node, facts[node.name]) for node in cluster.rank_order]
    return build(members, generation_for(product, members), "given", product)


def member(node: Node, node_facts: NodeFacts, ids: Sequence[int] | None = None) -> Member:
    """A node as a rank table has it, with the devices of a job or with `ids` of them."""
    addresses = dict(derive.devices_of(node, node_facts))
    wanted = tuple(addresses) if ids is None else ids
    pods, places = derive.places_of(node_facts), level_places(node_facts)
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


_IN_TURN = "Name the nodes of a super pod one after the other in the inventory"
_OWN_ID = f"Give each server a net_instance_id of its own in {ROOT_INFO}"
_DOUBTS = {
    rules.POD_ORDER: ("super-pods-apart", _IN_TURN),
    rules.LOCAL_ID_TWICE: ("net-instances-alike", _OWN_ID),
}
"""Warnings about a generated table, and their remedies; once per node."""


def rank_table_rules(cluster: Cluster, facts: FactsByNode) -> Findings:
    """What keeps a rank table from being made, or from being read by HCCL."""
    if cluster.resource_mode != "rank-table":
        return
    of_nodes, known = products(cluster, facts), known_products(cluster, facts)
    product = known[0] if len(known) == 1 else None
    if cluster.own_table is not None:
        yield from _own_table(cluster.own_table, cluster, facts)
    elif unmade := [*_unmade(cluster, facts, known)]:
        yield from unmade
        if any(finding.level == "error" for finding in unmade):
            return
    # no table without the primary, or with a node that did not answer
    if len(of_nodes) == len(cluster.nodes) and cluster.primary_name in of_nodes and product:
        yield from _refused(cluster, facts, product)


def rank_table_text(cluster: Cluster, facts: FactsByNode) -> str:
    """The rank table of every node: the inventory's own, else `made_table`, which may raise."""
    own = cluster.own_table
    return made_table(cluster, facts).to_json() if own is None else own.text


def rank_table_words(cluster: Cluster, facts: FactsByNode, text: str) -> str:
    """What reports say of the rank table that is written: its generation, and for whose HCCL."""
    known = known_products(cluster, facts)
    readers = f", for {' and '.join(rules.CALLED[product] for product in known)}" if known else ""
    own = "" if cluster.own_table is None else ", the inventory's own"
    generation = generation_of(table_in(from_text("", text)))
    return f"rank table: {FORMATS[generation].called}{readers}{own}"


def _unmade(cluster: Cluster, facts: FactsByNode, known: Sequence[rules.Product]) -> Findings:
    if not any(set(known) <= set(generation.products) for generation in FORMATS.values()):
        nodes = tuple(node.name for node, _ in derive.answered_nodes(cluster, facts))
        all_ = " and ".join(rules.CALLED[product] for product in known)
        text = f"the NPUs are of {all_}, and no rank table is for all of them"
        yield error("products-differ", nodes, text, "Use nodes of one product in a cluster")
    elif known == ["a3"]:
        yield from super_pod_rules(cluster, facts)
    elif known == ["a5"]:
        yield from root_info_rules(cluster, facts)


def _own_table(own: OwnTable, cluster: Cluster, facts: FactsByNode) -> Findings:
    """An own table of a generation that a node's HCCL does not read, or without super pods."""
    remedy = "Leave `resources.file` out, or make another: ranktable.write"
    of_nodes = products(cluster, facts)
    for name, product in of_nodes.items():
        readable = [each for each, known in FORMATS.items() if product in known.products]
        if product is not None and own.generation not in readable:
            text = f"the NPUs are of {rules.CALLED[product]}, whose HCCL reads rank tables of "
            text += f"{' or '.join(readable)}, and this one is of {own.generation}"
            yield error("rank-table-generation", (name,), text, remedy)
    is_a3 = {*of_nodes.values()} - {None} == {"a3"}
    for name, pods in derive.pods_of(cluster, facts).items():
        if pods and is_a3 and own.generation == "1.0" and len(cluster.nodes) > 1:
            text = "the NPUs are in a super pod, and the rank table has no super pods"
            yield warning("rank-table-without-pods", (name,), text, remedy)


def _refused(cluster: Cluster, facts: FactsByNode, product: rules.Product) -> Findings:
    """Problems that only this product's HCCL refuses, or that come from a 950's own files."""
    source = from_text("rank table", rank_table_text(cluster, facts))
    is_of_files = product == "a5" and cluster.own_table is None
    doubts: dict[tuple[str, str], Finding] = {}
    for problem in validate_table(source, product=product):
        nodes = (_node(cluster, facts, source, problem).name,)
        if problem.level == "error" and (problem.id in rules.BY_PRODUCT or is_of_files):
            text = f"HCCL would refuse the rank table: {problem.text}"
            yield error("rank-table-refused", nodes, text, problem.remedy)
        elif problem.id in _DOUBTS and cluster.own_table is None:
            id_, remedy = _DOUBTS[problem.id]
            doubts.setdefault((id_, *nodes), warning(id_, nodes, problem.text, remedy))
    yield from doubts.values()


def _node(cluster: Cluster, facts: FactsByNode, source: Source, problem: rules.Problem) -> Node:
    """The node of the entry with the problem; the primary if there is no single one."""
    match problem.path, source.document:
        case ("server_list", int(index), *_), {"server_list": list(servers)}:
            wanted = servers[index].get("server_id")
            return next((n for n in cluster.nodes if n.server_id == wanted), cluster.primary)
        case ("rank_list", int(index), *_), _:
            nodes = [n for n in cluster.rank_order for _ in derive.device_ids(n, facts[n.name])]
            return nodes[index] if index < len(nodes) else cluster.primary
        case _:
            return cluster.primary
