"""TensorFlow 1.15 and real Horovod, the stack of Rec SDK: both modes, by both launchers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.operating import BASE, Operator

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ascendboot.lab import Lab

pytestmark = pytest.mark.cluster

SCRIPT = "main_tf.py"
LOSS = re.compile(r"^lab-1:0 \| step .* held-out loss (\S+)", re.MULTILINE)
DIGEST = re.compile(r"^lab-(\d):(\d) \| weights sha256 (\w+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def python(pytestconfig: pytest.Config) -> Path:
    """The Python 3.7 beside which TensorFlow 1.15 and Horovod lie."""
    found = pytestconfig.rootpath / ".venv-tf/bin/python"
    if not (found.parents[1] / ".installed").exists():
        pytest.skip("there is no .venv-tf here; scripts/horovod tf builds it with Python 3.7")
    return found


@pytest.fixture(scope="module")
def operator(python: Path, bring_up_once: Callable[..., Lab]) -> Operator:
    """Two nodes of two devices, where there is TensorFlow."""
    assert python.exists()
    return Operator(bring_up_once(nodes=2, devices=2))


def set_up(operator: Operator, python: Path, *, mode: str, kind: str) -> None:
    document = yaml.safe_load(operator.lab.inventory.read_text())
    document |= {
        "code": {**document["code"], "python": str(python)},
        "launcher": {"kind": kind},
        "profile": "rec-sdk-tf",
        "resources": {"mode": mode},
    }
    path = operator.lab.directory / "rec-sdk.yaml"
    path.write_text(yaml.safe_dump(document))
    ended = operator.setup(inventory=path)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("mode", ["rank-table", "no-rank-table"])
@pytest.mark.parametrize("kind", ["horovod", "mpirun"])
def test_a_recommender_trains_on_all_ranks(
    operator: Operator, python: Path, mode: str, kind: str
) -> None:
    set_up(operator, python, mode=mode, kind=kind)
    job = operator.call("train", SCRIPT, "--", "--steps", "60", timeout_s=240)
    assert job.code == 0, job.err + job.out
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


def test_ranks_that_do_not_fit_the_rank_table_refuse_all_together(
    operator: Operator, python: Path
) -> None:
    set_up(operator, python, mode="rank-table", kind="mpirun")
    plan = operator.call("train", SCRIPT, "--plan", "--json").json
    table = f"{BASE}/resources/hccl_json_4p_2_host.json"
    for node in operator.lab.nodes:
        turned = 'sed \'s/"rank_id": "3"/"rank_id": "8"/\''
        operator.sh(node.name, f"{turned} {table} >/root/other.json; chmod 644 /root/other.json")
    by_hand = plan["command_line"].replace(table, "/root/other.json")
    said = operator.sh("lab-1", f"({by_hand}) 2>&1; echo exit $?")
    assert "lab-2 rank 3: could not start: rank 3 was started; expected one of those in" in said
    for where in ("lab-1 rank 0", "lab-1 rank 1", "lab-2 rank 2"):
        assert f"{where}: not started: refused by rank 3\n" in said
    assert said.endswith("exit 2\n")
