"""Validates tables with a `group_list`, HCCL's "template 2": without version and ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.ranktable.fields import Members, cut
from ascendboot.ranktable.placement import MOST_NAME
from ascendboot.ranktable.rules import CALLED, TableCheck
from ascendboot.ranktable.validate_v1 import HIGHEST, MOST_SERVER_ID

if TYPE_CHECKING:
    from collections.abc import Mapping


_COUNTS = {
    "group_count": "groupList size[{length}] error, groupNum[{value}]",
    "instance_count": "check instanceNum[{value}] or devNum error, checkInstance[{length}]",
    "device_count": "check instanceNum or devNum[{value}] error, checkDev[{length}]",
}
"""HCCL's messages for a wrong count."""


@dataclass
class _Table:
    """What must be unique or alike in the whole table."""

    names: dict[str, set[str]] = field(
        default_factory=lambda: {"group_name": set(), "pod_name": set()}
    )
    devices: dict[str, list[int]] = field(default_factory=dict)
    """Device ids by server."""
    counts: Counter[str] = field(default_factory=Counter)
    addresses: dict[bytes, str] = field(default_factory=dict)


def check_group_list(document: Mapping[str, object], check: TableCheck) -> None:
    """Report everything that is wrong with the table."""
    root, table = Members(check, document), _Table()
    groups = root.filled_list("group_list")
    _count(root, "group_count", None if groups is None else len(groups), "group_list has")
    for group in root.objects("group_list", "a group"):
        if group is not None:
            _check_group(group, table)
    counts = set(table.counts.values())
    if len(counts) > 1:
        words = f"servers have different numbers of devices: {', '.join(map(str, sorted(counts)))}"
        root.report("device-count", "group_list", words, level="error")


def _check_group(group: Members, table: _Table) -> None:
    _name(group, "group_name", table)
    instances = group.filled_list("instance_list")
    count = None if instances is None else len(instances)
    _count(group, "instance_count", count, "instance_list has")
    devices = 0
    for instance in group.objects("instance_list", "an instance"):
        if instance is not None:
            devices += _check_instance(instance, table, several=(count or 0) > 1)
    total = None if instances is None else devices
    _count(group, "device_count", total, "the instances have")


def _check_instance(instance: Members, table: _Table, *, several: bool) -> int:
    """Return how many devices it has."""
    server: str | None = None
    if "instance_name" in instance and not {"pod_name", "server_id"} <= set(instance.values):
        words = "instance_name is there, and pod_name and server_id are not both"
        instance.report("instance-name", "instance_name", words, index=instance.path[-1])
    else:
        _name(instance, "pod_name", table)
        empty = "serverId[] is empty"
        server = instance.label("server_id", MOST_SERVER_ID, hccl_if_empty=empty)
    devices = instance.filled_list("devices") or []
    key = server or str(instance.path)
    table.counts[key] += len(devices)
    for device in instance.objects("devices", "a device"):
        if device is not None:
            _check_device_id(device, server, table.devices.setdefault(key, []))
            if several:
                _check_address(device, table)
    return len(devices)


def _name(members: Members, key: str, table: _Table) -> None:
    name = members.label(key, MOST_NAME)
    if name is None:
        return
    if name in table.names[key]:
        members.report("pod-name-twice", key, f'{key} "{cut(name)}" is there twice', value=name)
    table.names[key].add(name)


def _check_device_id(device: Members, server: str | None, ids: list[int]) -> None:
    value, most = device.number("device_id"), HIGHEST["910"]
    if value is None:
        return
    if value > most:
        words = f"device_id {value} is above {most}, the highest of {CALLED['910']}"
        device.report("device-id", "device_id", words, value=value, most=most)
    if value in ids:
        words = f"{server or 'a server'} has device {value} twice"
        device.report("device-twice", "device_id", words, index=len(ids))
    ids.append(value)


def _check_address(device: Members, table: _Table) -> None:
    text = device.text("device_ip")
    if text == "":
        words = "device_ip is empty, and there are several servers"
        device.report("device-ip-missing", "device_ip", words)
    address = device.address("device_ip", text) if text else None
    if address is None or text is None:
        return
    if address in table.addresses:
        device.report("address-twice", "device_ip", f"device_ip {text} is used twice", value=text)
        return
    first = next(iter(table.addresses), address)
    rank = len(table.addresses)
    device.other_family("address-family", "device_ip", text, first, rank)
    table.addresses[address] = text


def _count(members: Members, name: str, length: int | None, of: str) -> None:
    value = members.number(name)
    members.count(name, value, length, of, _COUNTS[name].format(value=value, length=length))
