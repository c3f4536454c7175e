#!/usr/bin/env python3
"""From a fault to the next generation of a supervised job, and the processor time on the nodes."""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from common import CODE, PROJECT, Practice, practice, show

from ascendboot.lab.node import entry

PROMISE = (
    "p90 from the fault to the relaunch: a rank exits 10 s, a node is lost 45 s; supervision of a "
    "healthy job: 1 % of one processor of each node"
)
NOTES = """\
fault: a rank prints the time just before it exits; a node is lost by the fault node-down
relaunch: from the fault to the line `generation 2: ...` of train; a pause of 5 s after an exit
first line: from the fault to the first line of a rank of generation 2, behind a barrier
of mpi4py; 3 nodes of 2 ranks
torchrun: --max-restarts 1 and 2 workers on one node, without imports, barrier or pause
healthy job: processor time of all processes on the nodes, sleeping ranks included and the start
left out, per node, in percent of one processor
"""
RANK_EXIT_S, NODE_DOWN_S, HEALTHY_PERCENT = 10.0, 45.0, 1.0
FIGURES = ("rank-exit", "node-down", "torchrun", "healthy")
JOB, TORCH_JOB = "generations.py", "fails_once.py"
LOST = "lab-3"
_BEAT_S = 2.0
"""Faults are spread over one interval of the signs of life."""
_SETTLE_S = 3.0
_CAP_S = 180.0

_FAULT = re.compile(r"(?:^|\| )fault ([\d.]+)$")
_FIRST_LINE = re.compile(r"(?:^|\| )generation 1$")
_RELAUNCH = re.compile(r"^generation 2: ")
_NEXT_LINE = re.compile(r"(?:^|\| )generation 2$")


class Watched:
    """A program and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: Iterable[str] = process.stdout or ()
        self.seen: list[str] = []

    def until(self, pattern: re.Pattern[str]) -> tuple[float, re.Match[str]]:
        """Read up to a line: when it came here (Unix time, s), and its match."""
        for line in self.lines:
            at = time.time()
            self.seen.append(line)
            if match := pattern.search(line.rstrip("\n")):
                return at, match
        sys.exit(f"bench: no line {pattern.pattern} in:\n{''.join(self.seen)}")

    def ended(self) -> None:
        """Read to the end; the program must succeed."""
        self.seen += self.lines
        if code := self.process.wait():
            sys.exit(f"bench: the job exited {code}:\n{''.join(self.seen)}")


@contextmanager
def watched(argv: Sequence[str], directory: Path, cap_s: float = _CAP_S) -> Iterator[Watched]:
    """Start a program that must end by itself; after `cap_s` it is killed."""
    process = subprocess.Popen(
        argv,
        cwd=directory,
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    cap = threading.Timer(cap_s, process.kill)
    cap.start()
    try:
        job = Watched(process)
        yield job
        job.ended()
    finally:
        cap.cancel()
        process.kill()
        process.wait()


def main() -> None:
    """Measure each fault, torchrun on the same fault, and a healthy job."""
    asked = _asked()
    rows: list[dict[str, Any]] = []
    with practice(3, 2) as cluster:
        _set_up(cluster)
        if "rank-exit" in asked.figures:
            rows += _fault_rows("a rank exits", [_rank_exit(cluster) for _ in range(asked.runs)])
        if "node-down" in asked.figures:
            phases = [_BEAT_S * number / asked.runs for number in range(asked.runs)]
            lost = [_node_down(cluster, phase) for phase in phases]
            rows += _fault_rows("a node is lost", lost, NODE_DOWN_S)
        if "torchrun" in asked.figures:
            again = [_torchrun(cluster, asked.python) for _ in range(asked.runs)]
            rows.append(_row("torchrun, a rank exits: first line, s", again))
        if "healthy" in asked.figures:
            rows += _healthy_rows(cluster, asked.healthy_runs, asked.seconds)
    show("recovery of supervised jobs", PROMISE, rows, as_json=asked.json, notes=NOTES)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="From a fault to the next generation of a job.")
    parser.add_argument("--runs", type=int, default=20, help="how often each fault (20)")
    parser.add_argument("--healthy-runs", type=int, default=3, help="pairs of healthy jobs (3)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a healthy job (30)")
    parser.add_argument("--figures", nargs="+", default=FIGURES, choices=FIGURES)
    python = PROJECT / ".venv-horovod/bin/python"
    parser.add_argument("--python", type=Path, default=python, help="one with torch")
    parser.add_argument("--json", action="store_true", help="print the figure as JSON")
    asked = parser.parse_args()
    if "torchrun" in asked.figures and not asked.python.exists():
        sys.exit(f"bench: no {asked.python}; scripts/horovod torch builds it")
    return asked


def _set_up(cluster: Practice) -> None:
    """Add a standby to the cluster's inventory, and run setup."""
    document = yaml.safe_load(cluster.lab.inventory.read_text())
    document["ssh"] = {"standby": ["lab-2"]}
    cluster.lab.inventory.write_text(yaml.safe_dump(document))
    for job in (JOB, TORCH_JOB):
        cluster.put_job(job)
    cluster.call("setup")


