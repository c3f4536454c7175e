"""An inventory that was found right and has not changed since, without reading it once more.

To check every key takes longer than to reach the nodes. What comes of it depends on nothing but
what is in `digest`, as long as no other file is named whose content counts too.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendboot import __version__
from ascendboot.inventory.find import LIMIT
from ascendboot.model.cluster import Cluster, Device, Node, SshAccess

if TYPE_CHECKING:
    from collections.abc import Mapping


def shown(path: Path) -> str:
    """`path` as messages show it: from the working directory where it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def digest(path: Path) -> str | None:
    """Of all that decides which cluster the inventory at `path` describes.

    None where it cannot be read, or not twice (a pipe), and where it is too large to be one.
    """
    try:
        if not path.is_file() or path.stat().st_size > LIMIT:
            return None
        text = path.read_bytes()
    except OSError:
        return None
    who = (__version__, shown(path), os.geteuid(), os.environ.get("HOME"))
    return sha256(repr(who).encode() + text).hexdigest()


def record_of(cluster: Cluster, of: str) -> dict[str, object]:
    """The cluster of the inventory with the digest `of`, to be kept."""
    return {"digest": of, "cluster": asdict(cluster)}


def cluster_of(record: Mapping[str, Any], of: str) -> Cluster | None:
    """The cluster in a record; None where it is another inventory's, or of another form."""
    try:
        return _cluster(record["cluster"]) if record["digest"] == of else None
    except (KeyError, TypeError):
        return None


def _cluster(stated: Mapping[str, Any]) -> Cluster:
    lists = ("mpi_args", "code_exclude")
    return Cluster(
        **{
            **stated,
            **{name: tuple(stated[name]) for name in lists},
            "nodes": tuple(_node(node) for node in stated["nodes"]),
        }
    )


def _node(stated: Mapping[str, Any]) -> Node:
    devices = tuple(Device(**device) for device in stated["devices"])
    return Node(**{**stated, "ssh": SshAccess(**stated["ssh"]), "devices": devices})
