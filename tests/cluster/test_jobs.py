"""Detached jobs: status, logs and stop on the practice cluster."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from ascendboot.lab.cluster import Lab
from tests import terminal
from tests.cluster.operating import BASE, CUT, PROGRAM, Operator, Program, set_up
from tests.needs import LONG, missing
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

KILLS = int(
    os.environ.get(
        "ASCENDBOOT_KILLS", "30" if os.environ.get("ASCENDBOOT_LONG_TESTS") == "1" else "6"
    )
)
WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(1000)\n"
# Ends when the test says so; the last line is no text and has no end.
# Who fails ends the others: they are to have said their last before.
ENDS = f"""\
import os, pathlib, sys, time
print('ready', flush=True)
while not pathlib.Path('{BASE}/go').exists(): time.sleep(0.05)
os.write(1, b'\\xff\\x00 last of ' + os.environ['RANK'].encode())
if os.environ['RANK'] not in sys.argv[1:]: sys.exit(0)
time.sleep(1)
sys.exit(3)
"""
# Ranks 2 and 0 fail and say when, by the clock of their node; rank 2 does so first.
TIMED = """\
import os, subprocess, sys, time
rank = int(os.environ["RANK"])
def say(text):
    now = subprocess.check_output(["date", "+%F %T,000"], text=True).strip()
    print(now, "ERROR:", text, flush=True)
if rank == 2: say("no more data"); time.sleep(4)
elif rank == 0: time.sleep(3); say("no more partners"); time.sleep(1)
else: time.sleep(1000)
sys.exit(4)
"""
# Rank 0 waits in vain for one of the others.
APART = """\
import os, sys, threading, time
rank = int(os.environ["RANK"])
def fail():
    time.sleep(2)
    print("[ERROR] HCCL(1,python): [InitChannelStage] wait socket establish timeout, role[1]")
    sys.exit(5)
def load():
    print("loading", flush=True)
    time.sleep(1000)
def all_reduce():
    threading.Event().wait()
{0: fail, 3: load}.get(rank, all_reduce)()
"""
# In the middle of its steps, which all ranks take together.
STEPS = """\
from mpi4py import MPI
for step in range(100_000_000):
    if step == 100: print('ready', flush=True)
    MPI.COMM_WORLD.allreduce(step)
"""
# As tqdm does it: no newline until the end.
BAR = """\
import sys, time
for n in range(400): sys.stderr.write(f'\\r{n:3d} of 400 ')
print('ready')
time.sleep(1000)
"""
# As people write it: nothing is flushed, so Python itself must not hold it back.
PLAIN = f"""\
import pathlib, time
print('ready')
print('loss 1')
while not pathlib.Path('{BASE}/go').exists(): time.sleep(0.05)
print('LOSS 2')
print('done')
"""
# In brackets so that the search does not find itself.
ALL_OF_JOBS = (
    f"grep -lsz 'ASCENDBOOT_JOB_I[D]=\\|{BASE}/job[s]/' /proc/[0-9]*/environ /proc/[0-9]*/cmdline |"
    ' while read -r f; do tr "\\0" " " <"${f%/*}/cmdline"; echo; done; true'
)


@pytest.fixture(scope="module")
def cluster(bring_up_once: Callable[..., Lab]) -> Operator:
    """Two nodes of two devices, set up."""
    lab = bring_up_once(nodes=2, devices=2)
    return set_up(lab, waits=WAITS, steps=STEPS, ends=ENDS, plain=PLAIN, bar=BAR, timed=TIMED)


@pytest.fixture
def operator(cluster: Operator) -> Iterator[Operator]:
    """The cluster without any job, before and after."""
    cluster.on_all(f"rm -f {BASE}/go")
    yield cluster
    # The followers of an operator that was killed end once its connections have.
    wait_until(lambda: left_of_jobs(cluster) == {})


def left_of_jobs(operator: Operator) -> dict[str, str]:
    """Every process on each node that has to do with any job, followers and waiters included."""
    found = {n.name: operator.sh(n.name, ALL_OF_JOBS).strip() for n in operator.lab.nodes}
    return {name: text for name, text in found.items() if text}


def detached(operator: Operator, script: str, *args: str) -> str:
    return operator.call("train", script, "--detach", "--", *args, exits=0).out.strip()


def folder(operator: Operator, job_id: str) -> Path:
    return operator.lab.directory / ".ascendboot" / "runs" / job_id


def status(operator: Operator, *args: str) -> Any:
    return operator.call("status", "--json", *args, exits=0).json


def all_ready(operator: Operator, job_id: str) -> bool:
    logs = f"cat {BASE}/jobs/{job_id}/rank.*.log"
    return all(operator.sh(n.name, logs).count("ready\n") == 2 for n in operator.lab.nodes)


def ready_job(operator: Operator, script: str, *args: str) -> str:
    """Start a job that nobody follows, and wait until all of its ranks are ready."""
    job_id = detached(operator, script, *args)
    wait_until(lambda: all_ready(operator, job_id))
    return job_id


def go(operator: Operator) -> None:
    operator.on_all(f"touch {BASE}/go")


def followed(operator: Operator, *args: str) -> tuple[Program, str]:
    """A `train` that is watched, once a rank has begun; and its job's id."""
    process = operator.start("train", *args)
    job_id = process.job_id()
    assert "ready" in process.out.readline()
    return process, job_id