def _rank_exit(cluster: Practice) -> tuple[float, float]:
    """Seconds from the exit of a rank to the relaunch and to the first line of a rank."""
    with _train(cluster, "--supervise", "--", "exit", "2") as job:
        _, fault = job.until(_FAULT)
        return _recovered(job, float(fault[1]))


def _node_down(cluster: Practice, phase_s: float) -> tuple[float, float]:
    """Seconds from the loss of a node to the relaunch and to the first line of a rank."""
    with _train(cluster, "--supervise", "--", "wait", "600") as job:
        job.until(_FIRST_LINE)
        time.sleep(_SETTLE_S + phase_s)
        fault = time.time()
        cluster.lab.fault(LOST, "node-down")
        took = _recovered(job, fault)
    cluster.lab.undo(LOST, "node-down")
    cluster.call("setup")  # a node that has booted has no sshd of the cluster
    return took


def _recovered(job: Watched, fault: float) -> tuple[float, float]:
    relaunch, _ = job.until(_RELAUNCH)
    line, _ = job.until(_NEXT_LINE)
    return relaunch - fault, line - fault


def _torchrun(cluster: Practice, python: Path) -> float:
    """Seconds from the exit of a worker to the first line of a worker that torchrun restarted."""
    start = [str(python), "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2"]
    process = cluster.lab.process(cluster.primary)
    if process is None:
        sys.exit(f"bench: {cluster.primary} is down")
    argv = entry(process, [*start, "--max-restarts=1", f"{CODE}/{TORCH_JOB}"])
    with watched(argv, cluster.lab.directory) as job:
        _, fault = job.until(_FAULT)
        line, _ = job.until(_NEXT_LINE)
        return line - float(fault[1])


def _healthy_rows(cluster: Practice, runs: int, seconds: float) -> list[dict[str, Any]]:
    """Rows about jobs with supervision and without, in turns."""
    pairs = [
        (_healthy(cluster, seconds, "--supervise"), _healthy(cluster, seconds)) for _ in range(runs)
    ]
    supervised, plain = zip(*pairs, strict=True)
    more = [ours - theirs for ours, theirs in pairs]
    return [
        _row("healthy job, --supervise: %", supervised),
        _row("the same without: %", plain),
        _row("more with --supervise: %", more, HEALTHY_PERCENT),
    ]


def _healthy(cluster: Practice, seconds: float, *words: str) -> float:
    """Processor time on the nodes while a job waits, in percent of one processor per node."""
    with _train(cluster, *words, "--", "wait", str(seconds + 2 * _SETTLE_S)) as job:
        job.until(_FIRST_LINE)
        time.sleep(_SETTLE_S)
        began, before = time.monotonic(), _processor_s(cluster)
        time.sleep(seconds)
        used, took = _processor_s(cluster) - before, time.monotonic() - began
        return 100 * used / took / len(cluster.lab.nodes)


def _processor_s(cluster: Practice) -> float:
    """Processor time of the nodes' processes and of their children that have ended."""
    inits = [cluster.lab.process(node.name) for node in cluster.lab.nodes]
    nodes = {Path(f"/proc/{init.pid}/ns/pid").readlink() for init in inits if init}
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile: its parent has its time
            if (folder / "ns/pid").readlink() in nodes:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _train(cluster: Practice, *words: str) -> AbstractContextManager[Watched]:
    return watched(cluster.argv("train", JOB, *words), cluster.lab.directory)


def _fault_rows(
    fault: str, times: Sequence[tuple[float, float]], limit_s: float = RANK_EXIT_S
) -> list[dict[str, Any]]:
    relaunch, line = zip(*times, strict=True)
    return [_row(f"{fault}: relaunch, s", relaunch, limit_s), _row(f"{fault}: first line, s", line)]


def _row(figure: str, values: Sequence[float], limit: float | None = None) -> dict[str, Any]:
    p90 = sorted(values)[math.ceil(0.9 * len(values)) - 1]
    return {
        "figure": figure,
        "runs": len(values),
        "median": statistics.median(values),
        "p90": p90,
        "max": max(values),
        "limit": "-" if limit is None else limit,
        "promise": "-" if limit is None else "kept" if p90 <= limit else "broken",
    }


if __name__ == "__main__":
    main()
