"""Supervised jobs on the practice cluster: each generation runs on the nodes that are left."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.text import from_text
from ascendboot.ranktable.validate import validate_table
from tests.cluster.operating import Operator

pytestmark = pytest.mark.cluster
GENERATIONS = """\
import os, pathlib, time
from mpi4py import MPI

world = MPI.COMM_WORLD
generation = os.environ["ASCENDBOOT_GENERATION"]
step = int(os.environ.get("ASCENDBOOT_RESUME_STEP", 0))
world.Barrier()
print("generation", generation, "rank", world.rank, "of", world.size, "from", step, flush=True)
if generation == "1":
    checkpoint = pathlib.Path("/var/lib/checkpoints")
    if world.rank % 2 == 0:
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "step_20.pt").write_bytes(b"weights")
        (checkpoint / "step_20.pt.done").touch()
    world.Barrier()
    if world.rank == 3:
        os._exit(7)
time.sleep(1000 if generation != "3" else 0.5)
table = pathlib.Path(os.environ["RANK_TABLE_FILE"]).read_text()
if world.rank == 0:
    print("table", table.replace("\\n", ""), flush=True)
world.Barrier()
"""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    """Three nodes with two devices each, whose jobs keep checkpoints on their own disks."""
    operator = Operator(bring_up_once(nodes=3, devices=2))
    rules = {"kind": "torch", "dir": "/var/lib/checkpoints", "reshardable": True}
    ssh = {"standby": ["lab-2"]}
    ended = operator.setup(
        inventory=operator.inventory("supervised.yaml", checkpoint=rules, ssh=ssh)
    )
    assert ended.code == 0, ended.err
    (operator.lab.directory / "generations.py").write_text(GENERATIONS)
    return operator


def latest(operator: Operator, place: int = -1) -> Path:
    """The folder of the last run of `train`, or of one before."""
    return sorted((operator.lab.directory / ".ascendboot/runs").glob("*-train-*"))[place]


def test_a_job_survives_a_failed_rank_and_the_loss_of_its_primary(operator: Operator) -> None:
    job = operator.start("train", "generations.py", "--supervise")
    assert job.stdout is not None
    assert any("| generation 2 rank 0 of 6 from 20\n" in line for line in job.stdout)
    operator.lab.fault("lab-1", "node-down")
    try:
        out, err = job.communicate(timeout=120)
    finally:
        operator.lab.undo("lab-1", "node-down")
        repaired = operator.call("setup")
    assert repaired.code == 0, repaired.err
    assert job.returncode == 0, err + out[-2000:]
    assert "lab-2: rank 3 on device 1 failed first, with exit code 7" in err
    assert "lab-1: was lost in the middle of the job, with ranks 0-1" in err
    assert "generation 3: 4 ranks on 2 nodes: lab-[2-3]" in err
    assert "generation 3: resumes at step 20: /var/lib/checkpoints/step_20.pt" in err
    assert "lab-2:0 | generation 3 rank 0 of 4 from 20\n" in out
    table = re.search(r"lab-2:0 \| table (\{.*\})\n", out)
    assert table is not None
    source = from_text("table", table[1])
    assert [p for p in validate_table(source) if p.level == "error"] == []
    assert [row.rank for row in table_of(source).rows] == [0, 1, 2, 3]
    assert operator.job_processes() == {}
    run = latest(operator)
    lines = (run / "supervise/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert {event["generation"] for event in events} >= {1, 2, 3}
    assert events[-1]["state"] == "DONE"
    assert operator.call("status", "--job", f"{run.name}.g3", "--json").code == 0


def test_after_train_was_killed_another_one_continues_the_job(operator: Operator) -> None:
    text = 'import os, time\nprint("began", flush=True)\n'
    text += 'time.sleep(1000 if os.environ["ASCENDBOOT_GENERATION"] == "1" else 0)\n'
    (operator.lab.directory / "long.py").write_text(text)
    job = operator.start("train", "long.py", "--supervise")
    assert job.stdout is not None
    assert any(line.startswith("lab-3:4 | began") for line in job.stdout)
    second = operator.call("train", "long.py", "--resume", latest(operator).name)
    assert "could not be supervised: another process does that already" in second.err
    job.kill()
    job.communicate()
    assert operator.job_processes() != {}
    ended = operator.call("train", "long.py", "--resume", latest(operator, -2).name)
    assert ended.code == 0, ended.err
    assert "generation 1: is ended on lab-[1-3]" in ended.err
    assert "lab-1:0 | began" in ended.out
    assert operator.job_processes() == {}


def test_a_bug_is_not_started_again_and_again(operator: Operator) -> None:
    (operator.lab.directory / "bug.py").write_text("raise SystemExit(3)\n")
    ended = operator.call("train", "bug.py", "--supervise")
    assert ended.code == 93, ended.err
    assert "generation 2: " in ended.err
    assert "generation 3: " not in ended.err
    assert "the same failure twice; correct the program" in ended.err
    too_many = operator.call("train", "bug.py", "--elastic", "4")
    assert (too_many.code, "could not supervise the job: " in too_many.err) == (125, True)
    refused = operator.call("train", "bug.py", "--supervise", "--detach")
    assert (refused.code, "--supervise: does not work with --detach" in refused.err) == (125, True)
