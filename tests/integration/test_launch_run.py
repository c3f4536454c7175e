"""Jobs from start to end with the real mpirun on one node, which is this machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.jobs.follow import Interrupts, Timeouts
from ascendboot.model.job import FirstFailure, Followed, JobState, RankEnd
from ascendboot.transport.api import Command, Result
from ascendboot.value import asdict, replace
from tests.integration.launch_cluster import (
    HEAD,
    LocalCluster,
    LocalTransport,
    Screenful,
    cause_of,
    processes_of,
)

pytestmark = pytest.mark.integration

FOR_EVER = "time.sleep(600)\n"


def end(rank: int, exit_code: int | None, number: int | None = None) -> RankEnd:
    return RankEnd(rank=rank, node="lab-1", device=4 + rank, exit_code=exit_code, signal=number)


def bare(*ends: RankEnd | None) -> tuple[RankEnd, ...]:
    """The ends without their times."""
    return tuple(replace(end, times=None) for end in ends if end)


def test_a_job_that_succeeds(cluster: LocalCluster) -> None:
    names = "RANK RANK_ID LOCAL_RANK DEVICE_ID WORLD_SIZE RANK_SIZE RANK_TABLE_FILE FROM_NODE"
    more = "ASCENDBOOT_JOB_ID PYTHONUNBUFFERED CM_WORKER_IP MASTER_ADDR HOME"
    plan = cluster.job(
        HEAD + "import json\nprint(json.dumps([os.getcwd(), *map(os.environ.get, sys.argv[1:])]))",
        *f"{names} {more}".split(),
        meeting={"MASTER_ADDR": "a b", "MASTER_PORT": "1"},
    )
    screen = Screenful()

    report = cluster.run(plan, screen)

    assert (report.state, report.exit_code, report.message) == (JobState.SUCCEEDED, 0, "")
    assert bare(*report.ranks) == (end(0, 0), end(1, 0))
    times = [each.times for each in report.ranks]
    assert all(t and t.started and t.first_output and t.ended for t in times)
    assert all(t and (t.started or "") <= (t.first_output or "") for t in times)
    assert (report.first_failure, report.notes) == (None, ())
    for rank in (0, 1):
        (line,) = screen.of(rank)
        assert json.loads(line) == [
            str(plan.job_folder / "code"),
            *(str(rank), str(rank), str(rank), str(4 + rank), "2", "2"),
            str(cluster.table),
            "node value",
            plan.job_id,
            "1",
            None,
            "a b",
            str(Path.home()),
        ]
        assert (cluster.runs / plan.job_id / f"rank.{rank}.log").read_bytes() == line + b"\n"


# Words of the scripts on the nodes, now or once; `env: {rank: 3}` is a valid inventory.
NAMES = """base job_id job rank local_rank world_size events time line rest fields devices place
    command word python workdir table bad script"""


def test_a_variable_may_have_any_name_that_the_inventory_allows(cluster: LocalCluster) -> None:
    lines = "".join(f"export {name}='3'\n" for name in NAMES.split())
    (cluster.base / "env" / "node.env").write_text(lines)
    odd = "[name for name in sys.argv[1:] if os.environ.get(name) != '3']"
    yields = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    plan = cluster.job(f"{HEAD}print(rank, {odd})", *NAMES.split(), launcher_env=yields)
    screen = Screenful()
    report = cluster.run(plan, screen)
    assert (report.exit_code, report.message, report.notes) == (0, "", ())
    assert screen.of(0) + screen.of(1) == [b"0 []", b"1 []"]


def test_a_rank_on_the_wrong_node_does_not_start(cluster: LocalCluster) -> None:
    with (cluster.base / "env" / "node.env").open("a") as environment:
        environment.write("ascendboot_local_rank=9\n")
    plan = cluster.job("print('started')")
    screen = Screenful()
    report = cluster.run(plan, screen)
    assert report.exit_code == 125
    assert b"started" not in screen.of(0) + screen.of(1)
    said = (
        f'it was put on the wrong node: "rank 0 device 4 local 9" is not in {plan.job_folder}/ranks'
    )
    assert said in (cluster.runs / plan.job_id / "rank.0.log").read_text()


def test_a_rank_finds_its_place_without_running_a_program(cluster: LocalCluster) -> None:
    with (cluster.base / "env" / "node.env").open("a") as environment:
        environment.write("grep() { return 143; }\n")
    screen = Screenful()
    assert cluster.run(cluster.job("print('started')"), screen).exit_code == 0
    assert screen.of(0) + screen.of(1) == [b"started", b"started"]


def test_arguments_arrive_unchanged(cluster: LocalCluster) -> None:
    odd: tuple[str, ...]
    odd = ("a b", "", "'", '"', "$HOME `id` $(id)", "two\nlines", "\\", "*", "--", "-np", "9")
    odd = (*odd, ":", "%:", "%%:", "%", "a:b", "é", "-x", "--mca", "~", "#", "!", "RANK=7")
    plan = cluster.job("import json, sys; print(json.dumps(sys.argv[1:]))", *odd)
    screen = Screenful()
    cluster.run(plan, screen)
    assert [json.loads(line) for line in screen.of(0) + screen.of(1)] == [list(odd)] * 2


def test_a_rank_that_exits_3(cluster: LocalCluster) -> None:
    script = f"""{HEAD}
