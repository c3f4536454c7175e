"""Validates rank tables of versions 1.0 and 1.2."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.ranktable.fields import Members, cut, packed
from ascendboot.ranktable.placement import (
    Row,
    check_placement,
    check_super_pods,
    pods_by_server,
)
from ascendboot.ranktable.rules import CALLED, Level, Product, TableCheck

if TYPE_CHECKING:
    from collections.abc import Mapping


HIGHEST: dict[Product, int] = {"910": 7, "a2": 15, "a3": 15, "310p": 31, "a5": 64}
"""The highest device id that HCCL takes on a product."""

MOST_SERVER_ID = 64
SUPER_PODS = "1.2"
PORTS = ("device_port", "device_vnic_port", "host_port", "backup_device_port")


@dataclass(frozen=True)
class _Device:
    """A device, as far as other devices are compared with it."""

    members: Members
    server: int
    device_id: int | None
    ports: Mapping[str, int | None]

    def __str__(self) -> str:
        return f"device {'?' if self.device_id is None else self.device_id}"


@dataclass
class _Devices:
    """Checks the devices one after the other; keeps what must be unique or alike."""

    check: TableCheck
    several_servers: bool
    several_pods: bool
    first_has_no_address: bool = False
    """Whether the first device has none: then rank 0 talks over its host."""
    server: str = ""
    """The server of the devices that follow."""
    has_host: bool = False
    ids: set[int] = field(default_factory=set)
    owners: dict[bytes, _Device] = field(default_factory=dict)
    backups: list[tuple[_Device, str]] = field(default_factory=list)
    count: int = 0
    first_address: bytes = b""
    address_count: int = 0

    def check_device(self, members: Members, server: int) -> int | None:
        """Check a device and return its id."""
        device_id = members.number("device_id")
        if device_id is not None:
            self._check_id(members, device_id)
        ports = {name: members.port(name) for name in PORTS}
        device = _Device(members, server, device_id, ports)
        self._check_addresses(device)
        backups = members.text("backup_device_ip", optional=True)
        for text in backups.split(",") if backups else ():
            if members.address("backup_device_ip", text) is not None:
                self.backups.append((device, text))
        self.count += 1
        return device_id

    def check_backups(self) -> None:
        """Check the backup addresses, which all devices together tell."""
        level = self.check.level_on("a3")
        for device, text in self.backups if level else ():
            owner = self.owners.get(packed(text) or b"")
            if owner is not None and level is not None:
                _check_backup(device, owner, text, level)

    def _check_id(self, members: Members, device_id: int) -> None:
        product = self.check.product
        highest = HIGHEST[product or "310p"]
        if device_id > highest:
            of = CALLED[product] if product else "any product with such tables"
            words = f"device_id {device_id} is above {highest}, the highest of {of}"
            members.report("device-id", "device_id", words, value=device_id, most=highest)
        elif product is None and device_id > HIGHEST["910"]:
            low: tuple[Product, ...] = ("910", "a2", "a3")
            names = [CALLED[product] for product in low if device_id > HIGHEST[product]]
            words = f"device_id {device_id} is refused on {' and '.join(names)}"
            members.report("device-id", "device_id", words, level="warning")
        if device_id in self.ids:
            words = f"{self.server} has device {device_id} twice"
            members.report("device-twice", "device_id", words, index=self.count)
        self.ids.add(device_id)

    def _check_addresses(self, device: _Device) -> None:
        members = device.members
        text = members.text("device_ip", optional=True)
        if not text:
            if text == "" or "device_ip" not in members:
                self._check_without_address(device)
            return
        parts = text.split(",")
        for part in parts:
            address = members.address("device_ip", part)
            if address is not None:
                self._check_address(part, address, device)
        if self.count == 0:
            self.address_count = len(parts)
        elif len(parts) != self.address_count:
            self._report_address_count(members, "device_ip", len(parts))

    def _check_without_address(self, device: _Device) -> None:
        if self.count == 0:
            self.first_has_no_address, self.address_count = True, 1
        elif self.address_count > 1:
            self._report_address_count(device.members, None, 1)
        product = self.check.product
        in_one_pod = product == "a3" and not self.several_pods
        if not self.check.intra_roce and (not self.several_servers or in_one_pod):
            return
        over_host = self.has_host and "device_ip" not in device.members and product != "a2"
        device.members.report(
            "device-ip-missing",
            "device_ip",
            f"{self.server} {device} has no device_ip, and "
            f"{'there are several servers' if self.several_servers else 'ranks talk over RoCE'}"
            f"{'; its ranks would talk over the host' if over_host else ''}",
            level="warning" if over_host else "error",
        )

    def _report_address_count(self, members: Members, name: str | None, count: int) -> None:
        words = (
            f"the device has {count} address{'' if count == 1 else 'es'}, the first one has "
            f"{self.address_count}"
        )
        members.report(
            "address-count", name, words, index=self.count, value=count, other=self.address_count
        )

    def _check_address(self, text: str, address: bytes, device: _Device) -> None:
        owner = self.owners.setdefault(address, device)
        if owner is not device:
            words = (
                f"device_ip {text} is used twice: {self.server} {device} and "
                f"server_list[{owner.server}] {owner}"
            )
            device.members.report("address-twice", "device_ip", words, value=text)
        self.first_address = self.first_address or address
        if self.several_servers:
            device.members.other_family(
                "address-family", "device_ip", text, self.first_address, self.count
            )


def _check_backup(device: _Device, owner: _Device, text: str, level: Level) -> None:
    members, name = device.members, "backup_device_ip"
    if owner is device:
        words = f"backup_device_ip {text} is the device's own address"
        members.report("backup-self", name, words, level=level)
        return
    if device.device_id is None or owner.device_id is None:
        return
    partner = device.device_id ^ 1
    port = device.ports["backup_device_port"]
    if owner.server != device.server or owner.device_id != partner:
        members.report(
            "backup-partner",
            name,
            f"backup_device_ip {text} is that of server_list[{owner.server}] {owner}, and {device} "
            f"shares its module with {partner}",
            level=level,
            device=device.device_id,
            other=owner.device_id,
        )
    elif port is not None and port == owner.ports["device_port"]:
        words = (
            f"backup_device_port {port} is what {owner}, whose address is the backup, uses itself"
        )
        members.report("backup-port", "backup_device_port", words, level=level, value=port)


@dataclass
class _Servers:
    """What must be unique or alike among servers."""

    ids: dict[str, int] = field(default_factory=dict)
    with_host_ip: list[bool] = field(default_factory=list)
    host_family: bytes = b""


def check_server_list(document: Mapping[str, object], check: TableCheck) -> None:
    """Report everything that is wrong with the table."""
    root = Members(check, document)
    values = root.filled_list("server_list")
    if values is None:
        return
    count = root.number("server_count", optional=True)
    root.count("server_count", count, len(values), "server_list has")
    is_super = document.get("version") == SUPER_PODS
    pods = pods_by_server(root) if is_super else {}
    servers, rows, is_complete = _Servers(), list[Row](), True
    devices = _Devices(check, len(values) > 1, len({member.pod for member in pods.values()}) > 1)
    for index, server in enumerate(root.objects("server_list", "a server")):
        if server is None:
            is_complete = False
            continue
        servers.with_host_ip.append(_check_host_ip(server, servers))
        devices.server = _check_server_id(server, index, servers)
        devices.has_host, devices.ids = servers.with_host_ip[-1], set()
        is_complete &= server.filled_list("device") is not None
        for device in server.objects("device", "a device"):
            if device is None:
                is_complete = False
            else:
                device_id = devices.check_device(device, index)
                rows.append(Row(device, index, device.number("rank_id"), device_id))
    devices.check_backups()
    _check_all_host_ips(root, servers, devices)
    if is_complete:  # else the numbers tell nothing
        check_placement(check, rows, servers.ids)
    if is_super:
        check_super_pods(root, rows, servers.ids, pods)


def _check_server_id(server: Members, index: int, servers: _Servers) -> str:
    """Return the name of the server in messages."""
    name = server.label("server_id", MOST_SERVER_ID, hccl_if_empty="serverId[] is empty")
    if name is None:
        return f"server {index}"
    first = servers.ids.setdefault(name, index)
    if first != index:
        words = f'server_id "{cut(name)}" is used twice: server_list[{first}] and [{index}]'
        server.report("server-twice", "server_id", words, value=name)
    return name


def _check_host_ip(server: Members, servers: _Servers) -> bool:
    """Return whether the server states an address of its own."""
    text = server.text("host_ip", optional=True)
    address = None if text is None else server.address("host_ip", text)
    if address is not None and text is not None:
        servers.host_family = servers.host_family or address
        index = len(servers.with_host_ip)
        server.other_family("host-ip-family", "host_ip", text, servers.host_family, index)
    return "host_ip" in server


def _check_all_host_ips(root: Members, servers: _Servers, devices: _Devices) -> None:
    """HCCL uses the hosts' network for all, if rank 0 has a host address and no device address."""
    stated = servers.with_host_ip
    if all(stated) or not any(stated):
        return
    level: Level = "error" if stated[0] and devices.first_has_no_address else "warning"
    words = f"{sum(stated)} of {len(stated)} servers have a host_ip, this one has none"
    path = ("server_list", stated.index(False))
    root.check.report("host-ip", path, words, level=level)
