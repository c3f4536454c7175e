"""Jobs of ours that live on the nodes: those that run, and what is left of those that do not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.judge.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.before.answers import Jobs, NodeLook

_SHOWN = 8


@dataclass(frozen=True)
class Leftover:
    """What lives of a job whose launcher is gone."""

    job_id: str
    folder: PurePosixPath
    """The job's, on every node."""
    pids: Mapping[str, tuple[int, ...]]
    """By node."""


def job_rules(looks: Mapping[str, NodeLook]) -> Iterator[Finding]:
    """All findings of this module."""
    left = {leftover.job_id for leftover in leftovers(looks)}
    known = _known(looks)
    recorded = {folder.job_id for jobs in known.values() for folder in jobs.folders}
    for node, jobs in known.items():
        for job_id in dict.fromkeys(process.job_id for process in jobs.processes):
            if job_id in left:
                yield _is_left(node, job_id, jobs)
            elif job_id not in recorded:
                yield _without_record(node, job_id, jobs)
            else:
                yield Finding(
                    id="jobs",
                    level="error",
                    nodes=(node,),
                    text=f"job {job_id} runs on this node",
                    remedy=f"wait for its end, or end it: stop --job {job_id}",
                )


def leftovers(looks: Mapping[str, NodeLook]) -> tuple[Leftover, ...]:
    """The jobs whose launcher began on one of these nodes and runs on none of them any more.

    Of a job whose launcher was never seen here nobody knows: it counts as one that runs.
    """
    known = _known(looks)
    folders = [folder for jobs in known.values() for folder in jobs.folders]
    lives = {process.job_id for jobs in known.values() for process in jobs.processes}
    gone = dict.fromkeys(f.job_id for f in folders if f.launcher == "gone" and f.job_id in lives)
    runs = {f.job_id for f in folders if f.launcher == "runs"}
    return tuple(
        Leftover(
            job_id,
            next(PurePosixPath(f.path) for f in folders if f.job_id == job_id),
            {node: pids for node, jobs in known.items() if (pids := _pids(jobs, job_id))},
        )
        for job_id in gone
        if job_id not in runs
    )


def _known(looks: Mapping[str, NodeLook]) -> dict[str, Jobs]:
    return {node: jobs for node, look in looks.items() if (jobs := value_of(look.jobs))}


def _pids(jobs: Jobs, job_id: str) -> tuple[int, ...]:
    return tuple(process.pid for process in jobs.processes if process.job_id == job_id)


def _without_record(node: str, job_id: str, jobs: Jobs) -> Finding:
    """`stop` cannot end these: it ends jobs that have a record."""
    return Finding(
        id="jobs",
        level="error",
        nodes=(node,),
        text=f"processes carry the id of job {job_id}, and no node has a folder of "
        f"this job: {_named(jobs, job_id)}",
        remedy="end these processes with kill, or start them without the variable "
        "ASCENDBOOT_JOB_ID",
    )


def _named(jobs: Jobs, job_id: str) -> str:
    processes = [process for process in jobs.processes if process.job_id == job_id]
    pids = ", ".join(str(process.pid) for process in processes[:_SHOWN])
    more = f" and {len(processes) - _SHOWN} more" if len(processes) > _SHOWN else ""
    return f"pid {pids}{more} ({processes[0].command})"


def _is_left(node: str, job_id: str, jobs: Jobs) -> Finding:
    count = len(_pids(jobs, job_id))
    what = "process is" if count == 1 else "processes are"
    return Finding(
        id="leftovers",
        level="error",
        nodes=(node,),
        text=f"{count} {what} left of job {job_id}, whose launcher is gone: {_named(jobs, job_id)}",
        remedy=f"end them: stop --job {job_id}, or train with --stop-leftovers",
    )
