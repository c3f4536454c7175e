"""The generations of rank tables as values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a rank in one net instance, and the ports of the device that have it."""

    addr_type: str
    addr: str
    ports: tuple[str, ...]
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class NetLevel:
    """What a rank has in one layer of the network."""

    net_layer: int
    net_instance_id: str
    addresses: tuple[Address, ...]
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class LevelRank:
    """One rank: its device and its place in each layer."""

    rank_id: int
    local_id: int
    device_id: int
    levels: tuple[NetLevel, ...]
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class LevelTable:
    """All ranks of a job."""

    ranks: tuple[LevelRank, ...]
    extra: Extra = ()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def to_json(self) -> str:
        """The file as HCCL wants it: numbers as integers; byte-stable."""
        document = {
            "status": "completed",
            "version": "2.0",
            "rank_count": len(self.ranks),
            "rank_list": [_rank(rank) for rank in self.ranks],
            **dict(self.extra),
        }
        return json.dumps(document, indent=2) + "\n"


def _rank(rank: LevelRank) -> dict[str, object]:
    return {
        "rank_id": rank.rank_id,
        "local_id": rank.local_id,
        "device_id": rank.device_id,
        **dict(rank.extra),
        "level_list": [_level(level) for level in rank.levels],
    }


def _level(level: NetLevel) -> dict[str, object]:
    return {
        "net_layer": level.net_layer,
        "net_instance_id": level.net_instance_id,
        **dict(level.extra),
        "rank_addr_list": [_address(address) for address in level.addresses],
    }


def _address(address: Address) -> dict[str, object]:
    return {
        "addr_type": address.addr_type,
        "addr": address.addr,
        "ports": list(address.ports),
        **dict(address.extra),
    }


Version: TypeAlias = Literal["1.0", "1.2"]
Extra: TypeAlias = tuple[tuple[str, object], ...]
"""Members beyond those that we know, by name; kept as they were read."""

_PAD = " " * 2


@dataclass(frozen=True, slots=True)
class RankedDevice:
    """One device of a server: physical id, IP of its network port, and the rank that runs on it."""

    device_id: int
    device_ip: str | None
    """Several are joined by commas."""
    rank_id: int
    super_device_id: int | None = None
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class Server:
    """The rank table's entry for one node."""

    server_id: str
    devices: tuple[RankedDevice, ...]
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class SuperPod:
    """Servers that are joined by one scale-up fabric."""

    super_pod_id: str
    server_ids: tuple[str, ...]
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class RankTable:
    """All servers of a job, in rank order."""

    servers: tuple[Server, ...]
    version: Version = "1.0"
    super_pods: tuple[SuperPod, ...] = ()
    extra: Extra = ()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return sum(len(server.devices) for server in self.servers)

    def to_json(self) -> str:
        """The file as HCCL wants it: every number a string, `status` completed; byte-stable."""
        return "".join(self._pieces())

    def _pieces(self) -> Iterator[str]:
        """The text of `json.dumps(…, indent=2)`, which takes several times as long."""
        yield '{\n  "status": "completed",\n'
        yield f'  "version": "{self.version}",\n'
        yield f'  "server_count": "{len(self.servers)}",\n  "server_list": ['
        for index, server in enumerate(self.servers):
            yield ",\n    {" if index else "\n    {"
            yield f'\n      "server_id": {json.dumps(server.server_id)},'
            yield from _members(server.extra, 3, ",")
            yield '\n      "device": ['
            yield ",".join([_device(device) for device in server.devices])
            yield "\n      ]\n    }"
        yield "\n  ]"
        if self.super_pods:
            yield ',\n  "super_pod_list": '
            yield _indented([_pod(pod) for pod in self.super_pods], 1)
        yield from (f",{text[:-1]}" for text in _members(self.extra, 1, ","))
        yield "\n}\n"


def _device(device: RankedDevice) -> str:
    address = (
        f'\n          "device_ip": {json.dumps(device.device_ip)},' if device.device_ip else ""
    )
    place = device.super_device_id
    pod = "" if place is None else f'\n          "super_device_id": "{place}",'
    more = "".join(_members(device.extra, 5, ",")) if device.extra else ""
    return (
        f'\n        {{\n          "device_id": "{device.device_id}",{pod}{address}{more}'
        f'\n          "rank_id": "{device.rank_id}"\n        }}'
    )


def _pod(pod: SuperPod) -> dict[str, object]:
    return {
        "super_pod_id": pod.super_pod_id,
        **dict(pod.extra),
        "server_list": [{"server_id": name} for name in pod.server_ids],
    }


def _members(extra: Extra, depth: int, end: str) -> Iterator[str]:
    for name, value in extra:
        yield f"\n{_PAD * depth}{json.dumps(name)}: {_indented(value, depth)}{end}"


def _indented(value: object, depth: int) -> str:
    return json.dumps(value, indent=2).replace("\n", "\n" + _PAD * depth)


@dataclass(frozen=True, slots=True)
class GroupDevice:
    """One device of an instance."""

    device_id: int
    device_ip: str | None
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """The part of a job that has one name: RANK_ID in the environment of its processes."""

    pod_name: str
    server_id: str
    devices: tuple[GroupDevice, ...]
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Instances that talk with each other."""

    group_name: str
    instances: tuple[Instance, ...]
    extra: Extra = ()


@dataclass(frozen=True, slots=True)
class GroupTable:
    """All groups of a job; HCCL numbers the ranks by server id as text, then by device id."""

    groups: tuple[Group, ...]
    extra: Extra = ()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return sum(len(i.devices) for group in self.groups for i in group.instances)

    def to_json(self) -> str:
        """The file as HCCL wants it: every number a string; byte-stable."""
        document = {
            "status": "completed",
            "group_count": str(len(self.groups)),
            "group_list": [_group(group) for group in self.groups],
            **dict(self.extra),
        }
        return json.dumps(document, indent=2) + "\n"


def _group(group: Group) -> dict[str, object]:
    return {
        "group_name": group.group_name,
        "instance_count": str(len(group.instances)),
        "device_count": str(sum(len(instance.devices) for instance in group.instances)),
        **dict(group.extra),
        "instance_list": [_instance(instance) for instance in group.instances],
    }


def _instance(instance: Instance) -> dict[str, object]:
    return {
        "pod_name": instance.pod_name,
        "server_id": instance.server_id,
        **dict(instance.extra),
        "devices": [_group_device(device) for device in instance.devices],
    }


def _group_device(device: GroupDevice) -> dict[str, object]:
    address = {} if device.device_ip is None else {"device_ip": device.device_ip}
    return {"device_id": str(device.device_id), **address, **dict(device.extra)}
