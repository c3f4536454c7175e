"""The DDP example by gloo on this machine: it resumes with fewer ranks, and its losses go on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ascendboot.supervise.checkpoints import Checkpoint, Found
from tests.here import resumes_from
from tests.needs import with_torch

pytestmark = pytest.mark.integration
EXAMPLE = Path(__file__).parents[2] / "examples/ddp/main.py"


def train(python: Path, ranks: int, *options: str, **environ: str) -> str:
    """What the ranks of one job print."""
    torchrun = str(python.with_name("torchrun"))
    argv = [torchrun, "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    done = subprocess.run(
        [*argv, f"--nproc-per-node={ranks}", str(EXAMPLE), "--global-batch", "64", *options],
        env={
            "PATH": os.environ["PATH"],
            "OMP_NUM_THREADS": "1",
            "ASCENDBOOT_DP": str(ranks),
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(output: str) -> dict[int, float]:
    """By step; two ranks may print into one line."""
    return {int(s): float(x) for s, x in re.findall(r"step (\d+) loss (\d+\.\d{6})", output)}


def test_a_job_that_resumes_with_fewer_ranks_has_the_losses_of_one_that_was_not_disturbed(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    python = with_torch(pytestconfig)
    kept = ("--checkpoint", str(tmp_path / "kept/ddp-STEP.pt"))
    undisturbed = losses(train(python, 1, "--steps", "40"))
    before = losses(train(python, 4, "--steps", "20", *kept))
    assert resumes_from(tmp_path / "kept", "torch") == Found(
        Checkpoint(20, f"{tmp_path}/kept/ddp-20.pt", ("n1",))
    )

    printed = train(python, 2, "--steps", "40", *kept, ASCENDBOOT_RESUME_STEP="20")

    assert printed.count("begins at step 20 of 40") == 2
    after = losses(printed)
    assert sorted(before) == list(range(1, 21))
    assert sorted(after) == list(range(21, 41))
    assert {**before, **after} == pytest.approx(undisturbed, abs=1e-5, rel=1e-6)


def test_a_resume_argument_counts_before_the_variable(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    python = with_torch(pytestconfig)
    kept = ("--checkpoint", str(tmp_path / "kept/ddp-STEP.pt"), "--every", "5")
    train(python, 1, "--steps", "10", *kept)
    resume = ("--resume", str(tmp_path / "kept/ddp-5.pt"))
    printed = train(python, 1, "--steps", "12", *kept, *resume, ASCENDBOOT_RESUME_STEP="10")
    assert "begins at step 5 of 12" in printed
