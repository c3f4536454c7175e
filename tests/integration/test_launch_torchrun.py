"""Real torchrun over two nodes: one per node, and none remains when one fails."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.model.job import CauseKind, JobState
from tests.integration.launch_cluster import HEAD, LocalTransport, Screenful, cause_of, failure_of
from tests.integration.test_launch_hang import LATE, SPY
from tests.integration.two_nodes import TwoNodes
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
FOR_EVER = "print('up', flush=True)\ntime.sleep(600)\n"
GLOO = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(rank)])
dist.all_reduce(total)
dist.destroy_process_group()
"""


def test_an_allreduce_and_the_variables_of_each_rank(two: TwoNodes, python: Path) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE RANK_ID RANK_SIZE DEVICE_ID MASTER_ADDR"
    show = "import json\nprint(json.dumps([total.item(), *map(os.environ.get, sys.argv[1:])]))\n"
    odd = ("$HOME $$ ${local_rank}", "-x", ":")
    made = two.torchrun_job(python, HEAD + GLOO + show, *names.split(), "RANK_TABLE_FILE", *odd)
    screen = Screenful()

    report = two.run(made, screen)

    assert (report.state, report.message, report.notes) == (JobState.SUCCEEDED, "", ())
    for rank in range(4):
        # Without a name server torch says so before.
        *_, line = screen.of(rank, f"lab-{1 + rank // 2}")
        local, device = str(rank % 2), str(4 + rank)
        told = [str(rank), local, "4", "2", str(rank), "4", device, "127.0.0.1"]
        assert json.loads(line) == [6.0, *told, None, None, None, None]
    logs = sorted(p.name for p in (two.first.runs / made.job_id).iterdir())
    assert logs == ["agent.1.log", "launcher.log", *(f"rank.{rank}.log" for rank in range(4))]
    assert two.processes_of(made) == ""
    agent = two.on("lab-2", f"cut -d' ' -f1-4 {made.job_folder}/events | grep agent")
    assert [line.split()[:3] for line in agent.splitlines()] == [
        ["agent", "1", "pid"],
        ["agent", "1", "exit"],
    ]


def test_a_rank_that_never_begins_ends_a_detached_start(
    two: TwoNodes, python: Path, tmp_path: Path
) -> None:
    made = two.torchrun_job(python, "import time\ntime.sleep(600)", begin_within_s=20)
    two.on("lab-2", f"echo '[ x$RANK != x3 ] || sleep 600' >>{made.request.base}/env/node.env")
    report = two.left_alone(made, tmp_path)
    assert (report.state, report.exit_code, report.cause) == (JobState.NOT_STARTED, 125, None)
    assert report.message.startswith(
        f"lab-2: could not start rank 3 of job {made.job_id} within 20 s: the launcher has not "
    )
    wait_until(lambda: two.processes_of(made) == "")


def test_a_rank_that_fails_ends_all_others_and_is_the_one_named(
    two: TwoNodes, python: Path
) -> None:
    stubborn = "if rank == 0:\n    signal.signal(15, signal.SIG_IGN)\n"
    fails = "if rank == 2:\n    print('no'); sys.exit(3)\n"
    made = two.torchrun_job(python, HEAD + stubborn + fails + FOR_EVER)
    report = two.run(made, Screenful())
    failure = failure_of(report)
    assert (report.state, report.exit_code, failure.message) == (JobState.FAILED, 3, "no")
    assert (failure.rank, failure.node, failure.device) == (2, "lab-2", 6)
    assert [end.exit_code for end in report.ranks][1:3] == [143, 3]
    assert two.processes_of(made) == ""


