"""Open MPI 4's `mpirun`, which reaches the other nodes by ssh."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from ascendboot.launch.launchers import Launcher, Traits, sigkill_timeout_s
from ascendboot.launch.plan import LaunchRequest

_COLONS = re.compile(r"%*:")

OPENMPI_RANKS = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")
OPENMPI_ENV: Final[Mapping[str, str]] = {
    # ssh hands SHLVL on: without it bash reads ~/.bashrc of the other nodes.
    "SHLVL": "1",
    # Open MPI sees within 25 s that a node lost its power; the default (4.1) is 480 s.
    "OMPI_MCA_oob_tcp_keepalive_time": "10",
    "OMPI_MCA_oob_tcp_keepalive_intvl": "5",
    "OMPI_MCA_oob_tcp_keepalive_probes": "3",
    # Otherwise each rank (4.1) also listens for libfabric, on the first network it finds; pml ob1
    # does not use that.
    "OMPI_MCA_btl_ofi_provider_include": "none",
}


class Mpirun(Launcher):
    """Starts ranks with `mpirun`."""

    traits = Traits(kind="mpirun", rank_variables=OPENMPI_RANKS, openmpi=True)

    def command(
        self, job: LaunchRequest, program: Sequence[str], node_rank: int
    ) -> tuple[str, ...]:
        """Count ranks through the hosts in order; `program` must undo `protected`."""
        # As CIDRs: interface names differ from node to node.
        networks = ",".join(job.networks)
        return (
            # Absolute: so the daemons of the other nodes are found beside it, whatever their PATH.
            str(job.mpirun),
            *(("--allow-run-as-root",) if job.login.uid == 0 else ()),
            *("-np", str(job.placement.world_size), "-H", hosts(job)),
            *("--bind-to", "none", "--map-by", "slot"),
            *_mca("plm_rsh_agent", "ssh"),
            *_mca("plm_rsh_args", f"-F {job.base / 'trust' / 'ssh_config'}"),
            # Otherwise "a.example.org" becomes "a" before ssh sees it.
            *_mca("orte_keep_fqdn_hostnames", "1"),
            # Only the primary holds the cluster's key: no other node may start a third.
            *_mca("plm_rsh_no_tree_spawn", "1"),
            *_mca("pml", "ob1"),
            *_mca("btl", "^openib"),
            *(_mca("btl_tcp_if_include", networks) if networks else ()),
            *(_mca("oob_tcp_if_include", networks) if networks else ()),
            *_mca("odls_base_sigkill_timeout", str(sigkill_timeout_s(job.grace_s))),
            *job.mpi_args,
            *("-x", "ASCENDBOOT_JOB_ID"),
            *program,
        )

    def path(self, job: LaunchRequest) -> tuple[PurePosixPath, ...]:
        """Its own folder."""
        return (job.mpirun.parent,)

    def env(self, job: LaunchRequest, node_rank: int) -> Mapping[str, str]:
        """Settings of Open MPI."""
        return OPENMPI_ENV


LAUNCHER = Mpirun()


def hosts(job: LaunchRequest) -> str:
    """Return address and number of ranks of each node, in rank order."""
    placement = job.placement
    return ",".join(f"{n.cluster_address}:{len(placement.ranks_on(n))}" for n in placement.nodes)


def protected(argument: str) -> str:
    """Return `argument` with one `%` more before a lone `:`, which would begin another program.

    rank-exec on the nodes removes it, also from `%:`, `%%:` and so on.
    """
    return f"%{argument}" if _COLONS.fullmatch(argument) else argument


def _mca(name: str, value: str) -> tuple[str, str, str]:
    return ("--mca", name, value)
