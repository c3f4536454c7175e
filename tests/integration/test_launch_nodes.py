"""Jobs over two nodes: each has its own processes and its own base folder, and a real sshd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascendboot.model.job import JobState
from tests.integration.launch_cluster import HEAD, Screenful
from tests.integration.two_nodes import SECOND, TwoNodes
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def test_each_node_gets_at_most_three_requests(two: TwoNodes) -> None:
    two.run(two.job("print()"), Screenful())
    assert {name: len(t.ran) for name, t in two.transports.items()} == {"lab-1": 3, "lab-2": 2}
    assert {name: len(t.streams) for name, t in two.transports.items()} == {"lab-1": 1, "lab-2": 1}


def test_ranks_have_their_whole_grace_period(two: TwoNodes) -> None:
    """Open MPI cuts its waits short for every rank that ends; here three do at once."""
    saves = """\
if rank == 3:
    signal.signal(15, lambda *_: (time.sleep(2.5), print("saved"), os._exit(0)))
print("up")
while rank == 2 and not os.path.exists("ready"): time.sleep(0.02)
if rank == 3: open("ready", "x").close()
if rank == 2: sys.exit(3)
time.sleep(600)
"""
    screen = Screenful()
    report = two.run(two.job(HEAD + saves, grace_s=4.0), screen)
    assert [end.exit_code for end in report.ranks] == [143, 143, 3, 0]
    assert screen.of(3, "lab-2") == [b"up", b"saved"]


RANK = "awk '/^rank 2 pid/ { print $4 }' events"


@pytest.mark.parametrize("rank", [0, 3])
def test_all_nodes_end_their_ranks_at_once(two: TwoNodes, tmp_path: Path, rank: int) -> None:
    """Open MPI would: ranks that do not heed SIGTERM took one grace after the other."""
    stubborn = f"""\
signal.signal(15, signal.SIG_IGN)
up = "{tmp_path}/up."
open(up + str(rank), "x").close()
while rank == {rank} and not all(os.path.exists(up + r) for r in "0123"): time.sleep(0.02)
if rank == {rank}: sys.exit(3)
time.sleep(600)
"""
    made = two.job(HEAD + stubborn, grace_s=2.0)
    assert two.run(made, Screenful()).exit_code == 3
    events = "".join(two.on(name, f"cat {made.job_folder}/events") for name in two.transports)
    words = [line.split() for line in events.replace("\0", "").splitlines()]
    told = [float(w[4]) for w in words if w[0] == "rank" and w[2:4] == ["ends", "at"]]
    killed = [float(w[5]) for w in words if w[0] == "rank" and w[2:4] == ["exit", "137"]]
    assert (len(told), len(killed)) == (3, 3)
    assert max(told) < min(killed)


@pytest.mark.parametrize(
    ("node", "pids"),
    [
        ("lab-2", f"$({RANK})"),
        ("lab-2", f"$(ps -o ppid= -p $({RANK}))"),
        ("lab-2", "$(pgrep -x orted)"),
        ("lab-1", "$(awk '/^launcher - pid/ { print $4 }' events)"),
    ],
    ids=["a rank", "its wrapper", "orted", "mpirun"],
)
def test_a_detached_job_ends_when_a_process_is_killed(two: TwoNodes, node: str, pids: str) -> None:
    made = two.job(HEAD + "print('up')\ntime.sleep(600)")
    two.start_until_up(made)
    two.on(node, f"cd {made.job_folder} && kill -9 {pids}")
    wait_until(lambda: two.processes_of(made) == "")
    # By what stands beside each rank, or by what stood beside mpirun.
    told = f"grep -qE '^(rank .|launcher -) ends at' {made.job_folder}/events && echo told"
    assert two.on("lab-1", told) == "told\n"


def test_a_process_left_on_the_second_node_is_ended(two: TwoNodes) -> None:
    made = two.job(HEAD + "if rank == 3:\n    subprocess.Popen(['setsid', 'sleep', '600'])")
    report = two.run(made, Screenful())
    assert report.exit_code == 0
    (note,) = report.notes
    assert note.startswith("lab-2: process ")
    assert note.endswith(" was still running and was ended: sleep 600")
    assert two.processes_of(made, "lab-2") == ""


def test_a_node_that_the_primary_does_not_trust(two: TwoNodes) -> None:
    two.on("lab-1", f": >{two.first.base}/trust/known_hosts")
    report = two.run(two.job("print('never')"), Screenful())
    assert (report.state, report.first_failure) == (JobState.FAILED, None)
    assert report.exit_code not in (0, 125, 130)
    assert report.message.splitlines()[0] == (
        f"No ED25519 host key is known for {SECOND} and you have requested strict checking."
    )


def test_nothing_starts_when_the_second_node_is_not_ready(two: TwoNodes) -> None:
    two.on("lab-2", f"rm {two.first.base}/env/node.env")
    made = two.job("print('never')")
    report = two.run(made, Screenful())
    assert (report.state, report.exit_code) == (JobState.NOT_STARTED, 125)
    assert report.message == (
        f"lab-2: could not prepare job {made.job_id}: no file {two.first.base}/env/node.env;"
        f" run setup\njob {made.job_id}: not started on any node"
    )
    for node in two.transports:
        assert two.on(node, f"ls {two.first.base}/jobs") == ""


def test_the_second_node_goes_down(two: TwoNodes) -> None:
    made = two.job(HEAD + "print('up')\ntime.sleep(600)")
    screen = Screenful()
    inside = two.transports["lab-2"].way[2]

    def sink(block: bytes) -> None:
        screen(block)
        if screen.shown.count(b"up") == 4:
            os.kill(int(inside), 9)

    report = two.run(made, sink)

    assert report.state is JobState.FAILED
    assert report.exit_code != 0
    [note] = [note for note in report.notes if note.startswith("lab-2: could not ")]
    assert note.endswith("; could not check for remaining processes")
    assert two.processes_of(made, "lab-1") == ""
