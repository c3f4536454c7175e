"""Rank tables of versions 1.0 and 1.2: servers with devices, and the super pods of A3."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

from ascendboot.ranktable.fields import Members, cut, packed
from ascendboot.ranktable.formats import parts, placement
from ascendboot.ranktable.rules import CALLED, Level, Product
from ascendboot.value import Struct, field, force_setattr, replace


class RankedDevice(parts.Part, kw_only=True):
    """One device of a server: physical id, IP of its network port, and the rank that runs on it."""

    last: ClassVar[str] = "rank_id"

    device_id: parts.Number
    super_device_id: parts.Number | None = None
    device_ip: str | None = None
    """Several are joined by commas."""
    rank_id: parts.Number

    def __post_init__(self) -> None:
        if self.device_ip == "":
            force_setattr(self, "device_ip", None)


class Server(parts.Part, kw_only=True):
    """The entry of one node."""

    last: ClassVar[str] = "device"

    server_id: str
    device: tuple[RankedDevice, ...] = ()

    def __post_init__(self) -> None:
        devices = sorted(self.device, key=lambda device: device.rank_id)
        force_setattr(self, "device", tuple(devices))


class PodServer(parts.Part, kw_only=True):
    """A server of a super pod."""

    server_id: str


class SuperPod(parts.Part, kw_only=True):
    """Servers that are joined by one scale-up fabric."""

    last: ClassVar[str] = "server_list"

    super_pod_id: str
    server_list: tuple[PodServer, ...] = ()

    @property
    def server_ids(self) -> tuple[str, ...]:
        """The ids of its servers."""
        return tuple(server.server_id for server in self.server_list)


class RankTable(parts.Table, kw_only=True):
    """A table of version 1.0 or 1.2: all servers in rank order."""

    derived: ClassVar[frozenset[str]] = frozenset({"status", "server_count"})

    version: Any = "1.0"
    """What is not 1.2 becomes 1.0."""
    server_list: tuple[Server, ...] = ()
    super_pod_list: tuple[SuperPod, ...] | None = None

    def __post_init__(self) -> None:
        servers = sorted(self.server_list, key=lambda s: s.device[0].rank_id if s.device else 0)
        force_setattr(self, "version", "1.2" if self.version == "1.2" else "1.0")
        force_setattr(self, "server_list", tuple(servers))
        force_setattr(self, "super_pod_list", self.super_pod_list or None)

    @property
    def generation(self) -> str:
        """As in messages."""
        return str(self.version)

    @property
    def super_pods(self) -> tuple[SuperPod, ...]:
        """The super pods, where there are any."""
        return self.super_pod_list or ()

    @property
    def rows(self) -> tuple[parts.Row, ...]:
        """The ranks that the devices state."""
        pods = {name: pod.super_pod_id for pod in self.super_pods for name in pod.server_ids}
        rows = (
            parts.Row(
                rank=device.rank_id,
                server=server.server_id,
                device_id=device.device_id,
                addresses=tuple(device.device_ip.split(",")) if device.device_ip else (),
                super_pod=pods.get(server.server_id, ""),
                super_device_id=device.super_device_id,
                others=device.others,
            )
            for server in self.server_list
            for device in server.device
        )
        return tuple(sorted(rows, key=lambda row: row.rank))

    def document(self) -> dict[str, object]:
        """The table with its version and count."""
        head = {"version": self.version, "server_count": str(len(self.server_list))}
        return {**head, **super().document()}

    @property
    def other_members(self) -> Mapping[str, Mapping[str, object]]:
        """Those of servers and of super pods."""
        servers = {f"server {server.server_id}": server.others for server in self.server_list}
        return servers | {f"super pod {pod.super_pod_id}": pod.others for pod in self.super_pods}

    def to_servers(self) -> RankTable:
        """The table itself."""
        return self

    def only(self, ranks: Sequence[int]) -> RankTable:
        """These ranks in this order, renumbered from 0, with the servers that they are on."""
        found = {d.rank_id: (server, d) for server in self.server_list for d in server.device}
        devices: dict[str, list[RankedDevice]] = defaultdict(list)
        for rank, old in enumerate(ranks):
            server, device = found[old]
            devices[server.server_id].append(replace(device, rank_id=rank))
        whole = {server.server_id: server for server in self.server_list}
        servers = numbered(replace(whole[name], device=tuple(own)) for name, own in devices.items())
        pods = {
            pod.super_pod_id: left
            for pod in self.super_pods
            if (left := [name for name in pod.server_ids if name in devices])
        }
        return replace(self, server_list=servers, super_pod_list=_super_pods(pods))

    @classmethod
    def merged(cls, tables: Sequence[parts.Table]) -> RankTable:
        """The servers of all, and their super pods joined."""
        own = [table for table in tables if isinstance(table, cls)]
        pods: dict[str, list[str]] = defaultdict(list)
        for pod in (pod for table in own for pod in table.super_pods):
            pods[pod.super_pod_id] += pod.server_ids
        servers = numbered([server for table in own for server in table.server_list])
        return replace(own[0], server_list=servers, super_pod_list=_super_pods(pods))


def _super_pods(servers: dict[str, list[str]]) -> tuple[SuperPod, ...]:
    """The super pods that have the servers, each of them once."""
    return tuple(
        SuperPod(
            super_pod_id=pod, server_list=tuple(PodServer(server_id=i) for i in dict.fromkeys(ids))
        )
        for pod, ids in servers.items()
    )


def numbered(servers: Iterable[Server]) -> tuple[Server, ...]:
    """The servers with ranks from 0, server by server and device by device as they stand."""
    ranks = count()
    return tuple(
        replace(server, device=tuple(replace(one, rank_id=next(ranks)) for one in server.device))
        for server in servers
    )


def from_members(members: Sequence[parts.Member]) -> RankTable:
    """A table with all that is known of the members, numbered as they stand."""
    pods: dict[str, list[str]] = defaultdict(list)
    servers, ranks = [], count()
    for member in members:
        if member.super_pod_id is not None:
            pods[member.super_pod_id].append(member.server_id)
        devices = tuple(
            RankedDevice(
                device_id=device.device_id,
                super_device_id=device.super_device_id,
                device_ip=device.device_ip,
                rank_id=next(ranks),
            )
            for device in member.devices
        )
        servers.append(Server(server_id=member.server_id, device=devices))
    return RankTable(server_list=tuple(servers), super_pod_list=_super_pods(pods))


def _to_1_2(table: RankTable) -> parts.Converted:
    of_devices = [d.super_device_id for server in table.server_list for d in server.device]
    unknown = of_devices.count(None)
    missing = [f"super_device_id of {unknown} devices"] if unknown else []
    if not table.super_pods:
        count = len(table.server_list)
        missing.append(f"super_pod_list: which super pod each of {count} servers is in")
    if missing:
        raise parts.LackingError(" and ".join(missing))
    return parts.Converted(replace(table, version="1.2"))


def _to_1_0(table: RankTable) -> parts.Converted:
    servers = tuple(
        replace(server, device=tuple(replace(one, super_device_id=None) for one in server.device))
        for server in table.server_list
    )
    left_out = ("super_device_id", "super_pod_list") if table.version == "1.2" else ()
    made = replace(table, version="1.0", server_list=servers, super_pod_list=None)
    return parts.Converted(made, left_out)


HIGHEST: dict[Product, int] = {"910": 7, "a2": 15, "a3": 15, "310p": 31, "a5": 64}
"""The highest device id that HCCL takes on a product."""

PORTS = ("device_port", "device_vnic_port", "host_port", "backup_device_port")

_WORDS = ("net_position", "net_protocol")
"""Members of a device that HCCL reads where they are stated, and takes as strings alone."""


class _Servers(Struct):
    """Checks the servers one after the other; keeps what must be unique or alike."""

    root: Members
    several: bool
    """Whether there are several servers."""
    several_pods: bool
    ids: dict[str, int] = field(default_factory=dict)
    """The index of each server by its id."""
    have_host_ip: list[bool] = field(default_factory=list)
    host_family: bytes = b""
    devices: list[placement.Device] = field(default_factory=list)
    owners: dict[bytes, placement.Device] = field(default_factory=dict)
    """The first device of each address."""
    backups: list[tuple[placement.Device, str]] = field(default_factory=list)
    first_has_no_address: bool = False
    """Whether the first device has none: then rank 0 uses the network of its host."""
    first_address: bytes = b""
    address_count: int = 0
    is_complete: bool = True
    """Whether all devices are objects: else their numbers tell nothing."""

    def check_server(self, server: Members) -> None:
        """Check a server and its devices."""
        index = int(server.path[-1])
        text = server.text("host_ip", optional=True)
        address = None if text is None else server.address("host_ip", text)
        if address is not None and text is not None:
            self.host_family = self.host_family or address
            count = len(self.have_host_ip)
            server.other_family("host-ip-family", "host_ip", text, self.host_family, count)
        self.have_host_ip.append("host_ip" in server)
        name = server.label("server_id", 64, hccl_if_empty="serverId[] is empty")
        first = index if name is None else self.ids.setdefault(name, index)
        if first != index:
            both = f"server_list[{first}] and [{index}]"
            words = f'server_id "{cut(name or "")}" is used twice: {both}'
            server.report("server-twice", "server_id", words, value=name)
        listed, before = server.filled_list("device"), len(self.devices)
        ids: set[int] = set()
        for members in server.objects("device", "a device"):
            device_id = members.number("device_id")
            device = placement.Device(members, index, name or f"server {index}", device_id)
            if device_id is not None:
                self._check_id(device, device_id, ids)
            for name_of_word in _WORDS:
                members.text(name_of_word, optional=True)
            device.ports.update((port, members.port(port)) for port in PORTS)
            self._check_addresses(device)
            backups = members.text("backup_device_ip", optional=True)
            for backup in backups.split(",") if backups else ():
                if members.address("backup_device_ip", backup) is not None:
                    self.backups.append((device, backup))
            device.rank = members.number("rank_id")
            self.devices.append(device)
        self.is_complete &= len(listed or [None]) == len(self.devices) - before

    def _check_id(self, device: placement.Device, device_id: int, ids: set[int]) -> None:
        """Check an id; `ids` are those of the same server."""
        product, members = self.root.check.product, device.members
        highest = HIGHEST[product or "310p"]
        of = CALLED[product] if product else "any product with such tables"
        members.check_highest(device_id, highest, of)
        if product is None and HIGHEST["910"] < device_id <= highest:
            low: tuple[Product, ...] = ("910", "a2", "a3")
            names = [CALLED[product] for product in low if device_id > HIGHEST[product]]
            words = f"device_id {device_id} is refused on {' and '.join(names)}"
            members.report("device-id", "device_id", words, level="warning")
        if device_id in ids:
            words = f"{device.server_name} has device {device_id} twice"
            members.report("device-twice", "device_id", words, index=len(self.devices))
        ids.add(device_id)

    def _check_addresses(self, device: placement.Device) -> None:
        members, is_first = device.members, not self.devices
        text = members.text("device_ip", optional=True)
        addresses = text.split(",") if text else []
        for part in addresses:
            address = members.address("device_ip", part)
            if address is not None:
                self._check_address(part, address, device)
        if not addresses and not (text == "" or "device_ip" not in members):
            return  # not a text, which is reported
        count = len(addresses) or 1
        if is_first:
            self.address_count, self.first_has_no_address = count, not addresses
        elif count != self.address_count and (addresses or self.address_count):
            other, index = self.address_count, len(self.devices)
            words = f"the number of its addresses is {count}, that of the first device {other}"
            name = "device_ip" if addresses else None
            members.report("address-count", name, words, index=index, value=count, other=other)
        if not addresses:
            self._check_without_address(device)

    def _check_address(self, text: str, address: bytes, device: placement.Device) -> None:
        owner = self.owners.setdefault(address, device)
        if owner is not device:
            words = f"device_ip {text} is used twice: {device.server_name} {device} and "
            words += f"server_list[{owner.server}] {owner}"
            device.members.report("address-twice", "device_ip", words, value=text)
        self.first_address = self.first_address or address
        if self.several:
            members, first, rank = device.members, self.first_address, len(self.devices)
            members.other_family("address-family", "device_ip", text, first, rank)

    def _check_without_address(self, device: placement.Device) -> None:
        product = self.root.check.product
        in_one_pod = product == "a3" and not self.several_pods
        if not self.root.check.intra_roce and (not self.several or in_one_pod):
            return
        has_no_member = "device_ip" not in device.members
        over_host = self.have_host_ip[-1] and has_no_member and product != "a2"
        why = "there are several servers" if self.several else "ranks talk over RoCE"
        words = f"{device.server_name} {device} has no device_ip, and {why}"
        words += "; its ranks would talk over the host" if over_host else ""
        level: Level = "warning" if over_host else "error"
        device.members.report("device-ip-missing", "device_ip", words, level=level)

    def check_backups(self) -> None:
        """Check the backup addresses, which need all devices."""
        level = self.root.check.level_on("a3")
        for device, text in self.backups if level else ():
            owner = self.owners.get(packed(text) or b"")
            members, name = device.members, "backup_device_ip"
            if owner is None:
                continue
            if owner is device:
                words = f"{name} {text} is the device's own address"
                members.report("backup-self", name, words, level=level)
                continue
            if device.device_id is None or owner.device_id is None:
                continue
            partner, port = device.device_id ^ 1, device.ports["backup_device_port"]
            if owner.server != device.server or owner.device_id != partner:
                words = f"{name} {text} is that of server_list[{owner.server}] {owner}, and "
                words += f"{device} shares its module with {partner}"
                one, other = device.device_id, owner.device_id
                members.report("backup-partner", name, words, level=level, device=one, other=other)
            elif port is not None and port == owner.ports["device_port"]:
                name = "backup_device_port"
                words = f"{name} {port} is what {owner}, whose address is the backup, uses itself"
                members.report("backup-port", name, words, level=level, value=port)

    def check_host_ips(self) -> None:
        """HCCL uses the hosts' network for all if rank 0 has a host address and no device's."""
        stated = self.have_host_ip
        if all(stated) or not any(stated):
            return
        level: Level = "error" if stated[0] and self.first_has_no_address else "warning"
        words = f"{sum(stated)} of {len(stated)} servers have a host_ip, this one has none"
        path = ("server_list", stated.index(False))
        self.root.check.report("host-ip", path, words, level=level)


def _check(root: Members) -> None:
    values = root.filled_list("server_list")
    if values is None:
        return
    count = root.number("server_count", optional=True)
    root.count("server_count", count, len(values), "server_list has")
    is_super = root.values.get("version") == "1.2"
    pods = placement.pods_by_server(root) if is_super else {}
    servers = _Servers(root, len(values) > 1, len({member.pod for member in pods.values()}) > 1)
    for server in root.objects("server_list", "a server"):
        servers.check_server(server)
    servers.check_backups()
    servers.check_host_ips()
    if servers.is_complete and len(servers.have_host_ip) == len(values):
        placement.check_placement(root.check, servers.devices, servers.ids)
    if is_super:
        placement.check_super_pods(root, servers.devices, servers.ids, pods)


FORMAT_1_0 = parts.Format(
    called="version 1.0",
    products=("910", "a2", "a3", "310p"),
    list_name="server_list",
    device_lists=("server_list", "device"),
    table=RankTable,
    check=_check,
    from_servers=_to_1_0,
)
FORMAT_1_2 = replace(FORMAT_1_0, called="version 1.2", products=("a3",), from_servers=_to_1_2)