# ---------------------------------------------------------------------------------- the way through


def test_a_detached_job_is_shown_and_stopped(operator: Operator) -> None:
    job_id = ready_job(operator, "waits.py")

    running = status(operator)
    assert (running["job_id"], running["state"], running["exit_code"]) == (job_id, "running", None)
    assert [rank["exit_code"] for rank in running["ranks"]] == [None] * 4
    assert [
        (n["node"], n["ranks"], n["ranks_alive"], n["launcher_alive"]) for n in running["nodes"]
    ] == [("lab-1", [0, 1], [0, 1], True), ("lab-2", [2, 3], [2, 3], None)]

    text = operator.call("status", "--lines").out
    row = r"    lab-[12]:(\d) +\d+ s ago +\d+ % +\d+ MiB \| ready\n"
    assert re.findall(row, text) == ["0", "1", "2", "3"], text
    numbers = r"NPU \d+( - \d+)? %  41 of 64 GiB  57 - 58 °C  [0-9.]+ lines/s"
    assert re.search(rf"  lab-1  {numbers} \| ranks 0-1 alive, launcher alive\n", text)
    assert [[*n["npus"], *n["lines_per_s"]] for n in running["nodes"]] == [
        ["0", "1", "0", "1"],
        ["0", "1", "2", "3"],
    ]

    listed = operator.call("jobs", "--json", exits=0).json["jobs"][0]
    assert (listed["job_id"], listed["state"], listed["exit_code"]) == (job_id, "running", None)
    stopped = operator.call("stop", "--json", "--grace", "0.5", "--job", job_id[-4:], exits=0)
    assert [
        (n["node"], n["processes_before"] > 0, n["left"], n["problem"])
        for n in stopped.json["nodes"]
    ] == [("lab-1", True, [], ""), ("lab-2", True, [], "")]
    assert left_of_jobs(operator) == {}

    after = status(operator)
    assert (after["state"], after["exit_code"]) == ("stopped", 143)
    assert [n["processes"] for n in after["nodes"]] == [0, 0]
    for node in operator.lab.nodes:  # as `reset` does
        operator.sh(node.name, f"rm -r {BASE}/jobs/{job_id}")
    kept = status(operator)
    assert (kept["state"], kept["ranks"]) == ("stopped", after["ranks"])
    assert kept["duration_s"] == after["duration_s"] > 0
    operator.call("stop", "--grace", "0.5", exits=0)
    first = operator.call("jobs", exits=0).out.splitlines()[0]
    assert first.startswith(f"{job_id}  stopped (143)")


