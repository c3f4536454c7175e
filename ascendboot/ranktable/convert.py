"""Converts, compares and shows rank tables."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable.formats import (
    Extra,
    Group,
    GroupDevice,
    GroupTable,
    Instance,
    LevelTable,
    RankedDevice,
    RankTable,
    Server,
    SuperPod,
)
from ascendboot.ranktable.read import Row, Table, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.ranktable.validate import Generation

_CALLED = {"addresses": "device_ip", "server": "server_id", "super_pod": "super_pod_id"}
"""The members of files, by the attribute of a row."""


@dataclass(frozen=True)
class Difference:
    """One thing in which two tables differ; None stands for what one of them does not have."""

    where: str
    """A rank, a server, or the table."""
    what: str
    first: str | None
    second: str | None

    @property
    def text(self) -> str:
        """As one line: `rank 3: device_ip: 192.0.2.3 -> 192.0.2.4`."""
        first, second = (("nothing" if v is None else v) for v in (self.first, self.second))
        return f"{self.where}: {self.what}: {first} -> {second}"


def differences(first: Table, second: Table) -> tuple[Difference, ...]:
    """Everything in which the two differ, rank by rank; empty where they mean the same."""
    return (*_table(first, second), *_ranks(first, second), *_servers(first, second))


def version_of(table: Table) -> str:
    """The generation of a table, in words."""
    if isinstance(table, GroupTable):
        return "group list"
    return "2.0" if isinstance(table, LevelTable) else table.version


def _table(first: Table, second: Table) -> Iterator[Difference]:
    if version_of(first) != version_of(second):
        yield Difference("table", "version", version_of(first), version_of(second))
    if first.world_size != second.world_size:
        yield Difference("table", "ranks", str(first.world_size), str(second.world_size))
    yield from _members("table", first.extra, second.extra)


def _ranks(first: Table, second: Table) -> Iterator[Difference]:
    ones = {row.rank: row for row in rows_of(first)}
    others = {row.rank: row for row in rows_of(second)}
    for rank in sorted({*ones, *others}):
        one, other = ones.get(rank), others.get(rank)
        if one is None or other is None:
            yield Difference(f"rank {rank}", "device", _place(one), _place(other))
        elif one != other:
            yield from _row(one, other)


def _row(one: Row, other: Row) -> Iterator[Difference]:
    for name in (field.name for field in fields(Row) if field.name != "extra"):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            texts = [_text(value) for value in values]
            what = _CALLED.get(name, name)
            yield Difference(f"rank {one.rank}", what, texts[0], texts[1])
    yield from _members(f"rank {one.rank}", one.extra, other.extra)


def _servers(first: Table, second: Table) -> Iterator[Difference]:
    ones, others = (_extras(table) for table in (first, second))
    for name in sorted(ones.keys() & others.keys()):
        yield from _members(name, ones[name], others[name])


def _extras(table: Table) -> dict[str, Extra]:
    """The other members of servers, super pods and instances, by name."""
    if isinstance(table, LevelTable):
        return {
            f"rank {rank.rank_id} layer {level.net_layer}": (
                ("net_instance_id", level.net_instance_id),
                *level.extra,
                *(
                    (address.addr, (address.addr_type, address.ports, *address.extra))
                    for address in level.addresses
                ),
            )
            for rank in table.ranks
            for level in rank.levels
        }
    if isinstance(table, GroupTable):
        return {
            f"instance {instance.pod_name}": instance.extra
            for group in table.groups
            for instance in group.instances
        }
    servers = {f"server {server.server_id}": server.extra for server in table.servers}
    return servers | {f"super pod {pod.super_pod_id}": pod.extra for pod in table.super_pods}


def _members(where: str, first: Extra, second: Extra) -> Iterator[Difference]:
    one, other = dict(first), dict(second)
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            yield Difference(where, name, _text(one.get(name)), _text(other.get(name)))


def _place(row: Row | None) -> str | None:
    return None if row is None else f"{row.server} device {row.device_id}"


def _text(value: object) -> str | None:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or None
    return None if value is None or value == "" else str(value)


# Where a table lacks what the other generation needs, the error names what is missing.

Order: TypeAlias = Literal["given", "server-id"]
ORDERS: tuple[Order, ...] = ("given", "server-id")

_NEEDS_LEVELS = (
    "local_id and, for each net_layer, net_instance_id and rank_addr_list with the ports of each "
    "address; only the servers of 950 tell them: ranktable.write"
)
_HOST = re.compile(
    r"(?P<host>[^\s#=]+)(?:\s+slots\s*=\s*(?P<slots>[0-9]{1,9}))?(?P<rest>[^#]*)(#.*)?"
)
_SLOTS = re.compile(r"^[\w.:-]+\s+slots\s*=\s*[0-9]", re.MULTILINE)


@dataclass(frozen=True)
class Converted:
    """A table, and what of the other one it has no room for."""

    table: Table
    left_out: tuple[str, ...] = ()


def convert(table: Table, generation: Generation) -> Converted:
    """The same ranks in another generation.

    Raises:
        RankTableError: it lacks what the other generation must say.
    """
    own = version_of(table)
    if own == generation:
        return Converted(table)
    if isinstance(table, LevelTable):
        raise _lacks(own, generation, "server_id and device_ip of each device")
    if generation == "2.0":
        raise _lacks(own, generation, _NEEDS_LEVELS)
    if isinstance(table, GroupTable):
        return convert(_servers_from(table), generation)
    if generation == "group list":
        return _grouped(table)
    return _to_1_2(table) if generation == "1.2" else _to_1_0(table)


def in_order(table: Table, order: Order) -> Table:
    """The same servers, numbered in another order; `given` leaves the table as it is.

    Raises:
        RankTableError: the generation has no servers to put in order.
    """
    if order == "given":
        return table
    if not isinstance(table, RankTable):
        raise RankTableError(
            f"--order {order}: {version_of(table)} states no order of servers that could change"
        )
    servers = sorted(table.servers, key=lambda server: server.server_id)
    return replace(table, servers=numbered(servers))


def numbered(servers: Sequence[Server]) -> tuple[Server, ...]:
    """The servers with ranks from 0, server by server and device by device as they stand."""
    result, first = [], 0
    for server in servers:
        devices = tuple(
            replace(device, rank_id=first + index) for index, device in enumerate(server.devices)
        )
        result.append(replace(server, devices=devices))
        first += len(devices)
    return tuple(result)


def merge(tables: Sequence[Table]) -> Table:
    """One table with the servers, or the ranks, of all in the order given, numbered anew.

    Raises:
        RankTableError: they are not all of one generation, or they are group lists.
    """
    of_servers = [table for table in tables if isinstance(table, RankTable)]
    of_ranks = [table for table in tables if isinstance(table, LevelTable)]
    versions = sorted({version_of(table) for table in tables})
    if len(versions) == 1 and of_servers:
        return _merged_servers(of_servers)
    if len(versions) == 1 and of_ranks:
        ranks = [rank for table in of_ranks for rank in table.ranks]
        numbers = tuple(replace(rank, rank_id=index) for index, rank in enumerate(ranks))
        return LevelTable(numbers, of_ranks[0].extra)
    raise RankTableError(
        f"could not be merged: the tables are {' and '.join(versions)}; convert all of them to one "
        "version first"
    )


def _merged_servers(parts: Sequence[RankTable]) -> RankTable:
    servers = [server for table in parts for server in table.servers]
    pods: dict[str, list[str]] = {}
    for table in parts:
        for pod in table.super_pods:
            pods.setdefault(pod.super_pod_id, []).extend(pod.server_ids)
    joined = tuple(SuperPod(name, tuple(dict.fromkeys(ids))) for name, ids in pods.items())
    return RankTable(numbered(servers), parts[0].version, joined, parts[0].extra)


@dataclass(frozen=True)
class Host:
    """A host that a hostfile may name: its `server_id`, and the addresses of its devices."""

    server_id: str
    devices: Mapping[int, str | None]


def is_hostfile(text: str) -> bool:
    """Whether somewhere in it a host has slots, as in no rank table."""
    return _SLOTS.search(text) is not None


def from_hostfile(text: str, name: str, hosts: Mapping[str, Host]) -> RankTable:
    """A table of version 1.0 for the hosts of an Open MPI or DeepSpeed hostfile.

    A host with `slots=N` gets its first N devices. `hosts` are known by each of their names.

    Raises:
        RankTableError: a line is not understood, or devices of a host are not known.
    """
    servers = []
    for line_number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _HOST.fullmatch(line.strip())
        if match is None:
            words = f'"{line.strip()}" is not understood; expected HOST slots=N'
            raise RankTableError(f"{name}:{line_number}: {words}")
        host = hosts.get(match["host"])
        if host is None:
            known = ", ".join(hosts) or "none"
            raise RankTableError(
                f"{name}:{line_number}: the devices of {match['host']} are not known; known are "
                f"those of {known}. Give its hccn.conf: --hccn-conf {match['host']}=FILE"
            )
        devices = host.devices
        slots = int(match["slots"]) if match["slots"] else len(devices)
        if slots > len(devices):
            raise RankTableError(
                f"{name}:{line_number}: {match['host']} has {len(devices)} devices, and slots is "
                f"{slots}"
            )
        first = sorted(devices.items())[:slots]
        ranked = tuple(RankedDevice(device, address, 0) for device, address in first)
        servers.append(Server(host.server_id, ranked))
    return RankTable(numbered(servers))


def _servers_from(table: GroupTable) -> RankTable:
    by_server: dict[str, list[RankedDevice]] = {}
    for row in rows_of(table):
        device = RankedDevice(row.device_id, ",".join(row.addresses) or None, row.rank)
        by_server.setdefault(row.server, []).append(device)
    return RankTable(tuple(Server(name, tuple(devices)) for name, devices in by_server.items()))


def _grouped(table: RankTable) -> Converted:
    """Ranks are not stated in a group list: they must come out the same."""
    instances = tuple(
        Instance(
            server.server_id,
            server.server_id,
            tuple(GroupDevice(d.device_id, d.device_ip) for d in server.devices),
        )
        for server in table.servers
    )
    made = GroupTable((Group("hccl_world_group", instances),))
    before = [(row.server, row.device_id) for row in rows_of(table)]
    after = [(row.server, row.device_id) for row in rows_of(made)]
    for rank, (one, other) in enumerate(zip(before, after, strict=True)):
        if one != other:
            raise RankTableError(
                f"could not be converted to a group list: HCCL would give rank {rank}, now "
                f"{one[0]} device {one[1]}, to {other[0]} device {other[1]}: it numbers by "
                "server_id as text, then by device_id. Number so first: --order server-id"
            )
    return Converted(made, _left_out(table))


def _to_1_2(table: RankTable) -> Converted:
    devices = sum(len(server.devices) for server in table.servers)
    known = sum(d.super_device_id is not None for s in table.servers for d in s.devices)
    missing = [f"super_device_id of {devices - known} devices"] if known < devices else []
    if not table.super_pods:
        missing.append(
            f"super_pod_list: which super pod each of {len(table.servers)} servers is in"
        )
    if missing:
        raise _lacks("1.0", "1.2", " and ".join(missing))
    return Converted(replace(table, version="1.2"))


def _to_1_0(table: RankTable) -> Converted:
    servers = tuple(
        replace(server, devices=tuple(replace(d, super_device_id=None) for d in server.devices))
        for server in table.servers
    )
    made = replace(table, version="1.0", servers=servers, super_pods=())
    return Converted(made, ("super_device_id", "super_pod_list"))


def _left_out(table: RankTable) -> tuple[str, ...]:
    """What a group list of the table does not say."""
    devices = [device for server in table.servers for device in server.devices]
    names = [
        *(name for name, _ in table.extra),
        *(name for server in table.servers for name, _ in server.extra),
        *(name for device in devices for name, _ in device.extra),
        *("super_device_id" for device in devices if device.super_device_id is not None),
        *("super_pod_list" for _ in table.super_pods),
    ]
    return tuple(dict.fromkeys(names))


def _lacks(own: str, generation: str, what: str) -> RankTableError:
    return RankTableError(
        f"could not be converted from {own} to {generation}: what is missing is {what}"
    )


def lines_of(version: str, rows: Sequence[Row]) -> Iterator[str]:
    """The ranks of a table as text: a head line, then server by server one line per rank."""
    kind = version if version == "group list" else f"version {version}"
    where = "net instance" if version == "2.0" else "server"
    count = len({row.server for row in rows})
    yield f"{kind}, {_plural(len(rows), 'rank')} on {_plural(count, where)}"
    for name, group in groupby(rows, key=lambda row: row.server):
        yield ""
        ranks = list(group)
        yield f"{name}{_pod(ranks)}  {_ranks_shown(ranks)}"
        yield from _grid(ranks)


def rows_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The same for programs."""
    return [
        {
            "rank": row.rank,
            "server": row.server,
            "device": row.device_id,
            "addresses": list(row.addresses),
            "super_pod": row.super_pod or None,
            "super_device_id": row.super_device_id,
            "local_id": row.local_id,
        }
        for row in rows
    ]


def _grid(rows: Sequence[Row]) -> Iterator[str]:
    cells = [["rank", "device", "address"]]
    with_pods = any(row.super_device_id is not None for row in rows)
    with_local = any(row.local_id is not None for row in rows)
    cells[0] += ["super device"] * with_pods + ["local id"] * with_local
    for row in rows:
        line = [str(row.rank), str(row.device_id), " ".join(row.addresses) or "-"]
        line += ["-" if row.super_device_id is None else str(row.super_device_id)] * with_pods
        line += ["-" if row.local_id is None else str(row.local_id)] * with_local
        cells.append(line)
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        first = [text.rjust(width) for text, width in zip(line[:2], widths[:2], strict=True)]
        rest = [text.ljust(width) for text, width in zip(line[2:], widths[2:], strict=True)]
        yield f"  {'  '.join(first + rest)}".rstrip()


def _ranks_shown(rows: Sequence[Row]) -> str:
    first, last = rows[0].rank, rows[-1].rank
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


def _pod(rows: Sequence[Row]) -> str:
    return f"  super pod {rows[0].super_pod}" if rows[0].super_pod else ""


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
