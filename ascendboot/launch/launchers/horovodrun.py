"""The command line of `horovodrun` for one job; it becomes an mpirun itself."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ascendboot.launch.launchers.mpirun import sigkill_timeout_s

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePosixPath

    from ascendboot.launch.launchers.mpirun import Launcher

LARGE = 64
"""From so many hosts on Horovod (0.28.1, mpi_run.py) turns tree spawn off by itself."""


def horovod_command(
    launcher: Launcher, horovodrun: PurePosixPath, port: int, program: Sequence[str]
) -> tuple[str, ...]:
    """The argv that runs `program` once per rank through horovodrun.

    It writes pml, btl, plm_rsh_args and btl_tcp_if_include into the mpirun command by itself, and
    mpirun refuses a parameter that it is given twice. It takes no `-F`: the `ssh` that stands
    first in the launcher's PATH adds the cluster's configuration.
    """
    hosts = ",".join(f"{address}:{slots}" for address, slots in launcher.hosts)
    # A NIC's name would have to be the same everywhere; Open MPI takes networks as well.
    networks = ("--network-interface", ",".join(launcher.networks)) if launcher.networks else ()
    return (
        str(horovodrun),
        *("-np", str(sum(slots for _, slots in launcher.hosts)), "-H", hosts),
        *("-p", str(port), *networks, "--disable-cache", "--mpi"),
        # A shell reads this value.
        f"--mpi-args={shlex.join(_mpi_args(launcher))}",
        *program,
    )


def _mpi_args(launcher: Launcher) -> tuple[str, ...]:
    settings = {
        "orte_keep_fqdn_hostnames": "1",
        "odls_base_sigkill_timeout": str(sigkill_timeout_s(launcher.grace_s)),
    }
    if len(launcher.hosts) < LARGE:
        settings["plm_rsh_no_tree_spawn"] = "1"
    if launcher.networks:
        settings["oob_tcp_if_include"] = ",".join(launcher.networks)
    words = [word for name, value in settings.items() for word in ("-mca", name, value)]
    # It calls mpirun by name, and the daemons of the other nodes are found beside an absolute one.
    prefix = launcher.path.parent.parent
    return ("--prefix", str(prefix), *words, *launcher.mpi_args)
