"""DDP under supervision on the practice cluster: nodes are lost and return, the losses go on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Operator
from tests.needs import LONG

pytestmark = pytest.mark.cluster
STEPS = 150
SIZES = ("--steps", str(STEPS), "--global-batch", "48", "--batch", "4")
STEP = "            step += 1\n"
# Until the job has grown again, its steps take some time.
SLOW = f"""\
{STEP}
            if os.environ.get("ASCENDBOOT_GENERATION", "4") < "4":
                __import__("time").sleep(0.4)
"""


@pytest.fixture
def operator(
    python: Path, bring_up_once: Callable[..., Lab], pytestconfig: pytest.Config
) -> Operator:
    """Four nodes with one device each, whose jobs save in a shared folder."""
    operator = Operator(bring_up_once(nodes=4, devices=1))
    keys = {
        "code": {"python": str(python)},
        "checkpoint": {"kind": "torch", "dir": "/shared/ddp", "reshardable": True, "shared": True},
        "parallel": {"gbs": 48, "mbs": 4},
    }
    operator.setup(inventory=operator.inventory("shared.yaml", **keys), exits=0)
    example = (pytestconfig.rootpath / "examples/ddp/main.py").read_text()
    assert STEP in example
    operator.script("ddp.py", example.replace(STEP, SLOW))
    return operator


def losses(lines: Iterable[str]) -> list[tuple[int, float]]:
    """The step and the loss of each line of each rank that has them."""
    found = (re.search(r"step (\d+) loss (\d+\.\d{6})\n", line) for line in lines)
    return [(int(match[1]), float(match[2])) for match in found if match]


def undisturbed(python: Path, script: Path) -> subprocess.Popen[str]:
    """A job of the same steps with one rank on this machine, which runs beside the other one."""
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "OMP_NUM_THREADS": "1"}
    environ = {**os.environ, **ranks, **meeting}
    return subprocess.Popen(
        [python, script, *SIZES], env=environ, stdout=subprocess.PIPE, text=True
    )


@LONG
def test_a_job_that_loses_two_nodes_and_gets_one_back_has_the_losses_of_an_undisturbed_one(
    operator: Operator, python: Path
) -> None:
    alone = undisturbed(python, operator.lab.directory / "ddp.py")
    words = ("--elastic", "1", "--stable-for", "3s")
    kept = ("--every", "2", "--checkpoint", "/shared/ddp/ddp-STEP.pt")
    job = operator.start("train", "ddp.py", *words, "--", *SIZES, *kept)
    out: list[str] = []

    def until(pattern: str) -> None:
        for line in job.out:
            out.append(line)
            if re.search(pattern, line):
                return
        pytest.fail(f"no line {pattern} in:\n{''.join(out)}")

    until("step 4 loss")
    operator.lab.fault("lab-4", "node-down")
    until("step 7 loss")
    operator.lab.fault("lab-2", "node-down")
    until("step 9 loss")
    operator.lab.undo("lab-2", "node-down")
    ended = job.end(timeout_s=200)
    out += ended.out.splitlines(keepends=True)
    operator.lab.undo("lab-4", "node-down")
    assert ended.code == 0, ended.err + ended.out[-2000:]
    launches = re.findall(r"generation \d: \d ranks? on .*", ended.err)
    assert launches == [
        "generation 1: 4 ranks on 4 nodes: lab-[1-4]",
        "generation 2: 3 ranks on 3 nodes: lab-[1-3]",
        "generation 3: 2 ranks on 2 nodes: lab-[1,3]",
        "generation 4: 3 ranks on 3 nodes: lab-[1-3]",
    ]
    assert "lab-2: has booted again: the cluster's sshd was started" in ended.err
    lines, _ = alone.communicate(timeout=100)
    expected, found = dict(losses(lines.splitlines(keepends=True))), losses(out)
    assert {step for step, _ in found} == set(range(1, STEPS + 1))
    # 32-bit floats from 0.05 to 200, printed with six digits after the point.
    assert [loss for _, loss in found] == [
        pytest.approx(expected[step], rel=1e-6, abs=1e-5) for step, _ in found
    ]
    assert operator.job_processes() == {}
