"""Reads rank tables of all generations into rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import cut, number
from ascendboot.ranktable.formats import (
    Address,
    Group,
    GroupDevice,
    GroupTable,
    Instance,
    LevelRank,
    LevelTable,
    NetLevel,
    RankedDevice,
    RankTable,
    Server,
    SuperPod,
)
from ascendboot.ranktable.text import JsonPath, from_text, shown
from ascendboot.ranktable.validate import generation_of, table_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.ranktable.formats import Extra, Version
    from ascendboot.ranktable.text import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rank and what the table says of it."""

    rank: int
    server: str
    """Its server; in version 2.0 its net instance of the lowest layer."""
    device_id: int
    addresses: tuple[str, ...] = ()
    super_pod: str = ""
    super_device_id: int | None = None
    local_id: int | None = None
    extra: Extra = ()


def rows_of(table: Table) -> tuple[Row, ...]:
    """All ranks in their order."""
    if isinstance(table, LevelTable):
        rows = _of_levels(table)
    elif isinstance(table, GroupTable):
        rows = _of_groups(table)
    else:
        rows = _of_servers(table)
    return tuple(sorted(rows, key=lambda row: row.rank))


def _of_servers(table: RankTable) -> Iterator[Row]:
    pods = {name: pod.super_pod_id for pod in table.super_pods for name in pod.server_ids}
    for server in table.servers:
        for device in server.devices:
            yield Row(
                rank=device.rank_id,
                server=server.server_id,
                device_id=device.device_id,
                addresses=tuple(device.device_ip.split(",")) if device.device_ip else (),
                super_pod=pods.get(server.server_id, ""),
                super_device_id=device.super_device_id,
                extra=device.extra,
            )


def _of_levels(table: LevelTable) -> Iterator[Row]:
    for rank in table.ranks:
        yield Row(
            rank=rank.rank_id,
            server=rank.levels[0].net_instance_id if rank.levels else "",
            device_id=rank.device_id,
            addresses=tuple(
                f"{level.net_layer}:{address.addr}"
                for level in rank.levels
                for address in level.addresses
            ),
            local_id=rank.local_id,
            extra=rank.extra,
        )


def _of_groups(table: GroupTable) -> Iterator[Row]:
    """HCCL sorts by server id as text, and within a server by device id."""
    devices = sorted(
        (instance.server_id, device.device_id, device.device_ip or "", instance.pod_name)
        for group in table.groups
        for instance in group.instances
        for device in instance.devices
    )
    for rank, (server, device_id, address, pod_name) in enumerate(devices):
        addresses = (address,) if address else ()
        extra = (("pod_name", pod_name),)
        yield Row(rank=rank, server=server, device_id=device_id, addresses=addresses, extra=extra)


# A number may be text or not, a list may have nothing in it: what is wrong with a table is
# `validate`'s to say. What cannot be understood at all is refused.

Table: TypeAlias = RankTable | LevelTable | GroupTable

_FIRST = ("device_port", "device_vnic_port", "backup_device_ip", "backup_device_port", "host_port")
"""The order in which known members are written; others follow by name."""


def table_of(source: Source) -> Table:
    """The table in a file.

    Raises:
        RankTableError: it is no rank table, or a part of it cannot be understood.
    """
    document = table_in(source)
    try:
        match generation_of(document):
            case "2.0":
                return _levels(document)
            case "group list":
                return _groups(document)
            case "1.0" | "1.2" as version:
                return _servers(document, version)
    except _UnreadableError as error:
        raise RankTableError(
            f"{source.name}: could not be understood: {error}; "
            f"ranktable.validate {source.name} names everything that is wrong"
        ) from None


def unnumbered_ranks(source: Source) -> tuple[LevelRank, ...]:
    """The entries of a `rank_list` that states no ranks; all get 0.

    Raises:
        RankTableError: a part cannot be understood.
    """
    try:
        document = _object(source.document, ())
        entries = _items(document, "rank_list", ())
        return tuple(_rank({**_object(v, path), "rank_id": 0}, path) for v, path in entries)
    except _UnreadableError as error:
        raise RankTableError(f"{source.name}: could not be understood: {error}") from None


class _UnreadableError(Exception):
    def __init__(self, path: JsonPath, problem: str) -> None:
        super().__init__(f"{shown(path)} is {problem}")


def _servers(document: Mapping[str, object], version: Version) -> RankTable:
    servers = tuple(_server(value, path) for value, path in _items(document, "server_list", ()))
    pods = tuple(_pod(value, path) for value, path in _items(document, "super_pod_list", ()))
    known = {"status", "version", "server_count", "server_list", "super_pod_list"}
    ranked = sorted(servers, key=lambda s: min((d.rank_id for d in s.devices), default=0))
    return RankTable(tuple(ranked), version, pods, _rest(document, known))


def _server(value: object, path: JsonPath) -> Server:
    members = _object(value, path)
    devices = [_device(device, where) for device, where in _items(members, "device", path)]
    devices.sort(key=lambda device: device.rank_id)
    name = _text(members, "server_id", path)
    return Server(name, tuple(devices), _rest(members, {"server_id", "device"}))


_DEVICE = {"device_id", "device_ip", "rank_id", "super_device_id"}


def _device(value: object, path: JsonPath) -> RankedDevice:
    members = _object(value, path)
    place = _number(members, "super_device_id", path) if "super_device_id" in members else None
    return RankedDevice(
        _number(members, "device_id", path),
        _address_text(members, path),
        _number(members, "rank_id", path),
        place,
        _rest(members, _DEVICE),
    )


