"""Making ready for a job: of several at once at most one goes on."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from ascendboot.errors import LaunchError
from ascendboot.jobs.start import prepare
from ascendboot.launch.plan import LaunchPlan
from tests.here import Here
from tests.integration.launch_cluster import LocalCluster, LocalTransport

pytestmark = pytest.mark.integration

AT_ONCE = 3
# Other tests run jobs on the same machine.
SEES_NO_PROCESS = 'case $* in *environ*) exit 1 ;; esac\nexec /bin/grep "$@"'


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """In a folder of its own, as jobs of all clusters beside it count."""
    (tmp_path / "bin").mkdir()
    Here(tmp_path / "bin").put("grep", SEES_NO_PROCESS)
    way = ("/usr/bin/env", f"PATH={tmp_path}/bin:{os.environ['PATH']}")
    transport = LocalTransport("lab-1", way)
    return LocalCluster(tmp_path / "clusters/lab", tmp_path / "runs", transport=transport)


def why_not(cluster: LocalCluster, job: LaunchPlan) -> list[str]:
    """Why a job could not be made ready; nothing where it was."""
    try:
        prepare(job, cluster.transports, forks=4)
    except LaunchError as error:
        return str(error).splitlines()
    return []


def refused(job: LaunchPlan, other: LaunchPlan) -> str:
    return (
        f"lab-1: could not prepare job {job.job_id}: job {other.job_id} is being started "
        f"on this node, too; see what becomes of it: status --job {other.job_id}"
    )


def test_a_prepared_job_blocks_another(cluster: LocalCluster) -> None:
    first, second = (cluster.job("", alone=True) for _ in range(2))
    assert why_not(cluster, first) == []
    assert why_not(cluster, second)[0] == refused(second, first)
    assert not Path(second.job_folder).exists()
    Path(first.job_folder, "open").unlink()  # it is over
    assert why_not(cluster, second) == []


@pytest.mark.parametrize("number", range(5))
def test_of_jobs_prepared_at_once_at_most_one_continues(cluster: LocalCluster, number: int) -> None:
    jobs = [cluster.job("", alone=True, job_id=f"{number}-{i}") for i in range(AT_ONCE)]
    together = Barrier(AT_ONCE)

    def try_one(job: LaunchPlan) -> list[str]:
        together.wait(30)
        return why_not(cluster, job)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = dict(zip((job.job_id for job in jobs), pool.map(try_one, jobs), strict=True))
    ready = [job for job in jobs if not said[job.job_id]]
    assert len(ready) <= 1, said
    assert [f.name for f in (cluster.base / "jobs").iterdir()] == [job.job_id for job in ready]
    for job in jobs:
        expected = {refused(job, other) for other in jobs if other is not job}
        words = said[job.job_id][:-1]
        assert set(words) <= expected
        assert words or job in ready