def test_a_watch_connects_again_and_ends_with_the_code_of_the_job(operator: Operator) -> None:
    ready_job(operator, "ends.py", "3")
    live = f"timeout -s INT 8 {PROGRAM} status --watch"
    screen = terminal.shown(live, columns=80, rows=24, cwd=operator.lab.directory)
    rows = [row for row in screen if re.match(r"lab-[12]  NPU \d+ - \d+ %  \d+ of 64 GiB  ", row)]
    assert len(rows) == 2, screen
    watch = operator.start("status", "--watch", "--json", "--interval", "1s")
    seen = (json.loads(line) for line in watch.out)
    assert [node["ranks_alive"] for node in next(seen)["nodes"]] == [[0, 1], [2, 3]]
    operator.sh("lab-2", f"kill -STOP $(cat /run/sshd.pid); {CUT}")
    lost = next(document for document in seen if document["nodes"][1]["problem"])
    assert (lost["state"], lost["nodes"][0]["ranks_alive"]) == ("running", [0, 1])
    operator.sh("lab-2", "kill -CONT $(cat /run/sshd.pid)")
    assert next(document for document in seen if document["nodes"][1]["ranks_alive"])
    go(operator)
    *_, last = seen
    assert (last["state"], last["exit_code"], watch.end().code) == ("failed", 3, 3)


def test_a_command_runs_on_some_nodes_or_all(operator: Operator) -> None:
    script = "echo one; echo two >&2; [ $(hostname) = lab-1 ] || exit 3"
    both = operator.call("exec", "--", "bash", "-c", script, exits=3).out
    assert both == "lab-1\n  one\n  two\nlab-2: exit code 3\n  one\n  two\n"
    same = operator.call("exec", "--", "echo", "a b", exits=0).out
    assert same == "lab-[1-2]\n  a b\n"
    one = operator.call("exec", "--json", "--nodes", "lab-1", "--", "false", exits=1).json
    row = {"node": "lab-1", "exit_code": 1, "stdout": "", "stderr": "", "problem": ""}
    assert one["nodes"] == [row]
    wrong = operator.call("exec", "--nodes", "lab-[2-3]", "--", "true", exits=2)
    assert wrong.err.startswith('--nodes: there is no "lab-3", only lab-[1-2]')


def test_a_progress_bar_is_shown_as_it_stands_and_behind_its_rank(operator: Operator) -> None:
    job_id = ready_job(operator, "bar.py")
    assert operator.call("status", "--lines").out.count("| 399 of 400 ready\n") == 4
    shown = operator.call("logs", "--rank", "3").out.splitlines()
    assert [line for line in shown if line.strip() != "lab-2:3 |"] == [
        *(f"lab-2:3 | {n:3d} of 400 " for n in range(399)),
        "lab-2:3 | 399 of 400 ready",
    ]
    operator.call("stop", "--grace", "0.5", "--job", job_id, exits=0)


def test_where_the_ranks_of_a_job_are(operator: Operator) -> None:
    job_id = ready_job(operator, "waits.py")
    events = operator.sh("lab-2", f"cat {BASE}/jobs/{job_id}/events")
    pids = dict(re.findall(r"^rank (\d) pid (\d+) ", events, re.MULTILINE))
    operator.sh("lab-2", f"kill -STOP {pids['3']}")

    seen = operator.call("status", "--stacks", "--json").json
    loads = {rank: load for node in seen["nodes"] for rank, load in node["loads"].items()}
    assert {rank: load["state"] for rank, load in loads.items()} == {
        **dict.fromkeys("012", "S"),
        "3": "T",
    }
    assert all(load["memory_bytes"] > 1 << 20 for load in loads.values())
    odd, others, *_ = seen["stacks"]["lines"]
    assert odd.startswith("rank 3 on lab-2 is stopped by a signal (state T) in ")
    assert others.startswith("ranks 0-2 wait in ")
    assert f"== rank 3 on lab-2, process {pids['3']}: " in Path(seen["stacks"]["file"]).read_text()
    shown = operator.call("status", "--stacks").out
    assert f"\n  {odd}\n  {others}\n" in shown
    assert " | (stopped by a signal) ready\n" in shown
    operator.call("stop", "--grace", "0.5", "--job", job_id, exits=0)


