"""From a LaunchRequest to the LaunchPlan: commands, environment and files of a job; pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import PurePosixPath

from ascendboot.errors import LaunchError
from ascendboot.launch.launchers import LAUNCHERS, Launcher
from ascendboot.launch.launchers.mpirun import protected
from ascendboot.launch.plan import LaunchPlan, LaunchRequest, PlannedRank, Start
from ascendboot.templates import script as shell_script
from ascendboot.transport.api import FileWrite

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def plan(request: LaunchRequest) -> LaunchPlan:
    """Return the launch that `request` describes."""
    _refuse_impossible(request)
    copied = request.script_content is not None
    script = request.folder / "code" / request.script.name if copied else request.script
    workdir = request.workdir or script.parent
    ranks = tuple(
        PlannedRank(rank, slot.node.name, slot.device_id, slot.local_rank, slot.device_ip)
        for rank, slot in enumerate(request.placement.slots)
    )
    launcher = LAUNCHERS[request.launcher.kind]
    program = _program(request, launcher, script, workdir)
    nodes = request.placement.nodes
    starts = tuple(
        Start(
            node=node.name,
            node_rank=node_rank,
            base=request.base,
            command=launcher.command(request, program, node_rank),
            env=_launcher_env(request, launcher, node_rank),
        )
        for node_rank, node in enumerate(nodes if launcher.traits.on_every_node else nodes[:1])
    )
    return LaunchPlan(
        request=request,
        job_id=request.job_id,
        cluster=request.cluster,
        job_folder=request.folder,
        nodes=tuple(node.name for node in nodes),
        ranks=ranks,
        started_on=tuple(start.node for start in starts),
        starts=starts,
        files=_files(request, launcher, ranks, starts),
        mpirun=request.mpirun if launcher.traits.openmpi else None,
        command_line=starts[0].command_line,
        script={"path": str(script), "copied_from": request.script_source or None},
        launcher_kind=request.launcher.kind,
        python=request.python,
        workdir=workdir,
        addresses={n.name: (n.name, n.address, n.cluster_address, n.server_id) for n in nodes},
        grace_s=request.grace_s,
        notes=request.notes,
        log_limit=request.log_limit,
        loss_form=request.loss_form,
    )


def _program(
    request: LaunchRequest, launcher: Launcher, script: PurePosixPath, workdir: PurePosixPath
) -> tuple[str, ...]:
    settings = {
        "ASCENDBOOT_RANK_VARIABLES": ",".join(launcher.traits.rank_variables),
        **({"ASCENDBOOT_SPREADS_FAILURE": "1"} if launcher.traits.spreads_failure else {}),
        **({} if launcher.traits.sets_meeting else request.meeting),
        **({"RANK_TABLE_FILE": str(request.rank_table)} if request.rank_table else request.chief),
        **request.variables,
        "ASCENDBOOT_DEVICES": ",".join(str(slot.device_id) for slot in request.placement.slots),
        "ASCENDBOOT_WORKDIR": str(workdir),
        "ASCENDBOOT_GRACE": f"{request.grace_s:.1f}",
        **({"ASCENDBOOT_LOG_LIMIT": str(request.log_limit)} if request.log_limit else {}),
    }
    return (
        str(request.base / "env" / "rank-exec"),
        request.job_id,
        *(f"{name}={value}" for name, value in settings.items()),
        "--",
        *(protected(word) for word in (request.python, str(script), *request.script_args)),
    )


def _launcher_env(request: LaunchRequest, launcher: Launcher, node_rank: int) -> dict[str, str]:
    names = launcher.traits.library_names
    of_node = request.placement.nodes[node_rank].env
    return {
        "PATH": ":".join((*map(str, launcher.path(request)), request.path or _PATH)),
        "HOME": str(request.login.home),
        "USER": request.login.user,
        "LOGNAME": request.login.user,
        "LANG": "C.UTF-8",
        "ASCENDBOOT_JOB_ID": request.job_id,
        **launcher.env(request, node_rank),
        **request.launcher_env,
        **{name: of_node[name] for name in names if name in of_node},
    }


def _files(
    request: LaunchRequest,
    launcher: Launcher,
    ranks: tuple[PlannedRank, ...],
    starts: tuple[Start, ...],
) -> tuple[tuple[str, FileWrite], ...]:
    folder = request.folder
    files: list[tuple[str, FileWrite]] = []
    for node_rank, node in enumerate(request.placement.nodes):
        own = [r for r in ranks if r.node == node.name]
        places = (f"rank {r.rank} device {r.device_id} local {r.local_rank}" for r in own)
        lists: dict[str, Iterable[object]] = {"ranks": places}
        if request.lists_devices:
            slots = [request.placement.slots[r.rank] for r in own]
            lists["devices"] = dict.fromkeys(i for s in slots for i in (s.device_id, *s.others))
        if request.master_index is not None:
            # The names are those of the vendor's rank-table routing; rank-exec exports them.
            lists |= {"RANK_AFTER_ACC": [node_rank], "MASTER_INDEX": [request.master_index]}
        texts = {name: "".join(f"{line}\n" for line in lines) for name, lines in lists.items()}
        made = [FileWrite(folder / name, text.encode(), 0o644) for name, text in texts.items()]
        if request.script_content is not None:
            path = folder / "code" / request.script.name
            made.append(FileWrite(path, request.script_content, 0o644))
        files += ((node.name, file) for file in (*made, *request.files))
    for start in starts:
        # Arguments and file names may be no valid text: their bytes are passed on unchanged.
        text = _launch_script(request, launcher, start).encode(errors="surrogateescape")
        files.append((start.node, FileWrite(folder / "launch.sh", text, 0o700)))
        files += ((start.node, file) for file in launcher.files(request, start.node_rank))
    return tuple(files)


def _launch_script(request: LaunchRequest, launcher: Launcher, start: Start) -> str:
    """Return the script that runs the launcher on a node and records its end."""
    settings = {
        "job": str(request.folder),
        "base": str(request.base),
        "limit": str(request.log_limit),
        "log": start.log,
        "who": f"agent {start.node_rank}" if start.node_rank else "launcher -",
        "grace": str(round(request.grace_s * 10)),
        "within": str(request.begin_within_s),
    }
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
    others = () if start.node_rank else request.placement.nodes[1:]
    names = shlex.join(node.name for node in others)
    addresses = shlex.join(node.cluster_address for node in others)
    return (
        f"#!/bin/bash\numask go-w\n{assigned}\n"
        f"nodes=({names}) addresses=({addresses})\n"
        f"run() {{ cd {shlex.quote(str(start.base))} && exec {start.words}; }}\n"
        f"{launcher.functions(request, start.node_rank)}{shell_script('launch-start.sh')}"
    )


def _refuse_impossible(request: LaunchRequest) -> None:
    job, placement = f"job {request.job_id}: could not be planned", request.placement
    if len(str(request.base).split()) != 1:
        raise LaunchError(
            f'{job}: the folder "{request.base}" has white space in its path, and Open MPI accepts '
            "none in the path of ssh's configuration; use another user, whose home has none"
        )
    ranks = [rank for node in placement.nodes for rank in placement.ranks_on(node)]
    if ranks != list(range(placement.world_size)):
        raise LaunchError(
            f"{job}: the ranks of a node are not consecutive, and launchers number all ranks of a "
            "node before those of the next; correct the rank table"
        )
