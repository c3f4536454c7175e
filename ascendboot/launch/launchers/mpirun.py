"""The command line of Open MPI 4's `mpirun` for one job."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePosixPath

_COLONS = re.compile(r"%*:")


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """How `mpirun` is to be called on a cluster, whatever the job."""

    path: PurePosixPath
    """Absolute: so the daemons of the other nodes are found beside it, whatever their PATH."""
    ssh_config: PurePosixPath
    hosts: tuple[tuple[str, int], ...]
    """Address and number of ranks per node, in rank order."""
    networks: tuple[str, ...]
    """Networks between the nodes as CIDRs: interface names differ from node to node."""
    grace_s: float
    as_root: bool
    mpi_args: tuple[str, ...] = ()
    """The inventory's own words."""


def mpirun_command(launcher: Launcher, program: Sequence[str]) -> tuple[str, ...]:
    """The argv that runs `program` once per rank, ranks counted through the hosts in order.

    `program` must undo `protected` on its arguments.
    """
    hosts = ",".join(f"{address}:{slots}" for address, slots in launcher.hosts)
    return (
        str(launcher.path),
        *(("--allow-run-as-root",) if launcher.as_root else ()),
        *("-np", str(sum(slots for _, slots in launcher.hosts)), "-H", hosts),
        *("--bind-to", "none", "--map-by", "slot"),
        *_mca("plm_rsh_agent", "ssh"),
        *_mca("plm_rsh_args", f"-F {launcher.ssh_config}"),
        # Else "a.example.org" becomes "a" before ssh sees it.
        *_mca("orte_keep_fqdn_hostnames", "1"),
        # Only the primary holds the cluster's key: no other node may start a third.
        *_mca("plm_rsh_no_tree_spawn", "1"),
        *_mca("pml", "ob1"),
        *_mca("btl", "^openib"),
        *(_networks(launcher.networks) if launcher.networks else ()),
        *_mca("odls_base_sigkill_timeout", str(sigkill_timeout_s(launcher.grace_s))),
        *launcher.mpi_args,
        *("-x", "ASCENDBOOT_JOB_ID"),
        *program,
    )


def sigkill_timeout_s(grace_s: float) -> int:
    """How long Open MPI (4.1.4) is to wait, before SIGTERM and again between SIGTERM and SIGKILL.

    The wrapper on the nodes ends its rank before that. Each rank that ends meanwhile cuts what is
    left of a wait down to whole seconds, and the first to fail on a node does not stay.
    """
    return max(1, math.ceil(grace_s)) + 2


def protected(argument: str) -> str:
    """`argument` so that mpirun takes it as it is: a lone `:` would begin another program.

    The wrapper on the nodes removes the one `%` that is put before `:`, `%:`, `%%:` and so on.
    """
    return f"%{argument}" if _COLONS.fullmatch(argument) else argument


def _networks(cidrs: tuple[str, ...]) -> tuple[str, ...]:
    joined = ",".join(cidrs)
    return (*_mca("btl_tcp_if_include", joined), *_mca("oob_tcp_if_include", joined))


def _mca(name: str, value: str) -> tuple[str, str, str]:
    return ("--mca", name, value)
