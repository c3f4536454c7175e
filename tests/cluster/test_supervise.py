"""Supervised jobs on the practice cluster: each generation runs on the nodes that are left."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ascendboot.lab.cluster import Lab
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.text import from_text
from ascendboot.ranktable.validate import validate_table
from ascendboot.supervise.store import Store
from tests.cluster.operating import BASE, PROGRAM, Operator, Program
from tests.needs import LONG, missing
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
GENERATIONS = """\
import os, pathlib, time
from mpi4py import MPI

world = MPI.COMM_WORLD
generation = os.environ["ASCENDBOOT_GENERATION"]
step = int(os.environ.get("ASCENDBOOT_RESUME_STEP", 0))
world.Barrier()
print("generation", generation, "rank", world.rank, "of", world.size, "from", step, flush=True)
if generation == "1":
    checkpoint = pathlib.Path("/var/lib/checkpoints")
    if world.rank % 2 == 0:
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "step_20.pt").write_bytes(b"weights")
        (checkpoint / "step_20.pt.done").touch()
    world.Barrier()
    if world.rank == 3:
        os._exit(7)
time.sleep(1000 if generation != "3" else 0.5)
table = pathlib.Path(os.environ["RANK_TABLE_FILE"]).read_text()
if world.rank == 0:
    print("table", table.replace("\\n", ""), flush=True)
world.Barrier()
"""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    """Three nodes with two devices each, whose jobs keep checkpoints on their own disks."""
    operator = Operator(bring_up_once(nodes=3, devices=2))
    rules = {"kind": "torch", "dir": "/var/lib/checkpoints", "reshardable": True}
    ssh = {"standby": ["lab-2"]}
    operator.setup(
        inventory=operator.inventory("supervised.yaml", checkpoint=rules, ssh=ssh), exits=0
    )
    operator.script("generations.py", GENERATIONS)
    return operator


def latest(operator: Operator) -> Path:
    """The folder of the last run of `train`; two may begin in one second."""
    runs = (operator.lab.directory / ".ascendboot/runs").glob("*-train-*")
    return max(runs, key=lambda run: (run.name[:15], run.stat().st_mtime_ns))


def recorded(operator: Operator) -> list[dict[str, Any]]:
    """The events of the last job so far."""
    path = latest(operator) / "supervise/events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def end_without(operator: Operator, node: str, job: Program) -> tuple[str, str]:
    """Take the power of a node for the rest of a job, which succeeds; what it prints."""
    with operator.fault(node, "node-down"):
        ended = job.end(timeout_s=120)
    operator.call("setup", exits=0)
    assert ended.code == 0, ended.err + ended.out[-2000:]
    return ended.out, ended.err


def test_a_job_survives_a_failed_rank_and_the_loss_of_its_primary(operator: Operator) -> None:
    job = operator.start("train", "generations.py", "--supervise")
    assert any("| generation 2 rank 0 of 6 from 20\n" in line for line in job.out)
    watch = operator.start("status", "--watch", "--json", "--interval", "1s")
    assert json.loads(next(iter(watch.out)))["job_id"].endswith(".g2")
    out, err = end_without(operator, "lab-1", job)
    assert "lab-2: rank 3 on device 1 failed first, with exit code 7" in err
    assert "lab-1: was lost in the middle of the job, with ranks 0-1" in err
    assert "generation 3: 4 ranks on 2 nodes: lab-[2-3]" in err
    assert "generation 3: resumes at step 20: /var/lib/checkpoints/step_20.pt" in err
    assert "lab-2:0 | generation 3 rank 0 of 4 from 20\n" in out
    watched = watch.end()
    last = json.loads(watched.out.splitlines()[-1])
    state = (last["job_id"][-3:], last["state"], last["supervision"]["state"], watched.code)
    assert state == (".g3", "succeeded", "DONE", 0)
    table = re.search(r"lab-2:0 \| table (\{.*\})\n", out)
    assert table is not None
    source = from_text("table", table[1])
    assert [p for p in validate_table(source) if p.level == "error"] == []
    assert [row.rank for row in table_of(source).rows] == [0, 1, 2, 3]
    assert operator.job_processes() == {}
    told = recorded(operator)
    assert {event["generation"] for event in told} >= {1, 2, 3}
    assert told[-1]["state"] == "DONE"
    operator.call("status", "--job", f"{latest(operator).name}.g3", "--json", exits=0)


WAITS = """\
import os, pathlib, signal, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("began", os.getpid(), flush=True)
while not pathlib.Path("/var/lib/go").exists():
    time.sleep(0.05)
