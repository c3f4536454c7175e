"""Group lists, HCCL's "template 2" for 910: without version and ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import Members, cut
from ascendboot.ranktable.formats import parts
from ascendboot.ranktable.formats.placement import MOST_NAME
from ascendboot.ranktable.formats.servers import HIGHEST, RankedDevice, RankTable, Server
from ascendboot.value import Struct, field


class GroupDevice(parts.Part, kw_only=True):
    """One device of an instance."""

    device_id: parts.Number
    device_ip: str | None = None


class Instance(parts.Part, kw_only=True):
    """The part of a job that has one name: RANK_ID in the environment of its processes."""

    last: ClassVar[str] = "devices"

    pod_name: str
    server_id: str
    devices: tuple[GroupDevice, ...] = ()


class Group(parts.Part, kw_only=True):
    """Instances that talk with each other."""

    derived: ClassVar[frozenset[str]] = frozenset({"instance_count", "device_count"})
    last: ClassVar[str] = "instance_list"

    group_name: str
    instance_list: tuple[Instance, ...] = ()

    def document(self) -> dict[str, object]:
        """The group with its counts."""
        devices = sum(len(instance.devices) for instance in self.instance_list)
        counts = {"instance_count": str(len(self.instance_list)), "device_count": str(devices)}
        return {"group_name": self.group_name, **counts, **super().document()}


class GroupTable(parts.Table, kw_only=True):
    """A group list; HCCL numbers the ranks by server id as text, then by device id."""

    called: ClassVar[str] = "group list"
    derived: ClassVar[frozenset[str]] = frozenset({"status", "group_count"})

    group_list: tuple[Group, ...] = ()

    @property
    def instances(self) -> list[Instance]:
        """The instances of all groups."""
        return [instance for group in self.group_list for instance in group.instance_list]

    @property
    def rows(self) -> tuple[parts.Row, ...]:
        """The ranks that HCCL gives."""
        devices = sorted(
            (instance.server_id, device.device_id, device.device_ip or "", instance.pod_name)
            for instance in self.instances
            for device in instance.devices
        )
        return tuple(
            parts.Row(
                rank=rank,
                server=server,
                device_id=device_id,
                addresses=(address,) if address else (),
                others={"pod_name": pod_name},
            )
            for rank, (server, device_id, address, pod_name) in enumerate(devices)
        )

    def document(self) -> dict[str, object]:
        """The table with its count."""
        return {"group_count": str(len(self.group_list)), **super().document()}

    @property
    def other_members(self) -> Mapping[str, Mapping[str, object]]:
        """Those of instances."""
        return {f"instance {one.pod_name}": one.others for one in self.instances}

    def to_servers(self) -> RankTable:
        """The servers in the order in which HCCL numbers them."""
        devices: dict[str, list[RankedDevice]] = {}
        for row in self.rows:
            address = ",".join(row.addresses) or None
            device = RankedDevice(device_id=row.device_id, device_ip=address, rank_id=row.rank)
            devices.setdefault(row.server, []).append(device)
        servers = [Server(server_id=i, device=tuple(found)) for i, found in devices.items()]
        return RankTable(server_list=tuple(servers))

    def only(self, ranks: Sequence[int]) -> parts.Table:
        """These ranks; HCCL numbers them by their servers, whatever order is wanted."""
        return _from_servers(self.to_servers().only(ranks)).table


def _from_servers(table: RankTable) -> parts.Converted:
    """A group list states no ranks: those that HCCL gives must be the same."""
    instances = []
    for server in table.server_list:
        name, own = server.server_id, server.device
        devices = [GroupDevice(device_id=one.device_id, device_ip=one.device_ip) for one in own]
        instances.append(Instance(pod_name=name, server_id=name, devices=tuple(devices)))
    group = Group(group_name="hccl_world_group", instance_list=tuple(instances))
    made = GroupTable(group_list=(group,))
    for one, other in zip(table.rows, made.rows, strict=True):
        if (one.server, one.device_id) != (other.server, other.device_id):
            raise RankTableError(
                f"could not be converted to a group list: HCCL would give rank {other.rank}, now "
                f"{one.server} device {one.device_id}, to {other.server} device {other.device_id}: "
                "it numbers by server_id as text, then by device_id. Number so first: "
                "--order server-id"
            )
    ranked = [device for server in table.server_list for device in server.device]
    left_out = [
        *table.others,
        *(name for server in table.server_list for name in server.others),
        *(name for device in ranked for name in device.others),
        *("super_device_id" for device in ranked if device.super_device_id is not None),
        *("super_pod_list" for _ in table.super_pods),
    ]
    return parts.Converted(made, tuple(dict.fromkeys(left_out)))


_COUNTS = {
    "group_count": "groupList size[{length}] error, groupNum[{value}]",
    "instance_count": "check instanceNum[{value}] or devNum error, checkInstance[{length}]",
    "device_count": "check instanceNum or devNum[{value}] error, checkDev[{length}]",
}
"""HCCL's messages for a wrong count."""


