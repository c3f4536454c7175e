"""Real torchrun in elastic jobs over two nodes: it goes on without one, or ends with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ascendboot.jobs.start import start_detached
from ascendboot.model.job import JobState
from tests.integration.launch_cluster import Screenful
from tests.integration.two_nodes import TwoNodes
from tests.needs import LONG
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
HEAD = """\
import os, sys, time
rank, size, place = int(os.environ["RANK"]), os.environ["WORLD_SIZE"], os.environ["DEVICE_ID"]
print(f"rank {rank} of {size} on {place}", flush=True)
"""
WAITS_FOR_FEWER = HEAD + "if size == '4': time.sleep(600)\n"
FAILS_ONCE = """\
mark = f"{sys.argv[1]}.{rank}"
if not os.path.exists(mark):
    open(mark, "w").close()
    while rank != 3: time.sleep(600)
    while not all(os.path.exists(f"{sys.argv[1]}.{other}") for other in range(3)): time.sleep(0.1)
    sys.exit("out of luck")
"""
FAILS = "if rank == 3:\n    print('no such thing', flush=True)\n    sys.exit(5)\ntime.sleep(600)\n"
GLOO = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([1.0])
dist.all_reduce(total)
print("sum", total.item(), flush=True)
"""
WAITS_FOR_MORE = "if size == '2': time.sleep(600)\n"


def test_a_failed_rank_restarts_with_all_others(
    two: TwoNodes, python: Path, tmp_path: Path
) -> None:
    screen = Screenful()
    made = two.torchrun_job(python, HEAD + FAILS_ONCE, f"{tmp_path}/mark", min_nodes=2)
    report = two.run(made, screen)
    assert (report.state, report.first_failure, report.cause) == (JobState.SUCCEEDED, None, None)
    (note,) = report.notes
    assert re.fullmatch(r"the ranks restarted at [\d:]+ UTC: 4 of them, as before", note)
    assert screen.of(3, "lab-2") == [
        b"rank 3 of 4 on 7",
        b"out of luck",
        b"[ascendboot: begins again, as rank 3 of 4]",
        b"rank 3 of 4 on 7",
    ]


def test_used_up_restarts_end_the_job_and_name_the_rank(two: TwoNodes, python: Path) -> None:
    made = two.torchrun_job(python, HEAD + FAILS, min_nodes=2)
    screen = Screenful()
    report = two.run(made, screen)
    assert (report.state, report.exit_code) == (JobState.FAILED, 5)
    assert screen.of(3, "lab-2").count(b"no such thing") == 4
    assert report.first_failure is not None
    assert report.first_failure.rank == 3
    assert report.cause is not None
    assert report.cause.title.startswith("lab-2: rank 3 on device 7 failed first, with exit code 5")
    assert len(report.notes) == 3
    assert two.processes_of(made) == ""


def test_a_detached_job_continues_without_a_killed_torchrun(two: TwoNodes, python: Path) -> None:
    made = two.torchrun_job(python, WAITS_FOR_FEWER, min_nodes=1)
    start_detached(made, two.transports, forks=4)
    events = f"cat {made.job_folder}/events"
    wait_until(lambda: two.on("lab-2", events).count("rank ") == 4)
    assert (
        two.on("lab-2", f"pkill -KILL -f 'torc[h].distributed.run .*{made.job_id}' && echo killed")
        == "killed\n"
    )
    wait_until(lambda: "launcher - exit" in two.on("lab-1", events))
    seen = two.on("lab-1", events)
    assert re.search(r"^agent 1 left at [\d.]+: torchrun ended with 137$", seen, re.MULTILINE)
    assert seen.count(" of 2 from ") == 2
    assert "launcher - exit 0 at " in seen
    assert two.processes_of(made) == ""


@LONG
def test_a_late_node_joins(two: TwoNodes, python: Path, tmp_path: Path) -> None:
    slow = tmp_path / "python"
    # Later than those wait for others who are enough.
    late = f'[ ! -e {two.first.base}/late ] || [ "$2" != torch.distributed.run ] || sleep 45'
    slow.write_text(f'#!/bin/bash\n{late}\nexec {python} "$@"\n')
    slow.chmod(0o755)
    two.on("lab-2", f"touch {two.first.base}/late")
    screen = Screenful()
    made = two.torchrun_job(slow, HEAD + GLOO + WAITS_FOR_MORE, min_nodes=1)
    report = two.run(made, screen)
    assert report.state is JobState.SUCCEEDED
    (note,) = report.notes
    assert note.endswith(": 4 of them, 2 before")
    # Without a name server torch warns between the two.
    first, *_, last = screen.of(3, "lab-2")
    assert (first, last) == (b"rank 3 of 4 on 7", b"sum 4.0")
