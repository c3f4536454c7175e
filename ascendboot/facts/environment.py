"""Queries what ranks get on the workload side: device nodes, limits, confinement, single-copy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.query import Fact, Sections, read_script
from ascendboot.model.cluster import Cluster, Node
from ascendboot.templates import script
from ascendboot.transport.api import Result

_SCRIPT = "the script that queries the environment of ranks"

MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
"""Device nodes that every NPU needs besides its own."""
MOST_SHOWN = 200

_DEVICE = re.compile(r"davinci([0-9]{1,3})")
_IDS = re.compile(r"(?:npu-)?(?:Ascend910-)?([0-9]{1,3})(?:-([0-9]{1,3}))?")
_LIMIT = re.compile(r"[0-9]{1,20}")

SINGLE_COPY = script("single-copy.py")
SURROUNDINGS = script("facts-environment.sh")
CONFINEMENT = script("facts-confinement.sh")


@dataclass(frozen=True, kw_only=True)
class NodeEnvironment:
    """The environment of the ranks of a node."""

    single_copy: str = ""
    """Why a rank cannot copy from the memory of another; empty: it can, or this is unknown."""
    device_nodes: frozenset[str] = frozenset()
    """Names of the NPU device nodes in /dev."""
    visible: str | None = None
    """ASCEND_VISIBLE_DEVICES of the first process, for a container's runtime; None: unset."""
    memlock_kib: int | None = None
    """How much memory a process may lock; None: unlimited."""
    label: str = ""
    """The SELinux or AppArmor label of the process; empty without either."""

    @property
    def device_ids(self) -> tuple[int, ...]:
        """The physical ids of the devices that have a device node."""
        matches = map(_DEVICE.fullmatch, self.device_nodes)
        return tuple(sorted(int(match[1]) for match in matches if match))


@dataclass(frozen=True)
class Confinement:
    """State of SELinux and AppArmor on the host side."""

    enforcing: bool = False
    """Whether SELinux enforces its policy."""
    denials: tuple[str, ...] = ()
    """The last kernel messages about denials, if our user may read them."""


def environment_query(cluster: Cluster, node: Node) -> dict[str, Fact[NodeEnvironment]]:
    """The query for the workload side, by the name of its fact."""
    tries = cluster.launcher != "torchrun"
    return _query(node, *((cluster.python, SINGLE_COPY) if tries else ("", "")))


def device_node_query(node: Node) -> dict[str, Fact[NodeEnvironment]]:
    """The same before a job: only containers hide devices, so other nodes need no query."""
    return _query(node, "", "") if node.container else {}


def _query(node: Node, *words: str) -> dict[str, Fact[NodeEnvironment]]:
    place = f" in the container {node.container}" if node.container else ""
    purpose = "query the environment of ranks"
    command = read_script(SURROUNDINGS, *words, purpose=purpose, timeout_s=30.0)
    purpose = f"read the devices and limits of ranks{place}"
    return {"surroundings": Fact(command, _surroundings, purpose)}


def _surroundings(result: Result) -> NodeEnvironment:
    sections = Sections(result, _SCRIPT)
    single = sections.text("single_copy").strip()
    memlock = sections.text("memlock").strip()
    visible = sections.text("visible").strip()
    if memlock != "unlimited" and not _LIMIT.fullmatch(memlock):
        raise NotUnderstoodError(_SCRIPT, 1, memlock, "a number of KiB or unlimited")
    refused = single.removeprefix("refused ")[:MOST_SHOWN] if single.startswith("refused ") else ""
    return NodeEnvironment(
        single_copy=refused,
        device_nodes=frozenset(sections.text("device_nodes").split()),
        visible=visible.partition("=")[2] if visible else None,
        memlock_kib=None if memlock == "unlimited" else int(memlock),
        label=sections.text("label").strip()[:MOST_SHOWN],
    )


def confinement_query(node: Node) -> dict[str, Fact[Confinement]]:
    """The query for the host side of a node with a container."""
    if node.container is None:
        return {}
    purpose = "read what SELinux and AppArmor refused"
    command = read_script(CONFINEMENT, purpose=purpose, timeout_s=20.0)
    return {"confinement": Fact(command, _confinement)}


def _confinement(result: Result) -> Confinement:
    sections = Sections(result, _SCRIPT)
    denials = sections.text("denials").split("\n")
    enforcing = sections.text("enforcing").strip() == "1"
    return Confinement(enforcing, tuple(line for line in denials if line.strip()))


def granted_devices(visible: str) -> tuple[int, ...]:
    """The physical ids in a value of ASCEND_VISIBLE_DEVICES, as ascend-docker-runtime reads it.

    Raises:
        NotUnderstoodError: it has another form.
    """
    if visible in ("", "void"):
        return ()
    ids: set[int] = set()
    for word in (part.strip() for part in visible.split(",")):
        match = _IDS.fullmatch(word)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise NotUnderstoodError("ASCEND_VISIBLE_DEVICES", 1, visible, "ids and ranges of ids")
        ids.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(ids))
