"""`status` and `jobs`: show the state of a job, and list jobs."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final

from ascendboot.checks.finding import grouped
from ascendboot.cli import known_jobs
from ascendboot.cli.common import duration
from ascendboot.cli.known_jobs import FoundJob, now, npus_of
from ascendboot.cli.verbs import STOPPED, Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.console.streams import has_reader
from ascendboot.errors import AscendbootError, NodeError, UnreachableError, UsageError
from ascendboot.jobs.probe import JobProbe, RankLoad, probe_jobs
from ascendboot.jobs.stacks import read_stacks
from ascendboot.jobs.status import JobStatus, NodeStatus
from ascendboot.launch.plan import JobRecord
from ascendboot.model import names
from ascendboot.model.job import JobReport, JobState, NpuUse, RankEnd, use_words
from ascendboot.model.names import counted, fold, least_most, local_time, ranks_named, span
from ascendboot.transport.guard import ReadOnly
from ascendboot.value import Value, replace

SINGLE_ROWS: Final = 16
"""Up to this number, every rank and every node has a row of its own."""
_SHOWN_GROUPS: Final = 8
_LISTED: Final = 20
_USUAL_INTERVAL: Final = "5s"
_TICK_S: Final = 1.0
_NPUS_EVERY_S: Final = 10.0
"""npu-smi answers one caller at a time, and takes a second on a server of eight."""
_NPUS_LATE_S: Final = 20.0
"""How long it may take at most: meanwhile no other answer of the node is due."""
_LATE_S: Final = 10.0
"""How much longer than the interval an answer may take until the view mentions it."""
_WIDE: Final = 66
"""A narrower terminal shows no numbers beside the states."""
_LONGEST_LINE: Final = 160
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
    stopped=STOPPED,
    help={
        "job": known_jobs.JOB_HELP,
        "lines": "Show one row per rank, with its complete last line",
        "stacks": "Also show where the ranks are: from py-spy if available, otherwise /proc",
        "watch": "A live view until the job ends or you press q; in a pipe, one line each time",
        "interval": "With --watch: the time between two queries of a node (2s, 1m). Default:"
        f" {_USUAL_INTERVAL}",
    },
)
def status(
    call: Call,
    *,
    job: str | None = None,
    lines: bool = False,
    stacks: bool = False,
    watch: bool = False,
    interval: str | None = None,
) -> None:
    """Show the state of a job. Read-only.

    For each node: use, memory and temperature of its NPUs, and the lines per
    second of its ranks. For each running rank: the time since its last output, its
    share of one processor, its memory, and its last line. With more than 16 ranks,
    similar ranks share one row.

    Without an id: the running job, otherwise the last one started from this folder.

    Examples:
      invoke status           the running job, or the last one
      invoke status --watch   a live view of it
      invoke status --stacks  where its ranks wait
      invoke status --lines --job 20260102-030405-train-ab12
      invoke status --json | jq .state

    Exit codes: 0 done, 2 no such job, 4 a node of the job is unreachable; with
    --watch that of the job when it ends (1: unknown), 0 after q, 130 after Ctrl-C.
    """
    every_s = _interval(interval, watch=watch, once=lines or stacks)
    screen, cluster, stacks_read = call.screen, call.cluster(), None
    with call.session("status", cluster, reads=True) as session:
        found = known_jobs.find_job(session, job, details=True)
        found = _watched(call, found, every_s) if watch else known_jobs.with_npus(found)
        status_now = known_jobs.status_with_cause(found)
        known_jobs.keep_success(found)
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
    if (supervised := found.supervised) is not None:
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
    (_end_watch if watch else _end)(call, found, document)


def _end(call: Call, found: FoundJob, document: dict[str, Any]) -> None:
    call.end(UnreachableError.exit_code if found.errors else 0, document)


def _end_watch(call: Call, found: FoundJob, document: dict[str, Any]) -> None:
    code = document.get("supervision", {}).get("exit_code", found.status.report.exit_code)
    code = 0 if found.goes_on else code
    if call.json:  # on one line, as the documents before it
        call.screen.text(json.dumps(document))
    replace(call, json=False).end(AscendbootError.exit_code if code is None else code, document)


def _interval(text: str | None, *, watch: bool, once: bool) -> float:
    if text is not None and not watch:
        raise UsageError("status: --interval is of no use without --watch; add it")
    if watch and once:
        raise UsageError("status: --watch cannot show --lines or --stacks; leave out one of them")
    every_s = duration("status: --interval", text or _USUAL_INTERVAL)
    if every_s < _TICK_S:
        raise UsageError(f"status: --interval: {text} is too short; the least is {_TICK_S:g}s")
    return every_s


@cluster_verb(stopped=STOPPED, help={"all": f"Also list those before the last {_LISTED}"})
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

    known = list(islice(known_jobs.all_jobs(call.state, cluster, note), None if all else _LISTED))
    unfinished = [job for job in known if job.final is None]
    with call.session("jobs", cluster, reads=True) as session:
        found = known_jobs.look_at_jobs(session, unfinished) if unfinished else []
        states = {job.job.folder: known_jobs.status_with_cause(job).report for job in found}
        for job in found:
            known_jobs.keep_success(job)
    rows = [_job(job.record, job.final or states[job.folder]) for job in known]
    rows = sorted([*rows, *damaged], key=lambda row: row["job_id"], reverse=True)
    problems = {str(error) for job in found for error in job.errors.values()}
    for problem in sorted(problems):
        call.screen.error(problem)
    lines = _job_rows(rows) if rows else ["no job was started from here"]
    code = AscendbootError.exit_code if damaged else 0
    call.end(UnreachableError.exit_code if problems else code, {"jobs": rows}, lines)


def _job(record: JobRecord, report: JobReport) -> dict[str, Any]:
    script = record.script
    shown = {"script": script.get("copied_from") or script.get("path"), "nodes": record.nodes}
    is_known = {"exit_code": report.exit_code, "started": record.started}
    return {"job_id": record.job_id, "state": report.state.value, **is_known, **shown}


def _job_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    states = []
    for row in rows:
        state, code = row["state"].replace("_", " "), row["exit_code"]
        says_more = code and state not in ("interrupted", "not started")  # they have one code only
        states.append(f"{state} ({code})" if says_more else state)
    width, longest = max(12, *map(len, states)), max(len(row["job_id"]) for row in rows)
    places = [fold(row["nodes"]) for row in rows]
    most = max(map(len, places))
    lines = []
    for row, state, place in zip(rows, states, places, strict=True):
        if (words := row.get("problem")) is None:
            age = span((now() - datetime.fromisoformat(row["started"])).total_seconds())
            script = PurePath(row["script"] or "").name
            words = f"{age + ' ago':<15} {place:<{most}}  {script}"
        lines.append(f"{row['job_id']:<{longest}}  {state:<{width}} {words}")
    return lines


class _Looks:
    """Queries the nodes of a job again and again, each in a thread of its own."""

    def __init__(self, found: FoundJob, every_s: float) -> None:
        self._first, self._every_s = found, every_s
        self._looks = dict(found.looks)
        self._uses: dict[str, Mapping[int, NpuUse] | str] = {}
        self._answered = dict.fromkeys(found.looks, time.monotonic())
        self.over = threading.Event()
        found.session.unkept |= known_jobs.REPEATED
        for node in found.session.cluster.nodes:
            if node.name in found.looks:
                threading.Thread(target=self._query, args=(node.name,), daemon=True).start()

    def found(self) -> FoundJob:
        """The job by the newest answers; a node whose answer is overdue counts as unreachable."""
        first, job_id = self._first, self._first.job.record.job_id
        answers: dict[str, NodeError | dict[str, JobProbe]] = {}
        for name, look in self._looks.items():
            silent_s = time.monotonic() - self._answered[name]
            answers[name] = look if isinstance(look, NodeError) else {job_id: look}
            if silent_s > self._every_s + _LATE_S and not isinstance(look, NodeError):
                answers[name] = UnreachableError(name, f"no answer for {span(silent_s)}")
        sides = dict(first.session.transports)  # a node that returns adds its own meanwhile
        well = {n: ReadOnly(t) for n, t in sides.items() if isinstance(answers.get(n), dict)}
        found = known_jobs.found_by(first.job, first.session, well, answers)
        return replace(found, status=found.status.with_npus(self._uses))

    def _query(self, name: str) -> None:
        npus_at = 0.0
        while True:
            look, began = self._looks[name], time.monotonic()
            if isinstance(look, NodeError):
                self._uses.pop(name, None)
            else:
                self._answered[name] = began
                if look.ranks_alive and began >= npus_at:
                    self._answered[name] += _NPUS_LATE_S
                    self._uses |= npus_of(self._first.session, [name])
                    npus_at = began + _NPUS_EVERY_S
                    self._answered[name] = time.monotonic()
            if self.over.wait(self._every_s):
                return
            self._looks[name] = self._look(name, look)

    def _look(self, name: str, before: JobProbe | NodeError) -> JobProbe | NodeError:
        session, record = self._first.session, self._first.job.record
        try:
            side = session.transports.get(name)
            if side is None or isinstance(before, UnreachableError):
                side = session.connect_again(name)
        except NodeError as error:
            return error
        sides, folder = {name: ReadOnly(side)}, record.job_folder.parent
        answer = probe_jobs(sides, folder, [record.job_id], details=True, forks=1)[name]
        return answer if isinstance(answer, NodeError) else answer[record.job_id]


def _seen(found: FoundJob, every_s: float) -> Generator[FoundJob, None, None]:
    """The job as it is now, again and again; of a supervised job its newest generation."""
    looks = _Looks(found, every_s)
    try:
        while True:
            if (newer := known_jobs.next_generation(found)) is not None:
                looks.over.set()
                looks = _Looks(newer, every_s)
            yield (found := looks.found())
    finally:
        looks.over.set()


def _watched(call: Call, first: FoundJob, every_s: float) -> FoundJob:
    """Show a running job until it ends or the operator leaves; what is known of it then."""
    screen, next_at = call.screen, 0.0
    view = nullcontext() if call.json else screen.live()
    with view as live, closing(_seen(first, every_s)) as seen:
        for found in seen:
            if not found.goes_on or not (live is not None or has_reader(sys.stdout)):
                break
            if live is not None:
                live.show(partial(live_view, found))
                if live.quits(_TICK_S):
                    break
                continue
            if time.monotonic() >= next_at:
                next_at = time.monotonic() + every_s
                document = found.status.to_json()
                screen.text(json.dumps(document) if call.json else _line(found))
            time.sleep(_TICK_S)
    # The answers of the other nodes are older than that of the primary.
    return found if found.goes_on else known_jobs.looked_again(found, details=True)


def live_view(found: FoundJob, width: int, height: int) -> list[str]:
    """The lines of the live view, for a terminal of this size."""
    report, nodes, record = found.status.report, found.status.nodes, found.job.record
    late, room, is_wide = list(map(str, found.errors.values())), max(3, height - 3), width >= _WIDE
    words = partial(_tally, ends=report.ranks)
    single = SINGLE_ROWS if len(nodes) <= room // 2 else 0
    rows = node_rows(nodes, lambda n: words([n]), single=single, numbers=is_wide)
    if (whole := found.supervised) is not None:
        rows = [*whole.head, *whole.last(1, now()), *rows]
    single = min(SINGLE_ROWS, room - len(rows) - len(late) - 1)
    rows += [*late, "", *rank_rows(nodes, every=False, single=single, numbers=is_wide)]
    if len(rows) > room:
        rows = [*rows[: room - 1], f"{len(rows) - room + 1} more rows"]
    script = PurePath(record.script["path"] or "").name
    title = f"{_state(report)}  {record.cluster}  job {record.job_id}"
    what = f"{script}, {record.launcher_kind}: {_counts(found)}"
    return [title, what, *rows, *[""] * (room - len(rows)), "q: quit"]


def _line(found: FoundJob) -> str:
    """The job on one line."""
    report, numbers = found.status.report, filter(None, _numbers(found.status.nodes))
    generation = (f"generation {found.job.folder.name[1:]}",) if found.supervised else ()
    time = f"{now().astimezone():%H:%M:%S}"
    return "  ".join((time, *generation, _state(report), _counts(found), *numbers))


def _state(report: JobReport) -> str:
    since = "for" if report.state is JobState.RUNNING else "after"
    return f"{report.state.value.replace('_', ' ')} {since} {span(report.duration_s)}"


def _counts(found: FoundJob) -> str:
    nodes, ranks = found.status.nodes, found.status.report.ranks
    where = f"{counted(len(ranks), 'rank')} on {counted(len(nodes), 'node')}"
    return f"{where}: {_tally(nodes, ranks)}"


def _tally(nodes: Sequence[NodeStatus], ends: Iterable[RankEnd]) -> str:
    codes = {rank.rank: rank.exit_code for rank in ends}
    over = [codes[rank] for node in nodes for rank in node.ranks if rank not in node.alive]
    ended, unseen = over.count(0), over.count(None)
    counts = {"up": sum(len(node.alive) for node in nodes), "ended": ended}
    counts |= {"failed": len(over) - ended - unseen, "not seen": unseen}
    shown = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return "unreachable" if all(node.problem for node in nodes) else shown


def _show(screen: Screen, found: JobStatus, *, every: bool) -> None:
    report = found.report
    is_running = report.state is JobState.RUNNING
    code = "" if report.exit_code is None else f", exit code {report.exit_code}"
    screen.say(
        f"job {report.job_id}  {_state(report)}{code}, started {local_time(report.started, now())}."
        f" Logs in {os.path.relpath(report.folder)}"
    )
    for line in how_it_ended(report):
        screen.say(f"  {line}")
    ends = {rank.rank: rank for rank in report.ranks}
    words = partial(_node_words, ends=ends, counted=len(found.nodes) > SINGLE_ROWS)
    for line in node_rows(found.nodes, words):
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


def node_rows(
    nodes: Sequence[NodeStatus],
    words: Callable[[NodeStatus], str],
    *,
    single: int = SINGLE_ROWS,
    numbers: bool = True,
) -> list[str]:
    """One row per node; of more than `single`, equal ones share a row, smallest groups first."""
    groups = grouped((n.node if len(nodes) <= single else words(n), n) for n in nodes)
    rows = [
        (fold(n.node for n in group), *(_numbers(group) if numbers else ()), words(group[0]))
        for group in sorted(groups.values(), key=len)
    ]
    return _aligned(rows, between="  ")


def _numbers(nodes: Sequence[NodeStatus]) -> tuple[str, ...]:
    """Use, memory and temperature of the NPUs, and lines per second, as far as they are known."""
    uses = [use for node in nodes for use in node.npus.values()]
    paces = [pace for node in nodes if node.alive for pace in node.lines_per_s.values()]
    return *use_words(uses), names.pace_words(sum(paces)) if paces else ""


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


def rank_rows(
    nodes: Iterable[NodeStatus], *, every: bool, single: int = SINGLE_ROWS, numbers: bool = True
) -> list[str]:
    """One row per running rank; of many ranks, one per group of similar ones, small groups first.

    With `every`, each rank with a log has a row with its whole last line.
    """
    ranks = []
    for node in nodes:
        for rank in node.last_lines if every else node.alive:
            line = _COLOURS.sub("", node.last_lines.get(rank, "")).replace("\t", " ")
            legible = "".join(c if c.isprintable() else "?" for c in line)
            silent_s, load = node.silent_s.get(rank), node.loads.get(rank)
            ranks.append(_Rank(rank, node.node, legible, silent_s, load))
    groups = [[rank] for rank in ranks]
    more: list[list[_Rank]] = []
    if not every and len(ranks) > single:
        # Similar ranks have the same state, and the same line except for numbers.
        similar = grouped(((r.state, _NUMBER.sub("#", r.line)), r) for r in ranks)
        groups = sorted(similar.values(), key=lambda group: (len(group), group[0].rank))
        groups, more = groups[:_SHOWN_GROUPS], groups[_SHOWN_GROUPS:]
    cells = [_cells(group, whole=every) for group in groups]
    rows = _aligned(cells if numbers else [(name, line) for name, *_, line in cells])
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
    silent = least_most([r.silent_s for r in group if r.silent_s is not None], span)
    cpu = least_most([load.cpu_percent for load in loads], "{:.0f}".format)
    last = min(group, key=lambda rank: (rank.silent_s or 0.0, rank.rank))
    cut = not whole and len(last.line) > _LONGEST_LINE
    text = f"{last.line[:_LONGEST_LINE]}…" if cut else last.line
    return (
        single if len(group) == 1 else ranks_named([rank.rank for rank in group]),
        silent and f"{silent} ago",
        cpu and f"{cpu} %",
        least_most([load.memory_bytes for load in loads], _size),
        f"({last.state}) {text}" if last.state else text,
    )


def _size(count: float) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / (1 << 20):.0f} MiB"
