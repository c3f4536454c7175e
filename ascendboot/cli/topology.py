"""Leaf switches and the order of ranks: `topology.show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from invoke.collection import Collection

from ascendboot.checks.finding import grouped, in_order
from ascendboot.checks.network import leaf_rules
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.facts.derive import leaves_by_lldp
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.npus import npu_queries
from ascendboot.facts.query import query
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.names import fold, runs
from ascendboot.ranktable.show import in_columns
from ascendboot.transport.api import HostSide
from ascendboot.value import replace

_NONE = "no node states a leaf: ranks are in inventory order; state `leaf` to order them"
_USE_LLDP = "seen by LLDP; to use it, state `topology: {leaves: lldp}` and run setup"


@cluster_verb(
    stopped="Stopped: nothing was written.",
    help={
        "lldp": "Ask the NPUs of nodes without a `leaf` for their switches by LLDP. Read-only",
        "json": "Print the table as JSON on standard output",
    },
)
def show(call: Call, *, lldp: bool = False) -> None:
    """Show the leaf switches of the nodes and the order of ranks.

    Connects to no node, except with --lldp or `topology: {leaves: lldp}`.
    Prints a line per node in rank order, and a column per group of devices
    with the same leaf switches. Also shows the cost of the order, and leaf
    switches that are missing or contradict each other.

    Examples:
      invoke topology.show --inventory atlas.yaml
      invoke topology.show --lldp              also the leaves that LLDP shows
      invoke topology.show --json | jq .cost

    Exit codes: 0 shown, 1 a query failed, 2 invalid inventory, 4 a node is
    unreachable.
    """
    stated = cluster = call.cluster(with_own_table=True)
    asked = [node for node in stated.nodes if node.leaf is None]
    facts: Mapping[str, NodeFacts] = {}
    if asked and (lldp or stated.reads_leaves):
        with call.session("topology-show", stated, reads=True) as session:
            facts = session.look_at(asked, _facts_of)
        cluster = replace(stated, reads_leaves=True).with_leaves(leaves_by_lldp(stated, facts))
    warnings = [each.message for each in in_order(leaf_rules(cluster, facts))]
    if call.json:
        call.end(0, _document(cluster, warnings))
        return
    call.screen.say(cluster.order_words or _NONE)
    for line in _table(cluster) if cluster.leaves else ():
        call.screen.say(line)
    for message in warnings:
        call.screen.say(f"warning: {message}")
    if cluster.leaves and cluster.reads_leaves and not stated.reads_leaves:
        call.screen.say(_USE_LLDP)


def _facts_of(node: Node, host: HostSide) -> NodeFacts:
    return NodeFacts.from_answers(node.name, query(host, npu_queries(node, with_lldp=True)))


def _columns(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """Return the leaves by group of rails that agree on all nodes, in rank order."""
    order, rails = cluster.rank_order, cluster.rails
    if not rails:
        return {"leaf": tuple(cluster.leaves[node.name][0] for node in order)}
    by_rail = zip(*(cluster.leaves[node.name][: len(rails)] for node in order), strict=True)
    groups = grouped((leaves, rail) for rail, leaves in zip(rails, by_rail, strict=True))
    return {f"devices {runs(ids)}": leaves for leaves, ids in groups.items()}


def _table(cluster: Cluster) -> Iterator[str]:
    order = cluster.rank_order
    places = {node.name: index for index, node in enumerate(cluster.given_order)}
    columns: dict[str, Sequence[str]] = {
        "node rank": [str(rank) for rank in range(len(order))],
        "before": [str(places[node.name]) for node in order],
        "node": [node.name for node in order],
        **_columns(cluster),
    }
    yield ""
    yield from in_columns(columns)
    yield ""
    cores = dict(cluster.cores)
    pairs = {(leaf, node.name) for node in cluster.nodes for leaf in node.leaf_names}
    for leaf, names in grouped(sorted(pairs)).items():
        core = f" ({cores[leaf]})" if leaf in cores else ""
        yield f"leaf {leaf}{core}: {fold(names)}"


def _document(cluster: Cluster, warnings: Sequence[str]) -> dict[str, object]:
    best = cluster.leaf_order
    places = {node.name: index for index, node in enumerate(cluster.given_order)}
    nodes = [
        {
            "node_rank": rank,
            "node": node.name,
            "before": places[node.name],
            "leaves": list(cluster.leaves.get(node.name, ())[: len(cluster.rails) or 1]),
        }
        for rank, node in enumerate(cluster.rank_order)
    ]
    cost = {"before": best.before, "after": best.after, "bound": best.bound} if best else None
    return {
        "exit_code": 0,
        "cluster": cluster.name,
        "follows_leaves": cluster.follows_leaves and best is not None,
        "shape": best.shape if best else cluster.order_shape,
        "devices": list(cluster.rails),
        "cost": cost,
        "nodes": nodes,
        "warnings": list(warnings),
    }


collection = Collection("topology", show)