class _Seen(Struct):
    """What must be unique or alike in the whole table."""

    names: set[tuple[str, str]] = field(default_factory=set)
    devices: dict[str, list[int]] = field(default_factory=dict)
    """Device ids by server."""
    device_counts: Counter[str] = field(default_factory=Counter)
    addresses: dict[bytes, str] = field(default_factory=dict)


def _check(root: Members) -> None:
    seen = _Seen()
    groups = root.filled_list("group_list")
    _check_count(root, "group_count", None if groups is None else len(groups), "group_list has")
    for group in root.objects("group_list", "a group"):
        _check_name(group, "group_name", seen)
        instances = group.filled_list("instance_list")
        count = None if instances is None else len(instances)
        _check_count(group, "instance_count", count, "instance_list has")
        devices = sum(
            _check_instance(instance, seen, several=(count or 0) > 1)
            for instance in group.objects("instance_list", "an instance")
        )
        total = None if instances is None else devices
        _check_count(group, "device_count", total, "the instances have")
    counts = sorted(set(seen.device_counts.values()))
    if len(counts) > 1:
        words = f"servers have different numbers of devices: {', '.join(map(str, counts))}"
        root.report("device-count", "group_list", words, level="error")


def _check_instance(instance: Members, seen: _Seen, *, several: bool) -> int:
    """Return how many devices it has."""
    server: str | None = None
    if "instance_name" in instance and not {"pod_name", "server_id"} <= set(instance.values):
        words = "instance_name is there, and pod_name and server_id are not both"
        instance.report("instance-name", "instance_name", words, index=instance.path[-1])
    else:
        _check_name(instance, "pod_name", seen)
        server = instance.label("server_id", 64, hccl_if_empty="serverId[] is empty")
    devices = instance.filled_list("devices") or []
    key = server or str(instance.path)
    seen.device_counts[key] += len(devices)
    ids = seen.devices.setdefault(key, [])
    for device in instance.objects("devices", "a device"):
        value = device.number("device_id")
        device.check_highest(value, HIGHEST["910"], "910")
        if value in ids:
            words = f"{server or 'a server'} has device {value} twice"
            device.report("device-twice", "device_id", words, index=len(ids))
        if value is not None:
            ids.append(value)
        if several:
            _check_address(device, seen)
    return len(devices)


def _check_name(members: Members, key: str, seen: _Seen) -> None:
    name = members.label(key, MOST_NAME)
    if name is None:
        return
    if (key, name) in seen.names:
        members.report("pod-name-twice", key, f'{key} "{cut(name)}" is there twice', value=name)
    seen.names.add((key, name))


def _check_address(device: Members, seen: _Seen) -> None:
    text = device.text("device_ip")
    if text == "":
        words = "device_ip is empty, and there are several servers"
        device.report("device-ip-missing", "device_ip", words)
    address = device.address("device_ip", text) if text else None
    if address is None or text is None:
        return
    if address in seen.addresses:
        device.report("address-twice", "device_ip", f"device_ip {text} is used twice", value=text)
        return
    first = next(iter(seen.addresses), address)
    device.other_family("address-family", "device_ip", text, first, len(seen.addresses))
    seen.addresses[address] = text


def _check_count(members: Members, name: str, length: int | None, of: str) -> None:
    value = members.number(name)
    members.count(name, value, length, of, _COUNTS[name].format(value=value, length=length))


FORMAT = parts.Format(
    called="a group list",
    products=("910",),
    list_name="group_list",
    device_lists=("group_list", "instance_list", "devices"),
    table=GroupTable,
    check=_check,
    from_servers=_from_servers,
)
