"""The little demo under a real mpirun: it learns, its ranks agree, it refuses without hanging."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ascendboot.supervise.checkpoints import Checkpoint, Found
from tests.here import resumes_from
from tests.unit.ranktable.examples import v10

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed"),
]

LITTLE_DEMO = Path(__file__).parents[2] / "examples" / "little_demo" / "main.py"
RANKS = 3

# What ascendboot's wrapper gives each rank; a line of shell may spoil it for one of them.
GIVE_EACH_RANK = """
export RANK_ID=$OMPI_COMM_WORLD_RANK RANK_SIZE=$OMPI_COMM_WORLD_SIZE
export DEVICE_ID=$OMPI_COMM_WORLD_LOCAL_RANK
{spoil}
exec "$@"
"""


def mpirun(
    *options: str,
    ranks: int = RANKS,
    table: Path | None = None,
    spoil: str = ":",
    resume_step: int | None = None,
    program: tuple[Path, Path] = (Path(sys.executable), LITTLE_DEMO),
) -> subprocess.CompletedProcess[str]:
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    environ = {name: os.environ[name] for name in kept if name in os.environ} | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    if table is not None:
        environ["RANK_TABLE_FILE"] = str(table)
    if resume_step is not None:
        environ["ASCENDBOOT_RESUME_STEP"] = str(resume_step)
    rank = ["bash", "-c", GIVE_EACH_RANK.format(spoil=spoil), "rank", *map(str, program)]
    argv = ["mpirun", "--oversubscribe", "-np", str(ranks), *rank, *options]
    return subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def table_file(tmp_path: Path) -> Path:
    """A rank table that fits."""
    return table_of(tmp_path.resolve(), RANKS)


def table_of(folder: Path, ranks: int) -> Path:
    """A rank table of one server."""
    path = folder / f"hccl_json_{ranks}p.json"
    path.write_text(json.dumps(v10(servers=1, devices=ranks)))
    path.chmod(0o644)
    return path


def steps_of(output: str) -> dict[int, tuple[float, float]]:
    """The loss and the held-out loss by step."""
    form = r"^step +(\d+)/40  loss (\S+)  held-out loss (\S+)"
    return {int(s): (float(a), float(b)) for s, a, b in re.findall(form, output, re.MULTILINE)}


def test_a_job_that_resumes_with_fewer_ranks_has_the_losses_of_one_that_was_not_disturbed(
    tmp_path: Path,
) -> None:
    options = ("--no-rank-table", "--batch", "256", "--every", "10")
    kept = ("--checkpoints", str(tmp_path))
    undisturbed = mpirun(*options, "--steps", "40", ranks=1)
    assert mpirun(*options, *kept, "--steps", "20", ranks=4).returncode == 0
    found = resumes_from(tmp_path, "manifest")
    assert found == Found(Checkpoint(20, f"{tmp_path}/demo-20.npz", ("n1",)))

    resumed = mpirun(*options, *kept, "--steps", "40", ranks=2, resume_step=20)

    assert f"resumes from step 20: {tmp_path}/demo-20.npz" in resumed.stdout, resumed.stderr
    expected, had = steps_of(undisturbed.stdout), steps_of(resumed.stdout)
    assert sorted(had) == [24, 28, 32, 36, 40]
    assert had == {step: pytest.approx(expected[step], abs=1e-5) for step in had}


def test_so_does_one_of_tensorflow_and_horovod(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    python = pytestconfig.rootpath / ".venv-tf/bin/python"
    if not python.exists():
        pytest.skip("there is no .venv-tf here; scripts/horovod tf builds it where Python 3.7 is")
    folder = tmp_path.resolve()
    program = (python, LITTLE_DEMO.with_name("main_tf.py"))

    def train(ranks: int, *options: str, resume_step: int | None = None) -> str:
        words = ("--batch", "256", "--every", "10", *options)
        table = table_of(folder, ranks)
        done = mpirun(*words, ranks=ranks, table=table, program=program, resume_step=resume_step)
        assert done.returncode == 0, done.stderr
        return done.stdout

    kept = ("--checkpoints", str(folder / "kept"))
    undisturbed = train(1, "--steps", "40")
    train(4, "--steps", "20", *kept)
    found = resumes_from(folder / "kept", "tensorflow")
    assert found == Found(Checkpoint(20, f"{folder}/kept/demo.ckpt-20", ("n1",)))

    resumed = train(2, "--steps", "40", *kept, resume_step=20)

    assert "resumes from step 20\n" in resumed
    # The loss is that of rank 0 alone, on its part of the clicks.
    expected, had = steps_of(undisturbed), steps_of(resumed)
    assert sorted(had) == [24, 28, 32, 36, 40]
    for step, (_, held_out) in had.items():
        assert held_out == pytest.approx(expected[step][1], abs=1e-5)


def refusals(done: subprocess.CompletedProcess[str]) -> set[str]:
    """What the ranks said, the host's name left out."""
    name = re.escape(os.uname().nodename)
    return set(re.findall(rf"^{name} (rank \d: .*)$", done.stderr, re.MULTILINE))


def test_one_rank_on_a_wrong_device_stops_all(table_file: Path) -> None:
    spoil = '[ "$RANK_ID" != 1 ] || export DEVICE_ID=7'
    done = mpirun(table=table_file, spoil=spoil)
    assert (done.returncode, done.stdout) == (2, "")
    assert refusals(done) == {
        "rank 0: not started: refused by rank 1",
        "rank 1: could not start: DEVICE_ID is 7; expected 1",
        "rank 2: not started: refused by rank 1",
    }
