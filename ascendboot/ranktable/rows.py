"""Rows: who has which rank, in a table of any generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.ranktable.groups import GroupTable
from ascendboot.ranktable.levels import LevelTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ascendboot.ranktable.reading import Table
    from ascendboot.ranktable.servers import Extra, RankTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rank and what the table says of it."""

    rank: int
    server: str
    """Its server; in version 2.0 its net instance of the lowest layer."""
    device_id: int
    addresses: tuple[str, ...] = ()
    super_pod: str = ""
    super_device_id: int | None = None
    local_id: int | None = None
    extra: Extra = ()


def rows_of(table: Table) -> tuple[Row, ...]:
    """All ranks in their order."""
    if isinstance(table, LevelTable):
        rows = _of_levels(table)
    elif isinstance(table, GroupTable):
        rows = _of_groups(table)
    else:
        rows = _of_servers(table)
    return tuple(sorted(rows, key=lambda row: row.rank))


def _of_servers(table: RankTable) -> Iterator[Row]:
    pods = {name: pod.super_pod_id for pod in table.super_pods for name in pod.server_ids}
    for server in table.servers:
        for device in server.devices:
            yield Row(
                rank=device.rank_id,
                server=server.server_id,
                device_id=device.device_id,
                addresses=tuple(device.device_ip.split(",")) if device.device_ip else (),
                super_pod=pods.get(server.server_id, ""),
                super_device_id=device.super_device_id,
                extra=device.extra,
            )


def _of_levels(table: LevelTable) -> Iterator[Row]:
    for rank in table.ranks:
        yield Row(
            rank=rank.rank_id,
            server=rank.levels[0].net_instance_id if rank.levels else "",
            device_id=rank.device_id,
            addresses=tuple(
                f"{level.net_layer}:{address.addr}"
                for level in rank.levels
                for address in level.addresses
            ),
            local_id=rank.local_id,
            extra=rank.extra,
        )


def _of_groups(table: GroupTable) -> Iterator[Row]:
    """HCCL sorts by server id as text, and within a server by device id."""
    devices = sorted(
        (instance.server_id, device.device_id, device.device_ip or "", instance.pod_name)
        for group in table.groups
        for instance in group.instances
        for device in instance.devices
    )
    for rank, (server, device_id, address, pod_name) in enumerate(devices):
        addresses = (address,) if address else ()
        extra = (("pod_name", pod_name),)
        yield Row(rank=rank, server=server, device_id=device_id, addresses=addresses, extra=extra)
