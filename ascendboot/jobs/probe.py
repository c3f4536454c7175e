"""Reads the state of jobs on the nodes, in one execution per node; writes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.errors import CommandError, NodeError, NotUnderstoodError
from ascendboot.launch.events import Event, parse_event
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result, Transport
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePosixPath


_LINE = re.compile(r"(job|event|alive|process|last|silent|use) (.*)")
_ALIVE = re.compile(r"(rank|launcher|agent|supervisor) (\d+|-) (\d+)")
_LAST = re.compile(r"rank\.(\d+)\.log (.*)")
_SILENT = re.compile(r"(-?\d+) rank\.(\d+)\.log")
_USE = re.compile(r"(\d+) (\S) (-?\d+) (\d+) (\d+)")
_KIB = 1024


@dataclass(frozen=True)
class RankLoad:
    """What a rank and its descendants use."""

    state: str
    """The state of its own process, one letter as `ps` shows it."""
    cpu_percent: float
    """Of one processor."""
    memory_bytes: int
    """Resident; memory that its processes share counts for each of them."""


@dataclass
class JobProbe:
    """The state of one job on one node."""

    has_folder: bool = False
    events: list[Event] = field(default_factory=list)
    ranks_alive: set[int] = field(default_factory=set)
    launcher_alive: bool = False
    """The launcher or its agent on this node, or its supervisor."""
    pids: set[int] = field(default_factory=set)
    """Every process of the job but the supervisor."""
    last_lines: dict[int, str] = field(default_factory=dict)
    silent_s: dict[int, float] = field(default_factory=dict)
    """By rank: for how long it has written no output."""
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
    """The state of the jobs with these ids by node; without ids of all jobs that still run.

    `jobs` is the folder of all jobs of the cluster. A node that could not be reached has its error
    instead.
    """
    command = probe_command(jobs, job_ids, details=details)
    return on_each(
        transports, lambda node: probe_result(transports[node].run(command)), forks=forks
    )


def probe_command(
    jobs: PurePosixPath | str, job_ids: Sequence[str] = (), *, details: bool = False
) -> Command:
    """The command whose output `probe_result` reads."""
    return _command(script("jobs-probe.sh"), str(jobs), "1" if details else "0", *job_ids)


def probe_below(base: str) -> Command:
    """The same for all jobs that still run; `base` is a script that sets `b` to our folder."""
    return _command(f'{base}set -- "$b/jobs" 0\n{script("jobs-probe.sh")}')


def _command(text: str, *words: str) -> Command:
    return Command(
        argv=("bash", "-c", text, "probe", *words),
        purpose="look for jobs",
        effect=Effect.READ,
    )


def running_nodes(
    answers: Mapping[str, dict[str, JobProbe] | NodeError],
) -> dict[str, list[str]]:
    """Maps each job id to the nodes where its processes still run, of nodes that answered."""
    found: dict[str, list[str]] = {}
    for node, probes in answers.items():
        if isinstance(probes, NodeError):
            continue
        for job_id, probe in probes.items():
            if probe.is_alive:
                found.setdefault(job_id, []).append(node)
    return found


def probe_result(result: Result) -> dict[str, JobProbe]:
    """The state of the jobs in the answer of a node, by job id.

    Raises:
        CommandError: the command failed, or its output was not understood.
    """
    job_ids = result.command.argv[6:]
    try:
        return parse_probe(result.checked().text, job_ids)
    except NotUnderstoodError as error:
        raise CommandError(result.node, f"could not {result.command.purpose}: {error}") from error


def parse_probe(text: str, job_ids: Sequence[str] = ()) -> dict[str, JobProbe]:
    """Parse the output of `jobs-probe.sh`, by job id.

    Raises:
        NotUnderstoodError: a line has an unknown form, or the end is missing.
    """
    found = {job_id: JobProbe() for job_id in job_ids}
    carried: dict[str, set[int]] = {}
    lines = text.split("\n")
    job_id, number = "", 0
    for position, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            if lines[position - 1 :] == ["end", ""]:
                break
            raise NotUnderstoodError("the jobs", position, line, "job, event, alive or end")
        kind, rest = match.groups()
        if kind == "process":
            pid, _, owner = rest.partition(" ")
            carried.setdefault(owner, set()).add(int(pid))
        elif kind == "job":
            job_id, number = rest, 0
            found.setdefault(job_id, JobProbe()).has_folder = True
        elif kind == "event":
            number += 1
            found[job_id].events.append(parse_event(rest, number))
        else:
            _take(found[job_id], kind, rest, position)
    for owner, pids in carried.items():
        if owner in found:
            found[owner].pids |= pids
    return found


def _take(probe: JobProbe, kind: str, rest: str, position: int) -> None:
    if kind == "last" and (match := _LAST.fullmatch(rest)):
        probe.last_lines[int(match[1])] = match[2]
    elif kind == "silent" and (match := _SILENT.fullmatch(rest)):
        probe.silent_s[int(match[2])] = max(0.0, float(match[1]))
    elif kind == "use" and (match := _USE.fullmatch(rest)):
        probe.loads[int(match[1])] = _load(match[2], *map(int, match.groups()[2:]))
    elif kind == "alive" and (match := _ALIVE.fullmatch(rest)):
        who, number, pid = match.groups()
        if who == "rank":
            probe.ranks_alive.add(int(number))
        else:
            probe.launcher_alive = True
        if who != "supervisor":
            probe.pids.add(int(pid))
    else:
        raise NotUnderstoodError("the jobs", position, f"{kind} {rest}", "a known form")


def _load(state: str, used_ms: int, span_ms: int, memory_kib: int) -> RankLoad:
    share = max(0, used_ms) / max(1, span_ms)
    return RankLoad(state, round(100 * share, 1), memory_kib * _KIB)
