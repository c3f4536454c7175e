"""The files that a lab leaves in the operator's working directory, and takes back."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from ascendboot.lab import containers
from ascendboot.model.certificate import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.lab.records import Record
    from ascendboot.lab.shape import Shape

CLUSTER = "lab"
_FOLDER = Path(".ascendboot")
INVENTORY = _FOLDER / "lab.yaml"
_IDENTITY = _FOLDER / "lab/id_ed25519"
_KNOWN_HOSTS = _FOLDER / "clusters" / CLUSTER / "known_hosts"
_HEAD = """\
# The practice cluster that runs on this machine. Written by lab.up, removed by lab.down.
"""


@dataclass(frozen=True)
class Handover:
    """The operator's copies: inventory, private key, known host keys."""

    directory: Path
    uid: int
    gid: int

    @classmethod
    def of(cls, record: Record) -> Handover:
        """The files of this lab."""
        return cls(record.directory, record.uid, record.gid)

    @property
    def inventory(self) -> Path:
        """The inventory of what runs."""
        return self.directory / INVENTORY

    @property
    def identity(self) -> Path:
        """The private key that every node lets in."""
        return self.directory / _IDENTITY

    @property
    def known_hosts(self) -> Path:
        """The host keys of all nodes."""
        return self.directory / _KNOWN_HOSTS

    def write(self, shape: Shape, private_key: str, host_keys: Mapping[str, Sequence[str]]) -> None:
        """Write all three, owned by the operator; `host_keys` by node, preferred first."""
        self._put(self.identity, private_key, mode=0o600)
        self._put(self.known_hosts, known_hosts_text(shape, host_keys))
        self._put(self.inventory, inventory_text(shape, self.identity, host_keys))

    def remove(self) -> None:
        """Remove all three, and the folders that are empty then."""
        for path in (self.inventory, self.identity, self.known_hosts):
            path.unlink(missing_ok=True)
        folders = (self.identity.parent, self.known_hosts.parent, self.known_hosts.parent.parent)
        for folder in (*folders, self.directory / _FOLDER):
            with suppress(OSError):
                folder.rmdir()

    def _put(self, path: Path, text: str, *, mode: int = 0o644) -> None:
        missing = [p for p in path.parents if not p.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o755)
            os.chown(folder, self.uid, self.gid)
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        beside.chmod(mode)
        os.chown(beside, self.uid, self.gid)
        beside.replace(path)


def inventory_text(shape: Shape, identity: Path, host_keys: Mapping[str, Sequence[str]]) -> str:
    """The inventory of a lab whose nodes have these host keys."""
    nodes = {
        node.name: {
            "address": str(node.address),
            "fingerprint": fingerprint(host_keys[node.name][0]),
        }
        for node in shape.nodes
    }
    defaults = {"user": "root", "identity": str(identity), "devices": shape.device_count}
    if shape.containers:
        defaults["container"] = containers.NAME
    wish = {
        "cluster": CLUSTER,
        "nodes": nodes,
        "defaults": defaults,
        "code": {"path": "/workspace/little_demo"},
        # Open MPI polls: without this, 16 ranks on two processors take minutes.
        "env": {"OMPI_MCA_mpi_yield_when_idle": 1},
    }
    return _HEAD + yaml.safe_dump(wish, sort_keys=False, width=1000)


def known_hosts_text(shape: Shape, host_keys: Mapping[str, Sequence[str]]) -> str:
    """The host keys in the format of OpenSSH's known_hosts, by address."""
    lines = (f"{node.address} {key}\n" for node in shape.nodes for key in host_keys[node.name])
    return "".join(lines)
