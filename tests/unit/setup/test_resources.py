"""Rank table and hostfile come from one placement, in one order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from ascendboot.model.cluster import LauncherChoice, Placement, Slot
from ascendboot.setup.cluster_plan import (
    ClusterFacts,
    ClusterPlan,
    Context,
    chief_settings,
    rank_table_name,
)
from tests.unit.checks import well


def placement(nodes: int, devices: int) -> Placement:
    return Placement(
        tuple(
            Slot(well.node(i), d, f"198.51.100.{10 * i + d}", d)
            for i in range(1, nodes + 1)
            for d in range(devices)
        )
    )


def resources(placed: Placement, table: str) -> dict[str, str]:
    plan = ClusterPlan(
        port=12345,
        placement=placed,
        networks=(),
        base=PurePosixPath("/var/lib/ascendboot/lab"),
        mpirun="mpirun",
        launcher=LauncherChoice("mpirun", ""),
        rank_table=table,
    )
    facts = ClusterFacts({}, {})
    return dict(Context(cluster=well.TWO, plan=plan, facts=facts).resources)


def test_the_table_is_named_as_rec_sdk_names_it() -> None:
    names = [rank_table_name(placement(*shape)) for shape in ((1, 8), (2, 8), (3, 1))]
    assert names == ["hccl_json_8p.json", "hccl_json_16p_2_host.json", "hccl_json_3p_3_host.json"]


def test_without_a_rank_table_there_is_no_such_file_and_the_size_counts_all_ranks() -> None:
    placed = placement(2, 8)
    hostfile = "198.18.0.1 slots=8\n198.18.0.2 slots=8\n"
    assert resources(placed, "{}") == {"hccl_json_16p_2_host.json": "{}", "hostfile": hostfile}
    assert resources(placed, "") == {"hostfile": hostfile}
    without = replace(well.TWO, resource_mode="no-rank-table", chief_port=61001, chief_device=3)
    assert chief_settings(without, placed) == {
        "CM_CHIEF_IP": "198.18.0.1",
        "CM_CHIEF_PORT": "61001",
        "CM_CHIEF_DEVICE": "3",
        "CM_WORKER_SIZE": "16",
    }
