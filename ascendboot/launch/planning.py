"""From a LaunchRequest to the LaunchPlan: commands, environment and files of a job; pure."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.launch.horovod import horovod_command
from ascendboot.launch.mpirun import Launcher, mpirun_command, protected
from ascendboot.launch.plan import LaunchPlan, PlannedRank, Start
from ascendboot.launch.request import refuse_impossible
from ascendboot.launch.scripts import LAUNCH
from ascendboot.transport.api import FileWrite

if TYPE_CHECKING:
    from ascendboot.launch.request import LaunchRequest

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def plan(request: LaunchRequest) -> LaunchPlan:
    """The launch that `request` asks for.

    Raises:
        LaunchError: the request cannot be carried out, whatever the nodes look like.
    """
    refuse_impossible(request)
    folder = request.base / "jobs" / request.job_id
    copied = request.script_content is not None
    script = folder / "code" / request.script.name if copied else request.script
    workdir = request.workdir or script.parent
    ranks = tuple(
        PlannedRank(rank, slot.node.name, slot.device_id, slot.local_rank)
        for rank, slot in enumerate(request.placement.slots)
    )
    starts = _starts(request, _program(request, script, workdir, ranks))
    nodes = tuple(node.name for node in request.placement.nodes)
    return LaunchPlan(
        job_id=request.job_id,
        cluster=request.cluster,
        base=request.base,
        nodes=nodes,
        ranks=ranks,
        starts=starts,
        files=_files(request, nodes, ranks, starts),
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


def _starts(request: LaunchRequest, program: tuple[str, ...]) -> tuple[Start, ...]:
    """Mpirun and horovodrun are started on the primary, and reach the other nodes themselves."""
    launcher = Start(
        node=request.placement.primary.name,
        node_rank=0,
        base=request.base,
        command=_command(request, program),
        env=_launcher_env(request),
    )
    return (launcher,)


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
        "PATH": f"{shim}{request.mpirun.parent}:{request.path or _PATH}",
        "HOME": str(request.login.home),
        "USER": request.login.user,
        "LOGNAME": request.login.user,
        "LANG": "C.UTF-8",
        "ASCENDBOOT_JOB_ID": request.job_id,
        **request.launcher_env,
    }


def _files(
    request: LaunchRequest,
    nodes: tuple[str, ...],
    ranks: tuple[PlannedRank, ...],
    starts: tuple[Start, ...],
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
    files += [
        (start.node, FileWrite(folder / "launch.sh", _launch_script(folder, start).encode(), 0o700))
        for start in starts
    ]
    return tuple(files)


def _launch_script(folder: PurePosixPath, start: Start) -> str:
    quoted_folder, quoted_base = shlex.quote(str(folder)), shlex.quote(str(start.base))
    head = (
        f"#!/bin/bash\njob={quoted_folder} log={start.log}\n"
        f"launcher() {{ cd {quoted_base} && exec {start.words}; }}"
    )
    return f"{head}{LAUNCH}"