def test_a_job_outlives_its_operator_and_its_logs_are_completed(operator: Operator) -> None:
    process, job_id = followed(operator, "ends.py", "--", "2")
    process.die()
    assert status(operator)["state"] == "running"

    viewer = operator.start("logs", "--follow", "--rank", "1-3")
    go(operator)
    out = viewer.end(exits=0).out
    lines = [f"lab-{1 + r // 2}:{r} | " for r in (1, 2, 3)]
    assert sorted(out.splitlines()) == sorted(
        [f"{line}ready" for line in lines]
        + [f"{line}\ufffd\0 last of {r}" for r, line in enumerate(lines, 1)]
    )
    for rank in range(4):
        node = f"lab-{1 + rank // 2}"
        there = operator.lab.exec(node, ["cat", f"{BASE}/jobs/{job_id}/rank.{rank}.log"]).stdout
        assert (folder(operator, job_id) / f"rank.{rank}.log").read_bytes() == there
    report = json.loads((folder(operator, job_id) / "job.json").read_text())
    assert (report["state"], report["exit_code"]) == ("failed", 3)
    assert report["first_failure"]["rank"] == 2
    assert status(operator)["state"] == "failed"


def test_logs_go_on_where_the_copy_ends(operator: Operator) -> None:
    job_id = ready_job(operator, "ends.py")
    first = operator.call("logs", "--job", job_id, "--node", "lab-2")
    assert first.out == "lab-2:2 | ready\nlab-2:3 | ready\n"
    assert (folder(operator, job_id) / "rank.0.log").read_bytes() == b"ready\n"
    assert not (folder(operator, job_id) / "job.json").exists()
    go(operator)
    wait_until(lambda: status(operator)["state"] == "succeeded")
    assert (folder(operator, job_id) / "job.json").exists()  # for when the nodes forget the job
    again = operator.call("logs", "--rank", "3")
    assert again.out == "lab-2:3 | ready\nlab-2:3 | \ufffd\0 last of 3\n"
    assert (folder(operator, job_id) / "rank.0.log").read_bytes() == b"ready\n\xff\0 last of 0"
    report = json.loads((folder(operator, job_id) / "job.json").read_text())
    assert (report["state"], report["exit_code"]) == ("succeeded", 0)


def test_logs_since_a_moment_the_last_of_them_and_with_some_words(operator: Operator) -> None:
    job_id = ready_job(operator, "plain.py")
    noted = f"grep -hc '^[0-9.]* 13 ' {BASE}/jobs/{job_id}/rank.*.marks; true"
    wait_until(lambda: all(operator.sh(n.name, noted) == "1\n1\n" for n in operator.lab.nodes))
    moment = datetime.now(timezone.utc).isoformat()
    assert operator.call("logs", "--tail", "1", "--rank", "1").out == "lab-1:1 | loss 1\n"
    follower = operator.start("logs", "--follow", "--tail", "1", "--rank", "2")
    assert follower.out.readline() == "lab-2:2 | loss 1\n"
    go(operator)
    assert follower.end().out == "lab-2:2 | LOSS 2\nlab-2:2 | done\n"
    nodes = ("logs", "--node", "lab-[1-2]")
    assert operator.call(*nodes, "--since", moment, "--grep", "(?i)loss").out == "".join(
        f"lab-{1 + rank // 2}:{rank} | LOSS 2\n" for rank in range(4)
    )
    assert operator.call(*nodes, "--since", "1d", "--tail", "3", "--grep", "loss").out == "".join(
        f"lab-{1 + rank // 2}:{rank} | loss 1\n" for rank in range(4)
    )


