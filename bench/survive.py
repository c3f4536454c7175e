#!/usr/bin/env python3
"""The losses of a supervised DDP job that loses two of four nodes and gets one back."""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from common import PROJECT, Practice, practice, show
from recover import watched

PROMISE = "no step's loss differs from that of an undisturbed job by more than 0.01 %"
NOTES = """\
undisturbed: `train` of the same steps on four nodes; global batch 48, which 4, 3 and 2 ranks share
disturbed: --supervise --stable-for 3s, a checkpoint every 2 steps in the folder that nodes share;
two nodes lose power at different steps, the second one boots again and is taken in; a step of the
first three generations takes 0.4 s more
difference: the largest of all steps, those that were repeated included
"""
NOISE = 1e-4
EXAMPLE, JOB, FOLDER = "examples/ddp/main.py", "ddp.py", "/shared/ddp"
_STEP = "            step += 1\n"
_SLOW = """\
            if os.environ.get("ASCENDBOOT_GENERATION", "4") < "4":
                __import__("time").sleep(0.4)
"""
_LOSS = re.compile(r"step (\d+) loss (\d+\.\d{6})$")
_LAUNCH = re.compile(r"^generation \d+: (\d) ranks? on")
_CAP_S = 600.0


def main() -> None:
    """Compare disturbed jobs with one undisturbed job."""
    asked = _asked()
    chance = random.Random(asked.seed)  # noqa: S311 - for the choice of nodes
    with practice(4, 1) as cluster:
        _set_up(cluster, asked.python)
        sizes = ("--steps", str(asked.steps), "--global-batch", "48", "--batch", "4")
        _, out = cluster.call("train", JOB, "--", *sizes)
        expected = dict(_losses(out.splitlines()))
        rows = []
        for _ in range(asked.runs):
            lost = chance.sample([node.name for node in cluster.lab.nodes[1:]], 2)
            rows.append(_disturbed(cluster, sizes, lost, chance.randrange(2, 8), expected))
    show("losses of a job that loses nodes", PROMISE, rows, as_json=asked.json, notes=NOTES)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Losses of a job that loses nodes.")
    parser.add_argument("--runs", type=int, default=3, help="disturbed jobs (3)")
    parser.add_argument("--steps", type=int, default=200, help="of each job (200)")
    parser.add_argument("--seed", type=int, default=1, help="for the nodes that are lost (1)")
    python = PROJECT / ".venv-horovod/bin/python"
    parser.add_argument("--python", type=Path, default=python, help="one with torch")
    parser.add_argument("--json", action="store_true", help="print the figure as JSON")
    asked = parser.parse_args()
    if not asked.python.exists():
        sys.exit(f"bench: no {asked.python}; scripts/horovod torch builds it")
    return asked


def _set_up(cluster: Practice, python: Path) -> None:
    """State the checkpoints in the inventory, run setup, and make the example slow."""
    document = yaml.safe_load(cluster.lab.inventory.read_text())
    document["code"] = {"python": str(python)}
    document["parallel"] = {"gbs": 48, "mbs": 4}
    rules = {"kind": "torch", "dir": FOLDER, "reshardable": True, "shared": True}
    cluster.lab.inventory.write_text(yaml.safe_dump({**document, "checkpoint": rules}))
    text = (PROJECT / EXAMPLE).read_text()
    if _STEP not in text:
        sys.exit(f"bench: {EXAMPLE} has no line {_STEP!r}")
    (cluster.lab.directory / JOB).write_text(text.replace(_STEP, _STEP + _SLOW))
    cluster.call("setup")


def _disturbed(
    cluster: Practice,
    sizes: Sequence[str],
    lost: Sequence[str],
    after: int,
    expected: dict[int, float],
) -> dict[str, Any]:
    """Run one job, take two nodes from it, `after` steps from each other, and give one back."""
    first, second = lost
    cluster.sh(cluster.primary, "rm -rf /shared/*")
    kept = ("--every", "2", "--checkpoint", f"{FOLDER}/ddp-STEP.pt")
    words = ("--supervise", "--stable-for", "3s", "--", *sizes, *kept)
    began = time.monotonic()
    with watched(cluster.argv("train", JOB, *words), cluster.lab.directory, _CAP_S) as job:
        job.until(re.compile(rf"step {after} loss"))
        cluster.lab.fault(first, "node-down")
        job.until(re.compile(rf"step {2 * after} loss"))
        cluster.lab.fault(second, "node-down")
        job.until(re.compile(rf"step {2 * after + 2} loss"))
        cluster.lab.undo(second, "node-down")
    took = time.monotonic() - began
    cluster.lab.undo(first, "node-down")
    cluster.call("setup")
    found = _losses(job.seen)
    ranks = [match[1] for line in job.seen if (match := _LAUNCH.search(line))]
    difference = max(abs(loss / expected[step] - 1) for step, loss in found)
    is_whole = {step for step, _ in found} == {*expected} and ranks == ["4", "3", "2", "3"]
    return {
        "lost": f"{first}, {second}",
        "ranks": " ".join(ranks),
        "losses": len(found),
        "difference, %": f"{100 * difference:.6f}",
        "seconds": took,
        "promise": "kept" if is_whole and difference <= NOISE else "broken",
    }


def _losses(lines: Sequence[str]) -> list[tuple[int, float]]:
    """The step and the loss of each line of each rank that has them."""
    found = (_LOSS.search(line.rstrip("\n")) for line in lines)
    return [(int(match[1]), float(match[2])) for match in found if match]


if __name__ == "__main__":
    main()
