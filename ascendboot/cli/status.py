"""`status` and `jobs`: show the state of a job, and list jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any, Final

from ascendboot.cli.known_jobs import (
    JOB_HELP,
    all_jobs,
    find_job,
    look_at_jobs,
    now,
    npus_of,
    status_with_cause,
    supervision,
)
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import AscendbootError, UnreachableError
from ascendboot.jobs.probe import RankLoad
from ascendboot.jobs.stacks import read_stacks
from ascendboot.jobs.status import JobStatus, NodeStatus
from ascendboot.launch.plan import JobRecord
from ascendboot.model.job import JobReport, JobState, RankEnd
from ascendboot.model.names import fold, ranks_named, span
from ascendboot.value import Value

SINGLE_ROWS: Final = 16
"""Up to this number, every rank and every node has a row of its own."""
_SHOWN_GROUPS: Final = 8
_LISTED: Final = 20
_LONGEST_LINE: Final = 160
_SHOWN_WHOLE: Final = 10
_GIB: Final = 1 << 30
_STATES: Final = {
    "T": "stopped by a signal",
    "t": "held by a debugger",
    "D": "sleeps uninterruptibly",
    "Z": "has ended",
}
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?")


@cluster_verb(
    help={
        "job": JOB_HELP,
        "lines": "Show one row per rank, with its complete last line",
        "stacks": "Also show where the ranks are: from py-spy if available, otherwise /proc",
    }
)
def status(
    call: Call, *, job: str | None = None, lines: bool = False, stacks: bool = False
) -> None:
    """Show the state of a job. Read-only.

    For each node: use, memory and temperature of its NPUs, and the lines per
    second of its ranks. For each running rank: the time since its last output, its
    share of one processor, its memory, and its last line. With more than 16 ranks,
    similar ranks share one row.

    Without an id: the running job, otherwise the last one that was started from
    this folder.

    Examples:
      invoke status           the running job, or the last one
      invoke status --stacks  where its ranks wait
      invoke status --lines --job 20260102-030405-train-ab12
      invoke status --json | jq .state

    Exit codes: 0 done, 2 no such job, 4 a node of the job is unreachable.
    """
    screen, cluster, stacks_read = call.screen, call.cluster(), None
    with call.session("status", cluster, reads=True) as session:
        found = find_job(session, job, details=True)
        status_now = status_with_cause(found).with_npus(npus_of(found))
        if stacks and any(node.alive for node in found.status.nodes):
            stacks_read = read_stacks(
                found.transports,
                found.job.record.job_folder,
                cluster.python,
                folder=found.job.folder,
                why="stacks",
                forks=call.forks,
            )
    _show(screen, status_now, every=lines)
    document = status_now.to_json()
    if (supervised := supervision(found.job.folder.parent)) is not None:
        for line in supervised.lines(now()):
            screen.say(f"  {line}")
        document["supervision"] = supervised.to_json()
    if stacks_read is not None:
        places, file = stacks_read
        for line in places:
            screen.say(f"  {line}")
        if file is not None:
            screen.say(f"  details: {os.path.relpath(file)}")
        document["stacks"] = {"lines": places, "file": None if file is None else str(file)}
    for error in found.errors.values():
        screen.error(str(error))
    call.end(UnreachableError.exit_code if found.errors else 0, document)


@cluster_verb(help={"all": f"Also list those before the last {_LISTED}"})
def jobs(call: Call, *, all: bool = False) -> None:  # noqa: A002 - the flag's name
    """List the jobs that were started from here, the newest first. Read-only.

    Wherever a job is named, the beginning of its id or its last part will do.

    Examples:
      invoke jobs
      invoke jobs --json | jq '.jobs[] | select(.state == "failed")'
      invoke status --job ab12

    Exit codes: 0 done, 1 files of a job are damaged (its row names them), 4 a node of
    an unfinished job is unreachable.
    """
    cluster, damaged = call.cluster(), list[dict[str, Any]]()

    def note(folder: Path, error: AscendbootError) -> None:
        job_id = ".".join(folder.relative_to(call.state.runs).parts)
        empty = {"exit_code": None, "started": None, "script": None, "nodes": ()}
        damaged.append({"job_id": job_id, "state": "damaged", **empty, "problem": str(error)})

    known = list(islice(all_jobs(call.state, cluster, note), None if all else _LISTED))
    unfinished = [job for job in known if job.final is None]
    with call.session("jobs", cluster, reads=True) as session:
        found = look_at_jobs(session, unfinished) if unfinished else []
        states = {job.job.folder: status_with_cause(job).report for job in found}
    rows = [_job(job.record, job.final or states[job.folder]) for job in known]
    rows = sorted([*rows, *damaged], key=itemgetter("job_id"), reverse=True)
    problems = {str(error) for job in found for error in job.errors.values()}
    for problem in sorted(problems):
        call.screen.error(problem)
    lines = map(_job_row, rows) if rows else ["no job was started from here"]
    code = AscendbootError.exit_code if damaged else 0
    call.end(UnreachableError.exit_code if problems else code, {"jobs": rows}, lines)


def _job(record: JobRecord, report: JobReport) -> dict[str, Any]:
    script = record.script_json or {}
    shown = {"script": script.get("copied_from") or script.get("path"), "nodes": record.nodes}
    is_known = {"exit_code": report.exit_code, "started": record.started}
    return {"job_id": record.job_id, "state": report.state.value, **is_known, **shown}


def _job_row(row: dict[str, Any]) -> str:
    if problem := row.get("problem"):
        return f"{row['job_id']}  {row['state']:<12} {problem}"
    age = span((now() - datetime.fromisoformat(row["started"])).total_seconds())
    code = f" ({row['exit_code']})" if row["exit_code"] else ""
    state, script = row["state"].replace("_", " ") + code, PurePath(row["script"] or "").name
    return f"{row['job_id']}  {state:<12} {age + ' ago':<15} {fold(row['nodes'])}  {script}"


def _show(screen: Screen, found: JobStatus, *, every: bool) -> None:
    report = found.report
    is_running = report.state is JobState.RUNNING
    code = "" if report.exit_code is None else f", exit code {report.exit_code}"
    screen.say(
        f"job {report.job_id}  {report.state.value.replace('_', ' ')} "
        f"{'for' if is_running else 'after'} {span(report.duration_s)}{code}, "
        f"started {report.started}. Logs in {os.path.relpath(report.folder)}"
    )
    for line in how_it_ended(report):
        screen.say(f"  {line}")
    for line in node_rows(found.nodes, {rank.rank: rank for rank in report.ranks}):
        screen.say(f"  {line}")
    for row in rank_rows(found.nodes, every=every) if every or is_running else ():
        screen.say(f"    {row}")
    for note in report.notes:
        screen.say(f"  {note}", "yellow")


def how_it_ended(report: JobReport) -> list[str]:
    """Lines with the message, and the cause or the first failure, without repetitions."""
    lines = [report.beside_cause] if report.beside_cause else []
    if report.cause is not None:
        lines += report.cause.lines()
    elif failure := report.first_failure:
        lines.append(f"{failure.node}: rank {failure.rank} failed first")
    return lines


def node_rows(nodes: Sequence[NodeStatus], ends: dict[int, RankEnd]) -> list[str]:
    """One row per node; with many nodes, equal ones share a row, smallest groups first."""
    counted = len(nodes) > SINGLE_ROWS
    groups: dict[str, list[NodeStatus]] = {}
    for node in nodes:
        words = _node_words(node, ends, counted=counted)
        groups.setdefault(words if counted else node.node, []).append(node)
    ordered = sorted(groups.values(), key=len)
    return _aligned(
        [
            (
                fold(node.node for node in group),
                *_numbers(group),
                _node_words(group[0], ends, counted=counted),
            )
            for group in ordered
        ],
        between="  ",
    )


def _numbers(nodes: Sequence[NodeStatus]) -> tuple[str, str, str, str]:
    """Use, memory and temperature of the NPUs, and lines per second, as far as they are known."""
    uses = [use for node in nodes for use in node.npus.values()]
    percent = [u.utilization_percent for u in uses if u.utilization_percent is not None]
    celsius = [u.temperature_c for u in uses if u.temperature_c is not None]
    total_mb = max((use.memory_total_mb for use in uses), default=0)
    used = _range([use.memory_used_mb / 1024 for use in uses], "{:.0f}".format)
    paces = [pace for node in nodes if node.alive for pace in node.lines_per_s.values()]
    busy, hot = _range(percent, "{:.0f}".format), _range(celsius, "{:.0f}".format)
    return (
        busy and f"NPU {busy} %",
        f"{used} of {total_mb / 1024:.0f} GiB" if total_mb else "",
        hot and f"{hot} °C",
        f"{sum(paces):.{0 if sum(paces) >= _SHOWN_WHOLE else 1}f} lines/s" if paces else "",
    )


def _node_words(node: NodeStatus, ends: dict[int, RankEnd], *, counted: bool) -> str:
    """Describe the ranks of a node; `counted` gives their number if all are alike."""
    if node.problem:
        return "unreachable"
    alike: dict[str, list[int]] = {}
    for rank in node.ranks:
        code = ends[rank].exit_code
        ended = "not seen" if code is None else f"ended with {code}"
        alike.setdefault("alive" if rank in node.alive else ended, []).append(rank)
    if counted and len(alike) == 1:
        parts = [f"all {len(node.ranks)} ranks {words}" for words in alike]
    else:
        parts = [f"{ranks_named(ranks)} {words}" for words, ranks in alike.items()]
    if node.launcher_alive is not None:
        parts.append("launcher alive" if node.launcher_alive else "launcher gone")
    return ", ".join(parts)


class _Rank(Value):
    """A rank, as far as it is known."""

    rank: int
    node: str
    line: str
    silent_s: float | None
    load: RankLoad | None

    @property
    def state(self) -> str:
        """The state of its process, if it is unusual."""
        return _STATES.get(self.load.state, "") if self.load is not None else ""

    @property
    def kind(self) -> tuple[str, str]:
        """Equal for similar ranks: the same state, and the same line except for numbers."""
        return self.state, _NUMBER.sub("#", self.line)


def _ranks(nodes: Iterable[NodeStatus], *, every: bool) -> list[_Rank]:
    """The running ranks; with `every` all ranks with a log."""
    found = []
    for node in nodes:
        for rank in node.last_lines if every else node.alive:
            line = _COLOURS.sub("", node.last_lines.get(rank, "")).replace("\t", " ")
            legible = "".join(c if c.isprintable() else "?" for c in line)
            silent_s, load = node.silent_s.get(rank), node.loads.get(rank)
            found.append(_Rank(rank, node.node, legible, silent_s, load))
    return found


def rank_rows(nodes: Iterable[NodeStatus], *, every: bool) -> list[str]:
    """One row per running rank; of many ranks, one per group of similar ones, small groups first.

    With `every`, each rank with a log has a row with its whole last line.
    """
    ranks = _ranks(nodes, every=every)
    groups = [[rank] for rank in ranks]
    more: list[list[_Rank]] = []
    if not every and len(ranks) > SINGLE_ROWS:
        by_kind: dict[tuple[str, str], list[_Rank]] = {}
        for rank in ranks:
            by_kind.setdefault(rank.kind, []).append(rank)
        groups = sorted(by_kind.values(), key=lambda group: (len(group), group[0].rank))
        groups, more = groups[:_SHOWN_GROUPS], groups[_SHOWN_GROUPS:]
    rows = _aligned([_cells(group, whole=every) for group in groups])
    if more:
        count = sum(map(len, more))
        rows.append(f"{count} more ranks have {len(more)} other last lines; --lines shows all")
    return rows


def _aligned(cells: Sequence[tuple[str, ...]], *, between: str = " | ") -> list[str]:
    """Rows of a name, values and a text; columns without any value are left out."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = []
    for name, *values, line in cells:
        columns = [v.rjust(w) for v, w in zip(values, widths[1:-1], strict=True) if w]
        head = "  ".join((name.ljust(widths[0]), *columns))
        rows.append(f"{head}{' | ' if columns else between}{line}".rstrip())
    return rows