def test_logs_beside_a_train_that_follows_write_nothing(operator: Operator) -> None:
    process, job_id = followed(operator, "ends.py")
    wait_until(lambda: all_ready(operator, job_id))
    ended = operator.call("logs", "--rank", "0")
    assert (ended.code, ended.out) == (0, "lab-1:0 | ready\n")
    assert "another ascendboot follows this job" in ended.err
    go(operator)
    process.end(exits=0)
    assert (folder(operator, job_id) / "rank.1.log").read_bytes() == b"ready\n\xff\0 last of 1"


def test_a_stop_ends_a_train_that_follows_within_the_grace_of_the_start(operator: Operator) -> None:
    process, job_id = followed(operator, "waits.py")
    stopped = operator.call("stop", "--job", job_id, "--grace", "40", exits=0)
    assert (
        f"job {job_id}: its ranks get 3 s between SIGTERM and SIGKILL, not 40: the grace "
        "period is fixed at start; for more, start the job with train --grace 40\n"
    ) in stopped.out
    process.end(exits=143)
    report = json.loads((folder(operator, job_id) / "job.json").read_text())
    assert (report["state"], report["message"]) == ("stopped", "the job was stopped with stop")
    again = operator.call("stop", "--grace", "40", "--json", "--job", job_id)
    assert (again.code, again.json["notes"]) == (0, [])


def test_a_second_job_on_the_same_nodes_is_refused_naming_the_first(operator: Operator) -> None:
    first = detached(operator, "waits.py")
    wait_until(lambda: all_ready(operator, first))
    only_lab_2 = of_one_node(operator, "lab-2")
    operator.setup(inventory=only_lab_2, exits=0)
    refused = operator.call("train", "waits.py", "--detach", inventory=only_lab_2)
    whole = operator.call("train", "waits.py", inventory=operator.lab.inventory)
    names = f"job {first} runs on this node; wait for its end, or end it: stop --job {first}"
    for ended, nodes in ((refused, "lab-2"), (whole, "lab-[1-2]")):
        assert ended.code == 125
        assert ended.err.splitlines() == [
            f"{nodes}: {names}",
            "Stopped: the job was not started; nothing was written.",
        ]
    assert status(operator, "--inventory", str(operator.lab.inventory))["state"] == "running"

    operator.call("stop", inventory=operator.lab.inventory, exits=0)
    own = of_one_node(operator, "lab-1")
    operator.setup(inventory=own, exits=0)
    both = {"lab-1": own, "lab-2": only_lab_2}
    for path in both.values():
        words = ("train", "waits.py", "--inventory", str(path), "--detach")
        operator.call(*words, exits=0)
    wait_until(lambda: [ranks_alive(operator, path) for path in both.values()] == [[0, 1], [0, 1]])
    operator.call("stop", "--grace", "0.5", inventory=own, exits=0)
    assert [ranks_alive(operator, path) for path in both.values()] == [[], [0, 1]]
    operator.call("stop", "--grace", "0.5", inventory=only_lab_2, exits=0)
    operator.setup(exits=0)


def ranks_alive(operator: Operator, inventory: Path) -> list[int]:
    """Of the last job of a cluster of one node, while it is said to run."""
    seen = status(operator, "--inventory", str(inventory))
    [node] = seen["nodes"]
    return list(node["ranks_alive"]) if seen["state"] == "running" else []


def of_one_node(operator: Operator, node: str) -> Path:
    """An inventory of one node of the lab, as a cluster of its own."""
    document = operator.document()
    document["cluster"], document["nodes"] = node, {node: document["nodes"][node]}
    document.pop("primary", None)
    return operator.inventory(f"{node}.yaml", document)


def test_a_job_that_vanished_is_lost(operator: Operator) -> None:
    job_id = ready_job(operator, "waits.py")
    events = f"{BASE}/jobs/{job_id}/events"
    kill = f"kill -9 $(awk '/^(supervisor|launcher) - pid/ {{print $4}}' {events})"
    operator.sh("lab-1", kill)
    lost = status(operator)
    assert lost["state"] == "lost"
    assert lost["message"] == "the launcher is gone and its exit code is unknown"
    operator.call("stop", "--grace", "0.5", exits=0)


