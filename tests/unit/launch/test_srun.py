"""The command, environment and files of srun."""

from __future__ import annotations

import pytest

from ascendboot.errors import LaunchError
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import LauncherChoice
from ascendboot.value import replace
from tests.unit.launch.request import BASE, REQUEST

SRUN = replace(REQUEST, launcher=LauncherChoice("srun", ""), launcher_env={"SLURM_JOB_ID": "7"})


def test_the_command_and_the_node_of_each_rank() -> None:
    made = plan(SRUN)
    [start] = made.starts
    assert start.command[:9] == (
        *("srun", "--job-name=job-1", "--ntasks=4", "--distribution=arbitrary", "--overlap"),
        *("--cpu-bind=none", "--kill-on-bad-exit=1", "--input=none", f"{BASE}/env/rank-exec"),
    )
    hosts = BASE / "jobs/job-1/srun.hosts"
    assert (start.node, start.env["SLURM_HOSTFILE"]) == ("a-1", str(hosts))
    assert [f.content for _, f in made.files if f.path == hosts] == [b"a-1\na-1\na-2\na-2\n"]


def test_outside_of_an_allocation_nothing_is_planned() -> None:
    with pytest.raises(LaunchError, match="SLURM_JOB_ID is not set; call ascendboot inside salloc"):
        plan(replace(SRUN, launcher_env={}))
