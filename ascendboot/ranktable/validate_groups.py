"""Rules of tables with a `group_list` and no version, HCCL's "template 2"; ranks are not stated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.ranktable.fields import (
    cut,
    family,
    family_number,
    kind,
    list_of,
    number_of,
    packed,
    placeholder,
    text_of,
)
from ascendboot.ranktable.rules import CALLED
from ascendboot.ranktable.validate_v1 import HIGHEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.rules import TableCheck
    from ascendboot.ranktable.text import JsonPath

MOST_NAME = 127
MOST_SERVER_ID = 64
_COUNTS = {
    "group_count": "groupList size[{length}] error, groupNum[{value}]",
    "instance_count": "check instanceNum[{value}] or devNum error, checkInstance[{length}]",
    "device_count": "check instanceNum or devNum[{value}] error, checkDev[{length}]",
}
"""HCCL's words for a count that is wrong."""


@dataclass
class _Seen:
    """What must be unique or alike in the whole table."""

    names: dict[str, set[str]] = field(
        default_factory=lambda: {"group_name": set(), "pod_name": set()}
    )
    devices: dict[str, list[int]] = field(default_factory=dict)
    """Device ids by server."""
    counts: Counter[str] = field(default_factory=Counter)
    addresses: dict[bytes, str] = field(default_factory=dict)


def check_group_list(document: Mapping[str, object], judging: TableCheck) -> None:
    """Note everything that is wrong with the table."""
    groups = list_of(judging, document, "group_list", ())
    _count(document, "group_count", None if groups is None else len(groups), (), judging)
    seen = _Seen()
    for index, group in enumerate(groups or ()):
        path: JsonPath = ("group_list", index)
        if isinstance(group, dict):
            _group(group, path, seen, judging)
        else:
            words = f"a group is {kind(group)}, not an object"
            judging.say("wrong-type", path, words, name="group_list")
    _equal_counts(seen, judging)


def _group(group: Mapping[str, object], path: JsonPath, seen: _Seen, judging: TableCheck) -> None:
    _name(group, "group_name", path, seen, judging)
    instances = list_of(judging, group, "instance_list", path)
    count = None if instances is None else len(instances)
    _count(group, "instance_count", count, path, judging)
    devices = 0
    for index, instance in enumerate(instances or ()):
        where = (*path, "instance_list", index)
        if isinstance(instance, dict):
            devices += _instance(instance, where, seen, judging, several=(count or 0) > 1)
        else:
            words = f"an instance is {kind(instance)}, not an object"
            judging.say("wrong-type", where, words, name="instance_list")
    _count(group, "device_count", None if instances is None else devices, path, judging)


def _instance(
    instance: Mapping[str, object],
    path: JsonPath,
    seen: _Seen,
    judging: TableCheck,
    *,
    several: bool,
) -> int:
    """How many devices it has."""
    server: str | None = None
    if "instance_name" in instance and not {"pod_name", "server_id"} <= set(instance):
        judging.say(
            "instance-name",
            (*path, "instance_name"),
            "instance_name is there, and pod_name and server_id are not both",
            index=path[-1],
        )
    else:
        _name(instance, "pod_name", path, seen, judging)
        server = _server(instance, path, judging)
    devices = list_of(judging, instance, "devices", path) or []
    ids = seen.devices.setdefault(server or str(path), [])
    seen.counts[server or str(path)] += len(devices)
    for index, device in enumerate(devices):
        where = (*path, "devices", index)
        if not isinstance(device, dict):
            words = f"a device is {kind(device)}, not an object"
            judging.say("wrong-type", where, words, name="devices")
            continue
        _device_id(device, where, server, ids, judging)
        if several:
            _address(device, where, seen, judging)
    return len(devices)


def _name(
    members: Mapping[str, object], key: str, path: JsonPath, seen: _Seen, judging: TableCheck
) -> None:
    name = text_of(judging, members, key, path)
    if name is None or placeholder(judging, name, key, path):
        return
    length = len(name.encode())
    if length > MOST_NAME:
        words = f"{key} has {length} bytes, and {MOST_NAME} are the most"
        judging.say("too-long", (*path, key), words, length=length, most=MOST_NAME)
    if name in seen.names[key]:
        words = f'{key} "{cut(name)}" is there twice'
        judging.say("pod-name-twice", (*path, key), words, name=key, value=name)
    seen.names[key].add(name)


def _server(instance: Mapping[str, object], path: JsonPath, judging: TableCheck) -> str | None:
    where = (*path, "server_id")
    server = text_of(judging, instance, "server_id", path)
    if server is None or placeholder(judging, server, "server_id", path):
        return None
    length = len(server.encode())
    if not server:
        judging.say("empty", where, "server_id is empty", hccl="serverId[] is empty")
    elif length > MOST_SERVER_ID:
        words = f"server_id has {length} bytes, and {MOST_SERVER_ID} are the most"
        judging.say("too-long", where, words, length=length, most=MOST_SERVER_ID)
    return server


def _device_id(
    device: Mapping[str, object],
    path: JsonPath,
    server: str | None,
    ids: list[int],
    judging: TableCheck,
) -> None:
    value = number_of(judging, device, "device_id", path)
    if value is None:
        return
    where, most = (*path, "device_id"), HIGHEST["910"]
    if value > most:
        words = f"device_id {value} is above {most}, the highest of {CALLED['910']}"
        judging.say("device-id", where, words, value=value, most=most)
    if value in ids:
        words = f"{server or 'a server'} has device {value} twice"
        judging.say("device-twice", where, words, index=len(ids))
    ids.append(value)


def _address(
    device: Mapping[str, object], path: JsonPath, seen: _Seen, judging: TableCheck
) -> None:
    text, where = text_of(judging, device, "device_ip", path), (*path, "device_ip")
    if text is None:
        return
    address = packed(text)
    if not text:
        words = "device_ip is empty, and there are several servers"
        judging.say("device-ip-missing", where, words)
    elif address is None:
        if not placeholder(judging, text, "device_ip", path):
            words = f'device_ip "{cut(text)}" is no IP address'
            judging.say("address", where, words, value=cut(text))
    elif address in seen.addresses:
        words = f"device_ip {text} is used twice"
        judging.say("address-twice", where, words, name="device_ip", value=text)
    else:
        first = next(iter(seen.addresses), address)
        if len(first) != len(address):
            words = f"device_ip {text} is {family(address)}, others are {family(first)}"
            judging.say(
                "address-family",
                where,
                words,
                rank=len(seen.addresses),
                value=family_number(address),
                other=family_number(first),
            )
        seen.addresses[address] = text


def _count(
    members: Mapping[str, object],
    name: str,
    length: int | None,
    path: JsonPath,
    judging: TableCheck,
) -> None:
    value = number_of(judging, members, name, path)
    if value is not None and length is not None and value != length:
        words = f"{name} is {value}, and there are {length}"
        hccl = _COUNTS[name].format(value=value, length=length)
        judging.say("count", (*path, name), words, hccl=hccl)


def _equal_counts(seen: _Seen, judging: TableCheck) -> None:
    counts = set(seen.counts.values())
    if len(counts) > 1:
        words = f"servers have different numbers of devices: {', '.join(map(str, sorted(counts)))}"
        judging.say("device-count", ("group_list",), words, level="error")