print("ends", os.getpid(), flush=True)
"""
PIDS = re.compile(r"^(lab-\d:\d \|) (?:began|ends) (\d+)$", re.MULTILINE)


def killed_while_it_runs(
    operator: Operator, *words: str, ranks: int = 6
) -> tuple[str, set[tuple[str, str]]]:
    """A supervised job whose `train` was killed: its id, and the pid of each of its ranks."""
    operator.script("waits.py", WAITS)
    operator.on_all("rm -f /var/lib/go")
    train = operator.start("train", "waits.py", "--supervise", "--grace", "1", *words)
    begun = {PIDS.findall(train.out.readline())[0] for _ in range(ranks)}
    train.die()
    assert set(operator.job_processes()) == {"lab-1", "lab-2", "lab-3"}
    return latest(operator).name, begun


def test_after_train_was_killed_another_one_follows_the_generation_that_runs(
    operator: Operator,
) -> None:
    job, begun = killed_while_it_runs(operator)
    train = operator.start("train", "waits.py", "--resume", job)
    assert train.err.readline() == "generation 1: is followed again on lab-[1-3]\n"
    second = operator.call("train", "waits.py", "--resume", job)
    assert "could not be supervised: another process does that already" in second.err
    operator.sh("lab-1", "touch /var/lib/go")
    ended = {PIDS.findall(train.out.readline())[0] for _ in range(2)}
    train.die()
    operator.on_all("touch /var/lib/go")
    events = f"{BASE}/jobs/{job}.g1/events"
    operator.sh("lab-1", f"until grep -q '^launcher - exit' {events}; do sleep 0.05; done")
    last = operator.call("train", "waits.py", "--resume", job, exits=0)
    assert ended | set(PIDS.findall(last.out)) == begun
    assert "began" not in last.out
    assert "generation 2" not in last.err
    assert f"job {job}.g1 succeeded after " in last.err


@LONG
def test_a_generation_that_is_not_whole_is_ended_and_the_next_one_started(
    operator: Operator,
) -> None:
    words = ("--devices", "0", "--env", "X=77", "--", "60")
    job, _ = killed_while_it_runs(operator, *words, ranks=3)
    operator.script("x.py", 'import os, sys\nprint("X", os.environ["X"], sys.argv[1:])\n')
    pids = f"sed -n 's/^[ls][a-z]* - pid \\([0-9]*\\) .*/\\1/p' {BASE}/jobs/{job}.g1/events"
    operator.sh("lab-1", f"kill -9 $({pids})")
    operator.on_all("touch /var/lib/go")
    other = operator.call("train", "x.py", "--resume", job, "--devices", "0-1", exits=2)
    assert "--devices: the job that --resume names goes on with 0;" in other.err
    ended = operator.call("train", "x.py", "--resume", job, exits=0)
    assert f"{job}: goes on with --devices 0 --env X=77 -- 60\n" in ended.err
    assert ended.out.count(" | X 77 ['60']\n") == 3
    assert "generation 1: cannot be followed again: lab-" in ended.err
    assert "generation 1: is ended on lab-[1-3]" in ended.err
    assert "generation 2: 3 ranks on 3 nodes" in ended.err
    # A launcher of the first generation that went on only now starts no rank.
    forget = f"cd {BASE}/jobs/{job}.g1; sed -i '/ stop at /d' events"
    operator.sh("lab-1", f"{forget}; bash launch.sh; true")
    logs = operator.sh("lab-1", f"cat {BASE}/jobs/{job}.g1/*.log")
    assert "generation 2 of the job has begun on this node" in logs
    assert operator.job_processes() == {}


def test_stop_without_a_train_is_the_end_of_the_job_also_for_resume(operator: Operator) -> None:
    job, _ = killed_while_it_runs(operator)
    stopped = operator.call("stop", exits=0)
    assert stopped.out.endswith(f"job {job}: stop was requested; nothing is started again\n")
    assert operator.job_processes() == {}
    resumed = operator.call("train", "waits.py", "--resume", job, exits=130)
    assert "generation 2" not in resumed.err
    shown = operator.call("status", "--job", job, "--json").json["supervision"]
    assert (shown["state"], shown["exit_code"]) == ("GAVE_UP", 130)


def alarm(operator: Operator, node: str, codes: str) -> None:
    """Let a device report Alarm with these codes."""
    operator.put(node, "/usr/local/Ascend/lab/faults/npu-alarm.0", codes, "644")


def wait_for(path: Path, *patterns: str) -> None:
    """Wait until lines of a file match all of these."""
    wait = 'for p in "${@:2}"; do until grep -q -- "$p" "$1"; do sleep 0.1; done; done'
    argv = ["timeout", "60", "bash", "-c", wait, "wait", str(path), *patterns]
    assert subprocess.run(argv, check=False).returncode == 0, path.read_text()


TOOL = "/usr/local/bin/npu-smi"


@LONG
def test_each_fault_of_a_node_ends_as_it_should(operator: Operator) -> None:
    operator.script("waits.py", WAITS)
    operator.on_all("rm -f /var/lib/go")
    train = operator.start("train", "waits.py", "--supervise", "--grace", "1")
    lines = [train.out.readline() for _ in range(6)]
    events = latest(operator) / "supervise/events.jsonl"
    operator.sh("lab-1", f"cp {TOOL} /root/npu-smi; echo 'exec sleep 60' >{TOOL}")
    alarm(operator, "lab-2", "A4025021")  # NotHandle
    alarm(operator, "lab-3", "80C98000")  # RestartRequest
    words = ("1: npu-fault (npu-tool-hang)", "2: npu-fault (A4025021)", "3: npu-fault (80C98000)")
    wait_for(events, *words)
    operator.sh("lab-1", f"cat /root/npu-smi >{TOOL}")
    for node in ("lab-2", "lab-3"):
        operator.lab.undo(node, "npu-alarm")
    with operator.fault("lab-3", "disk-full"):
        first = next(PIDS.findall(line)[0] for line in lines if line.startswith("lab-1:0 "))
        operator.sh("lab-1", f"kill -9 {first[1]}")
        begun = [train.out.readline()[:6] for _ in range(2)]
        operator.sh("lab-2", "touch /var/lib/go")
        err = train.end(exits=0, timeout_s=60).err
    assert begun == ["lab-2:", "lab-2:"], err
    assert "lab-3: cannot take part: " in err
    assert "2 ranks on 1 node: lab-2" in err
    seen = recorded(operator)
    of_nodes = [(e["event"], e["node"]) for e in seen if e["node"]]
    assert of_nodes[:4] == [
        ("fault", "lab-1"),
        ("node-suspect", "lab-1"),
        ("fault", "lab-2"),
        ("fault", "lab-3"),
    ]
    causes = [e["words"] for e in seen if e["event"] == "cause"]
    assert causes[0] == "lab-3: npu-fault (80C98000): device 0 is Alarm"
    assert operator.job_processes() == {}


def test_a_bug_is_not_started_again_and_again(operator: Operator) -> None:
    text = 'import os, time\ntime.sleep(1000 * int(os.environ["RANK"]))\nraise SystemExit(3)\n'
    operator.script("bug.py", text)
    ended = operator.call("train", "bug.py", "--supervise", exits=93)
    assert "generation 2: " in ended.err
    assert "generation 3: " not in ended.err
    assert "the same failure twice; correct the program" in ended.err
    for plan in ((), ("--plan",)):
        too_many = operator.call("train", "bug.py", "--elastic", "4", *plan, exits=125)
        assert "could not supervise the job: " in too_many.err
        assert too_many.err.endswith("; or state a smaller --elastic\n")
    refused = operator.call("train", "bug.py", "--supervise", "--detach")
    assert (refused.code, "--supervise: does not work with --detach" in refused.err) == (2, True)


def test_a_node_is_quarantined_and_released_while_its_job_runs(operator: Operator) -> None:
    operator.on_all("rm -rf /var/lib/checkpoints /var/lib/finish")
    text = "import os, pathlib, time\n"
    text += 'print("generation", os.environ["ASCENDBOOT_GENERATION"], flush=True)\n'
    text += 'while not pathlib.Path("/var/lib/finish").exists(): time.sleep(0.1)\n'
    operator.script("wait.py", text)
    outputs = ("--metrics", "job.prom", "--on-event", "tee -a events.json")
    job = operator.start("train", "wait.py", "--supervise", *outputs)
    assert any("lab-3:5 | generation 1\n" in line for line in job.out)
    follower = operator.start("events", "--follow")
    quarantined = operator.call("quarantine", "@*!lab-[1-2]", "--reason", "loud")
    assert quarantined.out == "quarantined lab-3\n", quarantined.err
    assert any("lab-2:3 | generation 2\n" in line for line in job.out)
    state = operator.call("status", "--json").json["supervision"]
    assert (state["generation"], state["members"]) == (2, ["lab-1", "lab-2"])
    assert state["nodes"]["lab-3"] == {"status": "quarantined", "reason": "loud"}
    released = operator.call("release", "lab-3")
    assert released.out == "released lab-3\n", released.err
    operator.on_all("touch /var/lib/finish")
    err = job.end(exits=0, timeout_s=60).err
    assert "quarantined lab-3" in err.splitlines()
    assert re.search(r"^  g2  \|.*=\| .* lab-\[1-2\] the job has completed$", err, re.MULTILINE)
    told = follower.end(exits=0, timeout_s=10).out
    shown = [line.split(" ", 1)[1] for line in told.splitlines()]
    assert "g1 node-quarantined: lab-3: loud" in shown
    assert "g2 draining: from 2 to 3 nodes at the next checkpoint" in shown
    assert shown[-1] == "g2 done: the job has completed"
    passed_on = (operator.lab.directory / "events.json").read_text()
    assert passed_on == (latest(operator) / "supervise/events.jsonl").read_text().replace("\n", "")
    figures = (operator.lab.directory / "job.prom").read_text().splitlines()
    job_id = latest(operator).name
    assert f'ascendboot_job_state{{job="{job_id}",state="done"}} 1' in figures
    assert f'ascendboot_job_nodes{{job="{job_id}",status="healthy"}} 3' in figures
    shown_later = operator.call("status", "--job", job_id, "--json").json
    assert shown_later["job_id"] == f"{job_id}.g2"
    (first, second) = shown_later["supervision"]["generations"]
    assert (first["kind"], second["exit_code"]) == ("preempted-by-operator", 0)


def test_stop_ends_a_job_that_waits_for_nodes(operator: Operator) -> None:
    operator.script("waits.py", WAITS)
    operator.on_all("rm -f /var/lib/go")
    job = operator.start("train", "waits.py", "--supervise", "--grace", "0.5")
    job.out.readline()
    job_id = latest(operator).name
    operator.call("quarantine", "lab-[1-3]", exits=0)
    wait_for(latest(operator) / "supervise/state.json", "WAITING")
    stopped = operator.call("stop", "--json", exits=0)
    assert stopped.json["job_id"] == f"{job_id}.g1"
    assert f"job {job_id}: stop was requested; nothing is started again\n" in stopped.err
    ended = job.end(exits=130, timeout_s=20)
    assert "generation 2" not in ended.err
    assert [event["event"] for event in recorded(operator)[-2:]] == ["interrupt", "gave_up"]
    refused = operator.call("release", "lab-[1-3]", exits=2)
    assert "release: the job has ended or is being ended" in refused.err


def test_stop_ends_a_job_that_waits_for_its_first_generation(operator: Operator) -> None:
    nodes = [node.name for node in operator.lab.nodes]
    for node in nodes:
        alarm(operator, node, "80E3A201")
    try:
        job = operator.start("train", "waits.py", "--supervise")
        assert any("lab-3: cannot take part: " in line for line in job.err)
        wait_for(latest(operator) / "supervise/state.json", "WAITING")
        stopped = operator.call("stop", "--json", exits=0).json
        job.end(exits=130, timeout_s=20)
    finally:
        for node in nodes:
            operator.lab.undo(node, "npu-alarm")
    assert (stopped["job_id"], stopped["nodes"]) == (latest(operator).name, [])


ENDLESS = """\
import os, pathlib, time
from mpi4py import MPI

