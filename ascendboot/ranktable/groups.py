"""The rank table with a `group_list` as a value: HCCL's "template 2", without version and ranks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendboot.ranktable.servers import Extra


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
        "devices": [_device(device) for device in instance.devices],
    }


def _device(device: GroupDevice) -> dict[str, object]:
    address = {} if device.device_ip is None else {"device_ip": device.device_ip}
    return {"device_id": str(device.device_id), **address, **dict(device.extra)}
