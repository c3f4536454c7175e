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
AuthInfo=socket={socket}
StateSaveLocation={place}
SlurmctldPidFile={place}/slurmctld.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SlurmdParameters=config_overrides
GresTypes=npu
DebugFlags=NO_CONF_HASH
NodeName=DEFAULT CPUs=16 RealMemory=1000 Gres=npu:2
{nodes}
PartitionName=all Nodes=ALL Default=YES
"""
KEY = "practice-practice-practice-practice\n"
ON_NODE = f"""\
mkdir -p /etc/slurm /run/munge /var/spool/slurmd && cat >/etc/slurm/slurm.conf
echo Name=npu Count=2 >/etc/slurm/gres.conf
echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
umask 077 && echo {KEY.strip()} >/etc/slurm/munge.key
munged --force --key-file=/etc/slurm/munge.key --log-file=/run/munge/log
slurmd -N "$(hostname)"
"""
TELLS = """\
import os
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "DEVICE_ID", "SLURMD_NODENAME", "CM_WORKER_IP"]
print(*(os.environ.get(name) for name in names))
"""
SAVES = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), print("saved"), sys.exit(0)))
print("up")
time.sleep(1)
sys.exit(7) if sys.argv[1:] == ["fail"] and os.environ["RANK"] == "2" else time.sleep(600)
"""


