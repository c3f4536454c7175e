"""The rank table with a `server_list` as a value: versions 1.0 and 1.2."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

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
