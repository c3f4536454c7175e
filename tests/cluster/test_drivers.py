"""Chosen nodes, devices and launchers, and the verbs of every day, on the practice cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Operator, set_up

pytestmark = pytest.mark.cluster

SHOWS = """\
import json, os
names = "RANK_SIZE", "LOCAL_RANK", "DEVICE_ID", "ASCEND_RT_VISIBLE_DEVICES"
table = os.environ.get("RANK_TABLE_FILE")
servers = json.load(open(table))["server_list"] if table else []
ids = [device["device_id"] for server in servers for device in server["device"]]
print(*(os.environ.get(name) for name in names), "/".join(ids))
"""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    """Three nodes of four devices, two of them in a group."""
    operator = Operator(bring_up_once(nodes=3, devices=4))
    document = operator.document()
    for name in ("lab-2", "lab-3"):
        document["nodes"][name]["groups"] = ["rack2"]
    operator.inventory(operator.lab.inventory.name, {**document, "groups": {"rack2": {}}})
    operator.lab.inventory.write_text((operator.lab.directory / "lab.yaml").read_text())
    return set_up(operator.lab, shows=SHOWS)


def shown(operator: Operator, *flags: str) -> list[str]:
    """What the ranks of a job show, in their order."""
    ended = operator.call("train", "shows.py", *flags, exits=0)
    return sorted(line.rstrip() for line in ended.out.splitlines() if " | " in line)


def test_devices_and_launcher_are_chosen_for_one_job(operator: Operator) -> None:
    chosen = ("--nodes", "lab-1,@rack2!lab-3", "--devices", "2-3")
    assert shown(operator, *chosen) == [
        f"lab-{1 + rank // 2}:{rank} | 4 {rank % 2} {2 + rank % 2} None 2/3/2/3"
        for rank in range(4)
    ]
    for flags, words in [
        (("--devices", "3-4"), "--devices: lab-1 has no 4; setup found 0-3 there"),
        (("--devices", "x"), "--devices: [x] is not a range; "),
        (("--launcher", "srn"), '--launcher: "srn" is not one of '),
        (("--launcher", "horovod"), "--launcher horovod: setup has prepared the nodes for mpirun"),
        (("--nodes", "@rack3"), '--nodes: there is no "@rack3", only lab-[1-3]; groups: rack2\n'),
    ]:
        refused = operator.call("train", "shows.py", *flags, exits=125)
        assert refused.err.startswith(words), refused.err
