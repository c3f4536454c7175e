"""Rules of super pods: what version 1.2 adds to a `server_list`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ascendboot.ranktable.fields import (
    cut,
    kind,
    list_of,
    number,
    placeholder,
    taken_by_hccl,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.ranktable.jsontext import Path
    from ascendboot.ranktable.placed import Row
    from ascendboot.ranktable.problem import Judging

MOST_NAME = 127
_LIST = "super_pod_list"

_CHIP_SHIFT, _CHIP_MASK = 18, 0b1111
_DIE_SHIFT, _DIE_MASK = 16, 0b11
_DEVICE_MASK = 0xFFFF


def pod_of_servers(document: Mapping[str, object], judging: Judging) -> dict[str, str]:
    """The super pod of each server, by their ids; what is wrong with the list itself is noted."""
    if _LIST not in document:
        judging.say("pods-missing", (), "version 1.2, and no super_pod_list")
        return {}
    pods = list_of(judging, document, _LIST, ())
    of_servers: dict[str, str] = {}
    seen: set[str] = set()
    for index, pod in enumerate(pods or ()):
        path: Path = (_LIST, index)
        if not isinstance(pod, dict):
            words = f"a super pod is {kind(pod)}, not an object"
            judging.say("wrong-type", path, words, name=_LIST)
            continue
        name = _pod_id(pod, path, seen, judging)
        for place, server in enumerate(list_of(judging, pod, "server_list", path) or ()):
            where = (*path, "server_list", place)
            if isinstance(server, dict):
                _server(server, where, name or f"#{index}", of_servers, judging)
            else:
                words = f"a server is {kind(server)}, not an object"
                judging.say("wrong-type", where, words, name="server_list")
    return of_servers


def judge(
    document: Mapping[str, object],
    rows: Sequence[Row],
    servers: Mapping[str, int],
    pods: Mapping[str, str],
    judging: Judging,
) -> None:
    """Note what is wrong with servers and devices in their super pods."""
    if not isinstance(document.get(_LIST), list):
        return
    for name, pod in pods.items():
        if name not in servers:
            words = f'super pod {pod} names "{cut(name)}", which is not in server_list'
            judging.say("pod-server", _place(document, name), words, value=name)
    for name, index in servers.items():
        if name not in pods:
            judging.say(
                "pod-servers",
                ("server_list", index),
                f'"{cut(name)}" is in no super pod',
                value=len(set(pods) & set(servers)),
                other=len(servers),
            )
    pod_of = {index: pods.get(name, "") for name, index in servers.items()}
    _super_devices(rows, pod_of, judging)
    _order(rows, pod_of, judging)


def _pod_id(pod: Mapping[str, object], path: Path, seen: set[str], judging: Judging) -> str | None:
    where = (*path, "super_pod_id")
    name = text_of(judging, pod, "super_pod_id", path)
    if name is None or placeholder(judging, name, "super_pod_id", path):
        return None
    if not name:
        judging.say("empty", where, "super_pod_id is empty", hccl="super_pod_id[] is invalid")
        return None
    if len(name.encode()) > MOST_NAME:
        length = len(name.encode())
        words = f"super_pod_id has {length} bytes, and {MOST_NAME} are the most"
        judging.say("too-long", where, words, length=length, most=MOST_NAME)
    if name in seen:
        judging.say("pod-twice", where, f'super pod "{cut(name)}" is there twice', value=name)
        return None
    seen.add(name)
    return name


def _server(
    server: Mapping[str, object], path: Path, pod: str, of_servers: dict[str, str], judging: Judging
) -> None:
    name = text_of(judging, server, "server_id", path)
    if name is None or placeholder(judging, name, "server_id", path):
        return
    if name in of_servers:
        words = f'"{cut(name)}" is in two super pods, this one is {pod}'
        judging.say("pod-twice", (*path, "server_id"), words, value=pod)
    of_servers[name] = "" if name in of_servers else pod


def _super_devices(rows: Sequence[Row], pod_of: Mapping[int, str], judging: Judging) -> None:
    seen: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        where = (*row.path, "super_device_id")
        text = row.super_device_id
        if text is None:
            words = "super_device_id is missing, and there are super pods"
            judging.say("missing", row.path, words, name="super_device_id")
        elif not isinstance(text, str):
            words = f"super_device_id is {kind(text)}, not a string"
            judging.say("not-a-string", where, words, name="super_device_id")
        elif (value := number(text)) is None:
            if not placeholder(judging, text, "super_device_id", row.path):
                words = f'super_device_id is "{cut(text)}"; a whole number is wanted'
                hccl = "" if taken_by_hccl(text) else None
                judging.say("not-digits", where, words, hccl=hccl, name=where[-1], value=cut(text))
        else:
            pod = pod_of.get(row.server)
            _super_device(value, row, seen[pod] if pod else set(), where, judging)


def _super_device(value: int, row: Row, seen: set[int], where: Path, judging: Judging) -> None:
    if value in seen:
        words = f"super_device_id {value} is there twice in its super pod"
        judging.say("super-device-twice", where, words, value=hex(value), pod="")
    seen.add(value)
    if value > _DEVICE_MASK and row.device_id is not None and not _fits(value, row.device_id):
        judging.say(
            "super-device-id",
            where,
            f"super_device_id {value} is of device {value & _DEVICE_MASK}, module "
            f"{value >> _CHIP_SHIFT & _CHIP_MASK}, die {value >> _DIE_SHIFT & _DIE_MASK}; "
            f"the device_id is {row.device_id}",
        )


def _fits(value: int, device_id: int) -> bool:
    chip, die = value >> _CHIP_SHIFT & _CHIP_MASK, value >> _DIE_SHIFT & _DIE_MASK
    return (value & _DEVICE_MASK, chip, die) == (device_id, device_id // 2, device_id % 2)


def _order(rows: Sequence[Row], pod_of: Mapping[int, str], judging: Judging) -> None:
    by_pod: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row.rank is not None:
            by_pod[pod_of.get(row.server, "")].append(row.rank)
    for pod, ranks in by_pod.items():
        if pod and max(ranks) - min(ranks) != len(ranks) - 1:
            words = f"the ranks of super pod {cut(pod)} are not one after the other"
            judging.say("pod-order", (_LIST,), words)


def _place(document: Mapping[str, object], name: str) -> Path:
    """Where the list of super pods names a server."""
    pods = document[_LIST]
    for index, pod in enumerate(pods if isinstance(pods, list) else ()):
        for place, server in enumerate(pod.get("server_list") or ()):
            if isinstance(server, dict) and server.get("server_id") == name:
                return (_LIST, index, "server_list", place, "server_id")
    return (_LIST,)
