#!/usr/bin/env python3
"""`train`, the whole process, against the very mpirun command that it prints."""

from __future__ import annotations

from argparse import Namespace
from operator import sub, truediv
from typing import Any

from common import Practice, Verdict, in_pairs, options, practice, show

PROMISE = "at most 1.0 s more than the mpirun command that train --plan prints"
LIMIT_S = 1.0
JOB = "barrier_and_sleep.py"


def main() -> None:
    """Run the same job both ways, in turns."""
    parser = options("Compares train with the mpirun command that it prints.")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2], help="cluster sizes (2)")
    parser.add_argument("--devices", type=int, default=8, help="ranks per node (8)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long ranks sleep (3)")
    asked = parser.parse_args()
    rows = []
    for nodes in asked.nodes:
        with practice(nodes, asked.devices) as cluster:
            cluster.put_job(JOB)
            cluster.call("setup")
            rows.append(_row(cluster, asked))
    notes = (
        "train: from the start of the process to its end; mpirun: in a shell of the primary, no ssh"
        " to get there\n"
    )
    show("train against mpirun", PROMISE, rows, as_json=asked.json, notes=notes)


def _row(cluster: Practice, asked: Namespace) -> dict[str, Any]:
    words = (JOB, "--", str(asked.seconds))
    by_hand = cluster.command_line(*words)
    measured = in_pairs(
        asked,
        lambda: cluster.call("train", *words)[0],
        lambda: cluster.sh(cluster.primary, by_hand)[0],
    )
    verdict = Verdict(measured, sub, LIMIT_S)
    train_s, mpirun_s = verdict.seconds()
    return {
        "nodes": len(cluster.lab.nodes),
        "ranks": len(cluster.lab.nodes) * asked.devices,
        "pairs": len(measured),
        "train s": train_s,
        "mpirun s": mpirun_s,
        "ratio": Verdict(measured, truediv, 1.0).median,
        "more s": verdict.median,
        "min": min(verdict.values),
        "max": max(verdict.values),
        "fastest": verdict.fastest,
        "promise": verdict.word,
    }


if __name__ == "__main__":
    main()