def _pod(value: object, path: JsonPath) -> SuperPod:
    members = _object(value, path)
    names = tuple(
        _text(_object(server, where), "server_id", where)
        for server, where in _items(members, "server_list", path)
    )
    rest = _rest(members, {"super_pod_id", "server_list"})
    return SuperPod(_text(members, "super_pod_id", path), names, rest)


def _levels(document: Mapping[str, object]) -> LevelTable:
    ranks = [_rank(value, path) for value, path in _items(document, "rank_list", ())]
    ranks.sort(key=lambda rank: rank.rank_id)
    known = {"status", "version", "rank_count", "rank_list"}
    return LevelTable(tuple(ranks), _rest(document, known))


def _rank(value: object, path: JsonPath) -> LevelRank:
    members = _object(value, path)
    return LevelRank(
        _number(members, "rank_id", path),
        _number(members, "local_id", path),
        _number(members, "device_id", path),
        tuple(_level(level, where) for level, where in _items(members, "level_list", path)),
        _rest(members, {"rank_id", "local_id", "device_id", "level_list"}),
    )


def _level(value: object, path: JsonPath) -> NetLevel:
    members = _object(value, path)
    return NetLevel(
        _number(members, "net_layer", path),
        _text(members, "net_instance_id", path),
        tuple(_address(item, where) for item, where in _items(members, "rank_addr_list", path)),
        _rest(members, {"net_layer", "net_instance_id", "rank_addr_list"}),
    )


def _address(value: object, path: JsonPath) -> Address:
    members = _object(value, path)
    return Address(
        _text(members, "addr_type", path),
        _text(members, "addr", path),
        tuple(str(port) for port, _ in _items(members, "ports", path)),
        _rest(members, {"addr_type", "addr", "ports"}),
    )


def _groups(document: Mapping[str, object]) -> GroupTable:
    groups = tuple(_group(value, path) for value, path in _items(document, "group_list", ()))
    return GroupTable(groups, _rest(document, {"status", "group_count", "group_list"}))


def _group(value: object, path: JsonPath) -> Group:
    members = _object(value, path)
    known = {"group_name", "instance_count", "device_count", "instance_list"}
    return Group(
        _text(members, "group_name", path),
        tuple(_instance(item, where) for item, where in _items(members, "instance_list", path)),
        _rest(members, known),
    )


def _instance(value: object, path: JsonPath) -> Instance:
    members = _object(value, path)
    devices = tuple(
        GroupDevice(
            _number(_object(device, where), "device_id", where),
            _address_text(_object(device, where), where),
            _rest(_object(device, where), {"device_id", "device_ip"}),
        )
        for device, where in _items(members, "devices", path)
    )
    return Instance(
        _text(members, "pod_name", path),
        _text(members, "server_id", path),
        devices,
        _rest(members, {"pod_name", "server_id", "devices"}),
    )


def _items(
    members: Mapping[str, object], name: str, path: JsonPath
) -> Iterator[tuple[object, JsonPath]]:
    values = members.get(name, [])
    if not isinstance(values, list):
        raise _UnreadableError((*path, name), "no list")
    for index, value in enumerate(values):
        yield value, (*path, name, index)


def _object(value: object, path: JsonPath) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _UnreadableError(path, "no object")
    return value


def _text(members: Mapping[str, object], name: str, path: JsonPath) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise _UnreadableError((*path, name), "missing" if name not in members else "no text")
    return value


def _number(members: Mapping[str, object], name: str, path: JsonPath) -> int:
    value = members.get(name)
    found = number(value) if isinstance(value, str) else value
    if type(found) is not int or found < 0:
        raise _UnreadableError((*path, name), "missing" if name not in members else "no number")
    return found


def _address_text(members: Mapping[str, object], path: JsonPath) -> str | None:
    return _text(members, "device_ip", path) or None if "device_ip" in members else None


def _rest(members: Mapping[str, object], known: set[str]) -> Extra:
    if members.keys() <= known:
        return ()
    return tuple(sorted(((n, v) for n, v in members.items() if n not in known), key=_written))


def _written(member: tuple[str, object]) -> tuple[int, str]:
    name = member[0]
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


# HCCL itself reads it where ranks find each other without a rank table, and takes the topology
# file from it where there is one (hcomm `rank_info_detect_client.cc`, `communicator_impl.cc`): a
# rank table's entries without `rank_id`.

VERSION = "2.0"


def device_places(text: str, name: str) -> Mapping[int, LevelRank]:
    """The entry of each device, by physical id; all have the rank 0.

    Raises:
        RankTableError: HCCL would not take the file, or a part of it cannot be understood.
    """
    source = from_text(name, text)
    document = source.document if isinstance(source.document, dict) else {}
    version = document.get("version")
    if version != VERSION:
        said = f'"{cut(version)}"' if isinstance(version, str) else "not stated as text"
        raise RankTableError(f'{name}: version is {said}, and HCCL of 950 reads "{VERSION}" alone')
    if not isinstance(document.get("topo_file_path"), str):
        raise RankTableError(f"{name}: topo_file_path is missing, which HCCL of 950 wants")
    ranks = unnumbered_ranks(source)
    if document.get("rank_count") != len(ranks):
        raise RankTableError(
            f"{name}: rank_count is {document.get('rank_count')}, and rank_list has {len(ranks)}"
        )
    places = {rank.device_id: rank for rank in ranks}
    if len(places) != len(ranks):
        raise RankTableError(f"{name}: a device_id is there twice")
    return places
