"""From a LaunchRequest to the LaunchPlan: commands, environment and files of a job; pure."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.launch.events import ENDING
from ascendboot.launch.launchers.horovodrun import horovod_command
from ascendboot.launch.launchers.mpirun import Launcher, mpirun_command, protected
from ascendboot.launch.launchers.torchrun import (
    StaticRendezvous,
    Torchrun,
    torchrun_command,
    torchrun_env,
)
from ascendboot.launch.plan import TORCH_LOGS, LaunchPlan, PlannedRank, Start
from ascendboot.launch.request import refuse_impossible
from ascendboot.model.cluster import LAUNCHER_NAMES
from ascendboot.templates import script as shell_script
from ascendboot.transport.api import FileWrite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.launch.launchers.torchrun import Rendezvous
    from ascendboot.launch.request import LaunchRequest
    from ascendboot.model.cluster import Node

_NODE_LOSS = {
    "OMPI_MCA_oob_tcp_keepalive_time": "10",
    "OMPI_MCA_oob_tcp_keepalive_intvl": "5",
    "OMPI_MCA_oob_tcp_keepalive_probes": "3",
}
"""Within 25 s Open MPI sees that a node has lost its power; by itself (4.1) it takes 480."""
_LISTENERS = {"OMPI_MCA_btl_ofi_provider_include": "none"}
"""Else each rank of Open MPI (4.1) listens for libfabric too, on whatever network it finds first;
pml ob1 has no use for that."""
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
        PlannedRank(rank, slot.node.name, slot.device_id, slot.local_rank, slot.device_ip)
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
        mpirun=None if request.launcher.torchrun else request.mpirun,
        python=request.python,
        script=script,
        workdir=workdir,
        script_source=request.script_source,
        rank_table=request.rank_table,
        rank_table_sha256=request.rank_table_sha256,
        addresses={
            node.name: (node.name, node.address, node.cluster_address, node.server_id)
            for node in request.placement.nodes
        },
        grace_s=request.grace_s,
        alone=request.alone,
        launcher=request.launcher,
        min_nodes=request.min_nodes,
        meeting_point=request.meeting_point,
        notes=request.notes,
        log_limit=request.log_limit,
    )


def _starts(request: LaunchRequest, program: tuple[str, ...]) -> tuple[Start, ...]:
    """Torchrun is started on every node; mpirun and horovodrun reach the others themselves."""
    base = request.base
    if not request.launcher.torchrun:
        primary = request.placement.primary
        command, env = _command(request, program), _launcher_env(request, primary)
        return (Start(node=primary.name, node_rank=0, base=base, command=command, env=env),)
    torchrun, bond = _torchrun(request), _rendezvous(request)
    return tuple(
        Start(
            node=node.name,
            node_rank=node_rank,
            base=base,
            command=torchrun_command(torchrun, bond, node_rank, program),
            env={
                **torchrun_env(_launcher_env(request, node), torchrun.ranks[node_rank]),
                **bond.env(torchrun, node_rank),
            },
        )
        for node_rank, node in enumerate(request.placement.nodes)
    )


def _rendezvous(request: LaunchRequest) -> Rendezvous:
    if request.min_nodes is None:
        return StaticRendezvous()
    from ascendboot.launch.launchers.torchrun import ElasticRendezvous  # noqa: PLC0415 - only if asked for

    return ElasticRendezvous(request.min_nodes)


def _torchrun(request: LaunchRequest) -> Torchrun:
    placement = request.placement
    return Torchrun(
        python=request.python,
        job_id=request.job_id,
        log_dir=request.base / "jobs" / request.job_id / TORCH_LOGS,
        master_addr=request.meeting["MASTER_ADDR"],
        master_port=int(request.meeting["MASTER_PORT"]),
        ranks=tuple(len(placement.on(node)) for node in placement.nodes),
    )


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
        **({} if request.launcher.torchrun else request.meeting),
        **({"RANK_TABLE_FILE": str(request.rank_table)} if request.rank_table else request.chief),
        "ASCENDBOOT_DEVICES": ",".join(str(rank.device_id) for rank in ranks),
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


def _launcher_env(request: LaunchRequest, node: Node) -> dict[str, str]:
    loads_libraries = request.launcher.horovodrun or request.launcher.torchrun
    names = LAUNCHER_NAMES if loads_libraries else ()
    shim = f"{request.base / 'env' / 'bin'}:" if request.launcher.horovodrun else ""
    mpi = "" if request.launcher.torchrun else f"{request.mpirun.parent}:"
    return {
        "PATH": f"{shim}{mpi}{request.path or _PATH}",
        "HOME": str(request.login.home),
        "USER": request.login.user,
        "LOGNAME": request.login.user,
        "LANG": "C.UTF-8",
        "ASCENDBOOT_JOB_ID": request.job_id,
        # ssh hands SHLVL on: without it bash reads ~/.bashrc of the other nodes.
        **({} if request.launcher.torchrun else {"SHLVL": "1", **_NODE_LOSS, **_LISTENERS}),
        **request.launcher_env,
        **{name: node.env[name] for name in names if name in node.env},
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
    for start in starts:
        script = _launch_script(request, folder, start)
        files.append((start.node, FileWrite(folder / "launch.sh", _encoded(script), 0o700)))
        if start.node_rank:
            watch = _watch_script(request, folder, start)
            files.append((start.node, FileWrite(folder / "watch.sh", _encoded(watch), 0o700)))
            files.append((start.node, FileWrite(folder / "watched", b"", 0o644)))
    return tuple(files)


def _encoded(script: str) -> bytes:
    # An argument or a file's name need be no text: its bytes get there as they are.
    return script.encode(errors="surrogateescape")


def _launch_script(request: LaunchRequest, folder: PurePosixPath, start: Start) -> str:
    """What is started on a node, and what stays beside it and records its end."""
    who = f"agent {start.node_rank}" if start.node_rank else "launcher -"
    kept = {"job": str(folder), "base": str(request.base), "limit": str(request.log_limit)}
    head = f"#!/bin/bash\numask go-w\n{_assigned(kept)} log={start.log} who='{who}'\n"
    run = f"{{ cd {shlex.quote(str(start.base))} && exec {start.words}; }}"
    others = () if start.node_rank else request.placement.nodes[1:]
    addresses = shlex.join(node.cluster_address for node in others)
    if not request.launcher.torchrun:
        settings = {
            "grace": _tenths(request.grace_s),
            "within": str(request.begin_within_s),
        }
        started = f"{_assigned(settings)}\naddresses=({addresses})\nlauncher() {run}"
        return (
            f"{head}{started}\n{shell_script('launch-single.sh')}{shell_script('launch-start.sh')}"
        )
    settings = {
        "grace": _tenths(request.grace_s),
        "watch": shlex.quote(str(folder / "watch.sh")),
        "is_watched": "1" if start.node_rank else "",
        "ending": ENDING,
        # The agents of an elastic job wait longer for each other.
        "within": str(request.begin_within_s) if request.min_nodes is None else "",
    }
    names = shlex.join(node.name for node in others)
    minding = f"{_assigned(settings)}\nnodes=({names}) addresses=({addresses})\nagent() {run}"
    parts = (shell_script(name) for name in ("supervise.sh", "launch-start.sh"))
    return f"{head}{minding}\n{_rendezvous(request).supervision()}{''.join(parts)}"


def _watch_script(request: LaunchRequest, folder: PurePosixPath, start: Start) -> str:
    """What the primary runs on another node to learn how torchrun is there."""
    settings = {
        "job": str(folder),
        "grace": _tenths(request.grace_s),
        "node": start.node,
    }
    minding, watch = _rendezvous(request).supervision(), shell_script("supervise-watch.sh")
    return f"#!/bin/bash\numask go-w\n{_assigned(settings)}\n{minding}{watch}"


def _assigned(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())


def _tenths(seconds: float) -> str:
    return str(round(seconds * 10))
