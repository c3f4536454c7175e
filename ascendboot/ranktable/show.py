"""Shows the ranks of a rank table as text or JSON, and how two tables differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ascendboot.ranktable.formats.parts import Row, Table
from ascendboot.value import Value


def lines_of(generation: str, rows: Sequence[Row]) -> Iterator[str]:
    """The ranks of a table as text: a head line, then server by server one line per rank."""
    called = generation if generation == "group list" else f"version {generation}"
    where = "net instance" if generation == "2.0" else "server"
    count = len({row.server for row in rows})
    yield f"{called}, {_plural(len(rows), 'rank')} on {_plural(count, where)}"
    for name, group in groupby(rows, key=lambda row: row.server):
        ranks = list(group)
        first, last = ranks[0], ranks[-1]
        pod = f"  super pod {first.super_pod}" if first.super_pod else ""
        own = f"ranks {first.rank}-{last.rank}"
        if first.rank == last.rank:
            own = f"rank {first.rank}"
        yield ""
        yield f"{name}{pod}  {own}"
        columns = {
            "rank": [str(row.rank) for row in ranks],
            "device": [str(row.device_id) for row in ranks],
            "address": [" ".join(row.addresses) or "-" for row in ranks],
        }
        optional = {
            "super device": [row.super_device_id for row in ranks],
            "local id": [row.local_id for row in ranks],
        }
        for title, values in optional.items():
            if any(value is not None for value in values):
                columns[title] = ["-" if value is None else str(value) for value in values]
        yield from in_columns(columns, numbers=("rank", "device"))


def rows_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The same for programs."""
    return [
        {
            "rank": row.rank,
            "server": row.server,
            "device": row.device_id,
            "addresses": list(row.addresses),
            "super_pod": row.super_pod or None,
            "super_device_id": row.super_device_id,
            "local_id": row.local_id,
        }
        for row in rows
    ]


def in_columns(columns: Mapping[str, Sequence[str]], *, numbers: Sequence[str] = ()) -> list[str]:
    """The lines of a table by title; columns in `numbers` are aligned to the right."""
    padded = []
    for title, cells in columns.items():
        width = max(map(len, (title, *cells)))
        pad = str.rjust if title in numbers else str.ljust
        padded.append([pad(cell, width) for cell in (title, *cells)])
    return [f"  {'  '.join(line)}".rstrip() for line in zip(*padded, strict=True)]


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


_CALLED = {"addresses": "device_ip", "server": "server_id", "super_pod": "super_pod_id"}
"""The members of files, by the attribute of a row."""


class Difference(Value):
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
    """Everything in which the two differ, rank by rank; empty where they mean the same."""
    return tuple(_differences(first, second))


def _differences(first: Table, second: Table) -> Iterator[Difference]:
    one_table = {"version": first.generation, "ranks": first.world_size}
    other_table = {"version": second.generation, "ranks": second.world_size}
    yield from _members("table", one_table, other_table, ordered=("version", "ranks"))
    yield from _members("table", first.others, second.others)
    ones, others = ({row.rank: row for row in table.rows} for table in (first, second))
    names = tuple(name for name in Row.__struct_fields__ if name != "others")
    for rank in sorted({*ones, *others}):
        one, other = ones.get(rank), others.get(rank)
        where = f"rank {rank}"
        if one is None or other is None:
            yield Difference(where, "device", _place(one), _place(other))
        elif one != other:
            values = ({name: getattr(row, name) for name in names} for row in (one, other))
            yield from _members(where, *values, ordered=names)
            yield from _members(where, one.others, other.others)
    one_members, other_members = first.other_members, second.other_members
    for where in sorted(one_members.keys() & other_members.keys()):
        yield from _members(where, one_members[where], other_members[where])


def _members(
    where: str,
    first: Mapping[str, object],
    second: Mapping[str, object],
    *,
    ordered: tuple[str, ...] = (),
) -> Iterator[Difference]:
    """The members that differ, in the order given, else by name."""
    for name in ordered or sorted(first.keys() | second.keys()):
        one, other = first.get(name), second.get(name)
        if one != other:
            what = _CALLED.get(name, name) if ordered else name
            yield Difference(where, what, _text(one), _text(other))


def _place(row: Row | None) -> str | None:
    return None if row is None else f"{row.server} device {row.device_id}"


def _text(value: object) -> str | None:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or None
    return None if value is None or value == "" else str(value)
