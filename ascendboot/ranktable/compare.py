"""Two tables by what they mean: order, spaces and quotes of the files do not count."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ascendboot.ranktable.groups import GroupTable
from ascendboot.ranktable.levels import LevelTable
from ascendboot.ranktable.rows import Row, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ascendboot.ranktable.reading import Table
    from ascendboot.ranktable.servers import Extra

_CALLED = {"addresses": "device_ip", "server": "server_id", "super_pod": "super_pod_id"}
"""What the files call what rows have."""


@dataclass(frozen=True)
class Difference:
    """One thing in which two tables differ; None stands for what one of them does not have."""

    where: str
    """A rank, a server, or the table."""
    what: str
    first: str | None
    second: str | None

    @property
    def text(self) -> str:
        """As one line: `rank 3: device_ip: 192.0.2.3 -> 192.0.2.4`."""
        first, second = (("nothing" if v is None else v) for v in (self.first, self.second))
        return f"{self.where}: {self.what}: {first} -> {second}"


def differences(first: Table, second: Table) -> tuple[Difference, ...]:
    """Everything in which the two differ, rank by rank; nothing where they mean the same."""
    return (*_table(first, second), *_ranks(first, second), *_servers(first, second))


def version_of(table: Table) -> str:
    """The generation of a table, in words."""
    if isinstance(table, GroupTable):
        return "group list"
    return "2.0" if isinstance(table, LevelTable) else table.version


def _table(first: Table, second: Table) -> Iterator[Difference]:
    if version_of(first) != version_of(second):
        yield Difference("table", "version", version_of(first), version_of(second))
    if first.world_size != second.world_size:
        yield Difference("table", "ranks", str(first.world_size), str(second.world_size))
    yield from _members("table", first.extra, second.extra)


def _ranks(first: Table, second: Table) -> Iterator[Difference]:
    ones = {row.rank: row for row in rows_of(first)}
    others = {row.rank: row for row in rows_of(second)}
    for rank in sorted({*ones, *others}):
        one, other = ones.get(rank), others.get(rank)
        if one is None or other is None:
            yield Difference(f"rank {rank}", "device", _place(one), _place(other))
        elif one != other:
            yield from _row(one, other)


def _row(one: Row, other: Row) -> Iterator[Difference]:
    for name in (field.name for field in fields(Row) if field.name != "extra"):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            texts = [_text(value) for value in values]
            what = _CALLED.get(name, name)
            yield Difference(f"rank {one.rank}", what, texts[0], texts[1])
    yield from _members(f"rank {one.rank}", one.extra, other.extra)


def _servers(first: Table, second: Table) -> Iterator[Difference]:
    ones, others = (_extras(table) for table in (first, second))
    for name in sorted(ones.keys() & others.keys()):
        yield from _members(name, ones[name], others[name])


def _extras(table: Table) -> dict[str, Extra]:
    """What else is said of servers, super pods, instances, by name."""
    if isinstance(table, LevelTable):
        return {
            f"rank {rank.rank_id} layer {level.net_layer}": (
                ("net_instance_id", level.net_instance_id),
                *level.extra,
                *(
                    (address.addr, (address.addr_type, address.ports, *address.extra))
                    for address in level.addresses
                ),
            )
            for rank in table.ranks
            for level in rank.levels
        }
    if isinstance(table, GroupTable):
        return {
            f"instance {instance.pod_name}": instance.extra
            for group in table.groups
            for instance in group.instances
        }
    servers = {f"server {server.server_id}": server.extra for server in table.servers}
    return servers | {f"super pod {pod.super_pod_id}": pod.extra for pod in table.super_pods}


def _members(where: str, first: Extra, second: Extra) -> Iterator[Difference]:
    one, other = dict(first), dict(second)
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            yield Difference(where, name, _text(one.get(name)), _text(other.get(name)))


def _place(row: Row | None) -> str | None:
    return None if row is None else f"{row.server} device {row.device_id}"


def _text(value: object) -> str | None:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or None
    return None if value is None or value == "" else str(value)