world = MPI.COMM_WORLD
folder = pathlib.Path("/shared/steps")
step = int(os.environ.get("ASCENDBOOT_RESUME_STEP", 0))
print("generation", os.environ["ASCENDBOOT_GENERATION"], "on", world.size, flush=True)
while not world.bcast(pathlib.Path("/shared/end").exists()):
    time.sleep(0.2)
    step += 1
    if world.rank == 0:
        print("step", step, flush=True)
        (folder / "step.new").write_bytes(b"weights")
        (folder / "step.new").rename(folder / f"step_{step}.pt")
        (folder / f"step_{step - 50}.pt").unlink(missing_ok=True)
"""
CUT_OFF = """\
table inet cut {
  set nodes { type ipv4_addr; flags timeout; elements = { NODES } }
  chain in { type filter hook input priority 0; ip saddr @nodes drop; }
  chain out { type filter hook output priority 0; ip daddr @nodes drop; }
}
"""
"""This machine and the nodes do not reach each other for some time."""


@pytest.fixture
def sharing(operator: Operator) -> Operator:
    """The nodes have a shared folder of checkpoints; the job ends when you create /shared/end."""
    rules = {"kind": "torch", "dir": "/shared/steps", "reshardable": True, "shared": True}
    operator.setup(inventory=operator.inventory("shared.yaml", checkpoint=rules), exits=0)
    operator.sh("lab-1", "rm -rf /shared/*; mkdir /shared/steps")
    operator.script("endless.py", ENDLESS)
    return operator


def begun(operator: Operator, *options: str) -> Program:
    """A supervised job that runs until /shared/end is there, once all of its ranks run."""
    job = operator.start("train", "endless.py", "--supervise", *options)
    until_line(job, "generation 1 on 6")
    return job


def until_line(job: Program, line: str) -> None:
    """Read what the ranks print up to a line of any of them."""
    assert any(each.endswith(f" | {line}\n") for each in job.out), line


def events(operator: Operator) -> list[str]:
    """The events of the job so far, each with its node."""
    return [f"{event['event']} {event['node']}".strip() for event in recorded(operator)]


def finish(operator: Operator, job: Program) -> str:
    """Let the job end; what `train` prints about it."""
    operator.sh("lab-1", "touch /shared/end")
    ended = job.end(exits=0, timeout_s=100)
    assert operator.job_processes() == {}
    return ended.err


def without_network(operator: Operator, node: str) -> AbstractContextManager[str]:
    return operator.changed(node, "ip link set eth0 down", "ip link set eth0 up")


@LONG
def test_most_nodes_without_a_network_return_after_their_ranks_have_ended(
    sharing: Operator,
) -> None:
    job = begun(sharing)
    with without_network(sharing, "lab-2"), without_network(sharing, "lab-3"):
        until_line(job, "generation 2 on 2")
    until_line(job, "generation 3 on 6")
    err = finish(sharing, job)
    seen = events(sharing)
    assert {"node-absent lab-2", "node-absent lab-3", "node-healthy lab-3"} <= {*seen}
    assert any(event.startswith("common-cause lab-") for event in seen)
    assert "generation 3: 6 ranks on 3 nodes: lab-[1-3]" in err


@contextmanager
def without_this_machine(lab: Lab, seconds: int) -> Iterator[None]:
    """For some seconds, or until the block ends, no node reaches this machine or is reached."""
    nft = shutil.which("nft")
    if nft is None:
        missing("there is no nft on this machine (Debian package nftables)")
    nodes = ", ".join(f"{node.address} timeout {seconds}s" for node in lab.nodes)
    subprocess.run([nft, "-f", "-"], input=CUT_OFF.replace("NODES", nodes), text=True, check=True)
    try:
        yield
    finally:
        subprocess.run([nft, "delete", "table", "inet", "cut"], check=True)


@LONG
def test_a_job_does_not_need_the_network_of_this_machine(sharing: Operator) -> None:
    job = begun(sharing)
    with without_this_machine(sharing.lab, 12):
        until_line(job, "step 100")
    err = finish(sharing, job)
    assert re.findall(r"(lab-\d): its connection was lost, and was reopened after 1\d s\n", err)
    assert "generation 2: " not in err


@LONG
def test_a_job_starts_again_once_this_machine_has_a_network_after_five_minutes(
    sharing: Operator,
) -> None:
    job = begun(sharing)
    with without_this_machine(sharing.lab, 340):
        until_line(job, "generation 2 on 6")
    finish(sharing, job)
    assert any(event.startswith("common-cause lab-") for event in events(sharing))


@LONG
def test_one_node_without_a_network_is_left_out_until_it_has_one(sharing: Operator) -> None:
    job = begun(sharing, "--stable-for", "5s")
    with without_network(sharing, "lab-3"):
        until_line(job, "generation 2 on 4")
    until_line(job, "generation 3 on 6")
    err = finish(sharing, job)
    assert "generation 2: 4 ranks on 2 nodes: lab-[1-2]" in err


@LONG
def test_a_link_that_is_down_for_10_s_is_ignored_and_one_that_stays_down_is_not(
    sharing: Operator,
) -> None:
    job = begun(sharing)
    until_line(job, "step 20")
    sharing.lab.fault("lab-3", "link-down", device=0)
    until_line(job, "step 70")
    sharing.lab.undo("lab-3", "link-down", device=0)
    until_line(job, "step 220")
    assert [event for event in events(sharing) if "lab-3" in event] == []
    with sharing.fault("lab-3", "link-down", device=0):
        until_line(job, "generation 2 on 4")
    assert re.search("\nwhile it ran: lab-.* NPU ", finish(sharing, job))
    assert [event for event in events(sharing) if "cause" in event] == ["cause lab-3"]


@LONG
def test_a_code_on_two_nodes_excludes_none_and_an_unknown_code_excludes_its_node(
    sharing: Operator,
) -> None:
    job = begun(sharing)
    for node in ("lab-2", "lab-3"):
        alarm(sharing, node, "8C03A000")  # RestartNPU
    wait_for(latest(sharing) / "supervise/events.jsonl", "common-cause")
    for node in ("lab-2", "lab-3"):
        sharing.lab.undo(node, "npu-alarm")
    until_line(job, "generation 2 on 6")
    until_line(job, "step 250")  # what two nodes have within 30 s has a common cause
    alarm(sharing, "lab-3", "0BADC0DE")
    until_line(job, "generation 3 on 4")
    sharing.lab.undo("lab-3", "npu-alarm")
    finish(sharing, job)
    assert "node-quarantined lab-3" in events(sharing)
    assert "node-quarantined lab-2" not in events(sharing)


CHECKPOINTS = """\
import os, pathlib, time

