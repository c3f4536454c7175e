#!/usr/bin/env python3
"""How fast the lines of a job come through `train`, against `mpirun … | cat` by hand."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from dataclasses import dataclass
from operator import truediv
from typing import Any

from common import PROJECT, Practice, Verdict, in_pairs, options, practice, show, timed

PROMISE = "at least 70 % of the lines per second of mpirun … | cat"
LEAST = 0.70
JOB = "print_lines.py"

ENOUGH_LINES = 1_000_000
"""With fewer, the whole process is mostly its start, which train_against_mpirun.py measures."""


@dataclass(frozen=True)
class Took:
    """Seconds for one job: the whole process, and from its first line to its last."""

    whole: float
    lines: float


def main() -> None:
    """Print the same lines both ways, in turns."""
    parser = options("Compares the rate of a job's lines through train and through mpirun | cat.")
    parser.add_argument("--nodes", type=int, default=2, help="how many nodes (2)")
    parser.add_argument("--devices", type=int, default=8, help="ranks per node (8)")
    parser.add_argument(
        "--lines",
        type=int,
        nargs="+",
        default=[200_000, 4_000_000],
        help="how many in all (200000 4000000)",
    )
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with practice(asked.nodes, asked.devices) as cluster:
        cluster.put_job(JOB)
        cluster.call("setup")
        ranks = asked.nodes * asked.devices
        for lines in asked.lines:
            rows += _rows(cluster, lines // ranks * ranks, asked)
    notes = (
        "lines of about 80 bytes, all ranks together\n"
        "time of lines: from the first byte that a reader gets to the last\n"
        "time of process: from start to end, nothing subtracted; with few lines that is the start, "
        "see\ntrain_against_mpirun.py\n"
    )
    show("lines through train", PROMISE, rows, as_json=asked.json, notes=notes)


def _rows(cluster: Practice, lines: int, asked: Namespace) -> list[dict[str, Any]]:
    words = (JOB, "--", str(lines))
    ours = f"{shlex.join(cluster.argv('train', *words))} 2>/dev/null"
    by_hand = cluster.command_line(*words)
    cat = f"python3 -c {shlex.quote((PROJECT / 'bench/cat.py').read_text())}"
    _must_be_whole(cluster, ours, by_hand, lines)
    measured = in_pairs(
        asked,
        lambda: _took(*timed(_bash(f"{ours} | {cat}"), cwd=cluster.lab.directory)),
        lambda: _took(*cluster.sh(cluster.primary, f"set -o pipefail; ({by_hand}) | {cat}")),
    )
    return [
        _row(lines, "lines", [(mine.lines, theirs.lines) for mine, theirs in measured]),
        _row(lines, "process", [(mine.whole, theirs.whole) for mine, theirs in measured]),
    ]


def _row(lines: int, which: str, measured: list[tuple[float, float]]) -> dict[str, Any]:
    # Smaller is better for a Verdict: how many times as long train takes.
    verdict = Verdict(measured, truediv, 1 / LEAST)
    train_s, mpirun_s = verdict.seconds()
    return {
        "lines": lines,
        "time of": which,
        "pairs": len(measured),
        "train s": train_s,
        "mpirun s": mpirun_s,
        "train lines/s": round(lines / train_s),
        "mpirun lines/s": round(lines / mpirun_s),
        "rate": 1 / verdict.median,
        "min": 1 / max(verdict.values),
        "max": 1 / min(verdict.values),
        "fastest": 1 / verdict.fastest,
        "promise": verdict.word if which == "lines" or lines >= ENOUGH_LINES else "not judged",
    }


def _took(whole: float, times: str) -> Took:
    first, last = map(float, times.split())
    return Took(whole, last - first)


def _must_be_whole(cluster: Practice, ours: str, by_hand: str, lines: int) -> None:
    """Every line comes once, either way; through train each is whole and behind its rank."""
    count = f"{ours} | grep -cE '^lab-[0-9]+:([0-9]+) [|] rank \\1 +line [0-9]+ +x{{60}}$'"
    through_train = timed(_bash(count), cwd=cluster.lab.directory)[1]
    # mpirun passes pieces on, not lines: some begin in the middle of another rank's.
    through_mpirun = cluster.sh(cluster.primary, f"({by_hand}) | wc -l")[1]
    seen = int(through_train), int(through_mpirun)
    if seen != (lines, lines):
        sys.exit(f"bench: {lines} lines were printed; train and mpirun | cat showed {seen}")


def _bash(script: str) -> list[str]:
    return ["/bin/bash", "-c", f"set -o pipefail; {script}"]


if __name__ == "__main__":
    main()
