"""What `setup` and `check` share: the survey of a session's nodes, shown as it goes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ascendboot.applied import node_of, reach_of
from ascendboot.authority import Keys
from ascendboot.engine.progress import Progress
from ascendboot.engine.survey import Survey
from ascendboot.laid_out import installed_templates
from ascendboot.model.certificate import fingerprint
from ascendboot.model.owner import Control
from ascendboot.render import Templates
from ascendboot.state import whoami
from ascendboot.steps.lock import LEASE_S, locks
from ascendboot.transport.guard import Fence

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from ascendboot.code.send import Sending
    from ascendboot.console import Screen
    from ascendboot.decide import Seen
    from ascendboot.model.certificate import Authority
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.report import StepResult
    from ascendboot.state import State
    from ascendboot.steps.lock import Locks
    from ascendboot.tasks.session import Session


BREAK_LOCK_HELP = (
    "End the setup or reset that holds the cluster's lock, say whose it was, and go on"
)


def locks_of(session: Session, *, breaks: bool) -> Locks:
    """The cluster's lock for this run; from now on the session writes only while it has it."""
    found = locks(session.cluster.name, f"run {session.run.run_id} of {whoami()}", breaks=breaks)
    session.fence = Fence(found.on_server.command, found.still_ours, LEASE_S)
    return found


@dataclass(frozen=True)
class OnScreen:
    """Shows each phase as it ends."""

    screen: Screen

    def phase_begins(self, title: str) -> None:
        """Tell a person what is going on."""
        self.screen.working(title)

    def phase_done(self, title: str, results: Sequence[StepResult]) -> None:
        """Print the phase, folded."""
        self.screen.phase(title, results)


def survey_of(
    session: Session,
    screen: Screen,
    interrupted: threading.Event,
    *,
    sending: Sending | None,
    locks: Locks | None = None,
    take_over: bool = False,
    rekeys: bool = False,
) -> Survey:
    """How all nodes of a session's cluster are looked at; without locks nothing may be written."""
    keys = keys_of(session)

    def before_writing(seen: Seen) -> tuple[Authority | None, Control]:
        _remember_nodes(session)
        if rekeys:
            _retire(session, keys, seen.own[session.cluster.primary_name].cluster_key)
        return keys.ensure() if keys else None, _control_of(session, makes=True)

    return Survey(
        progress=Progress(session.cluster, OnScreen(screen), interrupted, session.forks),
        templates=Templates(installed_templates()),
        former=session.former,
        authority=keys.look() if keys else None,
        sending=sending,
        locks=locks,
        before_writing=before_writing if locks else None,
        control=_control_of(session, makes=locks is not None),
        take_over=take_over,
        rekeys=rekeys,
        left=left_nodes(session.state, session.cluster),
    )


def left_nodes(state: State, cluster: Cluster) -> tuple[Node, ...]:
    """The nodes that were set up from here and that the inventory names no more.

    One that has another name now has not left.
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


def _retire(session: Session, keys: Keys | None, cluster_key: str | None) -> None:
    """Replace the CA, and have the cluster's key replaced: noted first, for a run that is cut off.

    What was signed before, or lets that key in, then opens nothing.
    """
    state, name = session.state, session.cluster.name
    if cluster_key is not None:
        state.add_control_key(name, f"key:{fingerprint(cluster_key)}")
    former = keys.look() if keys else None
    if keys and former:
        state.add_control_key(name, fingerprint(former.host))
        keys.renew()


def _control_of(session: Session, *, makes: bool) -> Control:
    """This control folder as nodes record it; `makes` its id where it has none and needs one."""
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


def keys_of(session: Session) -> Keys | None:
    """Where the keys of the cluster's authority lie, made or not; None where trust needs none."""
    return _keys(session) if session.cluster.trust == "ca" else None


def _keys(session: Session) -> Keys:
    cluster = session.cluster
    return Keys(session.state.authority(cluster.name), cluster.name)
