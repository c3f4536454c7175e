"""Horovod's `horovodrun`, which becomes an mpirun itself."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from ascendboot.launch.launchers import Traits, sigkill_timeout_s
from ascendboot.launch.launchers.mpirun import OPENMPI_RANKS, Mpirun, hosts
from ascendboot.launch.plan import LaunchRequest

LARGE = 64
"""From this number of hosts, Horovod (0.28.1, mpi_run.py) turns tree spawn off itself."""


class Horovodrun(Mpirun):
    """Starts ranks with `horovodrun`, which needs Open MPI's settings."""

    traits = Traits(
        kind="horovod",
        rank_variables=OPENMPI_RANKS,
        openmpi=True,
        packages=frozenset({"horovod"}),
        loads_libraries=True,
        ssh_shim=True,
    )

    def command(
        self, job: LaunchRequest, program: Sequence[str], node_rank: int
    ) -> tuple[str, ...]:
        """Leave out pml, btl, plm_rsh_args and btl_tcp_if_include, which Horovod writes itself.

        mpirun refuses a parameter that it is given twice. Horovod takes no `-F`: the `ssh` that
        stands first in the launcher's PATH adds the cluster's configuration.
        """
        settings = {
            "orte_keep_fqdn_hostnames": "1",
            "odls_base_sigkill_timeout": str(sigkill_timeout_s(job.grace_s)),
        }
        if len(job.placement.nodes) < LARGE:
            settings["plm_rsh_no_tree_spawn"] = "1"
        networks: tuple[str, ...] = ()
        if job.networks:
            settings["oob_tcp_if_include"] = ",".join(job.networks)
            # A NIC's name would have to be the same everywhere; Open MPI takes networks as well.
            networks = ("--network-interface", ",".join(job.networks))
        # It calls mpirun by name, and the daemons of the others are found beside an absolute one.
        mpi_args = ["--prefix", str(job.mpirun.parent.parent)]
        mpi_args += [word for name, value in settings.items() for word in ("-mca", name, value)]
        return (
            job.launcher.path or "horovodrun",
            *("-np", str(job.placement.world_size), "-H", hosts(job)),
            *("-p", str(job.ssh_port), *networks, "--disable-cache", "--mpi"),
            # A shell reads this value.
            f"--mpi-args={shlex.join((*mpi_args, *job.mpi_args))}",
            *program,
        )

    def path(self, job: LaunchRequest) -> tuple[PurePosixPath, ...]:
        """The folder of ascendboot's `ssh`, then that of mpirun."""
        return (job.base / "env" / "bin", *super().path(job))


LAUNCHER = Horovodrun()
