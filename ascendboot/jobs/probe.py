"""Reads the state of jobs on the nodes, in one execution per node; writes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ascendboot.errors import NodeError, NotUnderstoodError
from ascendboot.launch.events import Event, parse_event
from ascendboot.templates import script
from ascendboot.transport.api import Command, Result, Transport, read_script
from ascendboot.transport.pool import on_each
from ascendboot.value import Struct, Value, field

_PURPOSE = "look for jobs"
_PROCESS = re.compile(r"process (\d{1,15}) (.*)")
_FORMS = {
    "alive": re.compile(r"(rank|launcher|agent|supervisor) (\d{1,15}|-) (\d{1,15})"),
    "last": re.compile(r"rank\.(\d{1,15})\.log (.*)"),
    "loss": re.compile(r"rank\.(\d{1,15})\.log (.*)"),
    "silent": re.compile(r"(-?\d{1,15}) rank\.(\d{1,15})\.log"),
    "pace": re.compile(r"(\d{1,15}) (\d{1,15}) rank\.(\d{1,15})\.log"),
    "use": re.compile(r"(\d{1,15}) (\S) (-?\d{1,15}) (\d{1,15}) (\d{1,15})"),
}
"""The forms of the lines about a job, by their first word."""


class RankLoad(Value):
    """What a rank and its descendants use."""

    state: str
    """The state of its own process, one letter as `ps` shows it."""
    cpu_percent: float
    """Of one processor."""
    memory_bytes: int
    """Resident memory; shared memory counts for each process."""


class JobProbe(Struct):
    """The state of one job on one node."""

    has_folder: bool = False
    events: list[Event] = field(default_factory=list)
    ranks_alive: set[int] = field(default_factory=set)
    launcher_alive: bool = False
    """The launcher or its agent on this node, or its supervisor."""
    pids: set[int] = field(default_factory=set)
    """Every process of the job except the supervisor."""
    last_lines: dict[int, str] = field(default_factory=dict)
    losses: dict[int, str] = field(default_factory=dict)
    """By rank: the first line with a loss of nan or inf in the end of its log."""
    silent_s: dict[int, float] = field(default_factory=dict)
    """By rank: for how long it has written no output."""
    lines_per_s: dict[int, float] = field(default_factory=dict)
    """By rank: of its output within about a minute."""
    loads: dict[int, RankLoad] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Whether any process of the job runs on this node."""
        return self.launcher_alive or bool(self.pids)


def probe_jobs(
    transports: Mapping[str, Transport],
    jobs: PurePosixPath,
    job_ids: Sequence[str],
    *,
    details: bool = False,
    forks: int,
) -> dict[str, dict[str, JobProbe] | NodeError]:
    """Return the state of these jobs in the folder `jobs`, or of all that run there, by node."""
    words = (str(jobs), "1" if details else "0", *job_ids)
    command = read_script(script("jobs-probe.sh"), *words, purpose=_PURPOSE)
    return on_each(
        transports, lambda node: probe_result(transports[node].run(command)), forks=forks
    )


def probe_below(base: str) -> Command:
    """Return a command that probes all running jobs; the script `base` sets `b`."""
    text = f'{base}set -- "$b/jobs" 0\n{script("jobs-probe.sh")}'
    return read_script(text, purpose=_PURPOSE)


def probe_result(result: Result) -> dict[str, JobProbe]:
    """Parse the answer of a node into the state of each job, by job id."""
    job_ids = result.command.argv[6:]
    try:
        return parse_probe(result.checked().text, job_ids)
    except NotUnderstoodError as error:
        raise result.failed(error) from error


def running_nodes(answers: Mapping[str, dict[str, JobProbe] | NodeError]) -> dict[str, list[str]]:
    """Maps each job id to the nodes where its processes still run, of nodes that answered."""
    found: dict[str, list[str]] = {}
    for node, probes in answers.items():
        for job_id, probe in () if isinstance(probes, NodeError) else probes.items():
            if probe.is_alive:
                found.setdefault(job_id, []).append(node)
    return found


def parse_probe(text: str, job_ids: Sequence[str] = ()) -> dict[str, JobProbe]:
    """Parse the output of `jobs-probe.sh`, by job id."""
    found = {job_id: JobProbe() for job_id in job_ids}
    carried: list[tuple[str, int]] = []
    job_id, events = "", 0
    *lines, end, rest = ("", *text.split("\n"))
    for number, line in enumerate(lines[1:], 1):
        kind, _, words = line.partition(" ")
        if match := _PROCESS.fullmatch(line):
            carried.append((match[2], int(match[1])))
        elif kind == "job" and words:
            job_id, events = words, 0
            found.setdefault(job_id, JobProbe()).has_folder = True
        elif kind == "event" and job_id:
            events += 1
            found[job_id].events.append(parse_event(words, events))
        elif not job_id or not _take(found[job_id], kind, words):
            raise NotUnderstoodError("the jobs", number, line, "job, event, alive or end")
    if (end, rest) != ("end", ""):
        raise NotUnderstoodError("the jobs", len(lines), end, "end")
    for owner, pid in carried:
        if owner in found:
            found[owner].pids.add(pid)
    return found


def _take(probe: JobProbe, kind: str, words: str) -> bool:
    """Add a line about a job; False where it has an unknown form."""
    form = _FORMS.get(kind)
    match = form.fullmatch(words) if form else None
    if match is None:
        return False
    if kind == "last":
        probe.last_lines[int(match[1])] = match[2]
    elif kind == "loss":
        probe.losses[int(match[1])] = match[2]
    elif kind == "silent":
        probe.silent_s[int(match[2])] = max(0.0, float(match[1]))
    elif kind == "pace":
        probe.lines_per_s[int(match[3])] = round(int(match[1]) / max(1, int(match[2])), 2)
    elif kind == "use":
        used_ms, span_ms, memory_kib = map(int, match.groups()[2:])
        share = max(0, used_ms) / max(1, span_ms)
        probe.loads[int(match[1])] = RankLoad(match[2], round(100 * share, 1), memory_kib * 1024)
    else:
        if match[1] == "rank":
            probe.ranks_alive.add(int(match[2]))
        else:
            probe.launcher_alive = True
        if match[1] != "supervisor":
            probe.pids.add(int(match[3]))
    return True
