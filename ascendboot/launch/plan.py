"""LaunchPlan: everything about the start of a job as one value, which is shown and then run."""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.errors import LaunchError
from ascendboot.launch.horovod import horovod_command
from ascendboot.launch.mpirun import Launcher, mpirun_command, protected
from ascendboot.launch.scripts import LAUNCH
from ascendboot.model.launcher import LauncherChoice
from ascendboot.transport.api import FileWrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.model.placement import Placement, Slot

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LAUNCHER_NAMES = ("LD_LIBRARY_PATH", "PYTHONPATH")
"""What horovodrun may need to load Horovod; no other variable of the ranks reaches a launcher."""

MPIRUN = LauncherChoice("nothing else was asked for")
LAUNCHER_LOG = "launcher.log"


def rank_log(rank: int) -> str:
    """Name of a rank's log, on its node and on the operator's side."""
    return f"rank.{rank}.log"


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
    launcher: LauncherChoice = MPIRUN
    ssh_port: int = 0
    """Of the cluster's own sshd; horovodrun is told it."""
    mpi_args: tuple[str, ...] = ()
    """More words for mpirun."""
    script_args: tuple[str, ...] = ()
    script_content: bytes | None = None
    """The script itself, to be copied into the job's folder on every node."""
    workdir: PurePosixPath | None = None
    """Where the ranks run; None: the folder of the script."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Set for the ranks of this job, over what the node's own environment file says."""
    launcher_env: Mapping[str, str] = field(default_factory=dict)
    """Set for the launcher: `OMPI_MCA_…` and `LAUNCHER_NAMES`, nothing else."""
    grace_s: float = 3.0
    """How long ranks have between SIGTERM and SIGKILL."""


@dataclass(frozen=True)
class PlannedRank:
    """One rank and its place."""

    rank: int
    node: str
    device_id: int
    local_rank: int


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A job ready to be started: the run does exactly this."""

    job_id: str
    cluster: str
    base: PurePosixPath
    nodes: tuple[str, ...]
    """In rank order: the primary first."""
    ranks: tuple[PlannedRank, ...]
    command: tuple[str, ...]
    """The launcher's argv, run on the primary."""
    env: Mapping[str, str]
    """The launcher's whole environment."""
    files: tuple[tuple[str, FileWrite], ...]
    """What is written before the start, with the node it is written on."""
    mpirun: PurePosixPath
    python: str
    script: PurePosixPath
    workdir: PurePosixPath
    grace_s: float
    rank_table: PurePosixPath | None = None
    rank_table_sha256: str = ""
    launcher: LauncherChoice = MPIRUN
    meeting_point: str = ""
    """ADDRESS/PORT on the primary where ranks without a rank table meet."""

    @property
    def primary(self) -> str:
        """The node from which the job is started."""
        return self.nodes[0]

    @property
    def job_folder(self) -> PurePosixPath:
        """The job's folder on every node."""
        return self.base / "jobs" / self.job_id

    @property
    def command_line(self) -> str:
        """What a person can paste into a shell of the primary to start the same job."""
        return f"cd {shlex.quote(str(self.base))} && {shlex.join(_clean(self.env, self.command))}"

    def ranks_on(self, node: str) -> tuple[PlannedRank, ...]:
        """The ranks of one node, ascending."""
        return tuple(rank for rank in self.ranks if rank.node == node)

    def files_on(self, node: str) -> tuple[FileWrite, ...]:
        """The files to be written on one node."""
        return tuple(file for name, file in self.files if name == node)

    def logs_on(self, node: str) -> tuple[str, ...]:
        """Names of the logs in the job's folder of one node."""
        ranks = tuple(rank_log(rank.rank) for rank in self.ranks_on(node))
        return (*ranks, LAUNCHER_LOG) if node == self.primary else ranks

    def describe(self) -> str:
        """The plan for a person."""
        lines = [f"job {self.job_id}: {len(self.ranks)} ranks on {len(self.nodes)} nodes"]
        for node in self.nodes:
            ranks = self.ranks_on(node)
            devices = ",".join(str(rank.device_id) for rank in ranks)
            lines.append(f"  {node}: ranks {ranks[0].rank}-{ranks[-1].rank} on devices {devices}")
        lines += ["files:", *(f"  {node}: {_shown(file)}" for node, file in self.files)]
        lines += ["environment of the launcher:"]
        lines += [f"  {name}={value}" for name, value in self.env.items()]
        lines.append(f"launcher: {self.launcher.words}")
        return "\n".join((*lines, f"command, on {self.primary}:", f"  {self.command_line}"))

    def to_json(self) -> dict[str, object]:
        """The plan as documented in the reference of `train --plan --json`."""
        return {
            "job_id": self.job_id,
            "cluster": self.cluster,
            "primary": self.primary,
            "folder": str(self.job_folder),
            "workdir": str(self.workdir),
            "launcher": {"name": self.launcher.name, "why": self.launcher.why},
            "command": list(self.command),
            "command_line": self.command_line,
            "env": dict(self.env),
            "ranks": [
                {"rank": r.rank, "node": r.node, "device": r.device_id, "local_rank": r.local_rank}
                for r in self.ranks
            ],
            "files": [
                {
                    "node": node,
                    "path": str(file.path),
                    "mode": f"{file.mode:04o}",
                    "bytes": len(file.content),
                    "sha256": hashlib.sha256(file.content).hexdigest(),
                }
                for node, file in self.files
            ],
        }


