"""Jobs that stand still, with the real mpirun and py-spy on one node, which is this machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascendboot.jobs.follow import Interrupts
from ascendboot.jobs.gather import NodeLogs
from ascendboot.jobs.hang import HangRules
from ascendboot.launch.events import NodeSample
from ascendboot.model.job import CauseKind, JobState
from ascendboot.templates import script as shell_script
from ascendboot.transport.api import Command, Effect
from tests.here import Here
from tests.integration.launch_cluster import LocalCluster, Screenful, cause_of

pytestmark = pytest.mark.integration

SPY = Path(sys.executable).with_name("py-spy")
HAS_SPY = SPY.exists() or shutil.which("py-spy") is not None

STUCK = """\
import os, signal, sys, threading
rank = int(os.environ["RANK"])
def load(path):
    with open(path, "r+b", buffering=0) as data:
        data.read(1)
def allreduce():
    threading.Event().wait()
print("up")
if rank == 1:
    load(sys.argv[1])
if rank == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
allreduce()
"""

LATE = """\
import os, sys, threading, time
rank = int(os.environ["RANK"])
def all_reduce():
    threading.Event().wait()
def load():
    time.sleep(600)
print("up")
if rank == 2:
    time.sleep(1)
    print("[ERROR] HCCL(1,python): [InitChannelStage] wait socket establish timeout, role[1]")
    sys.exit(1)
load() if rank == 1 else all_reduce()
"""

SPIN = """\
import os, time
print("up")
while os.environ["RANK"] == "0":
    pass
