"""Elastic jobs on the practice cluster: DDP continues from its checkpoint without a lost node."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Operator
from tests.needs import with_torch

pytestmark = pytest.mark.cluster
STEPS = 300
STEP = "            step += 1\n"
# The second node stands still in the middle of its steps, and the others wait for it.
STANDS_STILL = """\
            step += 1
            if step == 200 and dist.get_rank() > 1:
                __import__("time").sleep(1000)
"""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab], pytestconfig: pytest.Config) -> Operator:
    """Two nodes with two devices each; torchrun starts the jobs."""
    python = with_torch(pytestconfig)
    operator = Operator(bring_up_once(nodes=2, devices=2))
    keys = {"code": {"python": str(python)}, "launcher": {"kind": "torchrun"}}
    ended = operator.setup(inventory=operator.inventory("torchrun.yaml", **keys))
    assert ended.code == 0, ended.err
    example = (pytestconfig.rootpath / "examples/ddp/main.py").read_text()
    assert STEP in example
    (operator.lab.directory / "ddp.py").write_text(example.replace(STEP, STANDS_STILL))
    return operator


def start(operator: Operator, *, min_nodes: str) -> subprocess.Popen[str]:
    """Start DDP and wait until it has made 100 steps."""
    checkpoint = f"{BASE}/elastic.{min_nodes}.pt"
    words = ("--steps", str(STEPS), "--every", "20", "--checkpoint", checkpoint)
    job = operator.start("train", "ddp.py", "--elastic", min_nodes, "--", *words)
    assert job.stdout is not None
    assert any(line.startswith("lab-2:2 | step 100 ") for line in job.stdout)
    return job


def test_with_too_few_nodes_left_it_ends_and_names_the_one_that_is_lost(operator: Operator) -> None:
    job = start(operator, min_nodes="2")
    assert operator.sh("lab-2", "pkill -KILL -f 'torc[h].distributed.run' && echo killed")
    _, err = job.communicate(timeout=300)
    assert job.returncode != 0
    assert "lab-2: torchrun ended with 137; nodes left: 1, needed: 2" in err, err
    assert operator.job_processes() == {}


def test_a_job_that_cannot_be_elastic_is_not_started(operator: Operator) -> None:
    too_few = operator.call("train", "ddp.py", "--elastic", "3")
    operator.lab.fault("lab-2", "clock", seconds=12)
    try:
        apart = operator.call("train", "ddp.py", "--elastic", "1")
    finally:
        operator.lab.undo("lab-2", "clock")
    assert (too_few.code, apart.code) == (125, 125)
    assert "could not start an elastic job: --elastic 3 is more than its 2 nodes" in too_few.err
    assert "lab-2: could not take part in an elastic job: its clock is 1" in apart.err


def test_it_goes_on_without_a_node_that_has_lost_its_power(operator: Operator) -> None:
    job = start(operator, min_nodes="1")
    operator.lab.fault("lab-2", "node-down")
    try:
        out, err = job.communicate(timeout=300)
    finally:
        operator.lab.undo("lab-2", "node-down")
    assert job.returncode == 0, err + out[-2000:]
    assert "lab-1:0 | [ascendboot: begins again, as rank 0 of 2]\n" in out
    begun = re.search(rf"lab-1:0 \| begins at step (\d+) of {STEPS}\n", out)
    assert begun is not None
    assert 80 <= int(begun[1]) < STEPS
    assert re.search(r"lab-1:1 \| rank 1 of 2 on cpu: loss \d", out)
    assert re.search(r"lab-2: lost with ranks 2-3 at [\d:]+ UTC: lost it: ssh ended with 255", err)
    assert re.search(r"the ranks restarted at [\d:]+ UTC: 2 of them, 4 before", err)
