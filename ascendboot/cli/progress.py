"""Builds surveys of all nodes, and shows their progress."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ascendboot.checks.rank_table import level_places, products
from ascendboot.cli.common import chosen_cluster
from ascendboot.cli.session import Session, read_only_run
from ascendboot.errors import AscendbootError, NodeError, UnreachableError
from ascendboot.facts.derive import places_of
from ascendboot.facts.node_facts import NodeFacts, queries
from ascendboot.facts.query import query, value_of
from ascendboot.model.files import Authority, Control, fingerprint
from ascendboot.ranktable.check import DeviceState, ServerState
from ascendboot.setup.ca import CaKeys
from ascendboot.setup.context import Templates
from ascendboot.setup.lock import LEASE_S, Locks, locks
from ascendboot.setup.record import node_of, reach_of
from ascendboot.setup.results import Progress
from ascendboot.setup.survey import Survey
from ascendboot.state import State, whoami
from ascendboot.templates import installed_templates
from ascendboot.transport.guard import Fence
from ascendboot.transport.pool import FORKS, for_each

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.console.screen import Screen
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.report import StepResult
    from ascendboot.ranktable.rules import Product
    from ascendboot.setup.cluster_plan import ClusterFacts
    from ascendboot.setup.sync import CodeSender
    from ascendboot.transport.api import Transport

_ASKED = ("npus", "npu_list", "device_networks", "super_pods", "root_info", "hccn_conf")


def query_npus(session: Session, nodes: Sequence[Node]) -> Mapping[str, NodeFacts]:
    """Query the NPUs of all nodes in parallel, on their host sides.

    Raises:
        UnreachableError: some nodes do not answer.
        AscendbootError: some nodes could not be queried.
    """
    hosts, errors = session.connect_hosts_to_look(nodes)
    _raise_any(errors)
    found = for_each(nodes, lambda n: _npus(hosts[n.name], session.cluster, n), forks=session.forks)
    _raise_any({name: error for name, error in found.items() if isinstance(error, NodeError)})
    return {name: facts for name, facts in found.items() if isinstance(facts, NodeFacts)}


def queried_cluster(inventory: str) -> tuple[Cluster, Mapping[str, NodeFacts]]:
    """Read an inventory and query the NPUs of its nodes, in a separate session.

    Raises:
        AscendbootError: there is no such cluster, or some nodes could not be queried.
    """
    _, cluster = chosen_cluster(inventory, with_own_table=False)
    state = State.here()
    run = read_only_run(state, "ranktable", cluster.secrets)
    with Session.opened(cluster, state, run, accept_new=False, forks=FORKS) as session:
        return cluster, query_npus(session, cluster.nodes)


def product_among(cluster: Cluster, found: Mapping[str, NodeFacts]) -> Product | None:
    """Return the product from the inventory, otherwise from the NPUs; None if unknown.

    Raises:
        AscendbootError: nodes have NPUs of different products.
    """
    known = sorted({product for product in products(cluster, found).values() if product})
    if len(known) > 1:
        raise AscendbootError(
            f"the nodes have NPUs of different products: {' and '.join(known)}; a rank table is "
            "for one product; select its nodes with --nodes"
        )
    return known[0] if known else None


def servers_seen(cluster: Cluster, found: Mapping[str, NodeFacts]) -> dict[str, ServerState]:
    """Return the queried devices by the server id that rank tables use."""
    return {
        node.server_id: ServerState(
            node.name, dict(_devices(found[node.name])), level_places(found[node.name])
        )
        for node in cluster.nodes
        if node.name in found
    }


def _devices(facts: NodeFacts) -> Iterator[tuple[int, DeviceState]]:
    conf = value_of(facts.hccn_conf)
    networks = {n.device_id: n for n in value_of(facts.device_networks) or ()}
    places, known = places_of(facts), value_of(facts.npus)
    for npu in known.npus if known else ():
        place = places.get(npu.device_id)
        network = networks.get(npu.device_id)
        yield (
            npu.device_id,
            DeviceState(
                device_ip=network.device_ip if network else None,
                in_conf=conf.addresses.get(npu.device_id) if conf else None,
                super_device_id=place.super_device_id if place else None,
            ),
        )


def _npus(host: Transport, cluster: Cluster, node: Node) -> NodeFacts:
    asked = {name: q for name, q in queries(cluster, node).items() if name in _ASKED}
    return NodeFacts.from_answers(node.name, query(host, asked))


def _raise_any(errors: Mapping[str, NodeError]) -> None:
    if not errors:
        return
    is_unreachable = any(isinstance(error, UnreachableError) for error in errors.values())
    raise (_NodesUnreachableError if is_unreachable else AscendbootError)(
        *map(str, errors.values())
    )


class _NodesUnreachableError(AscendbootError):
    """Some nodes do not answer; the text names each."""

    exit_code = UnreachableError.exit_code


BREAK_LOCK_HELP = (
    "Take the cluster's lock from the setup or reset that holds it, and show its holder"
)


def locks_of(session: Session, *, breaks: bool) -> Locks:
    """Create the cluster's lock for this run; the session then writes only while it holds it."""
    found = locks(session.cluster.name, f"run {session.run.run_id} of {whoami()}", breaks=breaks)
    session.fence = Fence(found.on_host.command, found.still_held, LEASE_S)
    return found


