"""Real torchrun and DDP on the practice cluster: learning, checkpoints, killed processes."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Operator
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

TELLS = """\
import os
names = ["MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "HCCL_IF_IP", "RANK_ID", "RANK_SIZE"]
names += ["DEVICE_ID", "LOCAL_RANK", "WORLD_SIZE", "RANK_TABLE_FILE", "CM_CHIEF_IP"]
print(*(f"{name}={os.environ.get(name)}" for name in names))
"""
ODD_PYTHON, ASLEEP = "/usr/local/bin/odd-python", "/run/asleep"
ODD = f"""\
#!/bin/sh
[ ! -e {ASLEEP} ] || case $RANK$1 in 3*/preflight.py) exec sleep 600 ;; esac
exec {{python}} "$@"
"""
KILLS = int(os.environ.get("ASCENDBOOT_KILLS", "6"))
# Not flushed: it is seen at once all the same.
WAITS = "import time\nprint('up')\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def operator(
    python: Path, bring_up_once: Callable[..., Lab], pytestconfig: pytest.Config
) -> Operator:
    """Two nodes with two devices each and different NIC names; torchrun starts the jobs."""
    operator = Operator(bring_up_once(nodes=2, devices=2))
    operator.sh("lab-1", "ip link set dev eth0 name roce7")
    for node in operator.lab.nodes:
        operator.put(node.name, ODD_PYTHON, ODD.format(python=python))
    ended = operator.setup(inventory=inventory(operator), exits=0)
    why = [r["detail"] for r in ended.json["results"] if r["step"] == "launcher"]
    assert why == ["torchrun starts jobs: the inventory states it"]
    example = (pytestconfig.rootpath / "examples/ddp/main.py").read_text()
    for name, text in (("ddp.py", example), ("tells.py", TELLS), ("waits.py", WAITS)):
        (operator.lab.directory / name).write_text(text)
    return operator


def inventory(operator: Operator, **changes: object) -> Path:
    keys = {"code": {"python": ODD_PYTHON}, "launcher": {"kind": "torchrun"}, **changes}
    return operator.inventory("torchrun.yaml", **keys)


def test_ddp_learns_and_goes_on_from_its_checkpoint(operator: Operator) -> None:
    words = ["--checkpoint", f"{BASE}/ddp.pt", "--every", "4"]
    try:
        job = operator.call("train", "ddp.py", "--", "--steps", "8", *words, exits=0)
        again = operator.call("train", "ddp.py", "--", "--steps", "30", *words, exits=0)
    finally:
        operator.sh("lab-1", f"rm -f {BASE}/ddp.pt")
    assert job.out.count("begins at step 0 of 8") == 4
    assert again.out.count("begins at step 8 of 30") == 4
    losses = set(re.findall(r"rank \d of 4 on cpu: loss ([\d.]+)", job.out + again.out))
    first, last = sorted(losses, key=float, reverse=True)
    assert float(last) < float(first) / 10


def test_a_job_on_some_devices_sees_no_others(operator: Operator) -> None:
    names = "DEVICE_ID LOCAL_RANK WORLD_SIZE ASCEND_RT_VISIBLE_DEVICES"
    operator.script("sees.py", f"import os\nprint(*map(os.environ.get, '{names}'.split()))\n")
    for launcher in ((), ("--launcher", "mpirun")):
        ended = operator.call("train", "sees.py", "--devices", "1", *launcher, exits=0)
        lines = sorted(line for line in ended.out.splitlines() if " | " in line)
        assert lines == ["lab-1:0 | 0 0 2 1", "lab-2:1 | 0 0 2 1"]


def test_what_each_rank_is_told(operator: Operator) -> None:
    job = operator.call("train", "tells.py", "--preflight", exits=0)
    assert re.search(
        r"^preflight: passed: 4 ranks met by gloo \(torch \S+\), ", job.err, re.MULTILINE
    )
    nodes = operator.lab.nodes
    assert sorted(job.out.splitlines()) == [
        f"lab-{1 + rank // 2}:{rank} | MASTER_ADDR={nodes[0].address} MASTER_PORT=61000 "
        f"GLOO_SOCKET_IFNAME={('roce7', 'eth0')[rank // 2]} HCCL_IF_IP={nodes[rank // 2].address} "
        f"RANK_ID={rank} RANK_SIZE=4 DEVICE_ID={rank % 2} LOCAL_RANK={rank % 2} WORLD_SIZE=4 "
        "RANK_TABLE_FILE=None CM_CHIEF_IP=None"
        for rank in range(4)
    ]


def test_row_29_a_rank_that_never_comes_is_named_and_not_those_that_waited(
    operator: Operator,
) -> None:
    operator.sh("lab-2", f"touch {ASLEEP}")
    ended = operator.call("check", "--collective", "--json", exits=1)
    operator.sh("lab-2", f"rm {ASLEEP}")
    found = [r for r in ended.json["results"] if r.get("level") == "error"]
    assert [r["node"] for r in found] == ["lab-2"]
    assert found[0]["detail"].startswith(
        "lab-2: rank 3 on device 1: did not start: no note in the log; ranks 0-2 timed out waiting"
    )
    assert operator.job_processes() == {}


BY_EVENTS = "grep -E '^({}) . pid' events | shuf -n {} | cut -d' ' -f4"
VICTIMS = (
    BY_EVENTS.format("agent|launcher|supervisor", 2),  # torchrun's minder and what records its end
    BY_EVENTS.format("agent|launcher", 1),
    BY_EVENTS.format("rank", 1),
    "pgrep -f 'torc[h].distributed.run .*--node_rank'",
    "pgrep -f 'en[v]/rank-exec' | shuf -n 1",
    "cut -d' ' -f1 watched",  # what watches the second node
)


@pytest.mark.one_try
@pytest.mark.parametrize("seed", range(KILLS))
def test_nothing_is_left_of_a_detached_job_of_which_something_was_killed(
    operator: Operator, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    victims = VICTIMS[seed % len(VICTIMS)]
    node = "lab-2" if "watched" in victims else chance.choice(["lab-1", "lab-2"])
    ended = operator.call("train", "waits.py", "--detach", "--grace", "1", exits=0)
    job = f"{BASE}/jobs/{ended.out.strip()}"
    logs = f"cat {job}/rank.*.log"
    wait_until(lambda: all(operator.sh(n, logs).count("up\n") == 2 for n in ("lab-1", "lab-2")))
    assert operator.sh(node, f"cd {job} && kill -9 $({victims}) && echo killed") == "killed\n"
    if "rank-exec" in victims:  # it may have been what stands by, which nobody misses
        operator.call("stop", exits=0)
    wait_until(lambda: operator.job_processes() == {})


def test_row_29_a_node_without_power_ends_the_job_on_the_others(operator: Operator) -> None:
    """In the middle of the steps of DDP."""
    process = operator.start("train", "ddp.py", "--", "--steps", "1000000")
    assert any(line.startswith("lab-2:2 | step 100 ") for line in process.out)
    with operator.fault("lab-2", "node-down"):
        assert "ends torchrun on this node: lab-2: lost it" in process.end(exits=1).err
        left = "grep -lsz '^ASCENDBOOT_JOB_ID=' /proc/[0-9]*/environ; true"
        assert operator.sh("lab-1", left) == ""


READS = """\
import json, os
table = json.load(open(os.environ["RANK_TABLE_FILE"]))
print(*((server["server_id"], device["device_id"], os.environ["DEVICE_ID"])
        for server in table["server_list"] for device in server["device"]
        if device["rank_id"] == os.environ["RANK_ID"]))
"""


def test_a_rank_reads_its_place_in_the_rank_table(operator: Operator) -> None:
    operator.setup(inventory=inventory(operator, resources={"mode": "rank-table"}), exits=0)
    operator.script("reads.py", READS)
    job = operator.call("train", "reads.py")
    addresses = [str(node.address) for node in operator.lab.nodes]
    assert sorted(job.out.splitlines()) == [
        f"lab-{1 + rank // 2}:{rank} | {(addresses[rank // 2], str(rank % 2), str(rank % 2))}"
        for rank in range(4)
    ], job.err


def test_reset_leaves_nothing_of_all_that(operator: Operator) -> None:
    ended = operator.call("reset", "--yes")
    assert (ended.code, "left alone" in ended.err) == (0, False), ended.err
    assert operator.on_all(f"[ -e {BASE} ] || echo nothing") == ["nothing\n"] * 2
