"""One generation from another, several tables as one, a table from a hostfile.

Nothing is made up: where the information is not there, the error names what is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable.compare import version_of
from ascendboot.ranktable.groups import Group, GroupDevice, GroupTable, Instance
from ascendboot.ranktable.levels import LevelTable
from ascendboot.ranktable.rows import rows_of
from ascendboot.ranktable.servers import RankedDevice, RankTable, Server, SuperPod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.ranktable.reading import Table
    from ascendboot.ranktable.validate import Generation

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
