"""An inventory that was found right and has not changed since, without reading it once more.

To check every key takes longer than to reach the nodes. What comes of it depends on nothing but
what is in `digest`, as long as no other file is named whose content counts too.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ascendboot
from ascendboot import __version__
from ascendboot.inventory.find import LIMIT
from ascendboot.model.cluster import Cluster, Device, Node, SshAccess

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOMS = ("", "inventory", "hccl", "model")
"""What decides which cluster an inventory describes, but for tables that it names."""


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
        text, readers = path.read_bytes(), _readers()
    except OSError:
        return None
    who = (__version__, readers, shown(path), os.geteuid(), os.environ.get("HOME"))
    return sha256(repr(who).encode() + text).hexdigest()


def record_of(cluster: Cluster, of: str) -> dict[str, object]:
    """The cluster of the inventory with the digest `of`, to be kept."""
    text = json.dumps(asdict(cluster))
    return {"digest": _seal(of, text), "cluster": text}


def cluster_of(record: Mapping[str, Any], of: str) -> Cluster | None:
    """The cluster in a record; None where it is another inventory's, or damaged."""
    text = record.get("cluster")
    if not isinstance(text, str) or record.get("digest") != _seal(of, text):
        return None
    return _cluster(json.loads(text))


def _readers() -> list[tuple[str, int, int]]:
    """What reads inventories, file by file: in a clone it changes, and the version does not."""
    found = []
    for room in _ROOMS:
        with os.scandir(Path(*ascendboot.__path__, room)) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    of = entry.stat()
                    found.append((f"{room}/{entry.name}", of.st_size, of.st_mtime_ns))
    return sorted(found)


def _seal(of: str, text: str) -> str:
    """Holds together what was read and what it was read from: what matches it was written here."""
    return sha256(f"{of} {text}".encode(errors="surrogatepass")).hexdigest()


def _cluster(stated: Mapping[str, Any]) -> Cluster:
    lists = ("mpi_args", "code_exclude", "data", "secret_env")
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
