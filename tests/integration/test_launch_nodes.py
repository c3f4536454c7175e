"""Jobs over two nodes: each has its own processes and its own base folder, and a real sshd."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from ascendboot.launch.planning import plan
from ascendboot.launch.run import run
from ascendboot.model.job import JobState
from ascendboot.model.placement import Placement, Slot
from tests.integration.launch_cluster import (
    LocalCluster,
    LocalTransport,
    Screenful,
    furnish,
    node_named,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.model.job import JobReport

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces want root"),
]

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
HEAD = "import os, subprocess, sys, time\nrank = int(os.environ['RANK'])\n"
# Not an address of this machine: so mpirun goes there by ssh, and ssh_config says where it is.
SECOND = "second.invalid"
APART = ["/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# In the node's namespaces its own folder lies where the first node has its own.
INSIDE = 'mount --bind "$1" "$2" && echo ready && exec "${@:3}"'


@dataclass
class TwoNodes:
    """Two nodes with two ranks each, and how they are reached."""

    first: LocalCluster
    transports: dict[str, LocalTransport]
    ssh_log: Path

    def job(self, source: str, **changes: object) -> LaunchPlan:
        a, b = node_named("lab-1", "127.0.0.1"), node_named("lab-2", SECOND)
        slots = (Slot(a, 4, None, 0), Slot(a, 5, None, 1), Slot(b, 6, None, 0), Slot(b, 7, None, 1))
        return plan(self.first.request(source, placement=Placement(slots), **changes))

    def run(self, made: LaunchPlan, screen: Screenful) -> JobReport:
        folder = self.first.runs / made.job_id
        return run(made, self.transports, folder=folder, sink=screen)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoNodes]:
    first = LocalCluster(tmp_path / "base", tmp_path / "runs", ranks=4)
    mine, its = tmp_path / "one", tmp_path / "two"
    shutil.copytree(first.base, mine)
    furnish(its)
    shutil.copy(first.table, its / "resources")
    port = free_port()
    write_trust(mine / "trust", port)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    config = mine / "trust" / "sshd_config"
    keeper = in_namespaces(mine, first.base, "bash", "-c", "cat; :")
    second = in_namespaces(its, first.base, str(SSHD), "-D", "-e", "-f", str(config))
    ways = {"lab-1": way_into(keeper), "lab-2": way_into(second)}
    transports = {name: LocalTransport(name, way) for name, way in ways.items()}
    try:
        yield TwoNodes(first, transports, config)
    finally:
        for transport in transports.values():
            transport.close()
        for process in (keeper, second):
            process.kill()
            process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_trust(folder: Path, port: int) -> None:
    for name in ("host_key", "cluster_key"):
        subprocess.run(
            ["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
            check=True,
        )
    (folder / "known_hosts").write_text(f"{SECOND} {(folder / 'host_key.pub').read_text()}")
    (folder / "ssh_config").write_text(
        f"Host {SECOND}\n HostName 127.0.0.1\n HostKeyAlias {SECOND}\n Port {port}\n"
        f" User {getpass.getuser()}\n IdentityFile {folder}/cluster_key\n IdentityAgent none\n"
        f" UserKnownHostsFile {folder}/known_hosts\n GlobalKnownHostsFile /dev/null\n"
        " StrictHostKeyChecking yes\n BatchMode yes\n SendEnv ASCENDBOOT_*\n LogLevel ERROR\n"
    )
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/cluster_key.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nAcceptEnv ASCENDBOOT_*\nSetEnv SHLVL=1\n"
    )


def in_namespaces(folder: Path, base: Path, *program: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*APART, "/bin/bash", "-c", INSIDE, "inside", str(folder), str(base), *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def way_into(process: subprocess.Popen[bytes]) -> tuple[str, ...]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return ("/usr/bin/nsenter", "--target", children[0], "--mount", "--pid")


def alive(two: TwoNodes, node: str, made: LaunchPlan) -> str:
    script = f"grep -lszxF ASCENDBOOT_JOB_ID={made.job_id} /proc/[0-9]*/environ; :"
    done = subprocess.run(
        [*two.transports[node].way, "/bin/bash", "-c", script], capture_output=True, check=True
    )
    return done.stdout.decode()


def test_ranks_on_both_nodes(two: TwoNodes) -> None:
    made = two.job(HEAD + "print(os.environ['LOCAL_RANK'], os.environ['DEVICE_ID'])")
    screen = Screenful()
    report = two.run(made, screen)
    assert (report.state, report.notes) == (JobState.SUCCEEDED, ())
    assert sorted(screen.shown.splitlines()) == [
        b"lab-1:0 | 0 4",
        b"lab-1:1 | 1 5",
        b"lab-2:2 | 0 6",
        b"lab-2:3 | 1 7",
    ]
    logs = sorted(p.name for p in (two.first.runs / made.job_id).iterdir())
    assert logs == ["launcher.log", *(f"rank.{rank}.log" for rank in range(4))]


def test_each_node_is_asked_three_times_at_most(two: TwoNodes) -> None:
    two.run(two.job("print()"), Screenful())
    assert {name: len(t.ran) for name, t in two.transports.items()} == {"lab-1": 3, "lab-2": 2}
    assert {name: len(t.streams) for name, t in two.transports.items()} == {"lab-1": 1, "lab-2": 1}


def test_a_rank_fails_on_the_second_node(two: TwoNodes) -> None:
    made = two.job(HEAD + "if rank == 2:\n    print('no'); sys.exit(3)\ntime.sleep(600)")
    report = two.run(made, Screenful())
    assert report.first_failure is not None
    assert (report.exit_code, report.first_failure.message) == (3, "no")
    assert (report.first_failure.end.node, report.first_failure.end.device) == ("lab-2", 6)
    assert [alive(two, node, made) for node in ("lab-1", "lab-2")] == ["", ""]


def test_what_is_left_behind_on_the_second_node(two: TwoNodes) -> None:
    made = two.job(HEAD + "if rank == 3:\n    subprocess.Popen(['setsid', 'sleep', '600'])")
    report = two.run(made, Screenful())
    assert report.exit_code == 0
    (note,) = report.notes
    assert note.startswith("lab-2: process ")
    assert note.endswith(" was left behind and ended: sleep 600")
    assert alive(two, "lab-2", made) == ""


def test_a_node_that_the_primary_does_not_trust(two: TwoNodes) -> None:
    script = f": >{two.first.base}/trust/known_hosts"
    subprocess.run([*two.transports["lab-1"].way, "/bin/bash", "-c", script], check=True)
    report = two.run(two.job("print('never')"), Screenful())
    assert (report.state, report.first_failure) == (JobState.FAILED, None)
    assert report.exit_code not in (0, 125, 130)
    assert report.message.splitlines()[0] == (
        f"No ED25519 host key is known for {SECOND} and you have requested strict checking."
    )


def test_nothing_starts_when_the_second_node_is_not_ready(two: TwoNodes) -> None:
    script = f"rm {two.first.base}/env/node.env"
    subprocess.run([*two.transports["lab-2"].way, "/bin/bash", "-c", script], check=True)
    made = two.job("print('never')")
    report = two.run(made, Screenful())
    assert (report.state, report.exit_code) == (JobState.NOT_STARTED, 125)
    assert report.message == (
        f"lab-2: could not make ready for job {made.job_id}: no file {two.first.base}/env/node.env;"
        f" run setup\njob {made.job_id}: not started on any node"
    )
    for transport in two.transports.values():
        listed = subprocess.run(
            [*transport.way, "/bin/ls", str(PurePosixPath(two.first.base) / "jobs")],
            capture_output=True,
            check=False,
        )
        assert listed.stdout == b""


def test_the_second_node_goes_down(two: TwoNodes) -> None:
    made = two.job(HEAD + "print('up')\ntime.sleep(600)")
    screen = Screenful()
    inside = two.transports["lab-2"].way[2]

    def sink(block: bytes) -> None:
        screen(block)
        if screen.shown.count(b"up") == 4:
            os.kill(int(inside), 9)

    folder = two.first.runs / made.job_id
    report = run(made, two.transports, folder=folder, sink=sink)

    assert report.state is JobState.FAILED
    assert report.exit_code != 0
    assert any(
        note.startswith("lab-2: could not see what is left of job ")
        and note.endswith("; nobody knows what is left of the job there")
        for note in report.notes
    )
    assert alive(two, "lab-1", made) == ""
