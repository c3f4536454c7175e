"""Starts that do not come to their end and that nobody follows: the primary ends them."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from ascendboot.model.job import JobState
from tests.integration.two_nodes import TwoNodes
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def test_a_rank_that_never_begins_ends_the_start_and_is_named(
    two: TwoNodes, tmp_path: Path
) -> None:
    made = two.job("import time\ntime.sleep(600)", begin_within_s=3)
    stuck = "[ x$OMPI_COMM_WORLD_RANK != x3 ] || sleep 600"
    two.on("lab-2", f"echo '{stuck}' >>{made.request.base}/env/node.env")
    report = two.left_alone(made, tmp_path)
    assert (report.state, report.exit_code, report.cause) == (JobState.NOT_STARTED, 125, None)
    assert report.message == (
        f"lab-2: could not start rank 3 of job {made.job_id} within 3 s: the launcher has not "
        f"started them; its log is {made.job_folder}/launcher.log"
    )
    wait_until(lambda: two.processes_of(made) == "")


def answers_on(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_a_node_whose_login_hangs_is_named(two: TwoNodes, tmp_path: Path) -> None:
    port = int(two.ssh_log.read_text().split()[1])
    wait_until(lambda: answers_on(port))
    os.kill(int(two.transports["lab-2"].way[2]), signal.SIGSTOP)
    made = two.job("import time\ntime.sleep(600)", begin_within_s=1)
    report = two.left_alone(made, tmp_path)
    assert (report.state, report.exit_code) == (JobState.NOT_STARTED, 125), report
    assert report.message.startswith(
        f"lab-1: could not start ranks 0-1 of job {made.job_id} within 1 s: the launcher has not "
        "started them; ssh from lab-1 waits for lab-2; "
    )
    assert two.processes_of(made, "lab-1") == ""


def test_a_job_whose_ranks_have_begun_goes_on(two: TwoNodes, tmp_path: Path) -> None:
    made = two.job("import time\ntime.sleep(8)", begin_within_s=6)
    assert two.left_alone(made, tmp_path).state is JobState.SUCCEEDED
