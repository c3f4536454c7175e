"""The record of what setup has applied."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import PurePosixPath  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from ascendboot import __version__
from ascendboot.errors import AscendbootError, NodeError
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster, LauncherChoice, Node, Placement, Slot, SshAccess
from ascendboot.model.files import OwnFile  # noqa: TC001 - pydantic reads it
from ascendboot.templates import digest as templates_digest

if TYPE_CHECKING:
    from collections.abc import Collection

    from ascendboot.facts.installed import Installed
    from ascendboot.setup.cluster_plan import ClusterFacts, ClusterPlan


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """What must still be on one node: files by path, and the cluster's sshd by its identity."""

    files: Mapping[str, OwnFile]
    sshd: str
    """Empty where it runs on the host side and ranks do not."""
    uid: int
    user: str
    home: str
    engine: str = ""
    """The program on the host side that reaches into the container; empty without one."""
    container: str = ""
    """Its name; empty also where an older setup did not keep it."""
    host_files: Mapping[str, OwnFile] = field(default_factory=dict)
    """What must still be on the host side, where our sshd runs there and ranks do not."""
    host_sshd: str = ""
    expires: Mapping[str, float] | None = None
    """When which of our certificates on either side runs out; None: an older setup did not keep it,
    and the nodes have to be queried."""

    def problems(
        self, installed: Installed, host: Installed | None = None, *, now: float
    ) -> tuple[str, ...]:
        """What is no longer as setup left it, or has run out by the time `now`."""
        problems = [] if host is None else _problems(self.host_files, self.host_sshd, host, now)
        kept = (self.expires or {}).items()
        problems += [f"{path} has expired" for path, end in kept if end < now]
        if self.engine and not installed.files:
            return ("nothing that setup left is in the container: it is a new one", *problems)
        sshd = None if self.host_sshd else self.sshd
        return (*_problems(self.files, sshd, installed, now), *problems)


def _problems(
    files: Mapping[str, OwnFile], sshd: str | None, installed: Installed, now: float
) -> list[str]:
    """`sshd` is None where none is to run."""
    changed = [
        f"{path} is missing" if path not in installed.files else f"{path} has changed"
        for path, file in files.items()
        if installed.files.get(path) != file
    ]
    ends = {path: certificate.valid_to for path, certificate in installed.certificates.items()}
    changed += [f"{path} has expired" for path, end in ends.items() if end and end < now]
    if sshd is not None and installed.daemon is None:
        changed.append("the cluster's sshd does not run")
    elif sshd is not None and installed.daemon is not None and installed.daemon.identity != sshd:
        changed.append("the cluster's sshd runs with another configuration")
    return changed


def _with_kind(document: Any) -> Any:  # noqa: ANN401 - what JSON holds
    """Before launchers had a kind, a record had a path or a boolean for each program."""
    if not isinstance(document, dict) or "kind" in document or "why" not in document:
        return document
    path = document.get("horovodrun")
    kind = "torchrun" if document.get("torchrun") else "horovod" if path else "mpirun"
    return {"kind": kind, "why": document["why"], "path": path}


