"""How followers end, and how the processes that a job leaves on a node are found and ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.errors import CommandError, NodeError, UnreachableError
from ascendboot.jobs.follow import Timeouts
from ascendboot.jobs.start import discard, prepare
from ascendboot.jobs.stop import Survivor, Terminated, terminate_launcher, terminate_processes
from ascendboot.launch.plan import LaunchPlan, rank_log
from ascendboot.model.job import JobReport
from ascendboot.templates import script as shell_script
from tests.integration.launch_cluster import LocalCluster, LocalTransport, Screenful
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

# Prints that it is ready: from then on its handlers stay as they are.
WAITS = "import signal, sys\n{ignore}print('ready', flush=True)\nsignal.pause()"
IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.fixture
def folder(tmp_path: Path) -> PurePosixPath:
    """A job's folder on a node where nothing has been recorded."""
    found = tmp_path / "jobs" / f"job-{os.getpid()}"
    found.mkdir(parents=True)
    for name in ("events", "open", "rank.0.log"):
        (found / name).touch()
    return PurePosixPath(found)


@pytest.fixture
def waiting() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def waits(
    processes: list[subprocess.Popen[bytes]], env: dict[str, str], *, ignores: bool = False
) -> subprocess.Popen[bytes]:
    script = WAITS.format(ignore=IGNORE if ignores else "")
    process = subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE)
    processes.append(process)
    # Reaped as init does it on a node: nobody there leaves a zombie.
    threading.Thread(target=process.wait, daemon=True).start()
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def command_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes()[:200].replace(b"\0", b" ")
    return words.replace(b"\n", b" ").decode().strip()


def cleaned(folder: PurePosixPath, *, grace_s: float = 5.0) -> Terminated:
    found = terminate_processes(
        {"n": LocalTransport("n")}, folder, linger_s=0, grace_s=grace_s, forks=4
    )["n"]
    assert isinstance(found, Terminated)
    return found


def test_a_follower_ends_with_its_stdin_and_leaves_nothing(folder: PurePosixPath) -> None:
    words = (str(folder), "record", "300", "0", "events", "0", "rank.0.log", "0")
    argv = ["/bin/bash", "-c", shell_script("jobs-logs.sh"), "logs", *words]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"beat\n"

    process.stdin.close()

    assert process.stdout.read() == b"end\n"
    assert process.wait(10) == 0
    process.stdout.close()
    assert sorted(p.name for p in Path(folder).iterdir()) == ["events", "open", "rank.0.log"]


def test_nothing_is_left(folder: PurePosixPath) -> None:
    Path(folder, "rank.0.log").write_bytes(b"12345")
    assert cleaned(folder) == Terminated(sizes={"rank.0.log": 5, "events": 0})
    assert not Path(folder, "open").exists()


def test_a_job_without_a_folder(tmp_path: Path) -> None:
    assert cleaned(PurePosixPath(tmp_path / "jobs" / "none")) == Terminated()


def test_by_job_id(folder: PurePosixPath, waiting: list[subprocess.Popen[bytes]]) -> None:
    mine = waits(waiting, {"ASCENDBOOT_JOB_ID": folder.name})
    others = [
        waits(waiting, {"ASCENDBOOT_JOB_ID": f"{folder.name}1"}),
        waits(waiting, {"NOT_ASCENDBOOT_JOB_ID": folder.name}),
    ]
    command = command_of(mine.pid)
    assert cleaned(folder).ended == (Survivor(mine.pid, command),)
    assert mine.wait(10) == -signal.SIGTERM
    assert [other.poll() for other in others] == [None, None]


def test_by_pid_and_start_time(
    folder: PurePosixPath, waiting: list[subprocess.Popen[bytes]]
) -> None:
    """A rank that cleared its environment; and a process that got the pid of an earlier rank."""
    mine, other = waits(waiting, {}), waits(waiting, {})
    command = command_of(mine.pid)
    Path(folder, "events").write_text(
        f"supervisor - pid {other.pid} start {start_of(other.pid)}\n"
        f"rank 0 pid {mine.pid} start {start_of(mine.pid)}\n"
        f"rank 1 pid {other.pid} start {int(start_of(other.pid)) - 1}\n"
    )
    assert cleaned(folder).ended == (Survivor(mine.pid, command),)
    assert mine.wait(10) == -signal.SIGTERM
    assert other.poll() is None


def test_what_ignores_sigterm_is_killed(
    folder: PurePosixPath, waiting: list[subprocess.Popen[bytes]]
) -> None:
    mine = waits(waiting, {"ASCENDBOOT_JOB_ID": folder.name}, ignores=True)
    found = cleaned(folder, grace_s=0.3)
    assert [leftover.pid for leftover in found.ended] == [mine.pid]
    assert found.left == ()
    assert mine.wait(10) == -signal.SIGKILL


def test_the_launcher_is_ended_by_pid_and_start_time(
    folder: PurePosixPath, waiting: list[subprocess.Popen[bytes]]
) -> None:
    mine, other = waits(waiting, {}), waits(waiting, {})
    Path(folder, "events").write_text(
        f"launcher - pid {other.pid} start {int(start_of(other.pid)) + 1}\n"
        f"launcher - pid {mine.pid} start {start_of(mine.pid)}\n"
        f"rank 0 pid {other.pid} start {start_of(other.pid)}\n"
    )
    terminate_launcher(LocalTransport("n"), folder)
    assert mine.wait(10) == -signal.SIGTERM
    assert other.poll() is None


