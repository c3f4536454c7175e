"""The ranks of a job that runs, as rows for a person: many that do alike are one row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ascendboot.model.names import ranks_named
from ascendboot.model.spans import span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ascendboot.launch.look import RankLoad
    from ascendboot.launch.status import NodeStatus

SINGLE_ROWS: Final = 16
"""So many ranks have a row each, whatever they do."""
_SHOWN_GROUPS: Final = 8
_LONGEST_LINE: Final = 160
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_QUIET_S: Final = 600.0
_STILL_PERCENT: Final = 5.0
_STATES: Final = {
    "T": "stopped by a signal",
    "t": "held by a debugger",
    "D": "sleeps uninterruptibly",
    "Z": "has ended",
}
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class _Row:
    """A rank, as far as it is known."""

    rank: int
    node: str
    line: str
    silent_s: float | None
    load: RankLoad | None

    @property
    def kind(self) -> tuple[str, str]:
        """Equal for ranks that do alike: the same line but for its numbers, and the same state."""
        state = self.load.state if self.load is not None else ""
        return _STATES.get(state, ""), _NUMBER.sub("#", self.line)


def rank_rows(nodes: Iterable[NodeStatus], *, every: bool) -> list[str]:
    """A row for each rank that runs, or with too many for each group that does alike, few first.

    With `every` each rank that wrote anything, or could have, has a row, with its whole last line.
    """
    rows = [row for node in nodes for row in _rows(node, every=every)]
    if every or len(rows) <= SINGLE_ROWS:
        return _aligned([(f"{r.node}:{r.rank}", [r]) for r in rows], whole=every)
    groups: dict[tuple[str, str], list[_Row]] = {}
    for row in rows:
        groups.setdefault(row.kind, []).append(row)
    ordered = sorted(groups.values(), key=lambda group: (len(group), group[0].rank))
    shown = _aligned([(_name(group), group) for group in ordered[:_SHOWN_GROUPS]], whole=False)
    if more := ordered[_SHOWN_GROUPS:]:
        count = sum(map(len, more))
        shown.append(f"{count} more ranks have {len(more)} other last lines; --lines shows all")
    return shown


def standstill(nodes: Iterable[NodeStatus]) -> str:
    """That the job seems to stand still; empty when it does not."""
    rows = [row for node in nodes for row in _rows(node, every=False)]
    known = [(row.silent_s, row.load) for row in rows]
    silent = [seconds for seconds, _ in known if seconds is not None]
    loads = [load for _, load in known if load is not None]
    if not rows or len(silent) < len(rows) or len(loads) < len(rows) or min(silent) < _QUIET_S:
        return ""
    still = max(load.cpu_percent for load in loads) <= _STILL_PERCENT
    works = "and none computes" if still else "while ranks use their processors"
    return (
        f"no rank has put out anything for {span(min(silent))}, {works}; "
        "status --stacks shows where they are"
    )


def size(count: float) -> str:
    """Bytes as a person reads them: `1.2 GiB`."""
    if count >= _GIB:
        return f"{count / _GIB:.1f} GiB"
    return f"{count / _MIB:.0f} MiB"


def _rows(node: NodeStatus, *, every: bool) -> list[_Row]:
    lines = dict(node.last_lines)
    return [
        _Row(
            rank=rank,
            node=node.node,
            line=_plain(lines.get(rank, "")),
            silent_s=node.silent_s.get(rank),
            load=node.loads.get(rank),
        )
        for rank in (lines if every else node.alive)
    ]


def _aligned(named: Sequence[tuple[str, Sequence[_Row]]], *, whole: bool) -> list[str]:
    cells = [(name, *_cells(rows), _line(rows, whole=whole)) for name, rows in named]
    widths = [max(len(row[column]) for row in cells) for column in range(4)] if cells else []
    shown = []
    for name, *values, line in cells:
        columns = [name.ljust(widths[0])]
        columns += [v.rjust(w) for v, w in zip(values, widths[1:], strict=True) if w]
        shown.append(f"{'  '.join(columns)} | {line}".rstrip())
    return shown


def _cells(rows: Sequence[_Row]) -> tuple[str, str, str]:
    """How long silent, CPU, memory: what there is of it."""
    silent = [row.silent_s for row in rows if row.silent_s is not None]
    loads = [row.load for row in rows if row.load is not None]
    return (
        f"{_between([span(s) for s in (min(silent), max(silent))])} ago" if silent else "",
        f"{_between([f'{p:.0f}' for p in _ends([x.cpu_percent for x in loads])])} %"
        if loads
        else "",
        _between([size(b) for b in _ends([x.memory_bytes for x in loads])]) if loads else "",
    )


def _ends(numbers: Sequence[float]) -> tuple[float, float]:
    return min(numbers), max(numbers)


def _between(words: Sequence[str]) -> str:
    first, last = words
    return first if first == last else f"{first} - {last}"


def _line(rows: Sequence[_Row], *, whole: bool) -> str:
    last = min(rows, key=lambda row: (row.silent_s or 0.0, row.rank))
    cut = not whole and len(last.line) > _LONGEST_LINE
    text = f"{last.line[:_LONGEST_LINE]}…" if cut else last.line
    state = last.kind[0]
    return f"({state}) {text}" if state else text


def _name(rows: Sequence[_Row]) -> str:
    if len(rows) == 1:
        return f"{rows[0].node}:{rows[0].rank}"
    return ranks_named([row.rank for row in rows])


def _plain(line: str) -> str:
    """Without colours, and without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in _COLOURS.sub("", line).replace("\t", " "))
