"""What `train` asks of a launch: the cluster as it was set up, and the script as it was found."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.launch.request import LaunchRequest, Login
from ascendboot.model.cluster import LAUNCHER_NAMES
from ascendboot.setup.context import chief_settings, meeting_settings, rank_table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.model.cluster import Cluster
    from ascendboot.readiness.ready import Readiness
    from ascendboot.setup.record import SetupRecord


def job_request(
    cluster: Cluster,
    applied: SetupRecord,
    ready: Readiness,
    *,
    script: str,
    job_id: str,
    grace_s: float,
    min_nodes: int | None = None,
    notes: tuple[str, ...] = (),
) -> LaunchRequest:
    """The request for a job in which every node was found ready: nothing is looked at again."""
    placement = applied.placement(cluster)
    with_table = cluster.resource_mode == "rank-table"
    by_chief = cluster.resource_mode == "no-rank-table"
    table = f"resources/{rank_table_name(placement)}"
    primary = applied.nodes[cluster.primary_name]
    return LaunchRequest(
        job_id=job_id,
        cluster=cluster.name,
        placement=placement,
        base=applied.base,
        login=Login(user=primary.user, uid=primary.uid, home=PurePosixPath(primary.home)),
        mpirun=PurePosixPath(applied.mpirun),
        networks=applied.networks,
        rank_table=applied.base / table if with_table else None,
        rank_table_sha256=primary.files[table].sha256 if with_table else "",
        chief=chief_settings(cluster, placement) if by_chief else {},
        meeting={} if by_chief else meeting_settings(cluster, placement),
        python=cluster.python,
        script=ready.script,
        script_args=script_arguments(sys.argv),
        script_content=Path(script).read_bytes() if ready.is_copied else None,
        script_source=str(Path(script).absolute()) if ready.is_copied else "",
        workdir=None
        if ready.is_copied
        else PurePosixPath(cluster.code_path or ready.script.parent),
        launcher=applied.launcher,
        min_nodes=min_nodes,
        ssh_port=applied.port,
        mpi_args=cluster.mpi_args,
        launcher_env=_launcher_env(cluster, applied, ready.image),
        path=ready.image.get("PATH", ""),
        grace_s=grace_s,
        log_limit=cluster.log_limit,
        notes=notes,
    )


def _launcher_env(
    cluster: Cluster, applied: SetupRecord, image: Mapping[str, str]
) -> dict[str, str]:
    """What of the image, before it of the profile, over both of the inventory, is for the launcher.

    So do the ranks see it.
    """
    launcher = applied.launcher
    names = LAUNCHER_NAMES if launcher.horovodrun or launcher.torchrun else ()
    of_image = {k: v for k, v in image.items() if k == "LD_LIBRARY_PATH" or k in names}
    of_profile = {
        name: f"{value}:{of_image[name]}" if of_image.get(name) else value
        for name, value in applied.launcher_env.items()
    }
    stated = {k: v for k, v in cluster.env.items() if k.startswith("OMPI_MCA_") or k in names}
    return {**of_image, **of_profile, **stated}


def script_arguments(argv: list[str]) -> tuple[str, ...]:
    """What stands after `--`: Invoke joins these words, the command line still has them apart."""
    return tuple(argv[argv.index("--") + 1 :]) if "--" in argv else ()
