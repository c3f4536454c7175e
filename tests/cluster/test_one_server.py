"""One server alone: without SSH of its own, and with other numbers of ranks than of devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Operator

pytestmark = pytest.mark.cluster

SSH = "#!/bin/sh\n[ $1 = -V ] && exec /usr/bin/ssh -V\necho $* >>/run/ssh-called\nexit 255\n"
TELLS = """\
import os
names = "RANK DEVICE_ID LOCAL_RANK WORLD_SIZE ASCEND_RT_VISIBLE_DEVICES RANK_TABLE_FILE".split()
names += ["HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_NPU_SOCKET_PORT_RANGE"]
print(*(f"{name}={os.environ.get(name)}" for name in names))
"""
LEARNS = """\
import torch
torch.manual_seed(1)
model = torch.nn.DataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(64, 4)
for step in range(20):
    loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss: {loss.item():.4f}")
"""
SUMS = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
own = torch.tensor([float(os.environ["DEVICE_ID"])])
dist.all_reduce(own)
print("sum", int(own))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    """One node with four devices, and an `ssh` there that records each call."""
    operator = Operator(bring_up_once(nodes=1, devices=4))
    operator.put("lab-1", "/usr/local/bin/ssh", SSH)
    for name, text in (("tells", TELLS), ("learns", LEARNS), ("sums", SUMS)):
        operator.script(f"{name}.py", text)
    return operator


def inventory(operator: Operator, python: Path, **launcher: object) -> Path:
    return operator.inventory("one.yaml", code={"python": str(python)}, launcher=launcher)


@pytest.mark.parametrize("kind", ["mpirun", "torchrun"])
def test_a_server_alone_has_no_sshd_and_no_logins(
    operator: Operator, python: Path, kind: str
) -> None:
    alone = inventory(operator, python, kind=kind)
    ended = operator.setup(inventory=alone, exits=0)
    assert {"sshd", "trust/cluster_key", "login"}.isdisjoint(s for _, s, _ in ended.outcomes())
    job = operator.call("train", "tells.py", exits=0)
    assert len(job.out.splitlines()) == 4
    assert operator.setup(inventory=alone, exits=0).outcomes("changed") == []
    assert operator.call("check", "--json", exits=0).details("failed") == []
    assert operator.sh("lab-1", f"cat /run/ssh-called; ls -d {BASE}/sshd {BASE}/trust; true") == ""
    assert operator.sh("lab-1", f"pgrep -af 'ss[h]d.*{BASE}'; true") == ""
    operator.call("reset", "--yes", exits=0)
    assert operator.sh("lab-1", f"ls -d {BASE}; true") == ""


def test_one_rank_has_all_devices_for_data_parallel(operator: Operator, python: Path) -> None:
    of_all = inventory(operator, python, kind="torchrun", ranks_per_node=1)
    operator.setup(inventory=of_all, exits=0)
    plan = operator.call("train", "tells.py", "--plan", exits=0).out
    assert "  lab-1: rank 0 on devices 0,1,2,3\n" in plan
    told = operator.call("train", "tells.py", "--preflight", exits=0).out
    assert told == (
        "lab-1:0 | RANK=0 DEVICE_ID=0 LOCAL_RANK=0 WORLD_SIZE=1 ASCEND_RT_VISIBLE_DEVICES=0,1,2,3 "
        "RANK_TABLE_FILE=None HCCL_HOST_SOCKET_PORT_RANGE=None HCCL_NPU_SOCKET_PORT_RANGE=None\n"
    )
    losses = operator.call("train", "learns.py", exits=0).out.split("loss: ")[1:]
    assert len(losses) == 20
    assert float(losses[-1].split()[0]) < float(losses[0].split()[0]) / 10
    checked = operator.call("check", "--collective", "--json", exits=0)
    [met] = [r["detail"] for r in checked.json["results"] if r["phase"] == "collective"]
    assert met.startswith("4 ranks met by gloo")
    advised = operator.call("check", "--advise", "--json", exits=0).json["advice"]
    assert advised == []  # the inventory states what the script needs
    operator.script("learns.py", LEARNS.replace("DataParallel", "parallel.DistributedDataParallel"))
    advised = operator.call("check", "--advise", "--json", exits=0).json["advice"]
    at = operator.lab.directory / "learns.py:3"
    assert [(hint["id"], hint["where"]) for hint in advised] == [("bucket-size", str(at))]


@pytest.mark.parametrize("kind", ["mpirun", "torchrun"])
def test_ranks_that_share_devices_take_turns(operator: Operator, python: Path, kind: str) -> None:
    shared = inventory(operator, python, kind=kind, ranks_per_device=2)
    operator.setup(inventory=shared, exits=0)
    told = operator.call("train", "tells.py", "--preflight", exits=0)
    assert sorted(told.out.splitlines()) == [
        f"lab-1:{rank} | RANK={rank} DEVICE_ID={rank % 4} LOCAL_RANK={rank} WORLD_SIZE=8 "
        "ASCEND_RT_VISIBLE_DEVICES=None RANK_TABLE_FILE=None "
        "HCCL_HOST_SOCKET_PORT_RANGE=auto HCCL_NPU_SOCKET_PORT_RANGE=auto"
        for rank in range(8)
    ]
    sums = operator.call("train", "sums.py", exits=0).out
    assert sums.count("sum 12") == 8
    assert operator.job_processes() == {}
