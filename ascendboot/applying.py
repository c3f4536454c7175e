"""What a setup that ended well leaves on the nodes, as it is to be remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot import __version__, laid_out
from ascendboot.applied import Applied, OnNode, digest
from ascendboot.errors import NodeError
from ascendboot.facts.api import value_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ascendboot.decide import Decisions, Seen
    from ascendboot.facts.own import Own
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.own_file import OwnFile


def applied_by(
    cluster: Cluster, decisions: Decisions, seen: Seen, wished: Mapping[str, Collection[str]]
) -> Applied:
    """What is to be remembered of a setup.

    `wished` holds, by node, the paths of the files that setup wished for: what else lies in the
    cluster's folder may come and go.
    """
    return Applied(
        cluster=cluster.name,
        version=__version__,
        inventory_digest=digest(cluster),
        templates=laid_out.digest(),
        base=decisions.base,
        port=decisions.port,
        networks=decisions.networks,
        mpirun=decisions.mpirun,
        launcher=decisions.launcher,
        launcher_env=decisions.launcher_env,
        slots=tuple((s.node.name, s.device_id, s.device_ip) for s in decisions.placement.slots),
        nodes={node.name: _on_node(node, seen, wished[node.name]) for node in cluster.nodes},
    )


def _on_node(node: Node, seen: Seen, wished: Collection[str]) -> OnNode:
    name = node.name
    own, served, facts = seen.own[name], seen.served.get(name), seen.facts[name]
    system, engines = value_of(facts.system), value_of(facts.container)
    container = engines.container if engines else None
    if system is None:  # the judge lets nobody come this far
        raise NodeError(name, "could not remember the setup: as whom ranks run is not known")
    return OnNode(
        files=_those(own, wished),
        sshd=own.daemon.identity if own.daemon else "",
        host_files=_those(served, wished) if served else {},
        host_sshd=served.daemon.identity if served and served.daemon else "",
        expires=_ends(own, served),
        uid=system.uid,
        user=system.user,
        home=system.home,
        engine=container.engine if container else "",
        container=node.container or "",
    )


def _ends(*sides: Own | None) -> dict[str, float]:
    """When each certificate runs out, of two of one name the first."""
    ends: dict[str, float] = {}
    for own in sides:
        for path, certificate in own.certificates.items() if own else ():
            if certificate.valid_to:
                ends[path] = min(certificate.valid_to, ends.get(path, certificate.valid_to))
    return ends


def _those(own: Own, wished: Collection[str]) -> dict[str, OwnFile]:
    return {path: file for path, file in own.files.items() if path in wished}
