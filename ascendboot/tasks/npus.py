"""Asking all nodes for their NPUs alone, for verbs that need nothing else of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import AscendbootError, NodeError, UnreachableError
from ascendboot.facts.api import ask, value_of
from ascendboot.facts.node import NodeFacts, questions
from ascendboot.judge.members import level_places, products
from ascendboot.judge.super_pods import places_of
from ascendboot.ranktable.against import DeviceSeen, ServerSeen
from ascendboot.state import State
from ascendboot.tasks.common import wanted_cluster
from ascendboot.tasks.session import Session, run_to_look
from ascendboot.transport.pool import FORKS, for_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.ranktable.rule import Product
    from ascendboot.transport.api import Transport

_ASKED = ("npus", "npu_list", "device_networks", "super_pods", "root_info", "hccn_conf")


def ask_npus(session: Session, nodes: Sequence[Node]) -> Mapping[str, NodeFacts]:
    """The NPUs of all nodes, asked on their host sides at the same time.

    Raises:
        UnreachableError: some nodes do not answer.
        AscendbootError: some nodes cannot tell.
    """
    hosts, errors = session.connect_hosts_to_look(nodes)
    _raise_any(errors)
    found = for_each(nodes, lambda n: _npus(hosts[n.name], session.cluster, n), forks=session.forks)
    _raise_any({name: error for name, error in found.items() if isinstance(error, NodeError)})
    return {name: facts for name, facts in found.items() if isinstance(facts, NodeFacts)}


def cluster_asked(inventory: str) -> tuple[Cluster, Mapping[str, NodeFacts]]:
    """The cluster of an inventory and the NPUs of its nodes, in a session of its own.

    Raises:
        AscendbootError: there is no such cluster, or some nodes do not answer or cannot tell.
    """
    _, cluster = wanted_cluster(inventory, with_own_table=False)
    state = State.here()
    run = run_to_look(state, "ranktable", cluster.secrets)
    with Session.opened(cluster, state, run, accept_new=False, forks=FORKS) as session:
        return cluster, ask_npus(session, cluster.nodes)


def product_among(cluster: Cluster, found: Mapping[str, NodeFacts]) -> Product | None:
    """The product that the inventory states, or else all NPUs; None where it cannot be told.

    Raises:
        AscendbootError: nodes have NPUs of different products.
    """
    known = sorted({product for product in products(cluster, found).values() if product})
    if len(known) > 1:
        raise AscendbootError(
            f"the nodes have NPUs of different products: {' and '.join(known)}; a rank table is "
            "for one, name its nodes with --nodes"
        )
    return known[0] if known else None


def servers_seen(cluster: Cluster, found: Mapping[str, NodeFacts]) -> dict[str, ServerSeen]:
    """What the nodes say, by the ids under which rank tables have them."""
    return {
        node.server_id: ServerSeen(
            node.name, dict(_devices(found[node.name])), level_places(found[node.name])
        )
        for node in cluster.nodes
        if node.name in found
    }


def _devices(facts: NodeFacts) -> Iterator[tuple[int, DeviceSeen]]:
    conf = value_of(facts.hccn_conf)
    networks = {n.device_id: n for n in value_of(facts.device_networks) or ()}
    places, known = places_of(facts), value_of(facts.npus)
    for npu in known.npus if known else ():
        place = places.get(npu.device_id)
        network = networks.get(npu.device_id)
        yield (
            npu.device_id,
            DeviceSeen(
                device_ip=network.device_ip if network else None,
                in_conf=conf.addresses.get(npu.device_id) if conf else None,
                super_device_id=place.super_device_id if place else None,
            ),
        )


def _npus(host: Transport, cluster: Cluster, node: Node) -> NodeFacts:
    asked = {name: q for name, q in questions(cluster, node).items() if name in _ASKED}
    return NodeFacts.from_answers(node.name, ask(host, asked))


def _raise_any(errors: Mapping[str, NodeError]) -> None:
    if not errors:
        return
    text = "\n".join(str(error) for error in errors.values())
    if any(isinstance(error, UnreachableError) for error in errors.values()):
        raise _NodesUnreachableError(text)
    raise AscendbootError(text)


class _NodesUnreachableError(AscendbootError):
    """Some nodes do not answer; the text names each."""

    exit_code = UnreachableError.exit_code
