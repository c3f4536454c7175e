"""Elastic jobs on the practice cluster: DDP goes on without a node, from its checkpoint."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

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
REFUSED = "could not start an elastic job: "


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab], pytestconfig: pytest.Config) -> Operator:
    """Two nodes of two devices whose jobs are torchrun's."""
    python = with_torch(pytestconfig)
    operator = Operator(bring_up_once(nodes=2, devices=2))
    path = inventory(operator, code={"python": str(python)}, launcher={"kind": "torchrun"})
    ended = operator.setup(inventory=path)
    assert ended.code == 0, ended.err
    example = (pytestconfig.rootpath / "examples/ddp/main.py").read_text()
    assert STEP in example
    (operator.lab.directory / "ddp.py").write_text(example.replace(STEP, STANDS_STILL))
    return operator


def inventory(operator: Operator, name: str = "torchrun.yaml", **changes: object) -> Path:
    document = yaml.safe_load(operator.lab.inventory.read_text())
    path = operator.lab.directory / name
    path.write_text(yaml.safe_dump({**document, **changes}))
    return path


def start(operator: Operator, *, min_nodes: str) -> subprocess.Popen[str]:
    """DDP that has learnt for a while."""
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


def test_only_who_asks_for_it_gets_it(operator: Operator) -> None:
    plain = operator.call("train", "ddp.py", "--plan")
    assert (plain.out.count("--rdzv_backend=static"), plain.out.count("c10d")) == (2, 0), plain.err
    asked = operator.call("train", "ddp.py", "--plan", "--elastic", "1")
    assert asked.out.count("--nnodes=1:2 ") == 2, asked.err
    assert "elastic: continues while 1 of its nodes are left" in asked.out


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ("3", f"{REFUSED}--elastic 3 is more than its 2 nodes; state fewer"),
        ("0", '--elastic: "0" is not a whole number of at least 1'),
        ("half", '--elastic: "half" is not a whole number of at least 1'),
    ],
)
def test_numbers_of_nodes_that_cannot_be(operator: Operator, nodes: str, why: str) -> None:
    refused = operator.call("train", "ddp.py", "--elastic", nodes)
    assert (refused.code, refused.out) == (125, "")
    assert why in refused.err


def test_nodes_whose_clocks_are_apart(operator: Operator) -> None:
    operator.lab.fault("lab-2", "clock", seconds=12)
    try:
        refused = operator.call("train", "ddp.py", "--elastic", "1")
    finally:
        operator.lab.undo("lab-2", "clock")
    assert refused.code == 125
    assert re.search(
        r"^lab-2: could not take part in an elastic job: its clock is 1[123] s ahead of that of "
        "lab-1, ",
        refused.err,
        re.MULTILINE,
    )


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
