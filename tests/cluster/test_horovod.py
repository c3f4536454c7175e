"""Real Horovod: the same job by horovodrun and by mpirun, with a rank table and without."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Operator
from tests.needs import LONG

pytestmark = pytest.mark.cluster

JOB = """\
import json, os
import torch
import horovod.torch as hvd

hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank()), 1.0]), op=hvd.Sum).tolist()
seen = {
    "rank": hvd.rank(),
    "local": hvd.local_rank(),
    "sum": total,
    "families": sorted(n for n in os.environ if n.startswith(("CM_", "RANK_"))),
    "worker": os.environ.get("CM_WORKER_IP"),
    "nic": os.environ.get("NCCL_SOCKET_IFNAME"),
    "unbuffered": os.environ.get("PYTHONUNBUFFERED"),
}
print(json.dumps(seen))
"""
CM = ["CM_CHIEF_DEVICE", "CM_CHIEF_IP", "CM_CHIEF_PORT", "CM_WORKER_IP", "CM_WORKER_SIZE"]
TABLE = ["RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE"]


@pytest.fixture(scope="module")
def operator(python: Path, bring_up_once: Callable[..., Lab]) -> Operator:
    """Two nodes with two devices each, where Horovod is installed."""
    assert python.exists()
    return Operator(bring_up_once(nodes=2, devices=2))


def inventory(operator: Operator, python: Path | str, **changes: object) -> Path:
    return operator.inventory("horovod.yaml", code={"python": str(python)}, **changes)


EXTRA = ["-x", "BIND_INFO=0:12 12:48", "--mca", "btl_tcp_links", "2"]


@pytest.fixture(scope="module")
def ready(operator: Operator, python: Path) -> Operator:
    """Set up once: each setup queries what Horovod was built with, which is slow."""
    launcher = {"kind": "auto", "mpi_args": EXTRA}
    assert set_up(operator, python, "rank-table", launcher) == FOUND.format(python=python)
    return operator


FOUND = "horovodrun starts jobs: Horovod 0.28.1 beside {python} works on lab-1"


def set_up(operator: Operator, python: Path, mode: str, launcher: Mapping[str, object]) -> str:
    """Set the cluster up; the reason for the choice of the launcher."""
    path = inventory(operator, python, launcher=launcher, resources={"mode": mode})
    ended = operator.setup(inventory=path, exits=0)
    [why] = [r["detail"] for r in ended.json["results"] if r["step"] == "launcher"]
    return str(why)


def assert_allreduce(operator: Operator, mode: str) -> None:
    """Run an allreduce over all ranks and compare the variables of each rank."""
    operator.script("job.py", JOB)
    job = operator.call("train", "job.py", exits=0)
    seen = [json.loads(line) for line in re.findall(r"lab-\d:\d \| (\{.*)", job.out)]
    own = [str(operator.lab.nodes[rank // 2].address) for rank in range(4)]
    assert sorted(seen, key=lambda entry: int(entry["rank"])) == [
        {
            "rank": rank,
            "local": rank % 2,
            "sum": [6.0, 4.0],
            "families": TABLE if mode == "rank-table" else CM,
            "worker": None if mode == "rank-table" else own[rank],
            "nic": None,
            "unbuffered": "1",
        }
        for rank in range(4)
    ]


def test_an_allreduce_over_all_ranks(ready: Operator) -> None:
    assert_allreduce(ready, "rank-table")


def test_a_plan_names_the_launcher_and_what_it_runs(ready: Operator, python: Path) -> None:
    ready.script("job.py", JOB)
    plan = ready.call("train", "job.py", "--plan", "--json").json
    assert plan["launcher"]["name"] == "horovodrun"
    command = plan["command"]
    port = ready.sh("lab-1", f"sed -n 's/^ *Port //p' {BASE}/trust/ssh_config").strip()
    assert command[0] == str(python.with_name("horovodrun"))
    assert command[command.index("-p") + 1] == port
    [mpi_args] = [word for word in command if word.startswith("--mpi-args=")]
    assert mpi_args.endswith("-x 'BIND_INFO=0:12 12:48' --mca btl_tcp_links 2")
    assert plan["env"]["PATH"].startswith(f"{BASE}/env/bin:")


# It becomes sh and mpirun as soon as it has looked around (Horovod 0.28.1, mpi_run.py).
BEGUN = "tr '\\0' ' ' <\"/proc/$pid/cmdline\" | grep -q /horovodrun"
UP = f"cat {BASE}/jobs/*/rank.*.log | grep -c up | grep -qx 2"
KILL_IT = f"""\
until cd {BASE}/jobs/*; do sleep 0.02; done
until pid=$(awk '/^launcher - pid/ {{ print $4 }}' events | grep .) && %s; do sleep 0.02; done
kill -9 "$pid" && echo killed
"""


@pytest.mark.one_try
@pytest.mark.parametrize("when", [BEGUN, UP], ids=["at the start", "when it is mpirun"])
def test_a_horovodrun_that_is_killed_ends_the_job(ready: Operator, when: str) -> None:
    waits = "import time\nprint('up')\ntime.sleep(600)\n"
    ready.script("waits.py", waits)
    ready.on_all(f"rm -rf {BASE}/jobs/*")
    process = ready.start("train", "waits.py", "--grace", "1")
    kill = f"timeout 300 bash -c {shlex.quote(KILL_IT % when)} 2>/dev/null"
    assert ready.sh("lab-1", kill) == "killed\n"
    process.end(exits=137)
    assert ready.job_processes() == {}


def test_a_host_key_that_is_not_ours_stops_horovodrun(ready: Operator) -> None:
    shim = f"PATH={BASE}/env/bin:$PATH; ssh -o StrictHostKeyChecking=no"
    other = ready.lab.nodes[1].address
    assert ready.sh("lab-1", f"{shim} {other} hostname") == "lab-2\n"
    said = ready.sh("lab-1", f"{shim} -o HostKeyAlias=other {other} hostname 2>&1; true")
    assert "Host key verification failed" in said


def test_where_it_is_not_there_auto_says_so_and_a_stated_one_is_refused(operator: Operator) -> None:
    ended = operator.setup(inventory=inventory(operator, "python3"), exits=0)
    [why] = [r["detail"] for r in ended.json["results"] if r["step"] == "launcher"]
    assert why == "mpirun starts jobs: lab-1: there is no horovodrun beside python3"
    assert operator.sh("lab-1", f"ls {BASE}/env/bin") == ""
    refused = operator.setup(
        inventory=inventory(operator, "python3", launcher={"kind": "horovod"}), exits=1
    )
    assert any("could not find Horovod: there is no" in d for d in refused.details("blocked"))


@LONG
@pytest.mark.parametrize(
    ("kind", "mode"),
    [("mpirun", "rank-table"), ("mpirun", "no-rank-table"), ("auto", "no-rank-table")],
)
def test_an_allreduce_in_every_other_way(
    operator: Operator, python: Path, kind: str, mode: str
) -> None:
    why = set_up(operator, python, mode, {"kind": kind})
    stated = "mpirun starts jobs: the inventory states it"
    assert why == {"auto": FOUND.format(python=python), "mpirun": stated}[kind]
    assert_allreduce(operator, mode)
