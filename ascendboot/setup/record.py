"""The record of what setup has applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from msgspec import NODEFAULT

from ascendboot import __version__
from ascendboot.errors import AscendbootError
from ascendboot.facts.installed import Installed
from ascendboot.model.cluster import (
    TABLES,
    Cluster,
    DeviceOfNode,
    LauncherChoice,
    Node,
    Placement,
    SshAccess,
)
from ascendboot.model.files import OwnFile
from ascendboot.model.names import fold
from ascendboot.model.topology import Leaf
from ascendboot.templates import digest as templates_digest
from ascendboot.value import Struct, Value, as_json, field, fields, from_json, replace

_OF_NO_SETUP = ("source", "log_limit", "loss_form", "data")
"""What a job reads in the inventory itself: nothing that setup installs depends on it."""
_fields = cache(fields)


ELSEWHERE = "another control folder has set up the cluster since"


class NodeRecord(Value, kw_only=True):
    """What must still be on one node: files by path, and the cluster's sshd by its identity."""

    files: Mapping[str, OwnFile]
    sshd: str
    """Empty where none runs, or it runs on the host side and ranks do not."""
    uid: int
    user: str
    home: str
    engine: str = ""
    """The program on the host side that reaches into the container; empty without one."""
    container: str = ""
    """Its name; empty without one."""
    host_files: Mapping[str, OwnFile] = field(default_factory=dict)
    """What must still be on the host side, if the cluster's sshd runs there and ranks do not."""
    host_sshd: str = ""
    expires: Mapping[str, float] = field(default_factory=dict)
    """When each certificate on either side expires."""

    @property
    def rank_table(self) -> str:
        """The path of the rank table; empty without one."""
        return next((path for path in self.files if path.startswith(f"resources/{TABLES}")), "")

    def problems(
        self, installed: Installed, host: Installed | None = None, *, now: float
    ) -> tuple[str, ...]:
        """What is no longer as setup left it, or has expired at the time `now`."""
        problems = [] if host is None else _problems(self.host_files, self.host_sshd, host)
        problems += [f"{path} has expired" for path, end in self.expires.items() if end < now]
        if self.engine and not installed.files:
            return ("nothing that setup left is in the container: it is a new one", *problems)
        return (*_problems(self.files, self.sshd, installed), *problems)


def _problems(files: Mapping[str, OwnFile], sshd: str, installed: Installed) -> list[str]:
    """`sshd` is empty where none has to run."""
    own, there = files.get("owner"), installed.files.get("owner")
    if own and there and own.sha256 != there.sha256:
        return [ELSEWHERE]
    problems = [
        f"{path} has changed" if path in installed.files else f"{path} is missing"
        for path, file in files.items()
        if installed.files.get(path) != file
    ]
    if sshd and installed.daemon is None:
        problems.append("the cluster's sshd does not run")
    elif sshd and installed.daemon and installed.daemon.identity != sshd:
        problems.append("the cluster's sshd runs with another configuration")
    return problems


class SetupRecord(Value, kw_only=True):
    """The result of one successful setup."""

    cluster: str
    version: str
    """Of the ascendboot that applied it."""
    inventory_digest: str
    templates: str
    """The digest of those from which the files on the nodes were made."""
    base: PurePosixPath
    port: int
    networks: tuple[str, ...]
    mpirun: str
    launcher: LauncherChoice
    launcher_env: Mapping[str, str] = field(default_factory=dict)
    slots: tuple[DeviceOfNode, ...]
    """The devices of the job, in rank order."""
    nodes: Mapping[str, NodeRecord]
    crosses_pods: bool = False
    """Whether the devices are in several super pods (A3)."""
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    """The leaf switches that LLDP showed, by node."""

    def why_outdated(self, cluster: Cluster) -> str | None:
        """Why the record does not match the inventory, and what to do; None where it does."""
        if self.inventory_digest == digest(cluster):
            if self.templates == templates_digest():
                return None
            return (
                "the cluster was set up by another version of ascendboot, which wrote other files "
                "on the nodes; run setup again"
            )
        if lacking := [node.name for node in cluster.nodes if node.name not in self.nodes]:
            return (
                f"{fold(lacking)} of the inventory is not set up, or was removed; "
                "take it out of the inventory, or run setup"
            )
        if self.version == __version__:
            return "the inventory has changed since the cluster was set up; run setup again"
        return (
            f"ascendboot {self.version} set the cluster up; {__version__}, which runs now, reads "
            "the inventory differently, or the inventory has changed since; run setup again"
        )

    def in_former_containers(self, cluster: Cluster) -> dict[str, Node]:
        """The nodes, as before, whose ranks ran in another container, or on the server."""
        names = {name: node.container or None for name, node in self.nodes.items()}
        return {
            node.name: replace(node, container=names[node.name])
            for node in cluster.nodes
            if names.get(node.name, node.container) != node.container
        }

    def placement(self, cluster: Cluster) -> Placement:
        """The ranks in their order."""
        return Placement.on(cluster, self.slots)

    def part_of(self, cluster: Cluster, names: Sequence[str]) -> tuple[Cluster, SetupRecord]:
        """Some nodes as a cluster of their own, in the order of their ranks."""
        nodes = tuple(cluster.node(name) for name in names)
        part = replace(cluster, nodes=nodes, primary_name=nodes[0].name)
        ordered = [node.name for node in (nodes if cluster.own_table else part.rank_order)]
        slots = tuple(slot for name in ordered for slot in self.slots if slot[0] == name)
        nodes_of_part = {name: self.nodes[name] for name in ordered}
        return part, replace(self, slots=slots, nodes=nodes_of_part)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SetupRecord:
        """The record in a document of `as_json`.

        Raises:
            AscendbootError: the document has another form, written by another version.
        """
        try:
            return from_json(document, SetupRecord)
        except ValueError as error:
            why = f"what the last setup left cannot be read ({error}); run setup again"
            raise AscendbootError(why) from error


def digest(part: Cluster | Node) -> str:
    """The digest of the inventory's meaning, or of a node's, independent of its form and path."""
    stated = {key: value for key, value in _stated(part).items() if key not in _OF_NO_SETUP}
    return sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()


def _stated(value: Any) -> Any:  # noqa: ANN401 (any value of a model)
    """Without what has its default: a key that a later version adds changes nothing then."""
    if isinstance(value, SshAccess):  # by which keys a login works does not matter
        return [value.user, value.port, *([value.sudo] if value.sudo != "none" else ())]
    if isinstance(value, Struct):
        stated = {}
        for each in _fields(type(value)):
            found, factory = getattr(value, each.name), each.default_factory
            if found != (each.default if factory is NODEFAULT else factory()):
                stated[each.name] = _stated(found)
        return stated
    if isinstance(value, frozenset):
        return sorted(value)
    return [_stated(item) for item in value] if isinstance(value, tuple) else value


_REACH = ("address", "cluster_address", "server_id", "container", "engine", "ssh")


def reach_of(node: Node) -> dict[str, object]:
    """What it takes to reach a node once the inventory does not name it any more."""
    return {name: as_json(getattr(node, name)) for name in _REACH}


def node_of(name: str, reach: Mapping[str, Any]) -> Node:
    """The node of a record of `reach_of`.

    Raises:
        AscendbootError: the record has another form.
    """
    try:
        return from_json({"name": name, **reach}, Node)
    except ValueError as error:
        raise AscendbootError(
            f"how {name} was reached cannot be read ({error}); put the node back into the "
            "inventory and run setup, or remove nodes.json from the folder of the cluster"
        ) from error
