"""Rank table and hostfile come from one placement, in one order."""

from __future__ import annotations

from dataclasses import replace

from ascendboot.model.cluster import Cluster, Node, Placement, Slot, SshAccess
from ascendboot.setup.context import chief_settings, hostfile, rank_table_name, resource_files


def node(name: str, address: str) -> Node:
    return Node(
        name=name,
        address=address,
        cluster_address=address,
        server_id=address,
        ssh=SshAccess(user="root"),
    )


def placement(nodes: int, devices: int) -> Placement:
    return Placement(
        tuple(
            Slot(node(f"n{i}", f"192.0.2.{i}"), d, f"198.51.100.{10 * i + d}", d)
            for i in range(1, nodes + 1)
            for d in range(devices)
        )
    )


def test_the_hostfile_has_the_table_s_order() -> None:
    assert hostfile(placement(2, 8)) == "192.0.2.1 slots=8\n192.0.2.2 slots=8\n"


def test_the_table_is_named_as_rec_sdk_names_it() -> None:
    names = [rank_table_name(placement(*shape)) for shape in ((1, 8), (2, 8), (3, 1))]
    assert names == ["hccl_json_8p.json", "hccl_json_16p_2_host.json", "hccl_json_3p_3_host.json"]


def test_without_a_rank_table_there_is_no_such_file_and_the_size_counts_all_ranks() -> None:
    placed = placement(2, 8)
    wish = Cluster(name="c", nodes=placed.nodes, primary_name="n1", source="c.yaml")
    without = replace(wish, resource_mode="no-rank-table", chief_port=61001, chief_device=3)
    assert resource_files(placed, "{}") == {
        "hccl_json_16p_2_host.json": "{}",
        "hostfile": hostfile(placed),
    }
    assert resource_files(placed, "") == {"hostfile": hostfile(placed)}
    assert chief_settings(without, placed) == {
        "CM_CHIEF_IP": placed.primary.cluster_address,
        "CM_CHIEF_PORT": "61001",
        "CM_CHIEF_DEVICE": "3",
        "CM_WORKER_SIZE": "16",
    }
