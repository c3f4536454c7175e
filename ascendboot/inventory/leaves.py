"""Leaf switches from files of other systems, for nodes that state none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, Field, ValidationError

from ascendboot.errors import RankTableError
from ascendboot.inventory.yaml import described
from ascendboot.model.cluster import Node
from ascendboot.model.names import expand_list
from ascendboot.model.topology import Leaf
from ascendboot.ranktable import text as documents
from ascendboot.ranktable.configmap import unpacked
from ascendboot.value import replace

_SWITCH = re.compile(r"^\s*SwitchName\s*=", re.IGNORECASE | re.MULTILINE)
_SETTING = re.compile(r"([A-Za-z]+)\s*=\s*(\S+)")
_KNOWN = {"switchname", "nodes", "switches", "linkspeed"}
_FORMS = "basic-tor-node-cm, ranktable_tor.json or Slurm's topology.conf"


class _Server(BaseModel):
    server_ip: str
    slice_id: int = 0


class _Tor(BaseModel):
    """A leaf of the ConfigMap `basic-tor-node-cm` of MindCluster."""

    tor_id: int | str
    tor_ip: str = ""
    server: list[_Server]


class _TorDevice(BaseModel):
    device_id: int
    tor_ip: str = ""


class _Ranks(BaseModel):
    """A server of `ranktable_tor.json`, which Huawei Cloud's Volcano writes."""

    server_id: str
    device: list[_TorDevice]


class _Document(BaseModel):
    status: str = "completed"
    server_list: list[_Tor | _Ranks] = Field(min_length=1)


def with_leaves(nodes: Sequence[Node], file: str) -> tuple[Node, ...]:
    """The nodes with leaves from a file, by server id, address or name; stated leaves stay.

    RankTableError or ValueError: the file cannot be read, or has none of the nodes, or one twice.
    """
    leaves: dict[str, tuple[Leaf, int]] = {}
    for key, leaf, slice_id in _leaves_in(file, documents.text_of(file)):
        if key in leaves:
            raise ValueError(f"{file}: {described(key)} is on two leaf switches; correct the file")
        leaves[key] = leaf, slice_id
    found: list[Node] = []
    matched = 0
    for node in nodes:
        keys = (node.server_id, node.cluster_address, node.address, node.name)
        imported = next((leaves[key] for key in keys if key in leaves), None)
        matched += imported is not None
        if imported and node.leaf is None:
            node = replace(node, leaf=imported[0], slice_id=imported[1])  # noqa: PLW2901
        found.append(node)
    if not matched:
        named = ", ".join(list(leaves)[:3])
        raise ValueError(f"{file}: names none of the nodes, but {named}; name another file")
    return tuple(found)


def _leaves_in(file: str, text: str) -> Iterator[tuple[str, Leaf, int]]:
    """Names or addresses of servers, each with its leaf and its slice; 0: no slice."""
    if _SWITCH.search(text):
        yield from ((name, leaf, 0) for name, leaf in _of_slurm(file, text))
        return
    if not text.lstrip().startswith("{"):
        try:
            text = unpacked(file, text)
        except RankTableError as error:
            words = f"{file}: not {_FORMS}; JSON may be packed by gzip and base64"
            raise ValueError(words) from error
    try:
        found = _Document.model_validate(documents.from_text(file, text).document)
    except ValidationError as error:
        where = documents.shown(tuple(error.errors()[0]["loc"]))
        raise ValueError(f"{file}: {where}: not as in {_FORMS}; name such a file") from None
    if found.status != "completed":
        status = described(found.status)
        raise ValueError(f"{file}: its status is {status}, not completed; copy it again")
    for entry in found.server_list:
        if isinstance(entry, _Tor):
            leaf = entry.tor_ip or f"tor-{entry.tor_id}"
            yield from ((each.server_ip, leaf, each.slice_id) for each in entry.server)
        elif devices := tuple(sorted((d.device_id, d.tor_ip) for d in entry.device if d.tor_ip)):
            yield entry.server_id, devices, 0


def _of_slurm(file: str, text: str) -> Iterator[tuple[str, Leaf]]:
    """The nodes of each switch of a `topology.conf`; switches of switches are no leaves."""
    joined = text.replace("\\\r\n", " ").replace("\\\n", " ")
    for line in joined.splitlines():
        words = line.partition("#")[0]
        settings = {name.lower(): value for name, value in _SETTING.findall(words)}
        if _SETTING.sub("", words).strip() or settings.keys() - _KNOWN:
            raise ValueError(f"{file}: {described(line.strip())} is not understood; {_EXPECTED}")
        if not settings:
            continue
        if "switchname" not in settings:
            raise ValueError(f"{file}: {described(line.strip())} names no switch; {_EXPECTED}")
        try:
            names = expand_list(settings.get("nodes", ""))
        except ValueError as error:
            raise ValueError(f"{file}: {described(line.strip())}: {error}; {_EXPECTED}") from None
        yield from ((name, settings["switchname"]) for name in names)


_EXPECTED = "expected SwitchName=NAME with Nodes=NAMES or Switches=NAMES"
