#!/usr/bin/env python3
"""What a job that prints very much does to its ranks, and to the `train` that follows it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from common import BASE, Practice, options, practice, show

PROMISE = "every byte here, ranks not held up, memory far below what is printed"
JOB = "flood.py"
_MB = 1_000_000
_MOST_MEMORY_MB = 200
_MOST_DELAY = 1.5


def main() -> None:
    """Follow one flood after the other."""
    parser = options("Follows ranks that print so many MB a second each.", pairs=3)
    parser.add_argument("--nodes", type=int, default=2, help="how many nodes (2)")
    parser.add_argument("--devices", type=int, default=8, help="ranks per node (8)")
    parser.add_argument("--rate", type=float, default=20.0, help="MB per second and rank (20)")
    parser.add_argument("--seconds", type=float, default=5.0, help="for how long (5)")
    asked = parser.parse_args()
    with practice(asked.nodes, asked.devices) as cluster:
        cluster.put_job(JOB)
        cluster.call("setup")
        rows = [_row(cluster, asked) for _ in range(asked.pairs)]
    notes = (
        "ranks s: how long the slowest rank took to print what is to take `seconds`\n"
        "here s: from the start of train until all was here and nothing of the job left\n"
    )
    show("a flood through train", PROMISE, rows, as_json=asked.json, notes=notes)


def _row(cluster: Practice, asked: Namespace) -> dict[str, Any]:
    argv = cluster.argv("train", JOB, "--json", "--", f"{asked.rate:g}", f"{asked.seconds:g}")
    began = time.perf_counter()
    said = cluster.lab.directory / "report"
    with said.open("wb") as out:
        process = subprocess.Popen(
            argv,
            cwd=cluster.lab.directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    took = time.perf_counter() - began
    report = json.loads(said.read_text())
    if process.returncode:
        sys.exit(f"bench: train exited {process.returncode}: {report['message']}")
    folder = cluster.lab.directory / report["folder"]
    ranks_s, here = _looked_at(cluster, folder, report["job_id"], asked)
    memory_mb = usage.ru_maxrss / 1024
    is_kept = memory_mb < _MOST_MEMORY_MB and ranks_s < _MOST_DELAY * asked.seconds
    return {
        "ranks": len(report["ranks"]),
        "MB/s each": asked.rate,
        "MB in all": round(here / _MB),
        "ranks s": ranks_s,
        "here s": took,
        "MB/s here": round(here / _MB / took),
        "memory MB": round(memory_mb),
        "promise": "kept" if is_kept else "broken",
    }


def _looked_at(cluster: Practice, folder: Path, job_id: str, asked: Namespace) -> tuple[float, int]:
    """How long the slowest rank took; and how much is here, which must be what is on the nodes."""
    slowest, here = 0.0, 0
    for number, node in enumerate(cluster.lab.nodes):
        script = f"cd {BASE}/jobs/{job_id} && sha256sum rank.*.log && rm rank.*.log"
        there = dict(line.split()[::-1] for line in cluster.sh(node.name, script)[1].splitlines())
        for rank in range(number * asked.devices, (number + 1) * asked.devices):
            log = folder / f"rank.{rank}.log"
            data = log.read_bytes()
            if hashlib.sha256(data).hexdigest() != there[log.name]:
                sys.exit(f"bench: {log} is not what {node.name} has")
            match = re.search(rb"printed in ([0-9.]+) s\n\Z", data[-100:])
            if match is None:
                sys.exit(f"bench: {log} has no end")
            slowest = max(slowest, float(match[1]))
            here += len(data)
            log.unlink()
    return slowest, here


if __name__ == "__main__":
    main()
