"""Leaf switches and the order of ranks: `topology.show`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from invoke.collection import Collection

from ascendboot.checks.finding import Finding, grouped, in_order, warning
from ascendboot.checks.network import leaf_rules
from ascendboot.cli.common import end
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.facts.npus import lldp_query
from ascendboot.facts.query import Unanswered, query, value_of
from ascendboot.model.cluster import Cluster
from ascendboot.model.names import fold, runs
from ascendboot.model.topology import Leaf

_NONE = "no node states a leaf: ranks are in inventory order; state `leaf` to order them"


@cluster_verb(
    help={
        "lldp": "Ask the NPUs of nodes without a `leaf` for their switches by LLDP. Read-only",
        "json": "Print the table as JSON on standard output",
    }
)
def show(call: Call, *, lldp: bool = False) -> None:
    """Show the leaf switches of the nodes and the order of ranks.

    Connects to no node, except with --lldp. Prints a line per node in rank
    order, and a column per group of devices with the same leaf switches. Also
    shows the cost of the order, and leaf switches that are missing or
    contradict each other.

    Examples:
      invoke topology.show --inventory atlas.yaml
      invoke topology.show --lldp              print `leaf` for the inventory
      invoke topology.show --json | jq .cost

    Exit codes: 0 shown, 1 a query failed, 2 invalid inventory, 4 a node is
    unreachable.
    """
    cluster, unread = call.cluster(with_own_table=True), list[Finding]()
    stated = cluster
    if lldp:
        cluster, unread = _with_lldp(call, stated)
    warnings = [each.message for each in in_order([*unread, *leaf_rules(cluster, {})])]
    if call.json:
        end(call.screen, 0, _document(cluster, warnings))
        return
    call.screen.say(cluster.order_words or _NONE)
    for line in _table(cluster) if cluster.leaves else ():
        call.screen.say(line)
    for message in warnings:
        call.screen.say(f"warning: {message}")
    for line in _to_state(stated, cluster):
        call.screen.say(line)


def _with_lldp(call: Call, cluster: Cluster) -> tuple[Cluster, list[Finding]]:
    """Return the cluster with leaves by LLDP where none is stated, and what could not be read."""
    asked = [node for node in cluster.nodes if node.leaf is None]
    if not asked:
        return cluster, []
    with call.session("topology-show", cluster, reads=True) as session:
        answers = session.look_at(asked, lambda _, host: query(host, {"": lldp_query()})[""])
    leaves: dict[str, Leaf] = {}
    unread = []
    for name, answer in answers.items():
        by_device = value_of(answer) or {}
        missing = [each for each in (answer, *by_device.values()) if isinstance(each, Unanswered)]
        unread += [warning("leaf-unknown", (name,), each.message) for each in missing]
        seen = ((device, value_of(each)) for device, each in by_device.items())
        if known := tuple(sorted((device, found.leaf) for device, found in seen if found)):
            leaves[name] = known
    nodes = (replace(node, leaf=leaves.get(node.name, node.leaf)) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(nodes)), unread


def _to_state(stated: Cluster, cluster: Cluster) -> Iterator[str]:
    """Yield what LLDP shows in the form of the inventory, from which alone setup takes leaves."""
    new = [after for after in cluster.nodes if after.leaf != stated.node(after.name).leaf]
    groups = grouped((node.leaf, node.name) for node in new if isinstance(node.leaf, tuple))
    if groups:
        yield "seen by LLDP; setup uses it once the inventory states it:"
    for leaf, names in groups.items():
        switches = grouped((switch, device) for device, switch in leaf)
        one, *others = switches
        by_device = ", ".join(
            f'"{runs(ids)}": {json.dumps(switch)}' for switch, ids in switches.items()
        )
        yield f"  {fold(names)}: leaf: {f'{{{by_device}}}' if others else json.dumps(one)}"


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
    widths = [max(map(len, (title, *cells))) for title, cells in columns.items()]
    for line in zip(*((title, *cells) for title, cells in columns.items()), strict=True):
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield f"  {'  '.join(padded)}".rstrip()
    yield ""
    cores = dict(cluster.cores)
    for leaf, names in _nodes_by_leaf(cluster).items():
        core = f" ({cores[leaf]})" if leaf in cores else ""
        yield f"leaf {leaf}{core}: {fold(names)}"


def _nodes_by_leaf(cluster: Cluster) -> dict[str, list[str]]:
    pairs = {(leaf, node.name): None for node in cluster.nodes for leaf in node.leaf_names}
    return grouped(sorted(pairs))


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
