"""Ranks that follow the switches that LLDP shows, from `setup` to the variables of a job."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Ended, Operator

pytestmark = pytest.mark.cluster
TELLS = """\
import os
print(*(f"{name}={os.environ[name]}" for name in ("RANK", "RANK_AFTER_ACC", "MASTER_INDEX")))
"""


def cable(operator: Operator, switches: str) -> None:
    """Connect the nodes to switches; `-`: to one that sends no LLDP."""
    for node, switch in zip(operator.lab.nodes, switches, strict=True):
        operator.sh(node.name, "rm -f /usr/local/Ascend/lab/lldp")
        if switch != "-":
            operator.put(node.name, "/usr/local/Ascend/lab/lldp", f"leaf-{switch}\n", "644")


def topology(ended: Ended) -> list[str]:
    return [r["detail"] for r in ended.json["results"] if r["step"] in ("topology", "leaf-unknown")]


@pytest.fixture
def inventory(bring_up: Callable[..., Lab]) -> tuple[Operator, Path]:
    """Three nodes with two devices each, of which a job takes a chain: a ring of three is free."""
    operator = Operator(bring_up(nodes=3, devices=2))
    operator.script("tells.py", TELLS)
    keys = {"leaves": "lldp", "shape": "chain"}
    return operator, operator.inventory("lldp.yaml", topology=keys)


def test_ranks_follow_the_cables_from_setup_to_the_job(inventory: tuple[Operator, Path]) -> None:
    operator, path = inventory
    cable(operator, "aba")
    done = operator.setup(inventory=path, exits=0)
    words = "rank order by leaf switches: chain cost 4 before, 2 after (optimal)"
    assert topology(done) == [words]
    hosts = operator.sh("lab-2", f"cat {BASE}/resources/hostfile").splitlines()
    addresses = [str(node.address) for node in operator.lab.nodes]
    assert [line.split()[0] for line in hosts] == [addresses[i] for i in (0, 2, 1)]
    assert operator.setup(inventory=path).outcomes("changed") == []
    table = operator.call("ranktable.write", inventory=path)
    assert [server["server_id"] for server in table.json["server_list"]] == [
        line.split()[0] for line in hosts
    ]
    shown = operator.call("topology.show", "--json", inventory=path)
    assert [node["node"] for node in shown.json["nodes"]] == ["lab-1", "lab-3", "lab-2"]
    plain = operator.inventory("plain.yaml", topology={"shape": "chain"})
    seen = operator.call("topology.show", "--lldp", inventory=plain).out.splitlines()
    assert seen[0] == words
    assert seen[-1] == "seen by LLDP; to use it, state `topology: {leaves: lldp}` and run setup"
    plan = operator.call("train", "tells.py", "--plan")
    assert words in plan.out.splitlines()
    job = operator.call("train", "tells.py", exits=0)
    told = sorted(re.findall(r"(lab-.):. \| RANK=(.) RANK_AFTER_ACC=(.) MASTER_INDEX=0", job.out))
    assert told == [
        *(("lab-1", str(rank), "0") for rank in (0, 1)),
        *(("lab-2", str(rank), "2") for rank in (4, 5)),
        *(("lab-3", str(rank), "1") for rank in (2, 3)),
    ]

    cable(operator, "aab")
    planned = operator.setup("--plan", inventory=path)
    changed = {step for _, step, _ in planned.outcomes("would_change")}
    assert changed == {"resources/hostfile", "resources/hccl_json_6p_3_host.json"}
    assert topology(planned) == ["rank order by leaf switches: already optimal, chain cost 2"]

    cable(operator, "a-a")
    [unknown, _] = topology(operator.call("check", "--json", inventory=path))
    assert unknown.startswith(
        "warning: lab-2: the leaf switch of the node is unknown: could not read the LLDP neighbour "
        "of device 0: hccn_tool -i 0 -lldp -g: Command execute failed! Let the switches send LLDP"
    )
