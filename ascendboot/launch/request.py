"""LaunchRequest: a job to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ascendboot.model.cluster import MPIRUN, LauncherChoice, Placement


@dataclass(frozen=True, kw_only=True)
class Login:
    """The user of the job on every node."""

    user: str
    uid: int
    home: PurePosixPath


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """A job to start; paths are paths on the nodes."""

    job_id: str
    cluster: str
    placement: Placement
    base: PurePosixPath
    login: Login
    mpirun: PurePosixPath
    networks: tuple[str, ...]
    python: str
    script: PurePosixPath
    """Absolute path of the script; only its file name counts with `script_content`."""
    rank_table: PurePosixPath | None = None
    rank_table_sha256: str = ""
    chief: Mapping[str, str] = field(default_factory=dict)
    """`CM_…` for every rank, instead of a rank table."""
    meeting: Mapping[str, str] = field(default_factory=dict)
    """`MASTER_ADDR` and `MASTER_PORT`, where PyTorch's ranks meet."""
    launcher: LauncherChoice = MPIRUN
    min_nodes: int | None = None
    """An elastic job continues while this many nodes are left; None: it needs all nodes."""
    ssh_port: int = 0
    """Of the cluster's own sshd, for horovodrun."""
    mpi_args: tuple[str, ...] = ()
    """More words for mpirun."""
    script_args: tuple[str, ...] = ()
    script_content: bytes | None = None
    """A script that is copied into the job's folder on every node."""
    script_source: str = ""
    """Where it is on the control machine; empty if it is not copied."""
    workdir: PurePosixPath | None = None
    """Where the ranks run; None: the folder of the script."""
    launcher_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the launcher: only `OMPI_MCA_…` and `LAUNCHER_NAMES`. A node's own values of the
    latter override them."""
    path: str = ""
    """The launcher's PATH, after the folders that it adds itself; empty: the usual one."""
    alone: bool = True
    """Refuse nodes on which another job runs, also one of another cluster."""
    grace_s: float = 3.0
    """The time between SIGTERM and SIGKILL."""
    begin_within_s: int = 150
    """After this time nodes end a start in which not every rank has begun, except in elastic jobs.
    `train` gives up earlier."""
    log_limit: int = 0
    """Bytes kept of each log; 0: all of them."""
    meeting_point: str = ""
    """ADDRESS/PORT on the primary that must be free; empty: not checked."""
    notes: tuple[str, ...] = ()
    """Notes about the time before the start, for the report."""
