"""The rank table that HCCL reads, as a value (generation v1.0: `server_list`)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from ipaddress import ip_address


@dataclass(frozen=True)
class RankedDevice:
    """One device of a server: physical id, IP of its network port, and the rank that runs on it."""

    device_id: int
    device_ip: str | None
    rank_id: int


@dataclass(frozen=True)
class Server:
    """The rank table's entry for one node."""

    server_id: str
    devices: tuple[RankedDevice, ...]


@dataclass(frozen=True)
class RankTable:
    """All servers of a job, in rank order.

    The rules that `problems` checks are those of HCCL's own reader (hcomm,
    `topoinfo_ranktable*.cc`) as far as they concern a table of this generation.
    """

    servers: tuple[Server, ...]
    version: str = "1.0"

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return sum(len(server.devices) for server in self.servers)

    def problems(self) -> tuple[str, ...]:
        """Everything for which HCCL would refuse the table; empty when it would take it."""
        found: list[str] = []
        ids = Counter(server.server_id for server in self.servers)
        found += [f"server_id {i} is used {n} times" for i, n in ids.items() if n > 1]
        found += [f"server {s.server_id} has no device" for s in self.servers if not s.devices]
        ranks = sorted(d.rank_id for s in self.servers for d in s.devices)
        if ranks != list(range(len(ranks))):
            found.append(f"rank ids are {ranks}; they must be 0 to {len(ranks) - 1}, each once")
        found += self._device_problems()
        return tuple(found)

    def _device_problems(self) -> list[str]:
        found: list[str] = []
        owner_of_ip: dict[str, str] = {}
        families: set[int] = set()
        for server in self.servers:
            seen: set[int] = set()
            for device in server.devices:
                where = f"{server.server_id} device {device.device_id}"
                if device.device_id in seen:
                    found.append(f"{where} stands twice")
                seen.add(device.device_id)
                if device.device_ip is None:
                    if len(self.servers) > 1:
                        found.append(f"{where} has no device_ip; with several servers it needs one")
                    continue
                if device.device_ip in owner_of_ip:
                    other = owner_of_ip[device.device_ip]
                    found.append(f"device_ip {device.device_ip} is used twice: {other} and {where}")
                owner_of_ip[device.device_ip] = where
                families.add(ip_address(device.device_ip).version)
        if len(families) > 1:
            found.append("device IPs mix IPv4 and IPv6; all must be of one family")
        return found

    def to_json(self) -> str:
        """The file as HCCL wants it: every number a string, `status` completed; byte-stable."""
        document = {
            "status": "completed",
            "version": self.version,
            "server_count": str(len(self.servers)),
            "server_list": [
                {
                    "server_id": server.server_id,
                    "device": [_device(device) for device in server.devices],
                }
                for server in self.servers
            ],
        }
        return json.dumps(document, indent=2) + "\n"


def _device(device: RankedDevice) -> dict[str, str]:
    address = {} if device.device_ip is None else {"device_ip": device.device_ip}
    return {"device_id": str(device.device_id), **address, "rank_id": str(device.rank_id)}
