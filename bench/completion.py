#!/usr/bin/env python3
"""Completion of what a shell asks for, beside the bare interpreter that it starts."""

from __future__ import annotations

import sys
import tempfile
from operator import truediv
from pathlib import Path

from common import PROGRAM, Verdict, in_pairs, options, show, timed

PROMISE = "less than 0.2 s, with the start of Python"
LIMIT_S = 0.2
WORDS = {
    "verbs": ("",),
    "jobs": ("logs", "--job", ""),
    "nodes": ("exec", "--nodes", ""),
    "faults": ("lab.fault", "lab-1", ""),
    "inventories": ("setup", ""),
}


def main() -> None:
    """Complete each kind of word, and start the interpreter, in turns."""
    parser = options("Times the completion of the shell, in a folder with many jobs and nodes.")
    parser.add_argument("--jobs", type=int, default=1000, help="runs in the folder (1000)")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of the inventory (1000)")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="ascendboot-bench-") as directory:
        folder = Path(directory)
        _fill(folder, asked.jobs, asked.nodes)
        for what, words in WORDS.items():
            ours = [str(PROGRAM), "--complete", "--", "ascendboot", *words]
            bare = [sys.executable, "-c", "pass"]
            found = timed(ours, cwd=folder)[1].split()
            measured = in_pairs(
                asked,
                lambda argv=ours: timed(argv, cwd=folder)[0],
                lambda argv=bare: timed(argv, cwd=folder)[0],
            )
            verdict = Verdict(measured, lambda ours_s, _: ours_s, LIMIT_S)
            rows.append(
                {
                    "what": what,
                    "words": len(found),
                    "pairs": len(measured),
                    "seconds": verdict.median,
                    "max": max(verdict.values),
                    "python s": verdict.seconds()[1],
                    "ratio": Verdict(measured, truediv, 1.0).median,
                    "fastest": verdict.fastest,
                    "promise": verdict.word,
                }
            )
    show("completion", PROMISE, rows, as_json=asked.json)


def _fill(folder: Path, jobs: int, nodes: int) -> None:
    lines = [f"  n-{i}: {{address: 198.18.{i // 250}.{i % 250 + 1}}}" for i in range(nodes)]
    text = "\n".join(["cluster: many", "nodes:", *lines, ""])
    (folder / "many.yaml").write_text(text)
    state = folder / ".ascendboot"
    for i in range(jobs):
        run = state / f"runs/202611{i % 28 + 1:02d}-1200{i % 60:02d}-train-{i:04x}"
        run.mkdir(parents=True)
        (run / "plan.json").write_text("{}")
    (state / "current").write_text("many.yaml\n")


if __name__ == "__main__":
    main()