def test_status_and_logs_find_the_cause_of_a_job_that_nobody_followed(operator: Operator) -> None:
    """By the times in the logs and the measured clocks of the nodes."""
    with operator.fault("lab-2", "clock", seconds=60):
        job_id = detached(operator, "timed.py")
        wait_until(lambda: status(operator, "--job", job_id)["state"] == "failed")
    cause = status(operator, "--job", job_id)["cause"]
    assert (cause["kind"], cause["rank"], cause["node"]) == ("rank", 2, "lab-2")
    assert cause["words"].endswith("ERROR: no more data")
    shown = operator.call("status")
    assert f"  {cause['title']}\n" in shown.out + shown.err
    assert not (folder(operator, job_id) / "job.json").exists()
    operator.call("logs", exits=0)
    assert json.loads((folder(operator, job_id) / "job.json").read_text())["cause"] == cause


def test_stacks_name_the_rank_for_which_the_others_waited(operator: Operator) -> None:
    """Rank 0 misses somebody and does not know whom; rank 3 on lab-2 reads, 1 and 2 wait."""
    spy = Path(sys.executable).with_name("py-spy")
    if not spy.exists():
        missing("py-spy is not installed")
    for node in operator.lab.nodes:
        operator.put(node.name, "/usr/local/bin/py-spy", f'#!/bin/sh\nexec {spy} "$@"\n')
    operator.script("apart.py", APART)
    ended = operator.call("train", "apart.py", "--json")
    cause = ended.json["cause"]
    assert (ended.code, cause["kind"], cause["ranks"]) == (5, "left", [3])
    assert (cause["node"], cause["unsure"]) == ("lab-2", "")
    assert cause["why"] == (
        "it was in load (apart.py:9) when the job was ended; ranks 1-2 were in a collective"
    )
    kept = sorted(path.name for path in folder(operator, ended.json["job_id"]).glob("*.stack"))
    assert kept == ["rank.1.stack", "rank.2.stack", "rank.3.stack"]


# --------------------------------------------------------------------------------------- bad input


def test_a_node_that_is_gone_is_named(operator: Operator) -> None:
    ready_job(operator, "waits.py")
    with operator.fault("lab-2", "no-sshd"):
        seen = operator.call("status", "--json")
        gathered = operator.call("logs", "--rank", "0")
        stopped = operator.call("stop", "--json", "--grace", "0.5")
    assert (seen.code, gathered.code, stopped.code) == (4, 4, 4)
    assert seen.json["state"] == "running"
    assert [bool(n["problem"]) for n in seen.json["nodes"]] == [False, True]
    assert gathered.out == "lab-1:0 | ready\n"
    for ended in (seen, gathered, stopped):
        assert re.search(r"^lab-2: .*refused", ended.err, re.MULTILINE)
    operator.call("stop", "--grace", "0.5", exits=0)


def test_a_job_outlives_the_clusters_sshd_but_not_the_power_of_a_node(operator: Operator) -> None:
    process, first = followed(operator, "steps.py")
    wait_until(lambda: all_ready(operator, first))
    operator.on_all(f"read -r pid _ <{BASE}/sshd/started && kill -9 $pid")
    assert status(operator)["state"] == "running"
    operator.lab.fault("lab-2", "node-down")
    ended = process.end(exits=205)
    assert "lab-2: was lost in the middle of the job, with ranks 2-3\n" in ended.err
    operator.lab.undo("lab-2", "node-down")
    assert_setup_is_asked_for(operator, "lab-[1-2]")


def assert_setup_is_asked_for(operator: Operator, nodes: str) -> None:
    refused = operator.call("train", "waits.py", exits=125)
    assert f"{nodes}: not ready: the cluster's sshd does not run; run setup\n" in refused.err
    operator.setup(exits=0)


