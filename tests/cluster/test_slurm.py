"""Real Slurm: slurmctld on the control machine, slurmd on the practice nodes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, PROGRAM, Operator
from tests.needs import missing
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

CONF = """\
ClusterName=practice
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={socket}
StateSaveLocation={place}/state
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/var/spool/slurmd
SlurmdLogFile=/var/log/slurmd.log
SlurmdTimeout=6
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
GresTypes=npu
ReturnToService=2
DebugFlags=NO_CONF_HASH
NodeName=DEFAULT CPUs=16 RealMemory=1000 Gres=npu:2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
ON_NODE = """\
mkdir -p /etc/slurm /run/munge /var/spool/slurmd && cat >/etc/slurm/slurm.conf
echo Name=npu Count=2 >/etc/slurm/gres.conf
echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
umask 077 && echo practice-practice-practice-practice >/etc/slurm/munge.key
munged --force --key-file=/etc/slurm/munge.key --log-file=/run/munge/log
slurmd -N {node}
"""
TELLS = """\
import os
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "DEVICE_ID", "SLURMD_NODENAME", "CM_WORKER_IP"]
print(*(f"{name}={os.environ.get(name)}" for name in names))
"""
FAILS_ONCE = """\
import os, sys
print(os.environ["ASCENDBOOT_GENERATION"])
sys.exit(9 if os.environ["ASCENDBOOT_GENERATION"] + os.environ["RANK"] == "13" else 0)
"""
SAVES = """\
import os, signal, sys, time
def save(*_):
    time.sleep(1)
    print("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up")
if sys.argv[1:] == ["fail"] and os.environ["RANK"] == "2":
    time.sleep(1)
    sys.exit(7)
time.sleep(600)
"""