@dataclass(frozen=True)
class OnScreen:
    """Shows each phase as it ends."""

    screen: Screen

    def phase_begins(self, title: str) -> None:
        """Show which phase is running."""
        self.screen.working(title)

    def phase_done(self, title: str, results: Sequence[StepResult]) -> None:
        """Print the phase, folded."""
        self.screen.phase(title, results)


def survey_of(
    session: Session,
    screen: Screen,
    interrupted: threading.Event,
    *,
    sender: CodeSender | None,
    locks: Locks | None = None,
    take_over: bool = False,
    rekeys: bool = False,
) -> Survey:
    """Build the survey of a session's cluster; without locks it is read-only."""
    keys = keys_of(session)

    def before_writing(facts: ClusterFacts) -> tuple[Authority | None, Control]:
        _remember_nodes(session)
        if rekeys:
            _retire(session, keys, facts.installed[session.cluster.primary_name].cluster_key)
        return keys.ensure() if keys else None, _control_of(session, makes=True)

    return Survey(
        progress=Progress(session.cluster, OnScreen(screen), interrupted, session.forks),
        templates=Templates(installed_templates()),
        former=session.former,
        authority=keys.look() if keys else None,
        sender=sender,
        locks=locks,
        before_writing=before_writing if locks else None,
        control=_control_of(session, makes=locks is not None),
        take_over=take_over,
        rekeys=rekeys,
        left=left_nodes(session.state, session.cluster),
    )


def left_nodes(state: State, cluster: Cluster) -> tuple[Node, ...]:
    """Return nodes that were set up from here and removed from the inventory.

    A renamed node does not count as removed.
    """
    names = {node.name for node in cluster.nodes}
    places = {(node.address, node.ssh.port) for node in cluster.nodes}
    known = [node_of(name, reach) for name, reach in state.nodes(cluster.name).items()]
    return tuple(
        node
        for node in known
        if node.name not in names and (node.address, node.ssh.port) not in places
    )


def _remember_nodes(session: Session) -> None:
    state, cluster = session.state, session.cluster
    nodes = (*left_nodes(state, cluster), *cluster.nodes)
    state.remember_nodes(cluster.name, {n.name: reach_of(n) for n in nodes})


def _retire(session: Session, keys: CaKeys | None, cluster_key: str | None) -> None:
    """Replace the CA and the cluster's key; record the old ones first, in case the run is aborted.

    Old certificates and the old key are then invalid.
    """
    state, name = session.state, session.cluster.name
    if cluster_key is not None:
        state.add_control_key(name, f"key:{fingerprint(cluster_key)}")
    former = keys.look() if keys else None
    if keys and former:
        state.add_control_key(name, fingerprint(former.host))
        keys.renew()


def _control_of(session: Session, *, makes: bool) -> Control:
    """Return this control folder as nodes record it; `makes` creates its id if necessary."""
    state, cluster = session.state, session.cluster
    known = state.control_keys(cluster.name)
    own = next((key for key in known if key.startswith("id:")), "")
    if not own and makes and cluster.trust == "pinned":
        own = f"id:{secrets.token_hex(16)}"
        state.add_control_key(cluster.name, own)
    return Control(
        by=whoami(),
        folder=str(state.root),
        now=f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%MZ}",
        known=frozenset((*known, own, *_keys(session).known_as())),
        id=own,
    )


def keys_of(session: Session) -> CaKeys | None:
    """Return the CA keys of the cluster, existing or not; None if its trust needs no CA."""
    return _keys(session) if session.cluster.trust == "ca" else None


def _keys(session: Session) -> CaKeys:
    cluster = session.cluster
    return CaKeys(session.state.authority(cluster.name), cluster.name)