def _cells(group: Sequence[_Rank], *, whole: bool) -> tuple[str, str, str, str, str]:
    """The columns of a group: name, time without output, CPU, memory, last line."""
    first = group[0]
    single = f"{first.node}:{first.rank}"
    loads = [rank.load for rank in group if rank.load is not None]
    silent = _range([r.silent_s for r in group if r.silent_s is not None], span)
    cpu = _range([load.cpu_percent for load in loads], "{:.0f}".format)
    last = min(group, key=lambda rank: (rank.silent_s or 0.0, rank.rank))
    cut = not whole and len(last.line) > _LONGEST_LINE
    text = f"{last.line[:_LONGEST_LINE]}…" if cut else last.line
    return (
        single if len(group) == 1 else ranks_named([rank.rank for rank in group]),
        silent and f"{silent} ago",
        cpu and f"{cpu} %",
        _range([load.memory_bytes for load in loads], _size),
        f"({last.state}) {text}" if last.state else text,
    )


def _range(numbers: Sequence[float], shown: Callable[[float], str]) -> str:
    """`LEAST - MOST`; one of them if both look the same; empty without numbers."""
    if not numbers:
        return ""
    least, most = shown(min(numbers)), shown(max(numbers))
    return least if least == most else f"{least} - {most}"


def _size(count: float) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / (1 << 20):.0f} MiB"
