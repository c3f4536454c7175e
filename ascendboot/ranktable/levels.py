"""The rank table with a `rank_list` as a value: version 2.0, that of 950."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendboot.ranktable.servers import Extra


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
