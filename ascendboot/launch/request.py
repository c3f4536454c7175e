"""LaunchRequest: what a job is to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ascendboot.model.cluster import MPIRUN, LauncherChoice, Placement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePosixPath


WITHIN_S: Final = 150
"""From the start until every rank has begun; `train` that follows the job gives up earlier."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """Who the job runs as, on every node."""

    user: str
    uid: int
    home: PurePosixPath


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """What is to be started, and where; paths are paths on the nodes."""

    job_id: str
    cluster: str
    placement: Placement
    base: PurePosixPath
    login: Login
    mpirun: PurePosixPath
    networks: tuple[str, ...]
    python: str
    script: PurePosixPath
    """Absolute path of the script; only its file name counts when `script_content` is given."""
    rank_table: PurePosixPath | None = None
    rank_table_sha256: str = ""
    chief: Mapping[str, str] = field(default_factory=dict)
    """`CM_…` for every rank, in place of a rank table: a job has the one or the other."""
    meeting: Mapping[str, str] = field(default_factory=dict)
    """`MASTER_ADDR` and `MASTER_PORT`, where PyTorch's ranks meet."""
    launcher: LauncherChoice = MPIRUN
    min_nodes: int | None = None
    """With so many of its nodes left an elastic job goes on; None: it needs them all."""
    ssh_port: int = 0
    """Of the cluster's own sshd; horovodrun is told it."""
    mpi_args: tuple[str, ...] = ()
    """More words for mpirun."""
    script_args: tuple[str, ...] = ()
    script_content: bytes | None = None
    """The script itself, to be copied into the job's folder on every node."""
    script_source: str = ""
    """Where it was read on the control machine; empty where it is not copied."""
    workdir: PurePosixPath | None = None
    """Where the ranks run; None: the folder of the script."""
    launcher_env: Mapping[str, str] = field(default_factory=dict)
    """Set for the launcher: `OMPI_MCA_…` and `LAUNCHER_NAMES`, nothing else; of the latter what a
    node has by itself counts before."""
    path: str = ""
    """The launcher's PATH, but for what goes before it; empty: the usual one."""
    alone: bool = True
    """Refused on nodes where another job runs, of whatever cluster."""
    grace_s: float = 3.0
    """How long ranks have between SIGTERM and SIGKILL."""
    begin_within_s: int = WITHIN_S
    """When not every rank has begun by then, its nodes end it; an elastic job has no such limit."""
    log_limit: int = 0
    """How many bytes of each log are kept; 0: all of them."""
    meeting_point: str = ""
    """ADDRESS/PORT on the primary that must be free; empty: not looked at."""
    notes: tuple[str, ...] = ()
    """What the job's report has to say of the time before the start."""