@dataclass(frozen=True, kw_only=True)
class SetupRecord:
    """The result of one successful setup."""

    cluster: str
    version: str = "before 0.1.0"
    """Of the ascendboot that applied it."""
    inventory_digest: str
    templates: str = ""
    """The digest of those from which the files on the nodes were made."""
    base: PurePosixPath
    port: int
    networks: tuple[str, ...]
    mpirun: str
    launcher: Annotated[LauncherChoice, BeforeValidator(_with_kind)]
    launcher_env: Mapping[str, str] = field(default_factory=dict)
    slots: tuple[tuple[str, int, str | None], ...]
    """Node, device id and device IP of every rank, in rank order."""
    nodes: Mapping[str, NodeRecord]

    def why_outdated(self, cluster: Cluster) -> str | None:
        """Why the record does not match the inventory; None where it does."""
        if self.inventory_digest == digest(cluster):
            return None if self.templates == templates_digest() else _OTHER_FILES
        if self.version == __version__:
            return "the inventory has changed since the cluster was set up"
        return (
            f"ascendboot {self.version} set the cluster up; {__version__}, which runs now, reads "
            "the inventory differently, or the inventory has changed since"
        )

    def in_former_containers(self, cluster: Cluster) -> dict[str, Node]:
        """The nodes for which the inventory names no container any more, or another, as before."""
        names = {name: node.container for name, node in self.nodes.items() if node.container}
        return {
            node.name: replace(node, container=names[node.name])
            for node in cluster.nodes
            if node.name in names and names[node.name] != node.container
        }

    def placement(self, cluster: Cluster) -> Placement:
        """The slots in rank order."""
        counts: dict[str, int] = {}
        slots = []
        for name, device_id, device_ip in self.slots:
            local_rank = counts.get(name, 0)
            counts[name] = local_rank + 1
            slots.append(Slot(cluster.node(name), device_id, device_ip, local_rank))
        return Placement(tuple(slots))

    def to_json(self) -> dict[str, object]:
        """As it is kept in a file."""
        return {**asdict(self), "base": str(self.base)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SetupRecord:
        """What `to_json` wrote.

        Raises:
            AscendbootError: the document has another form, written by another version.
        """
        try:
            return _reader().validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise AscendbootError(
                f"what the last setup left cannot be read ({why}); run setup again"
            ) from error


@cache
def _reader() -> TypeAdapter[SetupRecord]:
    return TypeAdapter(SetupRecord)


def reach_of(node: Node) -> dict[str, object]:
    """What it takes to reach a node once the inventory does not name it any more."""
    return {
        "address": node.address,
        "cluster_address": node.cluster_address,
        "server_id": node.server_id,
        "ssh": asdict(node.ssh),
        "container": node.container,
        "engine": node.engine,
    }


def node_of(name: str, reach: Mapping[str, Any]) -> Node:
    """The node of which `reach_of` was kept.

    Raises:
        AscendbootError: the record has another form.
    """
    try:
        return Node(name=name, **{**reach, "ssh": SshAccess(**reach["ssh"])})
    except (KeyError, TypeError) as error:
        raise AscendbootError(
            f"how {name} was reached cannot be read ({error!r}); put the node back into the "
            "inventory and run setup, or remove nodes.json from the folder of the cluster"
        ) from error


_OTHER_FILES = (
    "the cluster was set up by another version of ascendboot, whose files on the nodes are others"
)


_OF_NO_SETUP = ("source", "log_limit", "data")
"""What a job reads in the inventory itself: nothing that setup lays out depends on it."""


def digest(cluster: Cluster) -> str:
    """The digest of the inventory's meaning, independent of its form and path."""
    stated = {key: value for key, value in _stated(cluster).items() if key not in _OF_NO_SETUP}
    return sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()


def _stated(value: Any) -> Any:  # noqa: ANN401 (any value of a model)
    """Without what has its default: a key that a later version adds changes nothing then."""
    if is_dataclass(value):
        return {
            each.name: _stated(getattr(value, each.name))
            for each in fields(value)
            if not _has_default(each, getattr(value, each.name))
        }
    if isinstance(value, frozenset):
        return sorted(value)
    return [_stated(item) for item in value] if isinstance(value, tuple) else value


def _has_default(of: Field[Any], value: object) -> bool:
    if of.default_factory is not MISSING:
        return bool(value == of.default_factory())
    return bool(value == of.default)


def setup_record(
    cluster: Cluster,
    plan: ClusterPlan,
    facts: ClusterFacts,
    paths: Mapping[str, Collection[str]],
) -> SetupRecord:
    """What is to be remembered of a setup.

    `paths` holds the files of setup's steps by node: other files in the cluster's folder may
    change.
    """
    return SetupRecord(
        cluster=cluster.name,
        version=__version__,
        inventory_digest=digest(cluster),
        templates=templates_digest(),
        base=plan.base,
        port=plan.port,
        networks=plan.networks,
        mpirun=plan.mpirun,
        launcher=plan.launcher,
        launcher_env=plan.launcher_env,
        slots=tuple((s.node.name, s.device_id, s.device_ip) for s in plan.placement.slots),
        nodes={node.name: _on_node(node, facts, paths[node.name]) for node in cluster.nodes},
    )


def _on_node(node: Node, facts: ClusterFacts, paths: Collection[str]) -> NodeRecord:
    name = node.name
    installed, sshd_side, answers = (
        facts.installed[name],
        facts.sshd_sides.get(name),
        facts.nodes[name],
    )
    system, engines = value_of(answers.system), value_of(answers.container)
    container = engines.container if engines else None
    if system is None:  # the checks let no such node pass
        raise NodeError(name, "could not remember the setup: as whom ranks run is not known")
    return NodeRecord(
        files=_those(installed, paths),
        sshd=installed.daemon.identity if installed.daemon else "",
        host_files=_those(sshd_side, paths) if sshd_side else {},
        host_sshd=sshd_side.daemon.identity if sshd_side and sshd_side.daemon else "",
        expires=_ends(installed, sshd_side),
        uid=system.uid,
        user=system.user,
        home=system.home,
        engine=container.engine if container else "",
        container=node.container or "",
    )


def _ends(*sides: Installed | None) -> dict[str, float]:
    """When each certificate runs out, of two of one name the first."""
    ends: dict[str, float] = {}
    for installed in sides:
        for path, certificate in installed.certificates.items() if installed else ():
            if certificate.valid_to:
                ends[path] = min(certificate.valid_to, ends.get(path, certificate.valid_to))
    return ends


def _those(installed: Installed, paths: Collection[str]) -> dict[str, OwnFile]:
    return {path: file for path, file in installed.files.items() if path in paths}
