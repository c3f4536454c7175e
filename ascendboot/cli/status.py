"""Shows the jobs of a cluster: `status`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ascendboot.cli.common import end
from ascendboot.cli.known_jobs import JOB_HELP, FoundJob, find_job, status_with_cause
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.errors import UnreachableError
from ascendboot.jobs.stacks import RankStacks, read_stacks
from ascendboot.model.job import JobReport, JobState, RankEnd
from ascendboot.model.names import fold, ranks_named, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ascendboot.console.screen import Screen
    from ascendboot.jobs.probe import RankLoad
    from ascendboot.jobs.status import JobStatus, NodeStatus


def where_ranks_are(found: FoundJob, python: str) -> RankStacks | None:
    """Query where the ranks are, and keep the result in the job's folder; None: no rank runs."""
    if not any(node.alive for node in found.status.nodes):
        return None
    record = found.job.record
    return read_stacks(
        found.transports,
        record.job_folder,
        python,
        folder=found.job.folder,
        why="stacks",
        forks=found.forks,
    )


def shown_places(seen: RankStacks | None) -> list[str]:
    """Lines for a person."""
    if seen is None:
        return []
    kept = [f"all of it is in {os.path.relpath(seen.file)}"] if seen.file is not None else []
    return [*seen.lines, *kept]


def places_json(seen: RankStacks | None) -> dict[str, object]:
    """What `status --json` has of it."""
    if seen is None:
        return {}
    file = None if seen.file is None else str(seen.file)
    return {"stacks": {"lines": list(seen.lines), "file": file}}


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
    """A line that reports a job without progress; empty if it makes progress."""
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
    """Remove colours and control characters."""
    return "".join(c if c.isprintable() else "?" for c in _COLOURS.sub("", line).replace("\t", " "))


@cluster_verb(
    help={
        "job": JOB_HELP,
        "lines": "Show one row per rank, with its complete last line",
        "stacks": "Also show where the ranks are: from py-spy if available, otherwise /proc",
    },
)
def status(
    call: Call,
    *,
    job: str | None = None,
    lines: bool = False,
    stacks: bool = False,
) -> None:
    """Show the state of a job. Read-only.

    For each running rank: the time since its last output, its share of one processor, its memory,
    and its last line. With more than 16 ranks, similar ranks share one row.

    Without an id: the running job, otherwise the last one that was started from this folder.

    Examples:
      invoke status                           the running job, or the last one
      invoke status --stacks                  where its ranks wait, smallest groups first
      invoke status --lines --job 20260102-030405-train-ab12
      invoke status --json | jq .state

    Exit codes: 0 done, 2 no such job, 4 a node of the job is unreachable.
    """
    screen, cluster = call.screen, call.cluster()
    with call.session("status", cluster, reads=True) as session:
        found = find_job(session, job, details=True)
        status_now = status_with_cause(found)
        seen = where_ranks_are(found, cluster.python) if stacks else None
    _show(screen, status_now, every=lines)
    for line in shown_places(seen):
        screen.say(f"  {line}")
    for error in found.errors.values():
        screen.error(str(error))
    code = UnreachableError.exit_code if found.errors else 0
    end(screen, code, {**status_now.to_json(), **places_json(seen)} if call.json else None)


def _show(screen: Screen, found: JobStatus, *, every: bool) -> None:
    report = found.report
    words = report.state.value.replace("_", " ")
    how_long = "for" if report.state is JobState.RUNNING else "after"
    code = "" if report.exit_code is None else f", exit code {report.exit_code}"
    screen.say(
        f"job {report.job_id}  {words} {how_long} {span(report.duration_s)}{code}, "
        f"started {report.started}. Logs in {os.path.relpath(report.folder)}"
    )
    for line in how_it_ended(report):
        screen.say(f"  {line}")
    ends = {end.rank: end for end in report.ranks}
    for nodes, words in _node_rows(found.nodes, ends):
        screen.say(f"  {nodes}  {words}")
    is_running = report.state is JobState.RUNNING
    for row in rank_rows(found.nodes, every=every) if every or is_running else ():
        screen.say(f"    {row}")
    if is_running and (words := standstill(found.nodes)):
        screen.say(f"  {words}", "yellow")
    for note in report.notes:
        screen.say(f"  {note}", "yellow")


def how_it_ended(report: JobReport) -> list[str]:
    """Lines with the message, and the cause or the first failure, without repetitions."""
    cause = [] if report.cause is None else list(report.cause.lines())
    lines = [report.beside_cause] if report.beside_cause else []
    if not cause and (failure := report.first_failure):
        lines.append(f"{failure.node}: rank {failure.rank} failed first")
    return lines + cause


def _node_rows(nodes: Sequence[NodeStatus], ends: dict[int, RankEnd]) -> list[tuple[str, str]]:
    """One row per node; with many nodes, equal ones share a row, smallest groups first."""
    if len(nodes) <= SINGLE_ROWS:
        return [(node.node, _node_words(node, ends, counted=False)) for node in nodes]
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(_node_words(node, ends, counted=True), []).append(node.node)
    return [(fold(names), words) for words, names in sorted(groups.items(), key=_few_first)]


def _few_first(group: tuple[str, list[str]]) -> int:
    return len(group[1])


def _node_words(node: NodeStatus, ends: dict[int, RankEnd], *, counted: bool) -> str:
    """How its ranks are; `counted` says how many instead of which, where all are alike."""
    if node.problem:
        return "unreachable"
    by_code: dict[str, list[int]] = {}
    for rank in node.ranks:
        code = ends[rank].exit_code
        if rank in node.alive:
            words = "alive"
        elif code is not None:
            words = f"ended with {code}"
        else:
            words = "not seen"
        by_code.setdefault(words, []).append(rank)
    parts = [f"{ranks_named(ranks)} {words}" for words, ranks in by_code.items()]
    if counted and len(by_code) == 1:
        parts = [f"all {len(node.ranks)} ranks {words}" for words in by_code]
    if node.launcher_alive is not None:
        parts.append("launcher alive" if node.launcher_alive else "launcher gone")
    return ", ".join(parts)
