"""Ends a job: its launcher first, then remaining processes on every node."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from ascendboot.errors import NodeError, NotUnderstoodError
from ascendboot.launch.launchers import ends_within_s
from ascendboot.launch.plan import Job
from ascendboot.templates import script
from ascendboot.transport.api import Result, Transport, write_script
from ascendboot.transport.pool import on_each
from ascendboot.value import Value, field, replace

LINGER_S = 2.0
"""How long processes may run after their launcher has ended."""
_KILL_S = 30.0
_LOG = logging.getLogger(__name__)
_LINE = re.compile(r"(ended|left|size|full) (\d+) (.*)")
_HASTEN = '[ ! -e "$1/open" ] || echo now >"$1/ending"'
"""Tells the wrappers of this node's ranks to end them; `$1` is the job's folder."""


class Survivor(Value):
    """A process of the job that had to be ended."""

    pid: int
    command: str


class Terminated(Value):
    """What was found on one node when the job was ended."""

    ended: tuple[Survivor, ...] = ()
    left: tuple[Survivor, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The files of the job on this node, in bytes."""
    full: str = ""
    """The folder of the job if its disk is almost full; else empty."""


def terminate_launcher(
    transport: Transport, folder: PurePosixPath, *, by_stop: bool = False
) -> None:
    """Send SIGTERM to the launcher, known by pid and start time; note if it was `by_stop`."""
    command = write_script(
        script("jobs-terminate.sh"),
        *(str(folder), "stop" if by_stop else ""),
        purpose=f"end the launcher of job {folder.name}",
    )
    transport.run(command).checked()


def end_ranks(transports: Mapping[str, Transport], folder: PurePosixPath, *, forks: int) -> None:
    """End the ranks of a failed job on all nodes now, each within the grace period.

    Open MPI (4.1) ends the ranks of other nodes only after those of the primary. A node that cannot
    be reached is left to Open MPI.
    """
    command = write_script(_HASTEN, str(folder), purpose=f"end the ranks of job {folder.name}")
    results = on_each(transports, lambda node: transports[node].run(command), forks=forks)
    for node, done in results.items():
        if isinstance(done, NodeError):
            _LOG.info("%s: %s", node, done.message)


def terminate_processes(
    transports: Mapping[str, Transport],
    folder: PurePosixPath,
    *,
    linger_s: float = LINGER_S,
    grace_s: float,
    forks: int,
) -> dict[str, Terminated | NodeError]:
    """End what is left on each node: SIGTERM, `grace_s`, SIGKILL; or return the node's error."""
    tenths = (str(round(10 * linger_s)), str(round(10 * grace_s)))
    command = write_script(
        script("jobs-sweep.sh"),
        *(str(folder), *tenths),
        purpose=f"find remaining processes of job {folder.name}",
        timeout_s=linger_s + grace_s + _KILL_S,
    )
    return on_each(transports, lambda node: _swept(transports[node].run(command)), forks=forks)


def stop_job(
    transports: Mapping[str, Transport], job: Job, *, grace_s: float | None = None, forks: int
) -> dict[str, Terminated | NodeError]:
    """End a job, followed or not, by default with its own grace period.

    The launcher gets SIGTERM first and passes it to the ranks. If `transports` lacks the primary,
    only the processes of the other nodes are ended.
    """
    linger_s, folder = 0.0, job.job_folder
    grace_s = job.grace_s if grace_s is None else grace_s
    if job.primary in transports:
        with suppress(NodeError):
            terminate_launcher(transports[job.primary], folder, by_stop=True)
            linger_s = ends_within_s(grace_s)
    found = terminate_processes(transports, folder, linger_s=linger_s, grace_s=grace_s, forks=forks)
    # A login that was in progress when the launcher ended may have started a daemon.
    again = terminate_processes(transports, folder, linger_s=0.0, grace_s=grace_s, forks=forks)
    for node, first in found.items():
        second = again[node]
        if isinstance(first, Terminated) and isinstance(second, Terminated):
            again[node] = replace(second, ended=(*first.ended, *second.ended))
    return again


def _swept(result: Result) -> Terminated:
    found: dict[str, list[Survivor]] = {"ended": [], "left": []}
    sizes: dict[str, int] = {}
    full = ""
    for number, line in enumerate(result.checked().lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            expected = "ended, left, size or full"
            raise result.failed(NotUnderstoodError("the sweep", number, line, expected))
        kind, count, words = match.groups()
        if kind == "size":
            sizes[words] = int(count)
        elif kind == "full":
            full = words
        else:
            found[kind].append(Survivor(int(count), words.strip()))
    left = {survivor.pid for survivor in found["left"]}
    ended = tuple(survivor for survivor in found["ended"] if survivor.pid not in left)
    return Terminated(ended, tuple(found["left"]), sizes, full)
