"""Validates rank tables of versions 1.0 and 1.2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ascendboot.ranktable import super_pods
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
    port_of,
    text_of,
)
from ascendboot.ranktable.rules import CALLED, Level, Product
from ascendboot.ranktable.super_pods import PlacedRules, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.rules import TableCheck
    from ascendboot.ranktable.text import JsonPath

HIGHEST: dict[Product, int] = {"910": 7, "a2": 15, "a3": 15, "310p": 31, "a5": 64}
"""The highest device id that HCCL takes on a product."""

PORTS = ("device_port", "device_vnic_port", "host_port", "backup_device_port")


class _Backup(NamedTuple):
    """A backup address: of whom, which, and the port stated for it."""

    path: JsonPath
    server: int
    device_id: int | None
    address: bytes
    text: str
    port: int | None


class _Holder(NamedTuple):
    """The device that has an address."""

    server: int
    device_id: int | None
    port: int | None
    path: JsonPath


@dataclass
class DeviceRules:
    """Judges the devices one after the other and remembers what must be unique or alike."""

    judging: TableCheck
    several: bool
    """Whether there are several servers."""
    several_pods: bool = False
    first_has_no_address: bool = False
    """Whether the first device has none: then rank 0 talks over its host."""
    _server: str = ""
    _number: int = -1
    _has_host: bool = False
    _ids: set[int] = field(default_factory=set)
    _of: dict[bytes, _Holder] = field(default_factory=dict)
    _backups: list[_Backup] = field(default_factory=list)
    _seen: int = 0
    _family: bytes = b""
    _count: int = 0

    def begin(self, server: str, *, has_host: bool) -> None:
        """What follows is on another server."""
        self._server, self._has_host = server, has_host
        self._number += 1
        self._ids = set()

    def check(self, device: Mapping[str, object], path: JsonPath) -> int | None:
        """Note what is wrong with a device; its id where it has one."""
        device_id = number_of(self.judging, device, "device_id", path)
        if device_id is not None:
            self._id(device_id, path)
        ports = {
            name: port_of(self.judging, device, name, path) for name in PORTS if name in device
        }
        holder = _Holder(self._number, device_id, ports.get("device_port"), path)
        self._addresses(device, holder)
        if "backup_device_ip" in device:
            self._backup(device, path, device_id, ports.get("backup_device_port"))
        self._seen += 1
        return device_id

    def finish(self) -> None:
        """Note what only all devices together tell."""
        level = self.judging.on("a3")
        for backup in self._backups if level else ():
            holder = self._of.get(backup.address)
            if holder is not None and level is not None:
                self._pair(backup, holder, level)

    def _id(self, device_id: int, path: JsonPath) -> None:
        where = (*path, "device_id")
        highest = HIGHEST[self.judging.product] if self.judging.product else HIGHEST["310p"]
        if device_id > highest:
            self.judging.say(
                "device-id",
                where,
                f"device_id {device_id} is above {highest}, the highest of any product with such "
                "tables"
                if self.judging.product is None
                else f"device_id {device_id} is above {highest}, the highest of "
                f"{CALLED[self.judging.product]}",
                value=device_id,
                most=highest,
            )
        elif self.judging.product is None and device_id > HIGHEST["910"]:
            self.judging.say("device-id", where, _refused_on(device_id), level="warning")
        if device_id in self._ids:
            self.judging.say(
                "device-twice",
                where,
                f"{self._server} has device {device_id} twice",
                index=self._seen,
            )
        self._ids.add(device_id)

    def _addresses(self, device: Mapping[str, object], holder: _Holder) -> None:
        text = text_of(self.judging, device, "device_ip", holder.path, optional=True)
        if not text:
            if text == "" or "device_ip" not in device:
                self._no_address(device, holder)
            return
        where = (*holder.path, "device_ip")
        parts = text.split(",")
        for part in parts:
            address = packed(part)
            if address is not None:
                self._address(part, address, holder)
            elif not placeholder(self.judging, part, "device_ip", holder.path):
                words = f'device_ip "{cut(part)}" is no IP address'
                self.judging.say("address", where, words, value=cut(part))
        if self._seen == 0:
            self._count = len(parts)
        elif len(parts) != self._count:
            self._wrong_count(len(parts), where)

    def _no_address(self, device: Mapping[str, object], holder: _Holder) -> None:
        if self._seen == 0:
            self.first_has_no_address, self._count = True, 1
        elif self._count > 1:
            self._wrong_count(1, holder.path)
        in_one_pod = self.judging.product == "a3" and not self.several_pods
        if not self.judging.intra_roce and (not self.several or in_one_pod):
            return
        over_host = self._has_host and "device_ip" not in device and self.judging.product != "a2"
        self.judging.say(
            "device-ip-missing",
            (*holder.path, "device_ip"),
            f"{self._server} device {_called(holder)} has no device_ip, and "
            f"{'there are several servers' if self.several else 'ranks talk over RoCE'}"
            f"{'; its ranks would talk over the host' if over_host else ''}",
            level="warning" if over_host else "error",
        )

    def _wrong_count(self, count: int, where: JsonPath) -> None:
        self.judging.say(
            "address-count",
            where,
            f"the device has {_plural(count)}, the first one has {self._count}",
            index=self._seen,
            value=count,
            other=self._count,
        )

    def _address(self, text: str, address: bytes, holder: _Holder) -> None:
        where = (*holder.path, "device_ip")
        other = self._of.setdefault(address, holder)
        if other is not holder:
            self.judging.say(
                "address-twice",
                where,
                f"device_ip {text} is used twice: {self._server} device {_called(holder)} and "
                f"server_list[{other.server}] device {_called(other)}",
                name="device_ip",
                value=text,
            )
        if not self._family:
            self._family = address
        elif len(address) != len(self._family) and self.several:
            self.judging.say(
                "address-family",
                where,
                f"device_ip {text} is {family(address)}, others are {family(self._family)}",
                rank=self._seen,
                value=family_number(address),
                other=family_number(self._family),
            )

    def _backup(
        self, device: Mapping[str, object], path: JsonPath, device_id: int | None, port: int | None
    ) -> None:
        text = text_of(self.judging, device, "backup_device_ip", path)
        if not text:
            return
        for part in text.split(","):
            address = packed(part)
            if address is not None:
                backup = _Backup(path, self._number, device_id, address, part, port)
                self._backups.append(backup)
            elif not placeholder(self.judging, part, "backup_device_ip", path):
                self.judging.say(
                    "address",
                    (*path, "backup_device_ip"),
                    f'backup_device_ip "{cut(part)}" is no IP address',
                    value=cut(part),
                )

    def _pair(self, backup: _Backup, holder: _Holder, level: Level) -> None:
        where = (*backup.path, "backup_device_ip")
        if holder.path == backup.path:
            words = f"backup_device_ip {backup.text} is the device's own address"
            self.judging.say("backup-self", where, words, level=level)
            return
        if backup.device_id is None or holder.device_id is None:
            return
        if holder.server != backup.server or holder.device_id != backup.device_id ^ 1:
            self.judging.say(
                "backup-partner",
                where,
                f"backup_device_ip {backup.text} is that of server_list[{holder.server}] device "
                f"{holder.device_id}, and device {backup.device_id} shares its module with "
                f"{backup.device_id ^ 1}",
                level=level,
                device=backup.device_id,
                other=holder.device_id,
            )
        elif backup.port is not None and backup.port == holder.port:
            self.judging.say(
                "backup-port",
                (*backup.path, "backup_device_port"),
                f"backup_device_port {backup.port} is what device {holder.device_id}, whose "
                "address is the backup, uses itself",
                level=level,
                value=backup.port,
            )


def _refused_on(device_id: int) -> str:
    low: tuple[Product, ...] = ("910", "a2", "a3")
    names = [CALLED[product] for product in low if device_id > HIGHEST[product]]
    return f"device_id {device_id} is refused on {' and '.join(names)}"


def _called(holder: _Holder) -> str:
    return "?" if holder.device_id is None else str(holder.device_id)


def _plural(count: int) -> str:
    return f"{count} address{'' if count == 1 else 'es'}"


MOST_SERVER_ID = 64
SUPER_PODS = "1.2"


@dataclass
class _Servers:
    """What was seen of the servers so far."""

    ids: dict[str, int] = field(default_factory=dict)
    with_host_ip: list[bool] = field(default_factory=list)
    host_family: bytes = b""


def check_server_list(document: Mapping[str, object], judging: TableCheck) -> None:
    """Note everything that is wrong with the table."""
    servers = list_of(judging, document, "server_list", ())
    if servers is None:
        return
    _count(document, len(servers), judging)
    seen = _Servers()
    is_super = document.get("version") == SUPER_PODS
    pods = super_pods.pod_of_servers(document, judging) if is_super else {}
    several_pods = len(set(pods.values())) > 1
    devices = DeviceRules(judging, several=len(servers) > 1, several_pods=several_pods)
    placed = PlacedRules(judging)
    for index, value in enumerate(servers):
        path: JsonPath = ("server_list", index)
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
        super_pods.check_super_pods(document, placed.rows, seen.ids, pods, judging)


def _count(document: Mapping[str, object], length: int, judging: TableCheck) -> None:
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


def _server(
    server: Mapping[str, object], path: JsonPath, seen: _Servers, judging: TableCheck
) -> str:
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


def _host_ip(
    server: Mapping[str, object], path: JsonPath, seen: _Servers, judging: TableCheck
) -> bool:
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
    path: JsonPath,
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
        device_id = devices.check(device, where)
        rank = number_of(judging, device, "rank_id", where)
        super_id = device.get("super_device_id")
        placed.rows.append(Row(int(path[-1]), index, rank, device_id, super_id))


def _hosts(seen: _Servers, devices: DeviceRules, judging: TableCheck) -> None:
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
