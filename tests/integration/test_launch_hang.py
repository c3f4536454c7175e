"""Jobs that stand still, with the real mpirun on one node, which is this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascendboot.launch.run import run
from ascendboot.launch.watch import HangRules
from ascendboot.model.job import JobReport, JobState
from tests.integration.launch_cluster import LocalCluster, Screenful

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ascendboot.launch.plan import LaunchPlan

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "base", tmp_path / "runs")
    yield made
    made.transport.close()


def ran(cluster: LocalCluster, plan: LaunchPlan, hangs: HangRules) -> JobReport:
    folder = cluster.runs / plan.job_id
    return run(plan, {"lab-1": cluster.transport}, folder=folder, sink=Screenful(), hangs=hangs)


WAIT = "import time\nprint('up')\ntime.sleep(600)\n"


def test_a_job_that_hangs_is_stopped(cluster: LocalCluster) -> None:
    told: list[str] = []
    plan = cluster.job(WAIT)
    report = ran(cluster, plan, HangRules(timeout_s=2, stops=True, tell=told.append))
    assert (report.state, report.exit_code) == (JobState.HUNG, 124)
    assert report.first_failure is None
    assert report.message.startswith(
        f"job {plan.job_id} hangs: no rank has put out or computed anything for "
    )
    assert told == [report.message]
