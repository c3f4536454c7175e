"""A launcher that one module adds: planned, run, failing and stopped as any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ascendboot.launch.launchers import LAUNCHERS
from ascendboot.model.cluster import LauncherChoice
from ascendboot.model.job import JobState
from tests.integration.launch_cluster import LocalCluster, Screenful, failure_of
from tests.integration.launcher_local import LAUNCHER
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

CHOICE = LauncherChoice("local", "the test states it")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setitem(LAUNCHERS, "local", LAUNCHER)
    made = LocalCluster(tmp_path / "base", tmp_path / "runs")
    yield made
    made.transport.close()


def test_it_is_planned_and_runs_every_rank(cluster: LocalCluster) -> None:
    source = "import os; print(*map(os.environ.get, ('RANK', 'LOCAL_RANK', 'WORLD_SIZE')))"
    plan = cluster.job(source, launcher=CHOICE)
    assert plan.mpirun is None
    assert "launcher: local starts jobs: the test states it" in plan.describe()
    screen = Screenful()
    report = cluster.run(plan, screen)
    assert (report.state, report.exit_code) == (JobState.SUCCEEDED, 0)
    assert [screen.of(rank) for rank in (0, 1)] == [[b"0 0 2"], [b"1 1 2"]]


def test_a_rank_that_fails_is_named_with_its_exit_code(cluster: LocalCluster) -> None:
    source = "import os, sys, time\nos.environ['RANK'] == '1' and sys.exit(3)\ntime.sleep(600)"
    report = cluster.run(cluster.job(source, launcher=CHOICE), Screenful())
    assert (report.state, report.exit_code) == (JobState.FAILED, 3)
    assert (failure_of(report).rank, failure_of(report).exit_code) == (1, 3)


def test_it_is_stopped(cluster: LocalCluster) -> None:
    plan = cluster.job("import time\nprint('ready', flush=True)\ntime.sleep(600)", launcher=CHOICE)
    cluster.start(plan)
    logs = [cluster.base / "jobs" / plan.job_id / f"rank.{rank}.log" for rank in (0, 1)]
    wait_until(lambda: all(log.read_bytes() == b"ready\n" for log in logs))
    assert cluster.stop(plan).left == ()
    events = (cluster.base / "jobs" / plan.job_id / "events").read_text()
    assert "rank 0 exit 143 " in events
    assert "rank 1 exit 143 " in events
    assert "launcher - exit " in events