@LONG
def test_a_primary_without_power_is_waited_for_and_the_job_is_lost(operator: Operator) -> None:
    process = operator.start("train", "steps.py", "--json")
    wait_until(lambda: operator.call("status", "--json").json.get("state") == "running")
    job_id = status(operator)["job_id"]
    wait_until(lambda: all_ready(operator, job_id))
    operator.lab.fault("lab-1", "node-down")
    said = process.end(exits=4, timeout_s=180).json  # it was waited for to come back
    assert (said["job_id"], said["exit_code"]) == (job_id, 4)
    assert said["message"].endswith("the job continues; ascendboot status")
    wait_until(lambda: operator.sh("lab-2", ALL_OF_JOBS) == "")
    operator.call("status", exits=4)
    operator.lab.undo("lab-1", "node-down")
    assert status(operator)["state"] == "lost"
    assert operator.call("logs", "--rank", "2").out == "lab-2:2 | ready\n"
    operator.call("stop", exits=0)
    assert_setup_is_asked_for(operator, "lab-1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "--job", "none"), 'lab: no job "none" was started from here; the last were 20'),
        (("stop", "--job", "../runs"), 'lab: no job "../runs" was started from here; the last'),
        (("stop", "--grace", "soon"), 'stop: --grace: "soon" is not a number of seconds'),
    ],
)
def test_what_is_not_there_is_refused(
    operator: Operator, words: tuple[str, ...], said: str
) -> None:
    ended = operator.call(*words, exits=2)
    assert said in ended.err


def test_a_cluster_without_jobs(operator: Operator, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(operator.lab.inventory.read_text().replace("cluster: lab", "cluster: other"))
    for verb in ("status", "logs", "stop"):
        ended = operator.call(verb, inventory=other)
        assert (ended.code, ended.err) == (
            2,
            "other: no job was started from here; start one with train\n",
        )


# -------------------------------------------------------------------------------------- the killing

VICTIMS = ("operator", "mpirun", "orted", "wrapper", "rank", "standby")
# What stands by a rank's wrapper is a shell of the same name below it: nobody misses it.
OUTLIVED = ("operator", "standby")
# Of an orted that dies before it has answered Open MPI (4.1) never hears: that is what the limit of
# a start is for. So one is killed that has begun a rank.
KILL_ONE = """\
of() { cat "/proc/$1/comm"; }
for f in $(grep -lsz '^ASCENDBOOT_JOB_ID=' /proc/[0-9]*/environ); do
  pid=${f%/*} pid=${pid#/proc/}
  read -r _ _ _ parent _ <"/proc/$pid/stat" && name=$(of "$pid"):$(of "$parent") || continue
  case $1+$name in
    standby+rank-exec:rank-exec) ;;
    *+rank-exec:rank-exec | standby+*) continue ;;
    wrapper+rank-exec:* | rank+python*:rank-exec | mpirun+mpirun:*) ;;
    orted+orted:*) pgrep -P "$pid" || continue ;;
    *) continue ;;
  esac
  kill -9 "$pid" && echo killed && break
done 2>/dev/null | tail -n 1"""


@pytest.mark.one_try
@pytest.mark.parametrize("seed", range(KILLS))
def test_nothing_is_left_when_something_was_killed(operator: Operator, seed: int) -> None:
    """The job ends alone; what it outlives is the operator, and what only stands by."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    victim, node = VICTIMS[seed % len(VICTIMS)], chance.choice(["lab-1", "lab-2"])
    process = operator.start("train", "waits.py", "--grace", "1")
    process.job_id()
    time.sleep(chance.uniform(0, 2))  # a random moment is what this test is about
    if victim == "operator":
        process.kill()
    else:
        place = {"mpirun": "lab-1", "orted": "lab-2"}.get(victim, node)
        kill = ["bash", "-c", KILL_ONE, "kill", victim]  # it may not have begun yet
        wait_until(lambda: operator.lab.exec(place, kill).stdout == b"killed\n")

    if victim in OUTLIVED:
        operator.call("stop", "--grace", "1", exits=0)
    ended = process.end()
    assert (ended.code != 0, operator.job_processes()) == (True, {}), ended.err
