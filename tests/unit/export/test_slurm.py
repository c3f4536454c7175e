"""A job as a script for sbatch: valid, and nothing lost in silence."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ascendboot.errors import UsageError
from ascendboot.export.slurm import Job, export
from ascendboot.value import replace
from tests.unit.cli.calls import called
from tests.unit.export.test_volcano import accounted_keys, changed, keys_of_all

JOB = Job(script="main.py", args=("--text", "it's $(HOME) ✓"))
RANK_TABLE = ("kind: torchrun", "kind: mpirun"), ("root-info", "rank-table")


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()


def test_every_key_of_an_inventory_is_carried_over_kept_or_left_with_a_reason() -> None:
    assert accounted_keys("slurm.yaml") == keys_of_all()


def test_what_slurm_has_no_option_for_is_listed_and_kept() -> None:
    script, left = export(changed(*RANK_TABLE), JOB)
    assert [note.split(": ")[1] for note in left] == [
        *("nodes.atlas-[1-4].address", "nodes.atlas-[1-4].leaf", "defaults.user"),
        *("defaults.container", "firewall", "launcher.kind", "resources.mode"),
        *("/data/criteo, /data/checkpoints", "env HF_TOKEN"),
        "product, code, data, logs, checkpoint, parallel",
    ]
    [kept] = [line for line in script.splitlines() if line.startswith("# ascendboot/inventory: ")]
    assert json.loads(kept.partition(": ")[2])["parallel"] == {"tp": 4, "dp_min": 2}
    assert "not-to-be-seen" not in script + "".join(left)
    subprocess.run(["/bin/bash", "-n"], input=script, text=True, check=True)


REFUSED: tuple[tuple[Job, tuple[Any, ...], str], ...] = (
    (replace(JOB, name="a b"), (), "--name: has a character"),
    (replace(JOB, script="./main.py"), (), "./main.py: is here, not on the nodes"),
    (replace(JOB, args=("hf_0123456789abcdefgh",)), (), "or a secret, which belongs"),
    (JOB, (("devices: 8, ", ""),), "state `defaults: {devices: 8}`"),
    (JOB, (("not-to-be-seen", "checkpoints"),), "stands elsewhere, too"),
    (JOB, (*RANK_TABLE, ("product: a2", "product: a3")), "which Slurm cannot make"),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[2])
def test_what_cannot_be_exported_is_refused(case: tuple[Job, tuple[Any, ...], str]) -> None:
    with pytest.raises(UsageError) as caught:
        export(changed(*case[1]), case[0])
    assert case[2] in str(caught.value)


def test_the_verb_prints_a_script_and_lists_what_is_left_out(tmp_path: Path) -> None:
    changed()
    line = "export.sbatch main.py --inventory i.yaml --time 1-12 --account a --gres npu:910b"
    done = called(f"{line} -- --steps 3", tmp_path)
    assert [line[8:] for line in done.stdout.splitlines() if line.startswith("#SBATCH ")] == [
        *("--job-name=two-node", "--nodes=4", "--ntasks-per-node=1", "--gres=npu:910b:8"),
        *("--exclusive", "--mem=0", "--time=1-12", "--account=a"),
    ]
    assert done.stdout.endswith("' rank /opt/bin/python3.10 main.py --steps 3\n")
    assert "i.yaml:3: nodes.atlas-[1-4].address: left out: Slurm chooses" in done.stderr
    assert json.loads(called(f"{line} --json -- --steps 3", tmp_path).stdout) == {
        "script": done.stdout,
        "not_carried_over": done.stderr.splitlines(),
    }
