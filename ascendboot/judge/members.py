"""From facts to a rank table of ours: the one way, for `setup` and for `ranktable.write`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.facts.api import value_of
from ascendboot.facts.npus import ROOT_INFO
from ascendboot.judge.devices import devices_of
from ascendboot.judge.finding import judged_nodes
from ascendboot.judge.product import product_of
from ascendboot.judge.super_pods import places_of
from ascendboot.ranktable.build import Member, MemberDevice, build, generation_for
from ascendboot.ranktable.rootinfo import device_places
from ascendboot.ranktable.rule import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.ranktable.levels import LevelRank
    from ascendboot.ranktable.reading import Table
    from ascendboot.ranktable.rule import Product


def products(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> dict[str, Product | None]:
    """Of which product the NPUs of each node are: as stated, or else as their chips are called."""
    stated = cluster.product
    words = {
        node.name: product_of(seen) if stated == "auto" else stated
        for node, seen in judged_nodes(cluster, facts)
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


def member(node: Node, seen: NodeFacts, ids: Sequence[int] | None = None) -> Member:
    """A node as a rank table has it, with the devices of a job or with `ids` of them."""
    addresses = dict(devices_of(node, seen))
    wanted = tuple(addresses) if ids is None else ids
    pods, places = places_of(seen), level_places(seen)
    in_pods = {pods[i].super_pod_id if i in pods else None for i in wanted}
    pod = in_pods.pop() if len(in_pods) == 1 else None
    devices = tuple(
        MemberDevice(i, addresses[i], pods[i].super_device_id if i in pods else None, places.get(i))
        for i in wanted
    )
    return Member(node.server_id, devices, None if pod is None else str(pod))


def level_places(seen: NodeFacts) -> Mapping[int, LevelRank]:
    """What a server of 950 says of its devices; nothing where it says what is not understood."""
    info = value_of(seen.root_info)
    try:
        return device_places(info.text, ROOT_INFO) if info else {}
    except RankTableError:
        return {}
