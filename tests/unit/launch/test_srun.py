"""The command, environment and files of srun."""

from __future__ import annotations

import pytest

from ascendboot.errors import LaunchError
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import LauncherChoice
from ascendboot.value import replace
from tests.unit.launch.request import BASE, REQUEST

SRUN = replace(
    REQUEST,
    launcher=LauncherChoice("srun", "it was asked for"),
    launcher_env={"SLURM_JOB_ID": "7"},
)


def test_the_command_and_the_node_of_each_rank() -> None:
    made = plan(SRUN)
    [start] = made.starts
    assert (start.node, start.log, made.mpirun) == ("a-1", "launcher.log", None)
    assert start.command == (
        *("srun", "--job-name=job-1", "--ntasks=4", "--distribution=arbitrary", "--overlap"),
        *("--cpu-bind=none", "--kill-on-bad-exit=1", "--input=none"),
        *(f"{BASE}/env/rank-exec", "job-1"),
        "ASCENDBOOT_RANK_VARIABLES=SLURM_PROCID,SLURM_LOCALID,SLURM_NTASKS",
        f"RANK_TABLE_FILE={BASE}/resources/hccl_json_4p_2_host.json",
        *("ASCENDBOOT_DEVICES=4,5,0,1", "ASCENDBOOT_WORKDIR=/workspace"),
        *("ASCENDBOOT_GRACE=2.5", "--"),
        *("python3", "/workspace/main.py", "--name", "a b", "%:"),
    )
    hosts = BASE / "jobs/job-1/srun.hosts"
    assert start.env["SLURM_JOB_ID"] == "7"
    assert start.env["SLURM_HOSTFILE"] == str(hosts)
    [(node, file)] = [each for each in made.files if each[1].path == hosts]
    assert (node, file.content) == ("a-1", b"a-1\na-1\na-2\na-2\n")


def test_outside_of_an_allocation_nothing_is_planned() -> None:
    with pytest.raises(LaunchError, match="SLURM_JOB_ID is not set; call ascendboot inside salloc"):
        plan(replace(SRUN, launcher_env={}))
