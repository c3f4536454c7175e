"""Reads rank tables of all generations into rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import cut, number
from ascendboot.ranktable.formats import (
    Address,
    Extra,
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
    Version,
)
from ascendboot.ranktable.text import JsonPath, Source, from_text, shown
from ascendboot.ranktable.validate import generation_of, table_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rank of a table."""

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


# A number may be text or not, a list may be empty: `validate` reports what is wrong with a table.
# Only what cannot be understood at all is refused here.

Table: TypeAlias = RankTable | LevelTable | GroupTable

_FIRST = ("device_port", "device_vnic_port", "backup_device_ip", "backup_device_port", "host_port")
"""The order in which known members are written; others follow by name."""


def table_of(source: Source) -> Table:
    """The table in a file.

    Raises:
        RankTableError: it is no rank table, or a part of it cannot be understood.
    """
    document = table_in(source)
    root = _Object(document, ())
    try:
        match generation_of(document):
            case "2.0":
                return _levels(root)
            case "group list":
                return _groups(root)
            case "1.0" | "1.2" as version:
                return _servers(root, version)
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
        ranks = _Object(source.document, ()).objects("rank_list")
        return tuple(_rank(rank, rank_id=0) for rank in ranks)
    except _UnreadableError as error:
        raise RankTableError(f"{source.name}: could not be understood: {error}") from None


class _UnreadableError(Exception):
    def __init__(self, path: JsonPath, problem: str) -> None:
        super().__init__(f"{shown(path)} is {problem}")


class _Object:
    """An object of the document, which knows which of its members were read."""

    def __init__(self, value: object, path: JsonPath) -> None:
        if not isinstance(value, dict):
            raise _UnreadableError(path, "no object")
        self._values: dict[str, object] = value
        self._path = path
        self._read: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        value = self._take(name)
        if not isinstance(value, str):
            raise self._unreadable(name, "no text")
        return value

    def number(self, name: str) -> int:
        value = self._take(name)
        found = number(value) if isinstance(value, str) else value
        if type(found) is not int or found < 0:
            raise self._unreadable(name, "no number")
        return found

    def optional_text(self, name: str) -> str | None:
        """None also for an empty one."""
        return self.text(name) or None if name in self else None

    def items(self, name: str) -> list[object]:
        values = self._take(name) if name in self else []
        self._read.add(name)
        if not isinstance(values, list):
            raise self._unreadable(name, "no list")
        return values

    def objects(self, name: str) -> Iterator[_Object]:
        for index, value in enumerate(self.items(name)):
            yield _Object(value, (*self._path, name, index))

    def rest(self, *known: str) -> Extra:
        """The members that were not read, without those that are known and always the same."""
        read = self._read.union(known)
        if self._values.keys() <= read:
            return ()
        return tuple(sorted(((n, v) for n, v in self._values.items() if n not in read), key=_place))

    def _take(self, name: str) -> object:
        self._read.add(name)
        return self._values.get(name)

    def _unreadable(self, name: str, problem: str) -> _UnreadableError:
        return _UnreadableError((*self._path, name), problem if name in self else "missing")


def _place(member: tuple[str, object]) -> tuple[int, str]:
    name = member[0]
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _servers(root: _Object, version: Version) -> RankTable:
    servers = [_server(server) for server in root.objects("server_list")]
    servers.sort(key=lambda server: min((d.rank_id for d in server.devices), default=0))
    pods = tuple(
        SuperPod(
            pod.text("super_pod_id"),
            tuple(server.text("server_id") for server in pod.objects("server_list")),
            pod.rest(),
        )
        for pod in root.objects("super_pod_list")
    )
    return RankTable(tuple(servers), version, pods, root.rest("status", "version", "server_count"))


def _server(server: _Object) -> Server:
    devices = [
        RankedDevice(
            device.number("device_id"),
            device.optional_text("device_ip"),
            device.number("rank_id"),
            device.number("super_device_id") if "super_device_id" in device else None,
            device.rest(),
        )
        for device in server.objects("device")
    ]
    devices.sort(key=lambda device: device.rank_id)
    return Server(server.text("server_id"), tuple(devices), server.rest())


def _levels(root: _Object) -> LevelTable:
    ranks = [_rank(rank) for rank in root.objects("rank_list")]
    ranks.sort(key=lambda rank: rank.rank_id)
    return LevelTable(tuple(ranks), root.rest("status", "version", "rank_count"))


def _rank(rank: _Object, rank_id: int | None = None) -> LevelRank:
    return LevelRank(
        rank.number("rank_id") if rank_id is None else rank_id,
        rank.number("local_id"),
        rank.number("device_id"),
        tuple(
            NetLevel(
                level.number("net_layer"),
                level.text("net_instance_id"),
                tuple(
                    Address(
                        address.text("addr_type"),
                        address.text("addr"),
                        tuple(map(str, address.items("ports"))),
                        address.rest(),
                    )
                    for address in level.objects("rank_addr_list")
                ),
                level.rest(),
            )
            for level in rank.objects("level_list")
        ),
        rank.rest("rank_id"),
    )


def _groups(root: _Object) -> GroupTable:
    groups = tuple(
        Group(
            group.text("group_name"),
            tuple(_instance(instance) for instance in group.objects("instance_list")),
            group.rest("instance_count", "device_count"),
        )
        for group in root.objects("group_list")
    )
    return GroupTable(groups, root.rest("status", "group_count"))


def _instance(instance: _Object) -> Instance:
    devices = tuple(
        GroupDevice(device.number("device_id"), device.optional_text("device_ip"), device.rest())
        for device in instance.objects("devices")
    )
    return Instance(instance.text("pod_name"), instance.text("server_id"), devices, instance.rest())


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
        found = f'"{cut(version)}"' if isinstance(version, str) else "not stated as text"
        raise RankTableError(f'{name}: version is {found}, and HCCL of 950 reads "{VERSION}" alone')
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