from pathlib import Path
if rank == 1:
    plogs = Path(os.environ["ASCEND_PROCESS_LOG_PATH"], "debug/plog")
    plogs.mkdir(parents=True)
    now = time.strftime("%Y-%m-%d-%H:%M:%S.000.000")
    words = "[a.cc:1]7 Report:Aicore kernel execute failed, device_id=5"
    line = f"[ERROR] RUNTIME(7,python3):{{now}} {{words}}\\n"
    (plogs / "plog-7_20260102030405.log").write_text(line)
    print("one\\n\\nstep 2 loss nan")
    sys.exit(3)
{FOR_EVER}"""
    plan = cluster.job(script)

    report = cluster.run(plan)

    assert (report.state, report.exit_code) == (JobState.FAILED, 3)
    log = cluster.runs / plan.job_id / "rank.1.log"
    failure = FirstFailure(**asdict(end(1, 3)), message="one\nstep 2 loss nan", log=str(log))
    assert bare(report.first_failure) == (failure,)
    assert cause_of(report).source == "rank.1.plog/debug/plog/plog-7_20260102030405.log"
    assert "Aicore kernel execute failed" in cause_of(report).words
    assert "was nan from step 2 on" in cause_of(report).losses[0]
    assert Path(plan.job_folder, "rank.1.plog").stat().st_mode & 0o777 == 0o700
    assert bare(report.ranks[0])[0] in (end(0, 143, 15), end(0, None))
    assert not processes_of(plan.job_id)


def test_a_rank_that_lingers_after_its_error_is_the_cause_and_not_the_one_that_died_of_it(
    cluster: LocalCluster,
) -> None:
    """A thread holds the rank that raised; mpirun itself would name the other one."""
    script = f"""{HEAD}
import pathlib, threading
told = pathlib.Path("told")
def tell(*error):
    sys.__excepthook__(*error)
    told.touch()
if rank == 0:
    sys.excepthook = tell
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise ValueError("loss is nan")
while not told.exists():
    time.sleep(0.05)