def test_a_detached_job_is_stopped(cluster: LocalCluster) -> None:
    ready = cluster.base / "ready"
    os.mkfifo(ready)
    script = f"import time\nopen({str(ready)!r}, 'w').close()\ntime.sleep(600)"
    plan = cluster.job(script)
    cluster.start(plan)
    with ready.open():
        pass  # a rank has opened it

    found = cluster.stop(plan)

    assert found.left == ()
    assert set(found.sizes) == {"events", "launcher.log", rank_log(0), rank_log(1)}
    wait_for_line(Path(plan.job_folder, "events"), "launcher - exit ")


def wait_for_line(events: Path, beginning: str) -> None:
    """What records the end is no process of the job: it may write after the last one is gone."""
    wait_until(lambda: f"\n{beginning}" in events.read_text())


def test_a_job_continues_when_the_primary_is_lost(cluster: LocalCluster) -> None:
    plan = cluster.job("import time; time.sleep(600)")
    with pytest.raises(UnreachableError) as lost:
        cluster.run(plan, limits=Timeouts(beat_s=60, silence_s=1.0))
    assert re.fullmatch(
        rf"lab-1: could not follow job {plan.job_id} any longer: no data for \d+ s; "
        "the job continues; ascendboot status",
        str(lost.value),
    )
    assert "exit" not in Path(plan.job_folder, "events").read_text()
    cluster.stop(plan)
    wait_for_line(Path(plan.job_folder, "events"), "launcher - exit ")


def run_until_ready(
    cluster: LocalCluster, plan: LaunchPlan, cut: Callable[[], None]
) -> tuple[JobReport, Screenful]:
    """Run a job, and do something once both of its ranks are ready."""
    screen = Screenful()

    def wait_and_cut() -> None:
        screen.wait_for(b"ready", times=2)
        cut()

    cutter = threading.Thread(target=wait_and_cut)
    cutter.start()
    try:
        return cluster.run(plan, screen, limits=Timeouts(silence_s=600.0)), screen
    finally:
        cutter.join()


def test_a_job_whose_folder_is_gone_is_not_looked_for_without_end(cluster: LocalCluster) -> None:
    """As in a container that was re-created while its job ran."""
    plan = cluster.job("import time; print('ready'); time.sleep(600)")
    folder, elsewhere = Path(plan.job_folder), cluster.runs / "elsewhere"

    def cut() -> None:
        folder.rename(elsewhere)
        cluster.transport.streams[0].close()

    with pytest.raises(UnreachableError) as lost:
        run_until_ready(cluster, plan, cut)
    elsewhere.rename(folder)
    assert f"any longer: its folder {folder} is gone; " in str(lost.value)
    cluster.stop(plan)


STOPPED = (
    "could not reach the job again in the container rec-sdk: docker exec ended with"
    " exit 1: Container 1f is not running; start it: docker start rec-sdk"
)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            UnreachableError("lab-1", "could not open a session"),
            "its connection has ended; the job continues; ascendboot status",
        ),
        (
            CommandError("lab-1", STOPPED),
            f"{STOPPED}; the state of the job is unknown; ascendboot status",
        ),
    ],
    ids=["the-connection", "the-container"],
)
def test_a_job_continues_when_its_follower_ends(
    cluster: LocalCluster, error: NodeError, says: str
) -> None:
    plan = cluster.job("import time; print('ready'); time.sleep(600)")

    def cut() -> None:
        cluster.transport.gone = error
        [stream] = cluster.transport.streams
        stream._on_bytes(b"")  # as a transport does when its connection ends

    with pytest.raises(UnreachableError) as lost:
        run_until_ready(cluster, plan, cut)
    cluster.transport.gone = None
    assert str(lost.value) == f"lab-1: could not follow job {plan.job_id} any longer: {says}"
    assert "exit" not in Path(plan.job_folder, "events").read_text()
    cluster.stop(plan)
    assert "\nlauncher - exit " in Path(plan.job_folder, "events").read_text()


def test_following_resumes_after_its_stream_ended(cluster: LocalCluster) -> None:
    go = cluster.base / "go"
    plan = cluster.job(
        "import os, time\nprint('ready', flush=True)\n"
        f"while not os.path.exists('{go}'): time.sleep(0.1)\nprint('after')"
    )

    def cut() -> None:
        [stream] = cluster.transport.streams
        stream._on_bytes(b"")  # as a transport does when what it runs has ended
        go.touch()

    report, screen = run_until_ready(cluster, plan, cut)
    assert report.exit_code == 0
    screen.wait_for(b"after", times=2)


def test_a_discarded_job_leaves_no_folder(cluster: LocalCluster) -> None:
    plan = cluster.job("print()")
    prepare(plan, cluster.transports, forks=4)
    assert Path(plan.job_folder).is_dir()
    assert Path(plan.job_folder).stat().st_mode & 0o777 == 0o700
    discard(plan, cluster.transports, forks=4)
    assert not Path(plan.job_folder).exists()
