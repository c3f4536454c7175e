"""Checks the numbering of ranks and the super pods of versions 1.0 and 1.2."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ascendboot.ranktable.fields import MOST_U32, Members, cut
from ascendboot.ranktable.rules import Level, TableCheck
from ascendboot.ranktable.text import JsonPath
from ascendboot.value import Struct, field

RINGS = (frozenset(range(4)), frozenset(range(4, 8)))
"""The devices of a 910 server that are joined with each other."""

MOST_NAME = 127
_SETS = (1, 2, 4, 8)
_OF_ONE_RING = 4
_SHOWN = 8
_LIST = "super_pod_list"

_CHIP_SHIFT, _CHIP_MASK = 18, 0b1111
_DIE_SHIFT, _DIE_MASK = 16, 0b11
_DEVICE_MASK = 0xFFFF


class Device(Struct):
    """A device of the table, and what other devices are compared with."""

    members: Members
    server: int
    """The index of its server."""
    server_name: str
    device_id: int | None
    rank: int | None = None
    ports: dict[str, int | None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"device {'?' if self.device_id is None else self.device_id}"


Devices: TypeAlias = Sequence[Device]


def check_placement(check: TableCheck, devices: Devices, servers: Mapping[str, int]) -> None:
    """Report what is wrong with the ranks of all devices; `servers` has the indexes by id."""
    by_server: dict[int, list[Device]] = defaultdict(list)
    for device in devices:
        by_server[device.server].append(device)
    ranks = _ranks(devices)
    if len(ranks) == len(devices) and has_all_ranks([one.members for one in devices], ranks):
        for server, of_server in by_server.items():
            own = sorted(_ranks(of_server))
            if not _are_consecutive(own):
                words = f"its ranks, {_some(own)}, are not one after the other"
                check.report("rank-order", ("server_list", server), words)
        if check.job == "mindspore" and len(servers) == len(by_server):
            first_ranks = {name: min(_ranks(by_server[servers[name]])) for name in sorted(servers)}
            for (_, before), (name, rank) in pairwise(first_ranks.items()):
                if rank < before:
                    words = f'"{name}" comes later as text than a server whose ranks are higher'
                    check.report("mindspore-order", ("server_list", servers[name]), words)
                    break
        if len(by_server) > 1 and all(device.device_id is not None for device in devices):
            _check_equal_devices(check, by_server)
    _check_equal_counts(check, by_server)
    if check.product in (None, "910"):
        _check_device_sets(check, by_server)


def _check_equal_counts(check: TableCheck, by_server: Mapping[int, Devices]) -> None:
    counts = Counter(len(devices) for devices in by_server.values())
    if len(counts) < 2:  # noqa: PLR2004  two are needed to differ
        return
    usual = counts.most_common(1)[0][0]
    odd = next(server for server, devices in by_server.items() if len(devices) != usual)
    level: Level = "error" if check.product in ("910", "310p") else "warning"
    others = ", ".join(
        f"{n} {'has' if n == 1 else 'have'} {c}" for c, n in sorted(counts.items(), reverse=True)
    )
    words = f"servers have different numbers of devices: {others}"
    check.report("device-count", ("server_list", odd, "device"), words, level=level)


def _check_equal_devices(check: TableCheck, by_server: Mapping[int, Devices]) -> None:
    first: list[int | None] = []
    for server, devices in by_server.items():
        ids = [device.device_id for device in sorted(devices, key=lambda one: one.rank or 0)]
        first = first or ids
        if ids != first:
            words = f"the devices are {_some(ids)}, those of the first server {_some(first)}"
            level: Level = "error" if check.job == "rec-sdk-tf" else "warning"
            check.report("rec-sdk-devices", ("server_list", server, "device"), words, level=level)
            return


def _check_device_sets(check: TableCheck, by_server: Mapping[int, Devices]) -> None:
    for server, devices in by_server.items():
        ids = {device.device_id for device in devices if device.device_id is not None}
        count = len(devices)
        crosses_rings = 1 < len(ids) <= _OF_ONE_RING and not any(ids <= ring for ring in RINGS)
        if count in _SETS and not crosses_rings:
            continue
        if check.product is None and (count > max(_SETS) or max(ids, default=0) > max(RINGS[1])):
            continue  # not a 910 server
        words = f"{count} devices take part"
        if count in _SETS:
            words = f"{_some(sorted(ids))} are of both rings, 0-3 and 4-7"
        words += "; 910 wants 1, 2, 4 or 8 of one ring"
        path = ("server_list", server, "device")
        check.report("device-set", path, words, level=check.level_on("910") or "error")


def has_all_ranks(entries: Sequence[Members], ranks: Sequence[int]) -> bool:
    """Whether the ranks of all entries are 0 to N-1, each once; others are reported."""
    size, seen = len(ranks), set[int]()
    if sorted(ranks) == list(range(size)):
        return True
    missing = _some(sorted({*range(size)} - {*ranks}))
    rest = f"{size} ranks are numbered 0 to {size - 1}; missing: {missing}"
    for position, (members, rank) in enumerate(zip(entries, ranks, strict=True)):
        if rank >= size or rank in seen:
            problem = "is there twice" if rank < size else "is too high"
            words = f"rank_id {rank} {problem}: {rest}"
            members.report("rank-ids", "rank_id", words, index=position, value=rank)
        seen.add(rank)
    return False


def _ranks(devices: Devices) -> list[int]:
    return [device.rank for device in devices if device.rank is not None]


def _are_consecutive(ranks: Sequence[int]) -> bool:
    return max(ranks) - min(ranks) == len(ranks) - 1


def _some(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:_SHOWN]))
    return shown if len(values) <= _SHOWN else f"{shown}, …"


class PodMember(NamedTuple):
    """The super pod of a server, and where the list of super pods names the server."""

    pod: str
    path: JsonPath


def pods_by_server(root: Members) -> dict[str, PodMember]:
    """The super pod of each server, by their ids; reports what is wrong with the list itself."""
    if _LIST not in root:
        root.report("pods-missing", None, "version 1.2, and no super_pod_list")
        return {}
    root.filled_list(_LIST)
    found: dict[str, PodMember] = {}
    seen: set[str] = set()
    for pod in root.objects(_LIST, "a super pod"):
        name = pod.label("super_pod_id", MOST_NAME, hccl_if_empty="super_pod_id[] is invalid")
        if name is not None and name in seen:
            words = f'super pod "{cut(name)}" is there twice'
            pod.report("pod-twice", "super_pod_id", words, value=name)
            name = None
        seen |= {name} if name else set()
        pod.filled_list("server_list")
        for server in pod.objects("server_list", "a server"):
            _add_server(server, name or f"#{pod.path[-1]}", found)
    return found


def _add_server(server: Members, pod: str, found: dict[str, PodMember]) -> None:
    name = server.text("server_id")
    if name is None or server.is_placeholder("server_id", name):
        return
    if name in found:
        words = f'"{cut(name)}" is in two super pods, this one is {pod}'
        server.report("pod-twice", "server_id", words, value=pod)
        found[name] = PodMember("", found[name].path)
    else:
        found[name] = PodMember(pod, (*server.path, "server_id"))


def check_super_pods(
    root: Members, devices: Devices, servers: Mapping[str, int], pods: Mapping[str, PodMember]
) -> None:
    """Report what is wrong with servers and devices in their super pods."""
    if not isinstance(root.values.get(_LIST), list):
        return
    for name, (pod, path) in pods.items():
        if name not in servers:
            words = f'super pod {pod} names "{cut(name)}", which is not in server_list'
            root.check.report("pod-server", path, words, value=name)
    known, every = len(pods.keys() & servers.keys()), len(servers)
    for name, index in servers.items():
        if name not in pods:
            path, words = ("server_list", index), f'"{cut(name)}" is in no super pod'
            root.check.report("pod-servers", path, words, value=known, other=every)
    pod_of = {servers[name]: member.pod for name, member in pods.items() if name in servers}
    seen: dict[str, set[int]] = defaultdict(set)
    by_pod: dict[str, list[int]] = defaultdict(list)
    for device in devices:
        pod = pod_of.get(device.server, "")
        _check_super_device(device, seen[pod] if pod else set())
        if device.rank is not None:
            by_pod[pod].append(device.rank)
    for pod, ranks in by_pod.items():
        if pod and not _are_consecutive(ranks):
            words = f"the ranks of super pod {cut(pod)} are not one after the other"
            root.report("pod-order", _LIST, words)


def _check_super_device(device: Device, seen: set[int]) -> None:
    """`seen` are the super device ids of the same super pod."""
    members, name = device.members, "super_device_id"
    value = members.number(name)
    if value is None:
        return
    if value == MOST_U32:
        words = f"{name} {value} stands for none"
        members.report("super-device-none", name, words, value=hex(value))
        return
    if value in seen:
        words = f"{name} {value} is there twice in its super pod"
        members.report("super-device-twice", name, words, value=hex(value), pod="")
    seen.add(value)
    chip, die = value >> _CHIP_SHIFT & _CHIP_MASK, value >> _DIE_SHIFT & _DIE_MASK
    device_id = device.device_id
    if value <= _DEVICE_MASK or device_id is None:
        return
    if (value & _DEVICE_MASK, chip, die) != (device_id, device_id // 2, device_id % 2):
        words = f"{name} {value} is of device {value & _DEVICE_MASK}, module {chip}, die {die}"
        members.report("super-device-id", name, f"{words}; the device_id is {device_id}")
