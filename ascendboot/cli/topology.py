"""Leaf switches and the order of ranks: `topology.show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from invoke.collection import Collection

from ascendboot.checks.finding import grouped, in_order
from ascendboot.checks.network import leaf_rules
from ascendboot.cli.common import end
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.model.cluster import Cluster
from ascendboot.model.names import fold, runs

_NONE = "no node states a leaf: ranks are in inventory order; state `leaf` to order them"


@cluster_verb(help={"json": "Print the table as JSON on standard output"})
def show(call: Call) -> None:
    """Show the leaf switches of the nodes and the order of ranks.

    Connects to no node. Prints a line per node in rank order, and a column per
    group of devices with the same leaf switches. Also shows the cost of the
    order, and leaf switches that are missing or contradict each other.

    Examples:
      invoke topology.show --inventory atlas.yaml
      invoke topology.show --json | jq .cost

    Exit codes: 0 shown, 2 invalid inventory; never 4, because it connects to no
    node.
    """
    cluster = call.cluster(with_own_table=True)
    warnings = [finding.message for finding in in_order(leaf_rules(cluster, {}))]
    if call.json:
        end(call.screen, 0, _document(cluster, warnings))
        return
    call.screen.say(cluster.order_words or _NONE)
    for line in _table(cluster) if cluster.leaves else ():
        call.screen.say(line)
    for warning in warnings:
        call.screen.say(f"warning: {warning}")


def _columns(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """Return the leaves by group of rails that agree on all nodes, in rank order."""
    order, rails = cluster.rank_order, cluster.rails
    if not rails:
        return {"leaf": tuple(cluster.leaves[node.name][0] for node in order)}
    by_rail = zip(*(cluster.leaves[node.name] for node in order), strict=True)
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
    widths = [max(map(len, (title, *cells))) for title, cells in columns.items()]
    for line in zip(*((title, *cells) for title, cells in columns.items()), strict=True):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield f"  {'  '.join(padded)}".rstrip()
    yield ""
    for leaf, names in _nodes_by_leaf(cluster).items():
        yield f"leaf {leaf}: {fold(names)}"


def _nodes_by_leaf(cluster: Cluster) -> dict[str, list[str]]:
    pairs = {
        (leaf, node.name): None
        for node in cluster.nodes
        for leaf in cluster.leaves[node.name]
        if leaf not in {"-", f"?{node.name}"}
    }
    return grouped(sorted(pairs))


def _document(cluster: Cluster, warnings: Sequence[str]) -> dict[str, object]:
    best = cluster.leaf_order
    places = {node.name: index for index, node in enumerate(cluster.given_order)}
    nodes = [
        {
            "node_rank": rank,
            "node": node.name,
            "before": places[node.name],
            "leaves": list(cluster.leaves.get(node.name, ())),
        }
        for rank, node in enumerate(cluster.rank_order)
    ]
    cost = {"before": best.before, "after": best.after, "bound": best.bound} if best else None
    return {
        "exit_code": 0,
        "cluster": cluster.name,
        "follows_leaves": cluster.follows_leaves and best is not None,
        "shape": cluster.topology_shape,
        "devices": list(cluster.rails),
        "cost": cost,
        "nodes": nodes,
        "warnings": list(warnings),
    }


collection = Collection("topology", show)