folder = pathlib.Path("/var/lib/checkpoints")
folder.mkdir(exist_ok=True)
print("from", os.environ.get("ASCENDBOOT_RESUME_STEP"), flush=True)
if os.environ["ASCENDBOOT_GENERATION"] == "1":
    (folder / "step_20.pt").write_bytes(b"weights")
    (folder / "step_60.pt").touch()
    if int(os.environ["RANK"]) >= 4:
        (folder / "step_40.pt").write_bytes(b"weights")
    print("saved", flush=True)
    time.sleep(1000)
"""


@LONG
def test_a_checkpoint_that_is_incomplete_or_lost_with_its_node_is_not_used(
    operator: Operator,
) -> None:
    rules = {"kind": "torch", "dir": "/var/lib/checkpoints", "reshardable": True}
    operator.setup(inventory=operator.inventory("local.yaml", checkpoint=rules), exits=0)
    operator.on_all("rm -rf /var/lib/checkpoints")
    operator.script("checkpoints.py", CHECKPOINTS)
    job = operator.start("train", "checkpoints.py", "--supervise")
    for _ in range(6):
        until_line(job, "saved")
    wait_for(latest(operator) / "supervise/events.jsonl", '"checkpoint"')
    out, err = end_without(operator, "lab-3", job)
    assert out.count(" | from 20\n") == 4
    assert (
        "step 40 died with lab-3 (its folder is local); the newest that is left is step 20" in err
    )
    assert "step_60.pt" in err


@LONG
def test_a_job_without_checkpoints_ends_after_three_failed_generations(operator: Operator) -> None:
    operator.on_all("rm -rf /var/lib/checkpoints /shared/*")
    text = "import os, time\n"
    text += 'if os.environ["RANK"] == os.environ["ASCENDBOOT_GENERATION"]: os._exit(5)\n'
    text += "time.sleep(1000)\n"
    operator.script("fails.py", text)
    ended = operator.call("train", "fails.py", "--supervise", exits=93)
    assert "no newer checkpoint in 3 generations" in ended.err
    assert operator.job_processes() == {}


@LONG
def test_a_job_that_needs_all_nodes_waits_for_a_lost_one_and_gives_up(sharing: Operator) -> None:
    job = begun(sharing, "--min-nodes", "3")
    with sharing.fault("lab-3", "node-down"):
        job.end(exits=75, timeout_s=400)
    assert "waiting" in events(sharing)
    assert sharing.job_processes() == {}


@LONG
def test_a_killed_rank_starts_again_also_where_a_clock_is_an_hour_ahead(sharing: Operator) -> None:
    job = begun(sharing)
    with sharing.fault("lab-3", "clock", seconds=3600):
        sharing.sh("lab-2", "kill -9 $(pgrep -f endless.py | head -1)")
        until_line(job, "generation 2 on 6")
        err = finish(sharing, job)
    assert re.search(r"lab-2: rank \d on device \d failed first, with signal 9\n", err)


@LONG
def test_a_node_without_sshd_is_left_out_and_one_that_flaps_must_be_ready_for_longer(
    sharing: Operator,
) -> None:
    def lose_sshd() -> None:
        logins = sharing.sh("lab-3", 'ps -o pid= --ppid "$(cat /run/sshd.pid)"').split()
        sharing.lab.fault("lab-3", "no-sshd")
        sharing.sh("lab-3", f"kill -9 {' '.join(logins)}")

    job = begun(sharing, "--stable-for", "20s")
    lose_sshd()
    until_line(job, "generation 2 on 4")
    assert "lab-3" not in sharing.job_processes()
    sharing.lab.undo("lab-3", "no-sshd")
    wait_until(lambda: "node-soft-quarantine lab-3" in events(sharing))
    lose_sshd()
    wait_until(lambda: events(sharing).count("node-absent lab-3") == 2)
    sharing.lab.undo("lab-3", "no-sshd")
    until_line(job, "generation 3 on 6")
    finish(sharing, job)
    seen = [event for event in events(sharing) if event.startswith("node-")]
    assert seen == ["node-absent lab-3", "node-soft-quarantine lab-3"] * 2 + ["node-healthy lab-3"]


IN_TURN = """\
        with open("/shared/generations", "a") as written:
            written.write(os.environ["ASCENDBOOT_GENERATION"] + " ")
