"""TensorFlow 1.15 and real Horovod, the stack of Rec SDK: all sides, launchers and modes."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Operator
from tests.needs import LONG, missing

pytestmark = pytest.mark.cluster

SCRIPT = "main_tf.py"
SIDES, KINDS, MODES = ("host", "container"), ("horovod", "mpirun"), ("rank-table", "no-rank-table")
ALWAYS = [("host", "mpirun", "rank-table"), ("container", "horovod", "no-rank-table")]
"""Each launcher, side and mode once; TensorFlow starts slowly."""
LOSS = re.compile(r"^lab-1:0 \| step .* held-out loss (\S+)", re.MULTILINE)
DIGEST = re.compile(r"^lab-(\d):(\d) \| weights sha256 (\w+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def python(pytestconfig: pytest.Config) -> Path:
    """The Python 3.7 beside which TensorFlow 1.15 and Horovod lie."""
    built = pytestconfig.rootpath / ".venv-tf"
    if not built.exists():  # in CI as well: Python 3.7 is optional, and nothing here fetches it
        pytest.skip("there is no .venv-tf here; scripts/horovod tf builds it where Python 3.7 is")
    if not (built / ".installed").exists():
        missing("the .venv-tf here is not whole; scripts/horovod tf builds it")
    return built / "bin/python"


@pytest.fixture(scope="module")
def operator(
    python: Path, bring_up_once: Callable[..., Lab], request: pytest.FixtureRequest
) -> Operator:
    """Two nodes of two devices; ranks run on the host side or in containers of the nodes."""
    assert python.exists()
    return Operator(bring_up_once(nodes=2, devices=2, containers=request.param == "container"))


def set_up(operator: Operator, python: Path, *, mode: str, kind: str) -> None:
    path = operator.inventory(
        "rec-sdk.yaml",
        code={**operator.document()["code"], "python": str(python)},
        launcher={"kind": kind},
        profile="rec-sdk-tf",
        resources={"mode": mode},
    )
    # Horovod imports TensorFlow several times to say what it was built with.
    operator.setup(inventory=path, exits=0)


@pytest.mark.parametrize(
    ("operator", "kind", "mode"),
    [
        pytest.param(side, kind, mode, marks=() if (side, kind, mode) in ALWAYS else LONG)
        for side, kind, mode in product(SIDES, KINDS, MODES)
    ],
    indirect=["operator"],
)
def test_a_recommender_trains_on_all_ranks(
    operator: Operator, python: Path, mode: str, kind: str
) -> None:
    set_up(operator, python, mode=mode, kind=kind)
    job = operator.call("train", SCRIPT, "--", "--steps", "60", exits=0)
    losses = [float(text) for text in LOSS.findall(job.out)]
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    digests = DIGEST.findall(job.out)
    assert sorted((int(n), int(rank)) for n, rank, _ in digests) == [
        (1 + r // 2, r) for r in range(4)
    ]
    assert len({digest for *_, digest in digests}) == 1
    assert "gradients that travel as rows: context, item, user\n" in job.out
    assert "lab-1:0 | Demo done! held-out loss " in job.out


@LONG
@pytest.mark.parametrize("operator", ["host"], indirect=True)
def test_ranks_that_are_told_of_another_number_of_ranks_refuse(
    operator: Operator, python: Path
) -> None:
    set_up(operator, python, mode="no-rank-table", kind="mpirun")
    plan = operator.call("train", SCRIPT, "--plan", "--json").json
    assert "CM_WORKER_SIZE=4" in plan["command"]
    by_hand = plan["command_line"].replace("CM_WORKER_SIZE=4", "CM_WORKER_SIZE=8")
    said = operator.sh("lab-1", f"({by_hand}) 2>&1; echo exit $?")
    problem = "CM_WORKER_SIZE is 8; expected 4, all ranks of the job"
    for rank in range(4):
        assert f"lab-{1 + rank // 2} rank {rank}: could not start: {problem}\n" in said
    assert said.endswith("exit 2\n")
