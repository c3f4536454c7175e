"""Trouble on the operator's side while a job runs: no job is left without a stop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ascendboot.jobs.follow import Interrupts
from ascendboot.launch.plan import LaunchPlan
from ascendboot.model.job import JobReport, JobState
from ascendboot.transport.api import Command, Result
from tests.integration.launch_cluster import (
    LocalCluster,
    LocalTransport,
    Screenful,
    failure_of,
    processes_of,
)

pytestmark = pytest.mark.integration

FOR_EVER = "import time\nprint('up')\ntime.sleep(600)\n"
MUCH = "import time\nfor _ in range(60_000):\n    print('x' * 99)\ntime.sleep(600)\n"


class Breaks(LocalTransport):
    """Raises what nobody foresees, once, when it is asked for `purpose`."""

    def __init__(self, purpose: str) -> None:
        super().__init__("lab-1")
        self.purpose = purpose

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        if self.purpose and any(c.purpose.startswith(self.purpose) for c in commands):
            self.purpose = ""
            raise OSError(24, "Too many open files")
        return super().run_all(commands)


def interrupted(cluster: LocalCluster, plan: LaunchPlan) -> JobReport:
    """A job that is ended by Ctrl-C once both of its ranks run."""
    interrupts = Interrupts()
    return cluster.run(plan, Screenful().and_then(interrupts.press), interrupts=interrupts)


def test_an_unexpected_error_after_the_start_stops_the_job(cluster: LocalCluster) -> None:
    transport = Breaks("end the launcher")
    cluster.transport = transport
    plan = cluster.job(FOR_EVER)
    with pytest.raises(OSError, match="Too many open files"):
        interrupted(cluster, plan)
    assert transport.purpose == ""
    assert not processes_of(plan.job_id)
    assert not Path(plan.job_folder, "open").exists()


def test_an_unexpected_error_of_one_node_is_in_the_report(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Breaks("find remaining processes")
    cluster.transport = transport
    plan = cluster.job(FOR_EVER)
    report = interrupted(cluster, plan)
    assert (report.state, report.exit_code) == (JobState.INTERRUPTED, 130)
    [note] = report.notes
    assert note == (
        "lab-1: unexpected OSError: [Errno 24] Too many open files; this is a bug in ascendboot, "
        "the run's log has the traceback; could not check for remaining processes"
    )
    assert "Traceback" in caplog.text
    assert not processes_of(plan.job_id)


def test_logs_that_cannot_be_opened_undo_the_preparation(cluster: LocalCluster) -> None:
    plan = cluster.job(FOR_EVER)
    folder = cluster.runs / plan.job_id
    (folder / "rank.1.log").mkdir(parents=True)

    report = cluster.run(plan)

    assert (report.state, report.exit_code) == (JobState.NOT_STARTED, 125)
    assert report.message == (
        f"could not store the output: [Errno 21] Is a directory: '{folder}/rank.1.log'\n"
        f"job {plan.job_id}: not started on any node"
    )
    assert not Path(plan.job_folder).exists()


def test_ctrl_c_ends_a_job_whose_reader_does_not_read(cluster: LocalCluster) -> None:
    """More lines than any pipe holds: followers wait for the reader, and the end for them."""
    plan = cluster.job(MUCH)
    folder, interrupts, goes_on = cluster.runs / plan.job_id, Interrupts(), threading.Event()

    def sink(_: bytes) -> None:
        # More is about to come than may wait: then the follower does, with its lock.
        seen, size = -1, 0
        while size != seen:
            time.sleep(1.0)
            seen, size = size, sum(log.stat().st_size for log in folder.glob("rank.*.log"))
        interrupts.press()
        goes_on.wait(60)

    report = cluster.run(plan, sink, interrupts=interrupts)
    goes_on.set()

    assert (report.state, report.exit_code) == (JobState.INTERRUPTED, 130)
    assert report.duration_s < 30
    assert report.notes == (
        "could not show the output any longer: its reader does not read; see the logs",
    )
    for rank in (0, 1):
        name = f"rank.{rank}.log"
        assert (folder / name).read_bytes() == Path(plan.job_folder, name).read_bytes()
    assert not processes_of(plan.job_id)


def test_a_closed_reader_does_not_end_the_job(cluster: LocalCluster) -> None:
    plan = cluster.job("import sys\nprint('one')\nprint('two')\nsys.exit(5)")
    read, write = os.pipe()
    os.close(read)

    def sink(block: bytes) -> None:
        os.write(write, block)

    report = cluster.run(plan, sink, folder=cluster.runs)
    os.close(write)

    assert (report.state, report.exit_code) == (JobState.FAILED, 5)
    assert "could not show the output any longer: its reader is gone; see the logs" in report.notes
    log = cluster.runs / f"rank.{failure_of(report).rank}.log"
    assert log.read_bytes() == b"one\ntwo\n"