"""
"""Rank 0 writes its generation in every step."""


@LONG
def test_train_killed_in_each_state_is_continued_and_no_generation_is_mixed(
    sharing: Operator,
) -> None:
    sharing.script("endless.py", ENDLESS + IN_TURN)
    train = sharing.start("train", "endless.py", "--supervise")
    until_line(train, "generation 1 on 6")
    run = latest(sharing)

    def state() -> str:
        found = json.loads((run / "supervise/state.json").read_text())
        return str(found["state"])

    def kill_in(wanted: str, cause: Callable[[], object] = lambda: None) -> None:
        nonlocal train
        cause()
        wait_until(lambda: state() == wanted, seconds=100)
        train.die()
        assert state() == wanted
        train = sharing.start("train", "endless.py", "--resume", run.name)
        wait_until(lambda: Store(run / "supervise").is_supervised)

    def kill_a_rank() -> None:
        sharing.sh("lab-2", "kill -9 $(pgrep -f endless.py | head -1)")

    def until_running(ranks: int) -> None:
        assert any(re.search(rf"\| generation \d+ on {ranks}$", line) for line in train.out)
        wait_until(lambda: state() == "RUNNING")

    wait_until(lambda: state() == "RUNNING")
    kill_in("RUNNING")
    assert train.err.readline() == "generation 1: is followed again on lab-[1-3]\n"
    kill_in("DIAGNOSING", kill_a_rank)
    kill_in("LAUNCHING")
    until_running(6)
    asked = sharing.start("quarantine", "lab-3", "--job", run.name)
    kill_in("STOPPING")
    until_running(4)
    kill_in("DRAINING", lambda: sharing.call("release", "lab-3", "--job", run.name))
    until_running(6)
    kill_in("WAITING", lambda: sharing.call("quarantine", "lab-1", "--job", run.name))
    sharing.call("release", "lab-1", "--job", run.name)
    until_running(6)
    asked.end(timeout_s=60)
    finish(sharing, train)
    steps = [int(each) for each in sharing.sh("lab-1", "cat /shared/generations").split()]
    assert steps == sorted(steps)
    found, _ = Store(run / "supervise").events_from(0)  # the last run of train resumed it
    launched = [event["generation"] for event in found if event["event"] == "launching"]
    assert launched == [*range(1, launched[-1] + 1)]


@LONG
def test_a_node_can_be_the_control_machine(operator: Operator) -> None:
    lab = operator.lab
    document = operator.document() | {"cluster": "from-a-node"}
    document["defaults"]["identity"] = "/root/control/identity"
    operator.put("lab-1", "/root/control/identity", lab.identity.read_text(), "600")
    operator.put("lab-1", "/root/control/inventory.yaml", json.dumps(document))
    operator.put("lab-1", "/root/control/waits.py", WAITS)
    operator.on_all("rm -f /var/lib/go")
    train = f"setsid {PROGRAM} train waits.py --supervise --grace 1 </dev/null >out 2>err"

    def there(script: str) -> str:
        return operator.sh("lab-1", f"cd /root/control; {script}")

    def wait_for_lines(count: int) -> str:
        begun = f"until [ $(grep -c began out) = {count} ]; do sleep 0.1; done"
        return f"timeout 50 bash -c '{begun}' || {{ cat err >&2; exit 1; }}"

    there(f"{PROGRAM} setup --inventory inventory.yaml")
    there(f"({train}; echo $? >code) >/dev/null 2>&1 & touch out; {wait_for_lines(6)}")
    lab.fault("lab-3", "node-down")
    try:
        there(wait_for_lines(10))
        for node in ("lab-1", "lab-2"):
            operator.sh(node, "touch /var/lib/go")
        code, *err = there("until [ -s code ]; do sleep 0.1; done; cat code err").splitlines()
    finally:
        lab.undo("lab-3", "node-down")
    assert code == "0", err
    assert "generation 2: 4 ranks on 2 nodes: lab-[1-2]" in err