time.sleep(600)
"""

DIES = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["RANK"] == "0":
    sys.exit(3)
time.sleep(600)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "base", tmp_path / "runs", ranks=4)
    yield made
    made.transport.close()


@pytest.mark.skipif(not HAS_SPY, reason="py-spy is not installed")
def test_a_job_that_hangs_is_stopped_and_its_odd_ranks_are_named(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    os.mkfifo(data)
    plan = cluster.job(STUCK, str(data))
    folder, told = cluster.runs / plan.job_id, list[str]()
    report = cluster.run(
        plan, Screenful(), hangs=HangRules(timeout_s=3, stops=True, tell=told.append)
    )
    assert (report.state, report.exit_code) == (JobState.HUNG, 124)
    assert (report.first_failure, report.notes) == (None, ())
    (kept,) = folder.glob("hang-*.txt")
    first, *lines = report.message.splitlines()
    assert first.startswith(f"job {plan.job_id} hangs: no rank has written output or computed for ")
    wait = lines.pop(2)
    assert lines == [
        "  rank 1 on lab-1 waits in load (main.py:5)",
        "  rank 2 on lab-1 is stopped by a signal (state T) in <module> (main.py:12)",
        f"  Details: {kept}",
    ]
    inner = r"(Condition\.)?wait \(threading\.py:\d+\)"  # the class since Python 3.11
    assert re.fullmatch(rf"  ranks 0,3 wait in {inner}, called in allreduce \(main\.py:7\)", wait)
    assert told == [report.message]
    details = kept.read_text()
    assert details.count("<module> (main.py:13)") == 2
    assert re.search(rf"^   file descriptor \d+: {data}$", details, re.MULTILINE)


@pytest.mark.skipif(not HAS_SPY, reason="py-spy is not installed")
def test_the_rank_that_was_elsewhere_when_the_job_failed_is_the_cause(
    cluster: LocalCluster,
) -> None:
    plan = cluster.job(LATE)
    report = cluster.run(plan)
    cause, folder = cause_of(report), cluster.runs / plan.job_id
    assert (cause.kind, cause.ranks, cause.unsure) == (CauseKind.LEFT, (1,), "")
    assert cause.why == (
        "it was in load (main.py:6) when the job was ended; ranks 0,3 were in a collective"
    )
    assert sorted(path.name for path in folder.glob("*.stack")) == [
        f"rank.{rank}.stack" for rank in (0, 1, 3)
    ]
    assert not list(Path(plan.job_folder).glob(".stack.*"))


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python without py-spy beside it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(Path(sys.executable).resolve())
    return tmp_path / "bin/python3"


def test_without_py_spy_the_ends_of_ranks_take_no_longer_and_nobody_is_named(
    cluster: LocalCluster, python: Path
) -> None:
    plan = cluster.job(LATE, python=str(python))
    report = cluster.run(plan)
    cause = cause_of(report)
    assert (cause.kind, cause.ranks) == (CauseKind.ONE_OF, (0, 1, 3))
    text = (cluster.runs / plan.job_id / "rank.1.stack").read_text()
    assert text.startswith("rank 1 ")
    assert text.endswith("\nend\n")


def test_a_py_spy_that_hangs_delays_the_end_of_a_job_by_a_second(
    cluster: LocalCluster, python: Path
) -> None:
    Here(python.parent).put("py-spy", "exec sleep 60")
    plan = cluster.job(LATE, python=str(python))
    report = cluster.run(plan)
    assert report.duration_s < 15
    lines = (cluster.runs / plan.job_id / "rank.3.stack").read_text().splitlines()
    assert [lines[0][:7], *lines[-3:]] == ["rank 3 ", "spy 124", "|", "end"]
    assert cause_of(report).kind is CauseKind.ONE_OF


def test_silent_busy_ranks_are_reported_and_continue(cluster: LocalCluster, python: Path) -> None:
    (cluster.base / "env" / "node.env").write_text("export PATH=/usr/bin:/bin\n")
    plan = cluster.job(SPIN, python=str(python))
    told, interrupts = list[str](), Interrupts()

    def tell(words: str) -> None:
        told.append(words)
        interrupts.press()

    report = cluster.run(
        plan,
        Screenful(),
        interrupts=interrupts,
        hangs=HangRules(timeout_s=2, stops=True, tell=tell),
    )
    assert report.state is JobState.INTERRUPTED
    assert list(report.notes) == told
    first, *lines = told[0].splitlines()
    assert first.endswith(" they compute, or poll in a collective that does not end")
    assert lines[:-1] == [
        "  rank 0 on lab-1 is busy",
        "  ranks 1-3 wait in hrtimer_nanosleep of the kernel",
        (
            "  the Python stack of ranks 0-3 is unknown: py-spy is neither beside code.python "
            "nor on PATH; install it there to see Python lines"
        ),
    ]


def test_a_job_that_ends_because_a_rank_failed_does_not_hang(cluster: LocalCluster) -> None:
    plan = cluster.job(DIES, grace_s=4.0)
    told: list[str] = []
    report = cluster.run(
        plan, Screenful(), hangs=HangRules(timeout_s=2, stops=True, tell=told.append)
    )
    assert (report.state, report.exit_code) == (JobState.FAILED, 3)
    assert told == []


def test_heartbeats_carry_samples(cluster: LocalCluster, tmp_path: Path) -> None:
    stat = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    (tmp_path / "events").write_text(
        f"rank 3 pid {os.getpid()} start {stat[19]}\nrank 4 pid {os.getpid()} start 1\n"
    )
    (tmp_path / "rank.3.log").touch()
    samples: list[NodeSample] = []
    five = threading.Event()

    def take(sample: NodeSample) -> None:
        samples.append(sample)
        if len(samples) == 5:
            five.set()

    logs = NodeLogs("lab-1", {}, on_event=lambda _: None, on_sample=take)
    words = (str(tmp_path), "follow", "1", "1", "events", "0", "rank.3.log", "0")
    command = Command(
        argv=("bash", "-c", shell_script("jobs-logs.sh"), "logs", *words),
        purpose="follow",
        effect=Effect.READ,
    )
    stream = cluster.transport.stream(command, logs.reader())
    assert five.wait(60)
    stream.close()
    assert [list(sample.cpu_s) for sample in samples] == [[3]] * len(samples)
    times = [sample.at_s for sample in samples]
    assert times == sorted(set(times))
