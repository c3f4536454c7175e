"""LaunchRequest: what a job is to be, and why it cannot be that."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ascendboot.errors import LaunchError
from ascendboot.model.cluster import LAUNCHER_NAMES, MPIRUN, LauncherChoice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import PurePosixPath

    from ascendboot.model.cluster import Placement, Slot

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

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


def refuse_impossible(request: LaunchRequest) -> None:
    """Refuse what cannot be carried out, whatever the nodes look like.

    Raises:
        LaunchError: says why.
    """
    if not _JOB_ID.fullmatch(request.job_id):
        raise LaunchError(
            f'job: could not use "{request.job_id}" as its id: an id is 1 to 64 letters, digits, '
            '".", "_" or "-" and begins with a letter or digit'
        )
    if len(str(request.base).split()) != 1:
        raise LaunchError(
            f'job {request.job_id}: could not be planned: the folder "{request.base}" has white '
            "space in its path, and Open MPI takes no such path for ssh's configuration"
        )
    if tuple(_in_mpirun_order(request.placement)) != request.placement.slots:
        raise LaunchError(
            f"job {request.job_id}: could not be planned: the ranks of a node do not follow one "
            "another, and mpirun gives all ranks of a node before it goes to the next"
        )
    if request.rank_table and request.chief:
        raise LaunchError(
            f"job {request.job_id}: could not be planned: ranks learn of each other by a rank "
            "table or by CM_ variables, never by both"
        )
    by_meeting = request.launcher.torchrun or not (request.rank_table or request.chief)
    if by_meeting and set(request.meeting) != {"MASTER_ADDR", "MASTER_PORT"}:
        raise LaunchError(
            f"job {request.job_id}: could not be planned: it is not said where the ranks are to "
            "meet, by MASTER_ADDR and MASTER_PORT"
        )
    if request.min_nodes is not None:
        _refuse_elastic(request, request.min_nodes)
    _refuse_names(request)


def _refuse_names(request: LaunchRequest) -> None:
    for name in request.launcher_env:
        if not _NAME.fullmatch(name):
            raise LaunchError(
                f'job {request.job_id}: could not be planned: "{name}" is not the name of an '
                "environment variable"
            )
    for name in request.launcher_env:
        if not name.startswith("OMPI_MCA_") and name not in LAUNCHER_NAMES:
            raise LaunchError(
                f"job {request.job_id}: could not be planned: {name} is not for the launcher: it "
                "takes OMPI_MCA_…, LD_LIBRARY_PATH and PYTHONPATH only. Set it for the ranks"
            )


def _refuse_elastic(request: LaunchRequest, min_nodes: int) -> None:
    from ascendboot.launch.launchers.torchrun import why_not_elastic  # noqa: PLC0415 - only if asked for

    nodes, with_table = len(request.placement.nodes), request.rank_table is not None
    why_not = why_not_elastic(min_nodes, nodes, request.launcher, with_table=with_table)
    if why_not:
        raise LaunchError(f"job {request.job_id}: could not be elastic: {why_not}")


def _in_mpirun_order(placement: Placement) -> Iterator[Slot]:
    return (slot for node in placement.nodes for slot in placement.on(node))