@dataclass(frozen=True)
class Slurm:
    operator: Operator
    env: dict[str, str]

    def run(self, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program of Slurm, or another with its configuration, on the control machine."""
        env, place = {**os.environ, **self.env, **more}, self.operator.lab.directory
        return subprocess.run(
            argv, env=env, cwd=place, capture_output=True, text=True, check=False, timeout=120
        )

    def call(self, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run(PROGRAM, *args, **more)

    @contextmanager
    def allocation(self, *nodes: str) -> Iterator[Slurm]:
        done = self.run("salloc", "--no-shell", "--exclusive", f"--nodelist={','.join(nodes)}")
        assert done.returncode == 0, done.stderr
        job_id = done.stderr.rpartition("Granted job allocation ")[2].strip()
        inside = {"SLURM_JOB_ID": job_id, "SLURM_JOB_NODELIST": ",".join(nodes)}
        try:
            yield Slurm(self.operator, {**self.env, **inside})
        finally:
            self.run("scancel", job_id)
            wait_until(lambda: not self.run("squeue", "--noheader").stdout)


@contextmanager
def daemon(*argv: str, **env: str) -> Iterator[None]:
    process = subprocess.Popen(argv, env={**os.environ, **env}, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def slurm(bring_up_once: Callable[..., Lab]) -> Iterator[Slurm]:
    needs = [name for name in ("slurmctld", "slurmd", "srun", "munged") if not shutil.which(name)]
    if needs:
        missing(f"{', '.join(needs)}: not installed here; scripts/test installs them")
    lab = bring_up_once(nodes=2, devices=2)
    operator = Operator(lab)
    with ExitStack() as stack:
        # munged refuses a socket in a folder that not everybody may enter, such as pytest's.
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.chmod(0o755)
        (place / "state").mkdir()
        (place / "munge.key").touch(0o600)
        (place / "munge.key").write_text("practice-practice-practice-practice\n")
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        values = {"host": socket.gethostname().partition(".")[0], "port": port, "place": place}
        values["address"] = lab.shape.operator_address
        values["nodes"] = "\n".join(f"NodeName={n.name} NodeAddr={n.address}" for n in lab.nodes)
        conf = CONF.format(**values, socket=place / "munge.socket")
        (place / "slurm.conf").write_text(conf)
        (place / "gres.conf").write_text("Name=npu Count=2\n")
        files = {"key-file": "munge.key", "socket": "munge.socket", "log-file": "munge.log"}
        files |= {"pid-file": "munge.pid", "seed-file": "munge.seed"}
        options = [f"--{option}={place / name}" for option, name in files.items()]
        stack.enter_context(daemon("munged", "--foreground", *options))
        wait_until((place / "munge.socket").exists)
        of_node = CONF.format(**values, socket="/run/munge/munge.socket.2").encode()
        for node in lab.nodes:
            lab.exec(node.name, ["bash", "-ec", ON_NODE.format(node=node.name)], input=of_node)
        env = {"SLURM_CONF": str(place / "slurm.conf")}
        stack.enter_context(daemon("slurmctld", "-D", **env))
        made = Slurm(operator, env)
        idle = ("sinfo", "--noheader", "--format=%D", "--states=idle")
        wait_until(lambda: made.run(*idle).stdout.strip() == "2", seconds=60)
        for name, text in (("tells", TELLS), ("saves", SAVES), ("once", FAILS_ONCE)):
            (lab.directory / f"{name}.py").write_text(text)
            operator.on_all(f"mkdir -p /srv/demo && cat >/srv/demo/{name}.py <<'END'\n{text}END\n")
        yield made


@pytest.fixture(scope="module")
def inside(slurm: Slurm) -> Iterator[Slurm]:
    """An allocation of both nodes, set up with the lab's inventory."""
    inventory = slurm.operator.inventory("slurm.yaml", launcher={"kind": "srun"})
    with slurm.allocation("lab-1", "lab-2") as allocated:
        done = allocated.call("setup", "--inventory", str(inventory))
        assert done.returncode == 0, done.stderr
        yield allocated


def exported(slurm: Slurm, kind: str, mode: str) -> str:
    inventory = slurm.operator.inventory(
        "export.yaml",
        launcher={"kind": kind},
        resources={"mode": mode},
        code={"path": "/srv/demo"},
        env={"WORD": "it's $HOME"},
    )
    done = slurm.call("export.sbatch", "tells.py", "--inventory", str(inventory), "--time", "5")
    assert done.returncode == 0, done.stderr
    (slurm.operator.lab.directory / "job.sbatch").write_text(done.stdout)
    return "job.sbatch"


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("torchrun", "root-info"),
        ("mpirun", "rank-table"),
        ("horovod", "no-rank-table"),
        ("srun", "root-info"),
    ],
)
def test_slurm_accepts_every_exported_script(slurm: Slurm, kind: str, mode: str) -> None:
    done = slurm.run("sbatch", "--test-only", exported(slurm, kind, mode))
    assert done.returncode == 0, done.stderr
    assert "using 32 processors on nodes lab-[1-2]" in done.stderr
    none = slurm.run("sbatch", "--test-only", "--nodes=3", "job.sbatch")
    assert none.returncode != 0


def test_an_exported_script_runs_every_rank(slurm: Slurm) -> None:
    script = exported(slurm, "mpirun", "rank-table")
    done = slurm.run("sbatch", "--wait", "--output=/srv/demo/out", "--chdir=/srv/demo", script)
    out = slurm.operator.sh("lab-1", "cat /srv/demo/out")
    assert done.returncode == 0, done.stderr + out
    nodes = slurm.operator.lab.nodes
    assert sorted(line for line in out.splitlines() if line.startswith("RANK=")) == [
        f"RANK={rank} LOCAL_RANK={rank % 2} WORLD_SIZE=4 DEVICE_ID={rank % 2} "
        f"SLURMD_NODENAME=lab-{1 + rank // 2} CM_WORKER_IP={nodes[rank // 2].address}"
        for rank in range(4)
    ]


