"""Builds the launch request of `train` from the record of setup and the readiness report."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.launch.launchers.registry import traits_of
from ascendboot.launch.request import LaunchRequest, Login
from ascendboot.model.cluster import LAUNCHER_NAMES, Cluster
from ascendboot.setup.context import chief_settings, meeting_settings, rank_table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.readiness.ready import Readiness
    from ascendboot.setup.record import SetupRecord


def job_request(
    cluster: Cluster,
    record: SetupRecord,
    ready: Readiness,
    *,
    script: str,
    job_id: str,
    grace_s: float,
    min_nodes: int | None = None,
    notes: tuple[str, ...] = (),
) -> LaunchRequest:
    """The launch request of a job whose nodes are all ready; queries nothing."""
    placement = record.placement(cluster)
    with_table = cluster.resource_mode == "rank-table"
    by_chief = cluster.resource_mode == "no-rank-table"
    table = f"resources/{rank_table_name(placement)}"
    primary = record.nodes[cluster.primary_name]
    return LaunchRequest(
        job_id=job_id,
        cluster=cluster.name,
        placement=placement,
        base=record.base,
        login=Login(user=primary.user, uid=primary.uid, home=PurePosixPath(primary.home)),
        mpirun=PurePosixPath(record.mpirun),
        networks=record.networks,
        rank_table=record.base / table if with_table else None,
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
        launcher=record.launcher,
        min_nodes=min_nodes,
        ssh_port=record.port,
        mpi_args=cluster.mpi_args,
        launcher_env=_launcher_env(cluster, record, ready.image),
        path=ready.image.get("PATH", ""),
        grace_s=grace_s,
        log_limit=cluster.log_limit,
        notes=notes,
    )


def _launcher_env(
    cluster: Cluster, record: SetupRecord, image: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the launcher, as the ranks see it.

    The inventory overrides the profile; paths of the profile stand before those of the image.
    """
    names = LAUNCHER_NAMES if traits_of(record.launcher).loads_libraries else ()
    of_image = {k: v for k, v in image.items() if k == "LD_LIBRARY_PATH" or k in names}
    of_profile = {
        name: f"{value}:{of_image[name]}" if of_image.get(name) else value
        for name, value in record.launcher_env.items()
    }
    stated = {k: v for k, v in cluster.env.items() if k.startswith("OMPI_MCA_") or k in names}
    return {**of_image, **of_profile, **stated}


def script_arguments(argv: list[str]) -> tuple[str, ...]:
    """The words after `--`, from the command line: Invoke joins them."""
    return tuple(argv[argv.index("--") + 1 :]) if "--" in argv else ()
