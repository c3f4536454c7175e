"""What tells the ranks of a job about each other: a rank table, or variables in place of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendboot.model.cluster import Cluster
    from ascendboot.model.placement import Placement


def resource_files(placement: Placement, rank_table: str) -> dict[str, str]:
    """Name and text of every file below `resources/`, equal on all nodes."""
    files = {"hostfile": hostfile(placement)}
    return {rank_table_name(placement): rank_table, **files} if rank_table else files


def chief_settings(cluster: Cluster, placement: Placement) -> dict[str, str]:
    """What every rank is told where there is no rank table; CM_WORKER_IP is each node's own.

    CM_WORKER_SIZE counts all ranks of the job (HCCL's own example: 16 on two nodes of 8), not
    those of one node.
    """
    return {
        "CM_CHIEF_IP": placement.primary.cluster_address,
        "CM_CHIEF_PORT": str(cluster.chief_port),
        "CM_CHIEF_DEVICE": str(cluster.chief_device),
        "CM_WORKER_SIZE": str(placement.world_size),
    }


def meeting_settings(cluster: Cluster, placement: Placement) -> dict[str, str]:
    """Where PyTorch's ranks meet; what the inventory states for scripts of its own counts."""
    settings = {
        "MASTER_ADDR": placement.primary.cluster_address,
        "MASTER_PORT": str(cluster.chief_port),
    }
    return {name: value for name, value in settings.items() if name not in cluster.env}


def rank_table_name(placement: Placement) -> str:
    """`hccl_json_16p_2_host.json`, or `hccl_json_8p.json` for one node, as Rec SDK names them."""
    servers = len(placement.nodes)
    hosts = f"_{servers}_host" if servers > 1 else ""
    return f"hccl_json_{placement.world_size}p{hosts}.json"


def hostfile(placement: Placement) -> str:
    """Open MPI's hostfile, one line per node in the rank table's order."""
    return "".join(
        f"{node.cluster_address} slots={len(placement.on(node))}\n" for node in placement.nodes
    )