@pytest.mark.skipif(not SPY.exists(), reason="py-spy is not installed")
def test_each_node_leaves_the_stacks_of_its_ranks_before_torchrun_ends_them(
    two: TwoNodes, python: Path
) -> None:
    made = two.torchrun_job(python, LATE)
    path = f"echo 'export PATH=$PATH:{SPY.parent}' >>{made.request.base}/env/node.env"
    for node in two.transports:
        two.on(node, path, check=True)
    report = two.run(made, Screenful())
    assert (report.state, report.exit_code) == (JobState.FAILED, 1)
    folder = two.first.runs / made.job_id
    stacks = {path.name: path.read_text() for path in folder.glob("*.stack")}
    assert sorted(stacks) == [f"rank.{rank}.stack" for rank in (0, 1, 3)]
    for rank in (0, 1, 3):
        assert stacks[f"rank.{rank}.stack"].startswith(f"rank {rank} ")
        assert stacks[f"rank.{rank}.stack"].endswith("\nend\n")
    left = two.on("lab-2", f"cd {made.job_folder} && ls -A | grep stack")
    assert left.split() == [".stacks", "rank.3.stack"]
    assert two.processes_of(made) == ""
    assert (cause_of(report).kind, cause_of(report).ranks) == (CauseKind.LEFT, (1,))


def test_a_cause_that_only_the_error_file_has(two: TwoNodes, python: Path) -> None:
    source = f"""{HEAD}
from torch.distributed.elastic.multiprocessing.errors import record
{GLOO.replace("dist.destroy_process_group()", "")}
@record
def main():
    if rank == 2:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        raise ValueError("loss is nan")
    dist.all_reduce(total)
main()
"""
    made = two.torchrun_job(python, source)
    report = two.run(made, Screenful())
    cause = cause_of(report)
    assert (cause.rank, cause.nodes, cause.words) == (2, ("lab-2",), "ValueError: loss is nan")
    assert (cause.source, cause.device) == ("error file", 6)
    assert failure_of(report).rank == 2
    assert two.processes_of(made) == ""


def test_a_job_that_goes_on_while_all_connections_are_lost(
    two: TwoNodes, python: Path, tmp_path: Path
) -> None:
    source = f"""{HEAD}
def wait_for(*names):
    while not all(os.path.exists(f"{tmp_path}/{{name}}") for name in names): time.sleep(0.1)
print("up", flush=True)
wait_for("go")
print("last words of", rank, flush=True)
open(f"{tmp_path}/said-{{rank}}", "w").close()
if rank == 3:
    wait_for("said-0", "said-1", "said-2")
    sys.exit(1)
"""
    made = two.torchrun_job(python, source)
    screen, lost = Screenful(), dict(two.transports)
    again: list[str] = []

    def connect(node: str) -> LocalTransport:
        again.append(node)
        (tmp_path / "go").touch()
        if again.count(node) < 3:
            raise UnreachableError(node, "could not connect: nobody answers")
        two.transports[node] = LocalTransport(node, lost[node].way)
        return two.transports[node]

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(two.run, made, screen, connect)
        screen.wait_for(b"up", times=4)
        for node, transport in lost.items():
            transport.gone = UnreachableError(node, "could not ask: its connection has ended")
            follower = transport.streams[0].process
            assert follower.stdin is not None
            follower.stdin.close()
        report = running.result()
    for transport in lost.values():
        transport.close()

    assert (report.state, report.exit_code) == (JobState.FAILED, 1)
    assert cause_of(report).rank == 3
    assert (again.count("lab-1"), again.count("lab-2")) == (3, 3)
    for rank in range(4):
        node = f"lab-{1 + rank // 2}"
        assert screen.of(rank, node) == [b"up", f"last words of {rank}".encode()]
    backs = [note for note in report.notes if "its connection was lost, and was reopened" in note]
    assert len(backs) == 2


def test_a_rank_killed_with_its_wrapper_is_named_by_torchrun(two: TwoNodes, python: Path) -> None:
    made = two.torchrun_job(python, HEAD + "if rank == 1:\n    os.killpg(0, 9)\n" + FOR_EVER)
    report = two.run(made, Screenful())
    assert (report.exit_code, failure_of(report).rank) == (137, 1)
    assert two.processes_of(made) == ""


def test_the_job_ends_when_launcher_and_supervisor_are_killed(two: TwoNodes, python: Path) -> None:
    """Nothing else would end the ranks; they notice it themselves."""
    made = two.torchrun_job(python, HEAD + FOR_EVER)
    two.start_until_up(made)
    pids = "$(grep -E '^(launcher|supervisor) . pid' events | cut -d' ' -f4)"
    two.on("lab-1", f"cd {made.job_folder} && kill -9 {pids}")
    wait_until(lambda: two.processes_of(made) == "")