raise ConnectionResetError(104, "Connection reset by peer")
"""
    report = cluster.run(cluster.job(script))
    cause = cause_of(report)
    assert (cause.rank, cause.words, cause.source) == (0, "ValueError: loss is nan", "rank.0.log")
    assert cause.followed == (Followed((1,), "the connection to another rank broke"),)
    assert cause.unsure == ""
    assert cause.at is not None
    assert asdict(*bare(report.first_failure)).items() >= asdict(end(0, 143, 15)).items()
    assert report.exit_code == 1


@pytest.mark.parametrize("call", ["os.kill(os.getpid(), 9)", "os.killpg(0, 9)"])
def test_a_rank_killed_by_signal_9(cluster: LocalCluster, call: str) -> None:
    """Alone, or with the wrapper that would have recorded it: then mpirun says so."""
    plan = cluster.job(f"{HEAD}if rank == 1:\n    print('x', end=''); {call}\n{FOR_EVER}")
    screen = Screenful()
    report = cluster.run(plan, screen)
    assert (report.state, report.exit_code) == (JobState.FAILED, 137)
    assert asdict(*bare(report.first_failure)).items() >= asdict(end(1, 137, 9)).items()
    assert (cause_of(report).rank, cause_of(report).unsure) == (1, "")
    assert cause_of(report).meaning.startswith("SIGKILL from outside")
    assert screen.of(1) == [b"x"]
    assert not processes_of(plan.job_id)


def test_a_kill_while_memory_ran_out_is_named(cluster: LocalCluster) -> None:
    """As if it had ended fewer processes when the job was made ready."""
    fewer = "open(os.path.dirname(os.getcwd()) + '/memory', 'w').write('oom_kill -1\\n')"
    kill = f"if rank == 1:\n    {fewer}\n    os.kill(os.getpid(), 9)\n"
    report = cluster.run(cluster.job(HEAD + kill + FOR_EVER))
    assert cause_of(report).meaning == (
        "SIGKILL, while the kernel ended processes of this node because memory ran out"
    )


@pytest.mark.parametrize("ignores", [False, True])
def test_interrupted_once(cluster: LocalCluster, *, ignores: bool) -> None:
    ignore = "signal.signal(15, signal.SIG_IGN)\n" if ignores else ""
    plan = cluster.job(f"{HEAD}{ignore}print('up')\n{FOR_EVER}")
    interrupts = Interrupts()
    report = cluster.run(plan, Screenful().and_then(interrupts.press), interrupts=interrupts)
    assert (report.state, report.exit_code) == (JobState.INTERRUPTED, 130)
    assert report.first_failure is None
    assert not processes_of(plan.job_id)


def test_interrupted_twice_kills_at_once(cluster: LocalCluster) -> None:
    plan = cluster.job(
        f"{HEAD}signal.signal(15, signal.SIG_IGN)\nprint('up')\n{FOR_EVER}", grace_s=100.0
    )
    interrupts = Interrupts()

    def press_twice() -> None:
        interrupts.press()
        interrupts.press()

    sink = Screenful().and_then(press_twice)
    report = cluster.run(plan, sink, interrupts=interrupts)
    assert (report.state, report.exit_code) == (JobState.INTERRUPTED, 130)
    assert report.duration_s < 50
    assert not processes_of(plan.job_id)


def test_interrupted_before_the_start(cluster: LocalCluster) -> None:
    plan = cluster.job("print('never')")
    interrupts, screen = Interrupts(), Screenful()
    interrupts.press()
    report = cluster.run(plan, screen, interrupts=interrupts)
    assert (report.state, report.exit_code, screen.shown) == (JobState.INTERRUPTED, 130, b"")
    assert not Path(plan.job_folder).exists()


class LosesTheAnswer(LocalTransport):
    """Starts the job, but the answer to that never comes."""

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        results = super().run_all(commands)
        if any(command.purpose.startswith("start job") for command in commands):
            raise UnreachableError(self.node, "could not start: the connection is gone")
        return results


def test_a_start_without_an_answer_is_undone(cluster: LocalCluster) -> None:
    cluster.transport = LosesTheAnswer("lab-1")
    plan = cluster.job(FOR_EVER)
    report = cluster.run(plan)
    assert (report.state, report.exit_code) == (JobState.NOT_STARTED, 125)
    assert report.message == (
        "lab-1: could not start: the connection is gone\n"
        f"job {plan.job_id}: not started on any node"
    )
    assert not processes_of(plan.job_id)
    assert not Path(plan.job_folder).exists()


def test_bytes_long_lines_and_no_newline_at_the_end(cluster: LocalCluster) -> None:
    odd = b"\n".join((bytes(range(256)), b"", b"x" * 3_000_000, b"\xff\xfe==> a <==", b"last"))
    (cluster.base / "odd").write_bytes(odd)
    script = "import shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), sys.stdout.buffer)"
    plan = cluster.job(script, str(cluster.base / "odd"))
    screen = Screenful()

    report = cluster.run(plan, screen)

    assert (report.exit_code, report.notes) == (0, ())
    kib = 1 << 20
    pieces = [b"x" * kib, b"x" * kib, b"x" * (3_000_000 - 2 * kib)]
    for rank in (0, 1):
        assert (cluster.runs / plan.job_id / f"rank.{rank}.log").read_bytes() == odd
        expected = odd.replace(b"x" * 3_000_000, b"\n".join(pieces))
        back = expected.replace(b"\r", b"\rlab-1:%d | " % rank)
        assert screen.of(rank) == back.split(b"\n")


def test_nothing_starts_when_a_node_is_not_ready(cluster: LocalCluster) -> None:
    (cluster.base / "env" / "rank-exec").unlink()
    cluster.table.write_text("{ }")
    plan = cluster.job("print('never')", rank_table_sha256="0" * 64, python="no-such-python")

    report = cluster.run(plan)

    remedy = "install it or state another as code.python in the inventory"
    could_not = f"lab-1: could not prepare job {plan.job_id}: "
    assert (report.state, report.exit_code) == (JobState.NOT_STARTED, 125)
    assert report.message.splitlines() == [
        f"{could_not}no program {cluster.base}/env/rank-exec; run setup",
        f"{could_not}the rank table {cluster.table} is not the one of this plan; run setup",
        f"{could_not}no program no-such-python; {remedy}",
        f"job {plan.job_id}: not started on any node",
    ]
    assert report.ranks == (end(0, None), end(1, None))
    assert not Path(plan.job_folder).exists()


def test_a_job_id_is_used_once(cluster: LocalCluster) -> None:
    plan = cluster.job("print('hello')")
    assert cluster.run(plan).exit_code == 0
    again = cluster.run(plan)
    assert again.state is JobState.NOT_STARTED
    assert "File exists" in again.message
    assert Path(plan.job_folder, "events").exists()


def test_a_launcher_that_starts_no_rank(cluster: LocalCluster) -> None:
    folder = cluster.base / "bin"
    folder.mkdir()
    for name, text in (("mpirun", "exec sleep 600"), ("orted", "")):
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    plan = cluster.job("print('never')", mpirun=folder / "mpirun")
    said: list[str] = []
    limits = Timeouts(start_s=0.5, told_s=0.2)
    report = cluster.run(plan, Screenful(), limits=limits, warn=said.append)
    assert said == ["ranks 0/2 up after 0.2 s; still waiting for ranks 0-1 on lab-1"]
    assert (report.state, report.exit_code) == (JobState.NOT_STARTED, 125)
    assert report.message.startswith(f"lab-1: could not start ranks 0-1 of job {plan.job_id} ")
    assert not processes_of(plan.job_id)


def test_a_launcher_that_is_killed_with_its_supervisor(cluster: LocalCluster) -> None:
    plan = cluster.job(f"{HEAD}print('up')\n{FOR_EVER}")

    def kill_both() -> None:
        for line in Path(plan.job_folder, "events").read_text().splitlines():
            who, _, key, pid, *_ = line.split()
            if key == "pid" and who in ("supervisor", "launcher"):
                os.kill(int(pid), signal.SIGKILL)

    sink = Screenful().and_then(kill_both)
    report = cluster.run(plan, sink, limits=Timeouts(beat_s=0.2))
    assert report.state is JobState.FAILED
    assert report.exit_code != 0
    assert not processes_of(plan.job_id)


def test_no_follower_is_left_when_a_run_is_over(cluster: LocalCluster) -> None:
    plan = cluster.job("print('hello')")
    cluster.run(plan)
    (stream,) = cluster.transport.streams
    assert stream.process.poll() == 0
    names = "code events launch.sh launcher.log launcher.marks made memory"
    of_ranks = (f"rank.{rank}.{kind}" for rank in (0, 1) for kind in ("log", "marks", "plog"))
    left = sorted(p.name for p in Path(plan.job_folder).iterdir())
    assert left == [*names.split(), *of_ranks, "ranks"]


def test_a_second_ctrl_c_ends_the_cleanup_at_once(cluster: LocalCluster) -> None:
    stubborn = "trap '' TERM; echo >$0; sleep 600 & wait; wait"
    ready = cluster.base / "ready"
    plan = cluster.job(
        HEAD + "if rank == 0:\n"
        f"    subprocess.Popen(['bash', '-c', {stubborn!r}, {str(ready)!r}])\n"
        f"    while not os.path.exists({str(ready)!r}): time.sleep(0.02)\n",
        grace_s=300.0,
    )
    interrupts = Interrupts()

    class Pressing(LocalTransport):
        def _run(self, command: Command) -> Result:
            if command.purpose.startswith("find remaining processes") and not interrupts.count:
                interrupts.press()
                interrupts.press()
            return super()._run(command)

    cluster.transport = Pressing("lab-1")
    report = cluster.run(plan, interrupts=interrupts)
    assert report.state is JobState.INTERRUPTED
    assert report.duration_s < 60
    assert not processes_of(plan.job_id)
