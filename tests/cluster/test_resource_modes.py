"""Jobs with a rank table and without: what ranks see, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from ascendboot.lab.shape import (
    ROOT_INFO,
    TOPOLOGY,
    Product,
    root_info_text,
    topology_text,
    world_text,
)
from ascendboot.value import replace
from tests.cluster.operating import BASE, Ended, Operator
from tests.needs import LONG

pytestmark = pytest.mark.cluster

FAMILIES = """\
import json, os
names = "RANK_TABLE_FILE", "RANK_ID", "RANK_SIZE"
mine = {k: v for k, v in os.environ.items() if k.startswith("CM_") or k in names}
print(json.dumps([os.environ["RANK"], mine], sort_keys=True))
"""


BOTH = {"RANK_TABLE_FILE": "/tmp/old.json", "RANK_SIZE": "8", "CM_WORKER_IP": "192.0.2.1"}  # noqa: S108
"""Variables of both families, as left by earlier attempts."""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    """Two nodes of two devices, where logins set variables of both families."""
    operator = Operator(bring_up_once(nodes=2, devices=2))
    lines = "\n".join(f"{name}={value}" for name, value in BOTH.items())
    operator.on_all(f"cat >>/etc/environment <<'END'\n{lines}\nEND\n")
    operator.on_all(f"sed -i '1i export {' '.join(lines.split())}' /root/.bashrc")
    return operator


def without_table(operator: Operator) -> Path:
    return operator.inventory("without.yaml", resources={"mode": "no-rank-table"})


def families(operator: Operator) -> dict[str, dict[str, str]]:
    operator.script("families.py", FAMILIES)
    out = operator.start("train", "families.py", env=BOTH).end(exits=0).out
    return dict(json.loads(line) for line in re.findall(r"lab-\d:\d+ \| (\[.*)", out))


def files(operator: Operator, node: str) -> list[str]:
    return operator.sh(node, f"ls {BASE}/resources").split()


def trains(operator: Operator) -> Ended:
    return operator.call("train", "main.py", "--", "--steps", "10")


def test_both_modes_and_the_way_there_and_back(operator: Operator) -> None:
    first, second = (str(node.address) for node in operator.lab.nodes)
    operator.setup(exits=0)
    assert files(operator, "lab-2") == ["hccl_json_4p_2_host.json", "hostfile"]
    assert "Demo done!" in trains(operator).out
    assert families(operator) == {
        str(r): {
            "RANK_ID": str(r),
            "RANK_SIZE": "4",
            "RANK_TABLE_FILE": f"{BASE}/resources/hccl_json_4p_2_host.json",
        }
        for r in range(4)
    }

    changed = operator.setup(inventory=without_table(operator), exits=0)
    assert ("lab-2", "resources/hccl_json_4p_2_host.json", "changed") in changed.outcomes("changed")
    assert files(operator, "lab-2") == ["hostfile"]
    assert operator.setup(inventory=without_table(operator)).outcomes("changed") == []
    assert "Demo done!" in trains(operator).out
    chief = {"CM_CHIEF_IP": first, "CM_CHIEF_PORT": "61000", "CM_CHIEF_DEVICE": "0"}
    own = {"0": first, "1": first, "2": second, "3": second}
    assert families(operator) == {
        rank: {**chief, "CM_WORKER_IP": address, "CM_WORKER_SIZE": "4"}
        for rank, address in own.items()
    }

    operator.setup(exits=0)
    assert files(operator, "lab-2") == ["hccl_json_4p_2_host.json", "hostfile"]


@pytest.mark.parametrize("mode", [pytest.param("rank-table", marks=LONG), "no-rank-table"])
def test_a_job_of_one_node(operator: Operator, mode: str) -> None:
    document = operator.document()
    del document["nodes"]["lab-2"]
    alone = operator.inventory("alone.yaml", document, resources={"mode": mode})
    operator.setup(inventory=alone, exits=0)
    table = ["hccl_json_2p.json"] if mode == "rank-table" else []
    assert files(operator, "lab-1") == [*table, "hostfile"]
    assert "Demo done!" in trains(operator).out


def test_the_profile_of_rec_sdk_reaches_the_ranks(operator: Operator) -> None:
    env = {**operator.document()["env"], "CACHE_MODE": "DDR"}
    inventory = operator.inventory("profile.yaml", profile="rec-sdk-tf", env=env)
    operator.setup(inventory=inventory, exits=0)
    names = "BIND_INFO CACHE_MODE HCCL_OP_RETRY_ENABLE HCCL_CONNECT_TIMEOUT NCCL_SOCKET_IFNAME"
    operator.script("env.py", f"import os\nprint([os.environ[n] for n in {names.split()}])\n")
    job = operator.call("train", "env.py", exits=0)
    interface = operator.sh(
        "lab-2", f"ip -o addr | grep -F ' {operator.lab.nodes[1].address}/' | cut -d' ' -f2"
    ).strip()
    values = ["0:12 12:48 60:48", "DDR", "L0:0, L1:0, L2:0", "1200", interface]
    assert f"lab-2:2 | {values}\n" in job.out


def test_a_rank_table_written_now_is_the_one_that_setup_wrote(operator: Operator) -> None:
    operator.setup(exits=0)
    inventory = str(operator.lab.inventory)
    on_node = operator.sh("lab-1", f"cat {BASE}/resources/hccl_json_4p_2_host.json")
    written = operator.call("ranktable.write", "--inventory", inventory, "--job", "rec-sdk-tf")
    assert (written.code, written.out) == (0, on_node)
    part = operator.call(
        *("ranktable.write", "--inventory", inventory, "--nodes", "lab-2", "--devices", "1"),
        *("--output", "part.json"),
    )
    assert (part.code, part.out) == (0, "part.json: written, 1 rank\n")
    hostfile = operator.lab.directory / "hosts"
    hostfile.write_text("".join(f"{node.name} slots=2\n" for node in operator.lab.nodes))
    converted = operator.call("ranktable.convert", "hosts", "--inventory", inventory)
    assert (converted.code, converted.out) == (0, on_node)
    refused = operator.call("ranktable.write", "--inventory", inventory, "--to", "group-list")
    assert (refused.code, refused.out) == (2, "")
    assert "a group list: it is for 910, and the NPUs are of A2" in refused.err


def test_a_rank_table_of_the_operator_s_own_is_used_as_it_is(operator: Operator) -> None:
    operator.setup(exits=0)
    inventory = operator.lab.inventory
    written = operator.call("ranktable.write", "--nodes", "lab-[1-2]", inventory=inventory)
    table = {**json.loads(written.out), "note": "an operator's own"}
    own = operator.lab.directory / "own.json"
    own.write_text(json.dumps(table, indent=1))
    mine = operator.inventory(".ascendboot/mine.yaml", resources={"file": "own.json"})

    changed = operator.setup(inventory=mine, exits=0)
    assert ("lab-2", "resources/hccl_json_4p_2_host.json", "changed") in changed.outcomes("changed")
    name = f"{BASE}/resources/hccl_json_4p_2_host.json"
    assert operator.sh("lab-2", f"cat {name}") == own.read_text()
    assert operator.setup(inventory=mine).outcomes("changed") == []
    assert "Demo done!" in trains(operator).out

    table["server_list"][1]["device"][1]["device_ip"] = "198.51.100.1"
    own.write_text(json.dumps(table, indent=1))
    operator.call("train", "main.py", exits=125)
    stale = operator.setup(inventory=mine, exits=1)
    assert ("lab-2", "device-ip-differs", "blocked") in stale.outcomes("blocked")
    own.unlink()
    operator.setup(inventory=mine, exits=2)
    operator.call("status", inventory=mine, exits=0)  # a lost table is no reason
    operator.call("ranktable.write", "--output", "own.json", inventory=mine, exits=0)
    operator.setup(exits=0)


def test_a_rank_table_is_held_against_the_devices(operator: Operator) -> None:
    inventory = ("--inventory", str(operator.lab.inventory))
    written = operator.call("ranktable.write", *inventory)
    table = json.loads(written.out)
    path = operator.lab.directory / "table.json"
    path.write_text(written.out)
    fine = operator.call("ranktable.validate", "table.json", *inventory)
    assert (fine.code, fine.out) == (0, "table.json: valid: version 1.0, checked for A2\n")

    old = table["server_list"][1]["device"][1]["device_ip"]
    table["server_list"][1]["device"][1]["device_ip"] = "198.51.100.1"
    path.write_text(json.dumps(table))
    with operator.fault("lab-1", "stale-hccn-conf", device=0):
        stale = operator.call("ranktable.validate", "table.json", *inventory, "--json", exits=1)
    problems = stale.json["files"][0]["problems"]
    assert [(p["id"], p["level"], p["path"]) for p in problems] == [
        ("device-ip-stale", "error", "server_list[1].device[1].device_ip"),
        ("hccn-conf-stale", "warning", "server_list[0].device[0].device_ip"),
        ("hccn-conf-stale", "warning", "server_list[1].device[1].device_ip"),
    ]
    assert problems[0]["text"] == (
        f"the table has 198.51.100.1, lab-2 device 1 has {old} (hccn_tool -i 1 -ip -g)"
    )


@pytest.fixture
def product(operator: Operator) -> Iterator[Callable[[Product], None]]:
    """Make the NPUs of all nodes report another product until the test ends."""

    def become(word: Product) -> None:
        shape = replace(operator.lab.shape, product=word)
        for node in operator.lab.nodes:
            operator.put(node.name, "/usr/local/Ascend/lab/world", world_text(shape, node), "644")

    yield become
    become("a2")


def test_the_rank_table_follows_the_npus(
    operator: Operator, product: Callable[[Product], None]
) -> None:
    product("a3")
    setup = operator.setup(exits=0)
    assert [r["detail"] for r in setup.json["results"] if r["phase"] == "network"] == [
        f"reaches the other nodes: 2 pings between NPUs and {doors} TCP connections"
        for doors in (3, 4)  # mpirun's daemons are called back at the primary alone
    ]
    of_a3 = json.loads(table(operator))
    servers = of_a3["server_list"]
    names = [{"server_id": server["server_id"]} for server in servers]
    assert of_a3["version"] == "1.2"
    assert of_a3["super_pod_list"] == [{"super_pod_id": "0", "server_list": names}]
    assert [d["super_device_id"] for s in servers for d in s["device"]] == [
        str(n << 22 | i << 16 | i) for n in (1, 2) for i in (0, 1)
    ]
    assert accepted(operator, "a3")
    assert operator.setup().outcomes("changed") == []

    product("a5")
    without = operator.setup(exits=1)
    assert [text.partition(" Make")[0] for text in without.details("blocked")] == [
        "lab-[1-2]: could not read /etc/hccl_rootinfo.json: /etc/hccl_rootinfo.json does not exist."
    ] * 2
    for node in operator.lab.nodes:
        operator.put(node.name, f"/{ROOT_INFO}", root_info_text(node), "644")
        operator.put(node.name, f"/{TOPOLOGY}", topology_text(), "644")
    operator.setup(exits=0)
    of_950 = json.loads(table(operator))
    entries = [e for n in operator.lab.nodes for e in json.loads(root_info_text(n))["rank_list"]]
    assert of_950["version"] == "2.0"
    assert of_950["rank_list"] == [{"rank_id": rank, **e} for rank, e in enumerate(entries)]
    assert accepted(operator, "a5")
    assert "Demo done!" in trains(operator).out


def table(operator: Operator) -> str:
    [text] = set(operator.on_all(f"cat {BASE}/resources/hccl_*"))
    return text


def accepted(operator: Operator, product: Product) -> bool:
    """Whether the table is valid, and `ranktable.write` creates the same."""
    path = operator.lab.directory / f"{product}.json"
    path.write_text(table(operator))
    path.chmod(0o644)
    judged = operator.call("ranktable.validate", str(path), "--product", product, "--json")
    assert judged.json["files"][0]["problems"] == []
    inventory = str(operator.lab.inventory)
    # it overwrites nothing: what is there must be what it would write
    written = operator.call("ranktable.write", "--inventory", inventory, "--output", str(path))
    return written.code == 0
