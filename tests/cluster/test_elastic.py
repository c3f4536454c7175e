"""`train --elastic` on the practice cluster: DDP continues from its checkpoint without a node."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Operator
from tests.needs import with_torch

pytestmark = pytest.mark.cluster
STEPS = "300"
FOLDER = f"{BASE}/elastic"
STEP = "            step += 1\n"
# The second node stands still in the middle of its steps, and the others wait for it.
STANDS_STILL = """\
            step += 1
            if step == 200 and dist.get_rank() > 1:
                __import__("time").sleep(1000)
"""


@pytest.fixture
def operator(bring_up_once: Callable[..., Lab], pytestconfig: pytest.Config) -> Operator:
    """Two nodes with two devices each; torchrun starts jobs, which save on both nodes."""
    operator = Operator(bring_up_once(nodes=2, devices=2))
    keys = {
        "code": {"python": str(with_torch(pytestconfig))},
        "launcher": {"kind": "torchrun"},
        "checkpoint": {"kind": "torch", "dir": FOLDER, "reshardable": True},
    }
    ended = operator.setup(inventory=operator.inventory("torchrun.yaml", **keys))
    assert ended.code == 0, ended.err
    example = (pytestconfig.rootpath / "examples/ddp/main.py").read_text()
    assert STEP in example
    (operator.lab.directory / "ddp.py").write_text(example.replace(STEP, STANDS_STILL))
    return operator


def test_it_continues_without_a_node_that_has_lost_its_power(operator: Operator) -> None:
    words = ("--steps", STEPS, "--every", "20", "--checkpoint", f"{FOLDER}/ddp-STEP.pt")
    job = operator.start("train", "ddp.py", "--elastic", "1", "--", *words)
    assert job.stdout is not None
    assert any(line.startswith("lab-2:2 | step 100 ") for line in job.stdout)
    operator.lab.fault("lab-2", "node-down")
    try:
        out, err = job.communicate(timeout=200)
    finally:
        operator.lab.undo("lab-2", "node-down")
    assert job.returncode == 0, err + out[-2000:]
    assert "lab-2: was lost in the middle of the job, with ranks 2-3" in err
    assert "generation 2: 2 ranks on 1 node: lab-1\n" in err
    begun = re.search(rf"lab-1:0 \| begins at step (\d+) of {STEPS}\n", out)
    assert begun is not None
    assert int(begun[1]) in range(80, 201, 20)
    assert f"generation 2: resumes at step {begun[1]}: {FOLDER}/ddp-{begun[1]}.pt" in err
    assert re.search(r"lab-1:1 \| rank 1 of 2 on cpu: loss \d", out)
