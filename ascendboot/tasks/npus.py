"""Asking all nodes for their NPUs alone, for verbs that need nothing else of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import AscendbootError, NodeError, UnreachableError
from ascendboot.facts.api import Unanswered, ask, value_of
from ascendboot.facts.node import NodeFacts, questions
from ascendboot.facts.super_pods import super_pod_question
from ascendboot.judge.resources import product_of
from ascendboot.ranktable.against import DeviceSeen, ServerSeen
from ascendboot.ranktable.rule import PRODUCTS
from ascendboot.transport.pool import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.parse.spod_info import SuperPodPlace
    from ascendboot.ranktable.rule import Product
    from ascendboot.tasks.session import Session
    from ascendboot.transport.api import Transport

_ASKED = ("npus", "npu_list", "device_networks", "hccn_conf")


@dataclass(frozen=True)
class Npus:
    """What a node says of its NPUs."""

    facts: NodeFacts
    places: Mapping[int, SuperPodPlace]
    """By physical id where each is in its super pod; empty where the node has none."""


def ask_npus(session: Session, nodes: Sequence[Node]) -> Mapping[str, Npus]:
    """The NPUs of all nodes, asked on their host sides at the same time.

    Raises:
        UnreachableError: some nodes do not answer.
        AscendbootError: some nodes cannot tell.
    """
    hosts, errors = session.connect_hosts_to_look(nodes)
    _raise_any(errors)
    found = for_each(nodes, lambda n: _npus(hosts[n.name], session.cluster, n), forks=session.forks)
    _raise_any({name: error for name, error in found.items() if isinstance(error, NodeError)})
    return {name: npus for name, npus in found.items() if isinstance(npus, Npus)}


def product_among(cluster: Cluster, found: Mapping[str, Npus]) -> Product | None:
    """The product that the inventory states, or else all NPUs; None where it cannot be told.

    Raises:
        AscendbootError: nodes have NPUs of different products.
    """
    seen = {name: product_of(npus.facts) for name, npus in found.items()}
    known = sorted({product for product in seen.values() if product})
    if cluster.product != "auto":
        known = [cluster.product]
    if len(known) > 1:
        raise AscendbootError(
            f"the nodes have NPUs of different products: {' and '.join(known)}; a rank table is "
            "for one, name its nodes with --nodes"
        )
    return next((product for product in PRODUCTS if [product] == known), None)


def servers_seen(cluster: Cluster, found: Mapping[str, Npus]) -> dict[str, ServerSeen]:
    """What the nodes say, by the ids under which rank tables have them."""
    return {
        node.server_id: ServerSeen(node.name, dict(_devices(found[node.name])))
        for node in cluster.nodes
        if node.name in found
    }


def _devices(npus: Npus) -> Iterator[tuple[int, DeviceSeen]]:
    conf = value_of(npus.facts.hccn_conf)
    networks = {n.device_id: n for n in value_of(npus.facts.device_networks) or ()}
    known = value_of(npus.facts.npus)
    for npu in known.npus if known else ():
        place = npus.places.get(npu.device_id)
        network = networks.get(npu.device_id)
        yield (
            npu.device_id,
            DeviceSeen(
                device_ip=network.device_ip if network else None,
                in_conf=conf.addresses.get(npu.device_id) if conf else None,
                super_device_id=place.super_device_id if place else None,
            ),
        )


def _npus(host: Transport, cluster: Cluster, node: Node) -> Npus:
    asked = {name: q for name, q in questions(cluster, node).items() if name in _ASKED}
    facts = NodeFacts.from_answers(node.name, ask(host, asked))
    npus = value_of(facts.npus)
    if npus is None or product_of(facts) != "a3":
        return Npus(facts, {})
    answer = ask(host, {"super_pods": super_pod_question(npus)})["super_pods"]
    if isinstance(answer, Unanswered):
        # a server of A3 may stand alone: then its table is one of version 1.0
        if answer.kind == "failed":
            return Npus(facts, {})
        raise NodeError(node.name, answer.message)
    return Npus(facts, value_of(answer) or {})


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
