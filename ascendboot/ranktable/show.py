"""A table for a person: servers, their devices, ranks and addresses."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ascendboot.ranktable.rows import Row


def lines_of(version: str, rows: Sequence[Row]) -> Iterator[str]:
    """The ranks of a table as text: a head line, then server by server one line per rank."""
    kind = version if version == "group list" else f"version {version}"
    where = "net instance" if version == "2.0" else "server"
    count = len({row.server for row in rows})
    yield f"{kind}, {_plural(len(rows), 'rank')} on {_plural(count, where)}"
    for name, group in groupby(rows, key=lambda row: row.server):
        yield ""
        ranks = list(group)
        yield f"{name}{_pod(ranks)}  {_ranks(ranks)}"
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
    cells = [["rank", "device", "address"]]
    with_pods = any(row.super_device_id is not None for row in rows)
    with_local = any(row.local_id is not None for row in rows)
    cells[0] += ["super device"] * with_pods + ["local id"] * with_local
    for row in rows:
        line = [str(row.rank), str(row.device_id), " ".join(row.addresses) or "-"]
        line += ["-" if row.super_device_id is None else str(row.super_device_id)] * with_pods
        line += ["-" if row.local_id is None else str(row.local_id)] * with_local
        cells.append(line)
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        first = [text.rjust(width) for text, width in zip(line[:2], widths[:2], strict=True)]
        rest = [text.ljust(width) for text, width in zip(line[2:], widths[2:], strict=True)]
        yield f"  {'  '.join(first + rest)}".rstrip()


def _ranks(rows: Sequence[Row]) -> str:
    first, last = rows[0].rank, rows[-1].rank
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


def _pod(rows: Sequence[Row]) -> str:
    return f"  super pod {rows[0].super_pod}" if rows[0].super_pod else ""


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
