"""The name of the rank table, and the settings of jobs without one."""

from __future__ import annotations

import pytest

from ascendboot.model.cluster import Placement, Slot
from ascendboot.model.files import OwnFile
from ascendboot.readiness.ready import chief_settings, start_stopped_sshd
from ascendboot.setup.record import NodeRecord
from ascendboot.transport.api import Command, Sides
from ascendboot.value import replace
from tests.fake_transport import FakeTransport
from tests.unit.checks import well


def placement(nodes: int, devices: int) -> Placement:
    return Placement(
        tuple(
            Slot(well.node(i), d, f"198.51.100.{10 * i + d}", d)
            for i in range(1, nodes + 1)
            for d in range(devices)
        )
    )


def test_the_table_is_named_as_rec_sdk_names_it() -> None:
    names = [placement(*shape).table_name for shape in ((1, 8), (2, 8), (3, 1))]
    assert names == ["hccl_json_8p.json", "hccl_json_16p_2_host.json", "hccl_json_3p_3_host.json"]


def test_the_worker_size_counts_all_ranks() -> None:
    without = replace(well.TWO, resource_mode="no-rank-table", chief_port=61001, chief_device=3)
    assert chief_settings(without, placement(2, 8)) == {
        "CM_CHIEF_IP": "198.18.0.1",
        "CM_CHIEF_PORT": "61001",
        "CM_CHIEF_DEVICE": "3",
        "CM_WORKER_SIZE": "16",
    }


CONFIG = {"sshd/sshd_config": OwnFile("c0ffee", 0o600)}
NODE = NodeRecord(files=CONFIG, sshd="1d", uid=0, user="root", home="/root")


@pytest.mark.parametrize(
    ("node", "seen", "starts"),
    [
        (NODE, "", True),
        (NODE, f"sshd 12 {'1d' * 32} -\n", False),
        (NODE, "stray 12\n", False),
        (replace(NODE, files={}), "", False),
        (replace(NODE, files={}, host_files=CONFIG, host_sshd="1d"), "", True),
    ],
)
def test_the_sshd_of_a_node_that_booted_again_is_started_unless_one_runs(
    node: NodeRecord, seen: str, *, starts: bool
) -> None:
    def answer(command: Command) -> str:
        return "" if command.purpose.startswith("start") else f"base /b\n{seen}end\n"

    here, elsewhere = FakeTransport(rules=(answer,)), FakeTransport()
    sides = Sides(here, elsewhere) if node.host_sshd else Sides(elsewhere, here)
    assert start_stopped_sshd("lab", node, sides) is starts
    assert [("c0ffee" in command.argv[2]) for command in here.commands[1:]] == [True] * starts