def plan(request: LaunchRequest) -> LaunchPlan:
    """The launch that `request` asks for.

    Raises:
        LaunchError: the request cannot be carried out, whatever the nodes look like.
    """
    _refuse_impossible(request)
    folder = request.base / "jobs" / request.job_id
    copied = request.script_content is not None
    script = folder / "code" / request.script.name if copied else request.script
    workdir = request.workdir or script.parent
    ranks = tuple(
        PlannedRank(rank, slot.node.name, slot.device_id, slot.local_rank)
        for rank, slot in enumerate(request.placement.slots)
    )
    command = _command(request, _program(request, script, workdir, ranks))
    env = _launcher_env(request)
    nodes = tuple(node.name for node in request.placement.nodes)
    return LaunchPlan(
        job_id=request.job_id,
        cluster=request.cluster,
        base=request.base,
        nodes=nodes,
        ranks=ranks,
        command=command,
        env=env,
        files=_files(request, nodes, ranks, shlex.join(_clean(env, command))),
        mpirun=request.mpirun,
        python=request.python,
        script=script,
        workdir=workdir,
        rank_table=request.rank_table,
        rank_table_sha256=request.rank_table_sha256,
        grace_s=request.grace_s,
        launcher=request.launcher,
        meeting_point="/".join(
            request.chief[name] for name in ("CM_CHIEF_IP", "CM_CHIEF_PORT") if request.chief
        ),
    )


def _refuse_impossible(request: LaunchRequest) -> None:
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
    if bool(request.rank_table) == bool(request.chief):
        raise LaunchError(
            f"job {request.job_id}: could not be planned: ranks learn of each other by a rank "
            "table or by CM_ variables, one of the two"
        )
    for name in (*request.env, *request.launcher_env):
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


def _in_mpirun_order(placement: Placement) -> Iterator[Slot]:
    return (slot for node in placement.nodes for slot in placement.on(node))


def _command(request: LaunchRequest, program: tuple[str, ...]) -> tuple[str, ...]:
    horovodrun = request.launcher.horovodrun
    if horovodrun is None:
        return mpirun_command(_launcher(request), program)
    path = PurePosixPath(horovodrun)
    return horovod_command(_launcher(request), path, request.ssh_port, program)


def _launcher(request: LaunchRequest) -> Launcher:
    placement = request.placement
    return Launcher(
        path=request.mpirun,
        ssh_config=request.base / "trust" / "ssh_config",
        hosts=tuple((node.cluster_address, len(placement.on(node))) for node in placement.nodes),
        networks=request.networks,
        grace_s=request.grace_s,
        as_root=request.login.uid == 0,
        mpi_args=request.mpi_args,
    )


def _program(
    request: LaunchRequest,
    script: PurePosixPath,
    workdir: PurePosixPath,
    ranks: tuple[PlannedRank, ...],
) -> tuple[str, ...]:
    settings = {
        **request.env,
        **({"RANK_TABLE_FILE": str(request.rank_table)} if request.rank_table else request.chief),
        "ASCENDBOOT_DEVICES": ",".join(str(rank.device_id) for rank in ranks),
        "ASCENDBOOT_WORKDIR": str(workdir),
    }
    return (
        str(request.base / "env" / "rank-exec"),
        request.job_id,
        *(f"{name}={value}" for name, value in settings.items()),
        "--",
        *(protected(word) for word in (request.python, str(script), *request.script_args)),
    )


def _launcher_env(request: LaunchRequest) -> dict[str, str]:
    shim = f"{request.base / 'env' / 'bin'}:" if request.launcher.horovodrun else ""
    return {
        "PATH": f"{shim}{request.mpirun.parent}:{_PATH}",
        "HOME": str(request.login.home),
        "USER": request.login.user,
        "LOGNAME": request.login.user,
        "LANG": "C.UTF-8",
        "ASCENDBOOT_JOB_ID": request.job_id,
        **request.launcher_env,
    }


def _clean(env: Mapping[str, str], command: tuple[str, ...]) -> tuple[str, ...]:
    return ("env", "-i", *(f"{name}={value}" for name, value in env.items()), *command)


def _files(
    request: LaunchRequest, nodes: tuple[str, ...], ranks: tuple[PlannedRank, ...], words: str
) -> tuple[tuple[str, FileWrite], ...]:
    folder = request.base / "jobs" / request.job_id
    files: list[tuple[str, FileWrite]] = []
    for node in nodes:
        places = "".join(
            f"rank {r.rank} device {r.device_id} local {r.local_rank}\n"
            for r in ranks
            if r.node == node
        )
        files.append((node, FileWrite(folder / "ranks", places.encode(), 0o644)))
        if request.script_content is not None:
            path = folder / "code" / request.script.name
            files.append((node, FileWrite(path, request.script_content, 0o644)))
    quoted_folder, quoted_base = shlex.quote(str(folder)), shlex.quote(str(request.base))
    head = f"#!/bin/bash\njob={quoted_folder}\nlauncher() {{ cd {quoted_base} && exec {words}; }}"
    launch = f"{head}{LAUNCH}"
    files.append((nodes[0], FileWrite(folder / "launch.sh", launch.encode(), 0o700)))
    return tuple(files)


def _shown(file: FileWrite) -> str:
    return f"{file.path} ({len(file.content)} bytes, mode {file.mode:04o})"
