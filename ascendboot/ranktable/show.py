"""Shows the ranks of a rank table as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ascendboot.ranktable.formats.parts import Row


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
        yield ""
        is_one = first.rank == last.rank
        yield f"{name}{pod}  " + (
            f"rank {first.rank}" if is_one else f"ranks {first.rank}-{last.rank}"
        )
        yield from _grid(ranks)


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


def _grid(rows: Sequence[Row]) -> Iterator[str]:
    columns = {
        "rank": [str(row.rank) for row in rows],
        "device": [str(row.device_id) for row in rows],
        "address": [" ".join(row.addresses) or "-" for row in rows],
    }
    optional = {
        "super device": [row.super_device_id for row in rows],
        "local id": [row.local_id for row in rows],
    }
    for title, values in optional.items():
        if any(value is not None for value in values):
            columns[title] = ["-" if value is None else str(value) for value in values]
    padded = []
    for title, cells in columns.items():
        width = max(map(len, (title, *cells)))
        pad = str.rjust if title in ("rank", "device") else str.ljust
        padded.append([pad(cell, width) for cell in (title, *cells)])
    for line in zip(*padded, strict=True):
        yield f"  {'  '.join(line)}".rstrip()


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