def test_without_an_inventory_the_allocation_is_the_cluster(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    shutil.copy(slurm.operator.lab.identity, tmp_path / ".ssh/id_ed25519")
    line = f"{PROGRAM} setup --accept-new && {PROGRAM} train tells.py"
    argv = ("salloc", "--nodes=2", "--exclusive", "sh", "-c", line)
    done = slurm.run(*argv, HOME=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if "RANK=" in line) == [
        f"lab-{1 + rank // 2}:{rank} | RANK={rank} LOCAL_RANK={rank % 2} WORLD_SIZE=4 "
        f"DEVICE_ID={rank % 2} SLURMD_NODENAME=lab-{1 + rank // 2} CM_WORKER_IP=None"
        for rank in range(4)
    ]


def test_of_an_inventory_the_nodes_of_the_allocation_count(slurm: Slurm) -> None:
    document = slurm.operator.document()
    path = slurm.operator.inventory("part.yaml", document, launcher={"kind": "srun"})
    words = ("--inventory", str(path))
    with slurm.allocation("lab-2") as part:
        assert part.call("setup", *words).returncode == 0
        done = part.call("train", "tells.py", *words)
        assert done.returncode == 0, done.stderr
        assert {line.partition(" ")[0] for line in done.stdout.splitlines()} == {
            *("lab-2:0", "lab-2:1")
        }
        assert part.call("reset", "--yes", *words).returncode == 0
        del document["nodes"]["lab-2"]
        slurm.operator.inventory("part.yaml", document)
        refused = part.call("train", "tells.py", *words)
    assert refused.returncode == 125
    assert "lab-2 of its nodes are not in the inventory; add" in refused.stderr
    outside = slurm.call("train", "tells.py", *words)
    assert outside.returncode == 125


def test_a_rank_that_fails_is_named_and_the_others_have_time_to_save(inside: Slurm) -> None:
    done = inside.call("train", "saves.py", "--grace", "5", "--", "fail")
    assert done.returncode == 7, done.stderr
    assert "lab-2: rank 2 on device 0 failed first, with exit code 7" in done.stderr
    assert done.stdout.count("saved") == 3
    assert inside.operator.job_processes() == {}


def test_a_stopped_job_has_time_to_save_and_leaves_nothing(inside: Slurm) -> None:
    job_id = inside.call("train", "saves.py", "--grace", "5", "--detach").stdout.strip()
    logs = f"cat {BASE}/jobs/{job_id}/rank.*.log"
    wait_until(lambda: all(text.count("up\n") == 2 for text in inside.operator.on_all(logs)))
    assert inside.call("stop").returncode == 0
    assert all(text.count("saved\n") == 2 for text in inside.operator.on_all(logs))
    assert inside.operator.job_processes() == {}


def test_a_supervised_job_starts_again_in_its_allocation(inside: Slurm) -> None:
    done = inside.call("train", "once.py", "--supervise")
    assert done.returncode == 0, done.stderr
    assert "lab-2: rank 3 on device 1 failed first, with exit code 9" in done.stderr
    assert done.stdout.count("| 2\n") == 4


@pytest.mark.one_try
def test_a_job_whose_srun_was_killed_leaves_nothing(inside: Slurm) -> None:
    job_id = inside.call("train", "saves.py", "--grace", "1", "--detach").stdout.strip()
    logs = f"cat {BASE}/jobs/{job_id}/rank.*.log"
    wait_until(lambda: all(text.count("up\n") == 2 for text in inside.operator.on_all(logs)))
    inside.operator.sh("lab-1", "pkill -9 -x srun")
    wait_until(lambda: inside.operator.job_processes() == {}, seconds=60)


def test_a_node_without_power_ends_the_job_when_slurm_notices(inside: Slurm) -> None:
    operator = inside.operator
    process = operator.start("train", "saves.py", "--grace", "5", env=inside.env)
    assert process.stdout is not None
    assert [process.stdout.readline()[-5:] for _ in range(4)] == ["| up\n"] * 4
    operator.lab.fault("lab-2", "node-down")
    try:
        out, err = process.communicate(timeout=120)
    finally:
        operator.lab.undo("lab-2", "node-down")
    assert (process.returncode, out.count("saved")) == (1, 2), err
    assert "lab-2: could not find remaining processes" in err
