"""Two nodes for launch tests: each has its own processes and base folder, and a real sshd."""

from __future__ import annotations

import getpass
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from ascendboot.errors import NodeError
from ascendboot.jobs.probe import JobProbe, probe_jobs
from ascendboot.jobs.start import start_detached
from ascendboot.jobs.status import status_of
from ascendboot.launch.plan import PLAN_FILE, LaunchPlan, read_record, record_of
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import LauncherChoice, NodeClocks, Placement, Slot
from ascendboot.model.job import JobReport, JobState
from tests.integration.launch_cluster import LocalCluster, LocalTransport, furnish
from tests.integration.real_sshd import SSHD, free_port, keygen
from tests.unit.transport.builders import node
from tests.waiting import wait_until

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
        user = getpass.getuser()
        a, b = node("lab-1", "127.0.0.1", user=user), node("lab-2", SECOND, user=user)
        slots = (Slot(a, 4, None, 0), Slot(a, 5, None, 1), Slot(b, 6, None, 0), Slot(b, 7, None, 1))
        return plan(self.first.request(source, placement=Placement(slots), **changes))

    def torchrun_job(self, python: Path, source: str, *args: str, **changes: object) -> LaunchPlan:
        return self.job(
            source,
            python=str(python),
            script_args=args,
            launcher=LauncherChoice("torchrun", "the test asks for it"),
            meeting={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())},
            rank_table=None,
            **changes,
        )

    def run(
        self,
        made: LaunchPlan,
        sink: Callable[[bytes], None],
        connect: Callable[[str], LocalTransport] | None = None,
    ) -> JobReport:
        return self.first.run(made, sink, transports=self.transports, connect=connect)

    def on(self, node: str, script: str, *, check: bool = False) -> str:
        """What a script of bash prints on a node."""
        argv = [*self.transports[node].way, "/bin/bash", "-c", script]
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=check)
        return done.stdout.decode()

    def processes_of(self, made: LaunchPlan, *nodes: str) -> str:
        """What still runs of a job, on these nodes or on both."""
        script = f"grep -lszxF ASCENDBOOT_JOB_ID={made.job_id} /proc/[0-9]*/environ; :"
        return "".join(self.on(node, script, check=True) for node in nodes or self.transports)

    def start_until_up(self, made: LaunchPlan) -> None:
        """Start a job that nobody follows, and wait until all ranks say that they are up."""
        start_detached(made, self.transports, forks=4)
        logs = f"cat {made.job_folder}/rank.*.log"
        wait_until(lambda: all(self.on(node, logs).count("up") == 2 for node in self.transports))

    def left_alone(self, made: LaunchPlan, folder: Path) -> JobReport:
        """What `status` says of a job that nobody followed, once its launcher is gone."""
        started = datetime.now(timezone.utc).isoformat()
        document = record_of(made, started=started, clocks=NodeClocks())
        (folder / PLAN_FILE).write_text(json.dumps(document))
        record = read_record(folder)
        assert record is not None
        told: list[JobReport] = []

        def is_over() -> bool:
            looks, now = self._looks(made), datetime.now(timezone.utc)
            told.append(status_of(record, looks, folder=folder, final=None, now=now).report)
            return not looks["lab-1"].launcher_alive and told[-1].state is not JobState.RUNNING

        start_detached(made, self.transports, forks=4)
        wait_until(is_over)
        return told[-1]

    def _looks(self, made: LaunchPlan) -> dict[str, JobProbe]:
        found = {}
        for name, answer in probe_jobs(
            self.transports, made.job_folder.parent, [made.job_id], forks=4
        ).items():
            assert not isinstance(answer, NodeError), answer
            found[name] = answer[made.job_id]
        return found


@contextmanager
def two_nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    """Up while the context lasts."""
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


def write_trust(folder: Path, port: int) -> None:
    for name in ("host_key", "cluster_key"):
        keygen(folder / name)
    (folder / "known_hosts").write_text(f"{SECOND} {(folder / 'host_key.pub').read_text()}")
    (folder / "ssh_config").write_text(
        f"Host {SECOND}\n HostName 127.0.0.1\n HostKeyAlias {SECOND}\n Port {port}\n"
        f" User {getpass.getuser()}\n IdentityFile {folder}/cluster_key\n IdentityAgent none\n"
        f" UserKnownHostsFile {folder}/known_hosts\n GlobalKnownHostsFile /dev/null\n"
        " StrictHostKeyChecking yes\n BatchMode yes\n SendEnv ASCENDBOOT_* SHLVL\n LogLevel ERROR\n"
    )
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/cluster_key.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nAcceptEnv ASCENDBOOT_* SHLVL\n"
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
