"""The name of the rank table, and the settings of jobs without one."""

from __future__ import annotations

from dataclasses import replace

from ascendboot.model.cluster import Placement, Slot
from ascendboot.readiness.ready import chief_settings
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
