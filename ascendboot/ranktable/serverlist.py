"""Rules of tables with a `server_list`: versions 1.0 and 1.2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.ranktable import superpods
from ascendboot.ranktable.devices import DeviceRules
from ascendboot.ranktable.fields import (
    cut,
    family,
    family_number,
    kind,
    list_of,
    number_of,
    object_at,
    packed,
    placeholder,
    text_of,
)
from ascendboot.ranktable.placed import PlacedRules, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.jsontext import Path
    from ascendboot.ranktable.problem import Judging
    from ascendboot.ranktable.rule import Level

MOST_SERVER_ID = 64
SUPER_PODS = "1.2"


@dataclass
class _Servers:
    """What was seen of the servers so far."""

    ids: dict[str, int] = field(default_factory=dict)
    with_host_ip: list[bool] = field(default_factory=list)
    host_family: bytes = b""


def judge(document: Mapping[str, object], judging: Judging) -> None:
    """Note everything that is wrong with the table."""
    servers = list_of(judging, document, "server_list", ())
    if servers is None:
        return
    _count(document, len(servers), judging)
    seen = _Servers()
    is_super = document.get("version") == SUPER_PODS
    pods = superpods.pod_of_servers(document, judging) if is_super else {}
    several_pods = len(set(pods.values())) > 1
    devices = DeviceRules(judging, several=len(servers) > 1, several_pods=several_pods)
    placed = PlacedRules(judging)
    for index, value in enumerate(servers):
        path: Path = ("server_list", index)
        server = object_at(judging, value, path, "a server")
        if server is None:
            placed.is_complete = False
        else:
            name = _server(server, path, seen, judging)
            _devices(server, path, name, devices, placed, has_host=seen.with_host_ip[-1])
    devices.finish()
    _hosts(seen, devices, judging)
    placed.finish(seen.ids)
    if is_super:
        superpods.judge(document, placed.rows, seen.ids, pods, judging)


def _count(document: Mapping[str, object], length: int, judging: Judging) -> None:
    count = number_of(judging, document, "server_count", (), optional=True)
    if count is not None and count != length:
        judging.say(
            "count",
            ("server_count",),
            f"server_count is {count}, and server_list has {length}",
            name="server_count",
            value=count,
            length=length,
        )


def _server(server: Mapping[str, object], path: Path, seen: _Servers, judging: Judging) -> str:
    """The server's id, by which messages call it."""
    seen.with_host_ip.append(_host_ip(server, path, seen, judging))
    name = text_of(judging, server, "server_id", path)
    fallback = f"server {path[-1]}"
    if name is None:
        return fallback
    if not name:
        judging.say("empty", (*path, "server_id"), "server_id is empty", hccl="serverId[] is empty")
        return fallback
    if placeholder(judging, name, "server_id", path):
        return fallback
    if len(name.encode()) > MOST_SERVER_ID:
        judging.say(
            "too-long",
            (*path, "server_id"),
            f'server_id "{cut(name)}" has {len(name.encode())} bytes',
            length=len(name.encode()),
            most=MOST_SERVER_ID,
        )
    if name in seen.ids:
        first = seen.ids[name]
        judging.say(
            "server-twice",
            (*path, "server_id"),
            f'server_id "{cut(name)}" is used twice: server_list[{first}] and [{path[-1]}]',
            value=name,
        )
    seen.ids.setdefault(name, int(path[-1]))
    return name


def _host_ip(server: Mapping[str, object], path: Path, seen: _Servers, judging: Judging) -> bool:
    """Whether the server states an address of its own."""
    text = text_of(judging, server, "host_ip", path, optional=True)
    if text is None or placeholder(judging, text, "host_ip", path):
        return "host_ip" in server
    address = packed(text)
    where = (*path, "host_ip")
    if address is None:
        judging.say("address", where, f'host_ip "{cut(text)}" is no IP address', value=cut(text))
    elif seen.host_family and len(seen.host_family) != len(address):
        judging.say(
            "host-ip-family",
            where,
            f"host_ip {text} is {family(address)}, others are {family(seen.host_family)}",
            value=family_number(address),
            server=server.get("server_id"),
        )
    seen.host_family = seen.host_family or address or b""
    return True


def _devices(
    server: Mapping[str, object],
    path: Path,
    name: str,
    devices: DeviceRules,
    placed: PlacedRules,
    *,
    has_host: bool,
) -> None:
    judging = devices.judging
    values = list_of(judging, server, "device", path)
    placed.is_complete &= values is not None
    devices.begin(name, has_host=has_host)
    for index, value in enumerate(values or ()):
        where = (*path, "device", index)
        device = value if isinstance(value, dict) else None
        if device is None:
            placed.is_complete = False
            judging.say(
                "wrong-type", where, f"a device is {kind(value)}, not an object", name="device"
            )
            continue
        device_id = devices.judge(device, where)
        rank = number_of(judging, device, "rank_id", where)
        super_id = device.get("super_device_id")
        placed.rows.append(Row(int(path[-1]), index, rank, device_id, super_id))


def _hosts(seen: _Servers, devices: DeviceRules, judging: Judging) -> None:
    """HCCL takes the hosts' network for all, if rank 0 has an address there and none of its own."""
    if all(seen.with_host_ip) or not any(seen.with_host_ip):
        return
    index = seen.with_host_ip.index(False)
    level: Level = "error" if seen.with_host_ip[0] and devices.first_has_no_address else "warning"
    judging.say(
        "host-ip",
        ("server_list", index),
        f"{sum(seen.with_host_ip)} of {len(seen.with_host_ip)} servers have a host_ip, this one "
        "has none",
        level=level,
    )
