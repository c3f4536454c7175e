"""The generations of rank tables as values, and how each is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

Version: TypeAlias = Literal["1.0", "1.2"]
Extra: TypeAlias = tuple[tuple[str, object], ...]
"""Members beyond those that we know, by name; kept as they were read."""


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
    """A table of version 2.0."""

    ranks: tuple[LevelRank, ...]
    extra: Extra = ()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def to_json(self) -> str:
        """The file as HCCL reads it: numbers as integers; byte-stable."""
        return _text(
            {
                "status": "completed",
                "version": "2.0",
                "rank_count": len(self.ranks),
                "rank_list": [_rank(rank) for rank in self.ranks],
                **dict(self.extra),
            }
        )


def _rank(rank: LevelRank) -> dict[str, object]:
    return {
        "rank_id": rank.rank_id,
        "local_id": rank.local_id,
        "device_id": rank.device_id,
        **dict(rank.extra),
        "level_list": [
            {
                "net_layer": level.net_layer,
                "net_instance_id": level.net_instance_id,
                **dict(level.extra),
                "rank_addr_list": [
                    {
                        "addr_type": address.addr_type,
                        "addr": address.addr,
                        "ports": address.ports,
                        **dict(address.extra),
                    }
                    for address in level.addresses
                ],
            }
            for level in rank.levels
        ],
    }


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
    """The entry of one node."""

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
    """A table of version 1.0 or 1.2: all servers in rank order."""

    servers: tuple[Server, ...]
    version: Version = "1.0"
    super_pods: tuple[SuperPod, ...] = ()
    extra: Extra = ()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return sum(len(server.devices) for server in self.servers)

    def to_json(self) -> str:
        """The file as HCCL reads it: every number a string; byte-stable."""
        document: dict[str, object] = {
            "status": "completed",
            "version": self.version,
            "server_count": str(len(self.servers)),
            "server_list": [
                {
                    "server_id": server.server_id,
                    **dict(server.extra),
                    "device": [_device(device) for device in server.devices],
                }
                for server in self.servers
            ],
        }
        if self.super_pods:
            document["super_pod_list"] = [
                {
                    "super_pod_id": pod.super_pod_id,
                    **dict(pod.extra),
                    "server_list": [{"server_id": name} for name in pod.server_ids],
                }
                for pod in self.super_pods
            ]
        return _text({**document, **dict(self.extra)})


def _device(device: RankedDevice) -> dict[str, object]:
    members: dict[str, object] = {"device_id": str(device.device_id)}
    if device.super_device_id is not None:
        members["super_device_id"] = str(device.super_device_id)
    if device.device_ip:
        members["device_ip"] = device.device_ip
    return {**members, **dict(device.extra), "rank_id": str(device.rank_id)}


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
    """A group list; HCCL numbers the ranks by server id as text, then by device id."""

    groups: tuple[Group, ...]
    extra: Extra = ()

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return sum(len(i.devices) for group in self.groups for i in group.instances)

    def to_json(self) -> str:
        """The file as HCCL reads it: every number a string; byte-stable."""
        return _text(
            {
                "status": "completed",
                "group_count": str(len(self.groups)),
                "group_list": [_group(group) for group in self.groups],
                **dict(self.extra),
            }
        )


def _group(group: Group) -> dict[str, object]:
    return {
        "group_name": group.group_name,
        "instance_count": str(len(group.instances)),
        "device_count": str(sum(len(instance.devices) for instance in group.instances)),
        **dict(group.extra),
        "instance_list": [
            {
                "pod_name": instance.pod_name,
                "server_id": instance.server_id,
                **dict(instance.extra),
                "devices": [_group_device(device) for device in instance.devices],
            }
            for instance in group.instances
        ],
    }


def _group_device(device: GroupDevice) -> dict[str, object]:
    address = {} if device.device_ip is None else {"device_ip": device.device_ip}
    return {"device_id": str(device.device_id), **address, **dict(device.extra)}


def _text(document: dict[str, object]) -> str:
    return json.dumps(document, indent=2) + "\n"