@dataclass(frozen=True)
class Slurm:
    operator: Operator
    env: dict[str, str]

    def call(self, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program on the control machine with this environment."""
        env, place = {**os.environ, **self.env, **more}, self.operator.lab.directory
        return subprocess.run(
            argv, env=env, cwd=place, capture_output=True, text=True, check=False, timeout=120
        )

    @contextmanager
    def allocation(self, *nodes: str) -> Iterator[Slurm]:
        done = self.call("salloc", "--no-shell", "--exclusive", f"--nodelist={','.join(nodes)}")
        job_id = done.stderr.rpartition("Granted job allocation ")[2].strip()
        inside = {"SLURM_JOB_ID": job_id, "SLURM_JOB_NODELIST": ",".join(nodes)}
        try:
            yield Slurm(self.operator, {**self.env, **inside})
        finally:
            self.call("scancel", job_id)
            wait_until(lambda: not self.call("squeue", "--noheader").stdout)


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
    with ExitStack() as stack:
        # munged refuses a socket in a folder that not everybody may enter, such as pytest's.
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place.chmod(0o755)
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        host, address = socket.gethostname().partition(".")[0], lab.shape.operator_address
        nodes = "\n".join(f"NodeName={node.name} NodeAddr={node.address}" for node in lab.nodes)
        values = {"host": host, "address": address, "port": port, "place": place, "nodes": nodes}
        (place / "slurm.conf").write_text(CONF.format(**values, socket=place / "socket"))
        (place / "gres.conf").write_text("Name=npu Count=2\n")
        (place / "key").touch(0o600)
        (place / "key").write_text(KEY)
        options = [f"--{name}-file={place / name}" for name in ("key", "log", "pid", "seed")]
        munged = ("munged", "--foreground", f"--socket={place / 'socket'}", *options)
        stack.enter_context(daemon(*munged))
        wait_until((place / "socket").exists)
        conf = CONF.format(**values, socket="/run/munge/munge.socket.2").encode()
        for node in lab.nodes:
            lab.exec(node.name, ["bash", "-ec", ON_NODE], input=conf)
        made = Slurm(Operator(lab), {"SLURM_CONF": str(place / "slurm.conf")})
        stack.enter_context(daemon("slurmctld", "-D", **made.env))
        idle = ("sinfo", "--noheader", "--format=%D", "--states=idle")
        wait_until(lambda: made.call(*idle).stdout.strip() == "2", seconds=60)
        (lab.directory / "tells.py").write_text(TELLS)
        (lab.directory / "saves.py").write_text(SAVES)
        yield made


@pytest.fixture(scope="module")
def inside(slurm: Slurm) -> Iterator[Slurm]:
    """An allocation of both nodes, set up with the lab's inventory."""
    inventory = slurm.operator.inventory("slurm.yaml", launcher={"kind": "srun"})
    with slurm.allocation("lab-1", "lab-2") as allocated:
        done = allocated.call(PROGRAM, "setup", "--inventory", str(inventory))
        assert done.returncode == 0, done.stderr
        yield allocated


CASES = "torchrun root-info", "horovod no-rank-table", "srun root-info", "mpirun rank-table"


@pytest.mark.parametrize("case", CASES)
def test_slurm_accepts_every_exported_script_and_runs_it(slurm: Slurm, case: str) -> None:
    kind, mode = case.split()
    keys = {"launcher": {"kind": kind}, "resources": {"mode": mode}, "code": {"path": "/srv/demo"}}
    inventory = slurm.operator.inventory("export.yaml", **keys)
    words = ("tells.py", "--inventory", str(inventory), "--time", "5")
    script = slurm.operator.lab.directory / "job.sbatch"
    script.write_text(slurm.call(PROGRAM, "export.sbatch", *words).stdout)
    done = slurm.call("sbatch", "--test-only", str(script))
    assert "using 32 processors on nodes lab-[1-2]" in done.stderr
    assert slurm.call("sbatch", "--test-only", "--nodes=3", str(script)).returncode != 0
    if kind == "torchrun":  # practice servers have no PyTorch
        return
    slurm.operator.on_all(f"mkdir -p /srv/demo && cat >/srv/demo/tells.py <<'END'\n{TELLS}END")
    done = slurm.call("sbatch", "--wait", "--output=/srv/demo/out", "--chdir=/", str(script))
    out = slurm.operator.sh("lab-1", "cat /srv/demo/out")
    assert done.returncode == 0, done.stderr + out
    by_chief = mode != "root-info"
    addresses = [node.address if by_chief else None for node in slurm.operator.lab.nodes]
    assert sorted(line for line in out.splitlines() if line[0].isdigit()) == [
        f"{n} {n % 2} 4 {n % 2} lab-{1 + n // 2} {addresses[n // 2]}" for n in range(4)
    ]


def test_without_an_inventory_the_allocation_is_the_cluster(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    shutil.copy(slurm.operator.lab.identity, tmp_path / ".ssh/id_ed25519")
    line = f"{PROGRAM} setup --accept-new && {PROGRAM} train tells.py"
    argv = ("salloc", "--nodes=2", "--exclusive", "sh", "-c", line)
    done = slurm.call(*argv, HOME=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if " | " in line) == [
        f"lab-{1 + n // 2}:{n} | {n} {n % 2} 4 {n % 2} lab-{1 + n // 2} None" for n in range(4)
    ]


def test_of_an_inventory_the_nodes_of_the_allocation_count(slurm: Slurm) -> None:
    path = str(slurm.operator.inventory("part.yaml", launcher={"kind": "srun"}))
    with slurm.allocation("lab-2") as part:
        assert part.call(PROGRAM, "setup", "--inventory", path).returncode == 0
        done = part.call(PROGRAM, "train", "tells.py", "--inventory", path)
        assert {line[:7] for line in done.stdout.splitlines()} == {"lab-2:0", "lab-2:1"}
        assert part.call(PROGRAM, "reset", "--yes", "--inventory", path).returncode == 0


def test_a_rank_that_fails_is_named_and_the_others_have_time_to_save(inside: Slurm) -> None:
    done = inside.call(PROGRAM, "train", "saves.py", "--grace", "5", "--", "fail")
    assert done.returncode == 7, done.stderr
    assert "lab-2: rank 2 on device 0 failed first, with exit code 7" in done.stderr
    assert done.stdout.count("saved") == 3
    assert inside.operator.job_processes() == {}


@pytest.mark.one_try
@pytest.mark.parametrize("saved", [2, 0], ids=["stop", "kill"])
def test_nothing_is_left_of_a_job_that_was_stopped_or_whose_srun_was_killed(
    inside: Slurm, saved: int
) -> None:
    words = ("train", "saves.py", "--grace", "5" if saved else "0", "--detach")
    logs = f"cat {BASE}/jobs/{inside.call(PROGRAM, *words).stdout.strip()}/rank.*.log"
    wait_until(lambda: [t.count("up\n") for t in inside.operator.on_all(logs)] == [2, 2])
    if saved:
        assert inside.call(PROGRAM, "stop").returncode == 0
    else:
        inside.operator.sh("lab-1", "pkill -9 -x srun")
    wait_until(lambda: inside.operator.job_processes() == {}, seconds=60)
    assert [text.count("saved\n") for text in inside.operator.on_all(logs)] == [saved, saved]
