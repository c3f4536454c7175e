"""A table against the devices that are there: what is stale, by server and device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import number, packed
from ascendboot.ranktable.problem import Problem
from ascendboot.ranktable.reading import unnumbered_ranks
from ascendboot.ranktable.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.ranktable.jsontext import Path
    from ascendboot.ranktable.levels import LevelRank


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSeen:
    """What a device, and the file that sets it up at boot, say of its address."""

    device_ip: str | None
    """As hccn_tool tells it; several are joined by commas."""
    in_conf: str | None = None
    """As /etc/hccn.conf has it; None where the file says nothing of it, or was not read."""
    super_device_id: int | None = None


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """A node that has a server's id, and its devices by physical id."""

    node: str
    devices: Mapping[int, DeviceSeen]
    places: Mapping[int, LevelRank] = field(default_factory=dict)
    """Of 950: where each is in the network, by its root info."""


def against(
    document: Mapping[str, object], servers: Mapping[str, ServerSeen]
) -> tuple[Problem, ...]:
    """Where a table contradicts what the nodes say."""
    found = [*_ranks(document, servers)]
    for path, name, device, where in _devices(document):
        server = servers.get(name)
        if server is None:
            known = ", ".join(servers)
            text = f'server_id "{name}" is no node of the cluster; its nodes have {known}'
            problem = Problem(id="server-unknown", level="error", path=path, text=text)
            if problem not in found[-1:]:
                found.append(problem)
        else:
            found += _stale(server, device, where)
    return tuple(found)


def _devices(
    document: Mapping[str, object],
) -> Iterator[tuple[Path, str, Mapping[str, object], Path]]:
    """Path of the server, its id, a device of it, and the path of that."""
    for path, server, name in (*_servers(document), *_instances(document)):
        devices = server.get(name)
        server_id = server.get("server_id")
        for index, device in enumerate(devices if isinstance(devices, list) else ()):
            if isinstance(device, dict) and isinstance(server_id, str):
                yield (*path, "server_id"), server_id, device, (*path, name, index)


def _servers(
    document: Mapping[str, object],
) -> Iterator[tuple[Path, Mapping[str, object], str]]:
    servers = document.get("server_list")
    for index, server in enumerate(servers if isinstance(servers, list) else ()):
        if isinstance(server, dict):
            yield ("server_list", index), server, "device"


def _instances(
    document: Mapping[str, object],
) -> Iterator[tuple[Path, Mapping[str, object], str]]:
    groups = document.get("group_list")
    for at, group in enumerate(groups if isinstance(groups, list) else ()):
        instances = group.get("instance_list") if isinstance(group, dict) else None
        for index, instance in enumerate(instances if isinstance(instances, list) else ()):
            if isinstance(instance, dict):
                yield ("group_list", at, "instance_list", index), instance, "devices"


def _stale(server: ServerSeen, device: Mapping[str, object], path: Path) -> Iterator[Problem]:
    device_id = _number(device.get("device_id"))
    if device_id is None:
        return
    seen = server.devices.get(device_id)
    if seen is None:
        there = ", ".join(map(str, sorted(server.devices))) or "none"
        text = f"{server.node} has no device {device_id}; it has {there}"
        yield Problem(id="device-gone", level="error", path=(*path, "device_id"), text=text)
        return
    stated = device.get("device_ip")
    where = (*path, "device_ip")
    if isinstance(stated, str) and stated:
        name = f"{server.node} device {device_id}"
        if not _same(stated, seen.device_ip):
            own = seen.device_ip or "none"
            text = f"the table has {stated}, {name} has {own} (hccn_tool -i {device_id} -ip -g)"
            yield Problem(id="device-ip-stale", level="error", path=where, text=text)
        if seen.in_conf and "," not in stated and not _same(seen.in_conf, stated):
            text = f"the table has {stated}, /etc/hccn.conf of {name} has {seen.in_conf}"
            yield Problem(id="hccn-conf-stale", level="warning", path=where, text=text)
    place = _number(device.get("super_device_id"))
    if None not in (place, seen.super_device_id) and place != seen.super_device_id:
        text = (
            f"the table has {place}, {server.node} device {device_id} has {seen.super_device_id} "
            "(npu-smi info -t spod-info)"
        )
        where = (*path, "super_device_id")
        yield Problem(id="super-device-stale", level="error", path=where, text=text)


def _ranks(document: Mapping[str, object], servers: Mapping[str, ServerSeen]) -> Iterator[Problem]:
    """Version 2.0 names no servers: an entry is of the node that calls its own network so."""
    holders = {
        (rank.levels[0].net_instance_id, device_id): (server.node, rank)
        for server in servers.values()
        for device_id, rank in server.places.items()
        if rank.levels
    }
    ranks = document.get("rank_list") if holders else None
    for index, entry in enumerate(ranks if isinstance(ranks, list) else ()):
        path: Path = ("rank_list", index)
        told = _told(entry)
        if told is None:
            continue
        holder = holders.get((told.levels[0].net_instance_id, told.device_id))
        if holder is None:
            known = ", ".join(dict.fromkeys(instance for instance, _ in holders))
            instance = told.levels[0].net_instance_id
            text = (
                f'no node has device {told.device_id} in net instance "{instance}"; the nodes have '
                f"{known}"
            )
            yield Problem(id="server-unknown", level="error", path=path, text=text)
        elif _meaning(told) != _meaning(holder[1]):
            node, own = holder
            only = min(_meaning(told) - _meaning(own), default="less")
            instead = min(_meaning(own) - _meaning(told), default="nothing more")
            text = (
                f"the table has {only}, {node} device {told.device_id} has {instead} "
                "(/etc/hccl_rootinfo.json)"
            )
            yield Problem(id="level-stale", level="error", path=path, text=text)


def _told(entry: object) -> LevelRank | None:
    """The entry, where it is one and says in which net instance it is."""
    try:
        [rank] = unnumbered_ranks(Source(name="", text="", document={"rank_list": [entry]}))
    except RankTableError:
        return None  # validate says what is wrong with it
    return rank if rank.levels else None


def _meaning(rank: LevelRank) -> frozenset[str]:
    """What an entry says, as words of which each can be named."""
    return frozenset(
        [f"local_id {rank.local_id}"]
        + [
            f"{address.addr} on {'+'.join(address.ports)} in layer {level.net_layer} of "
            f"{level.net_instance_id}"
            for level in rank.levels
            for address in level.addresses
        ]
    )


def _number(value: object) -> int | None:
    return number(value) if isinstance(value, str) else None


def _same(one: str, other: str | None) -> bool:
    """Whether both are the same addresses, however they are written."""
    if other is None:
        return False
    return [packed(part) or part for part in one.split(",")] == [
        packed(part) or part for part in other.split(",")
    ]
