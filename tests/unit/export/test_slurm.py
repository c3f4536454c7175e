"""A job as a script for sbatch: valid, and nothing lost in silence."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ascendboot.errors import UsageError
from ascendboot.export.slurm import Job, export
from ascendboot.export.volcano import facts
from ascendboot.inventory.schema import whole
from ascendboot.value import replace
from tests.unit.cli.calls import called
from tests.unit.export.test_volcano import INVENTORY, keys_of

JOB = Job(script="main.py", args=("--text", "it's $(HOME) ✓"))
RANK_TABLE = ("kind: torchrun", "kind: mpirun"), ("root-info", "rank-table")


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()


def exported(job: Job = JOB, *changes: tuple[str, str]) -> tuple[str, list[str]]:
    text = INVENTORY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    Path("i.yaml").write_text(text)
    return export(Path("i.yaml"), job)


def options(script: str) -> list[str]:
    return [line[8:] for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_every_key_of_an_inventory_is_carried_over_kept_or_left_with_a_reason() -> None:
    keys, there = facts("slurm.yaml")["keys"], {*keys_of(whole())}
    known = {
        *keys["carried"],
        *(key.removesuffix("[]") for of in keys["left"].values() for key in of),
    }
    for top, of in keys["kept"].items():
        inner = {key for key in there if key.partition(".")[0] == top}
        known |= inner if of is True else {f"{top}.{key}" for key in of}
    assert known == there


def test_the_options_of_a_job() -> None:
    script, _ = exported(replace(JOB, time="1-12", partition="long", account="a", gres="npu:910b"))
    assert options(script) == [
        *("--job-name=two-node", "--nodes=4", "--ntasks-per-node=1", "--gres=npu:910b:8"),
        *("--exclusive", "--mem=0", "--time=1-12", "--partition=long", "--account=a"),
    ]


def test_what_slurm_has_no_option_for_is_listed_and_kept() -> None:
    script, left = exported(JOB, *RANK_TABLE)
    assert [note.split(": ")[1] for note in left] == [
        *("nodes.atlas-[1-4].address", "nodes.atlas-[1-4].leaf", "defaults.user"),
        *("defaults.container", "firewall", "launcher.kind", "resources.mode"),
        *("/data/criteo, /data/checkpoints", "env HF_TOKEN"),
        "product, code, data, logs, checkpoint, parallel",
    ]
    [kept] = [line for line in script.splitlines() if line.startswith("# ascendboot/inventory: ")]
    assert json.loads(kept.partition(": ")[2])["parallel"] == {"tp": 4, "dp_min": 2}
    assert "not-to-be-seen" not in script + "".join(left)


@pytest.mark.parametrize(
    ("launcher", "mode", "starts", "meets"),
    [
        ("torchrun", "root-info", "srun --mpi=none", ()),
        ("torchrun", "rank-table", "srun --mpi=none", ()),
        ("mpirun", "root-info", "srun --mpi=pmix", ("RANK_ID",)),
        ("horovod", "rank-table", "srun --mpi=pmix", ("CM_CHIEF_IP", "CM_WORKER_IP")),
        ("mpirun", "no-rank-table", "srun --mpi=pmix", ("CM_CHIEF_IP", "CM_WORKER_IP")),
    ],
)
def test_how_ranks_start_and_meet(
    launcher: str, mode: str, starts: str, meets: tuple[str, ...]
) -> None:
    changes = ("kind: torchrun", f"kind: {launcher}"), ("mode: root-info", f"mode: {mode}")
    script, _ = exported(JOB, *changes)
    subprocess.run(["/bin/bash", "-n"], input=script, text=True, check=True)
    assert f"\n{starts} --kill-on-bad-exit=1 --cpu-bind=none " in script
    families = {name for name in ("RANK_ID", "CM_CHIEF_IP", "CM_WORKER_IP") if name in script}
    assert families == {*meets}
    tasks = 1 if launcher == "torchrun" else 8
    assert f"--ntasks-per-node={tasks}" in options(script)


@pytest.mark.parametrize(
    ("job", "changes", "message"),
    [
        (replace(JOB, name="a b"), (), "--name: has a character"),
        (replace(JOB, account=""), (), "--account: has a character"),
        (replace(JOB, script="./main.py"), (), "./main.py: is here, not on the nodes"),
        (replace(JOB, args=("hf_0123456789abcdefgh",)), (), "or a secret, which belongs"),
        (JOB, (("devices: 8, ", ""),), "state `defaults: {devices: 8}`"),
        (JOB, (("not-to-be-seen", "checkpoints"),), "stands elsewhere, too"),
        (JOB, (*RANK_TABLE, ("product: a2", "product: a3")), "which Slurm cannot make"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    job: Job, changes: tuple[tuple[str, str], ...], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        exported(job, *changes)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_the_verb_prints_a_script_and_lists_what_is_left_out(tmp_path: Path) -> None:
    exported()
    line = "export.sbatch main.py --inventory i.yaml"
    done = called(f"{line} -- --steps 3", tmp_path)
    assert (done.returncode, done.stdout[:12]) == (0, "#!/bin/bash\n")
    assert done.stdout.endswith("' rank /opt/bin/python3.10 main.py --steps 3\n")
    assert "i.yaml:3: nodes.atlas-[1-4].address: left out: Slurm chooses" in done.stderr
    assert json.loads(called(f"{line} --json -- --steps 3", tmp_path).stdout) == {
        "script": done.stdout,
        "not_carried_over": done.stderr.splitlines(),
    }
