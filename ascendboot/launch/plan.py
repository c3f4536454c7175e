"""The plan of a job: ranks, commands, files; and its record on the nodes."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ascendboot.errors import AscendbootError
from ascendboot.model.cluster import MPIRUN, LauncherChoice, NodeClocks
from ascendboot.model.names import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.transport.api import FileWrite

LAUNCHER_LOG = "launcher.log"
TORCH_LOGS = "torchelastic"
"""Folder in the job's folder where torchrun keeps what scripts with `@record` say of their end."""


def rank_log(rank: int) -> str:
    """Name of a rank's log, on its node and on the operator's side."""
    return f"rank.{rank}.log"


def rank_marks(rank: int) -> str:
    """Name of the file in which a rank's node notes how long its log was by when."""
    return f"rank.{rank}.marks"


def start_log(node_rank: int) -> str:
    """Name of the log of what is started on a node: the launcher, or an agent beside it."""
    return f"agent.{node_rank}.log" if node_rank else LAUNCHER_LOG


@dataclass(frozen=True, kw_only=True)
class Start:
    """What is started on one node: the launcher on the primary, an agent of its on any other."""

    node: str
    node_rank: int
    base: PurePosixPath
    command: tuple[str, ...]
    env: Mapping[str, str]
    """The whole environment of the command."""

    @property
    def log(self) -> str:
        """Name of its log."""
        return start_log(self.node_rank)

    @property
    def words(self) -> str:
        """The command in its environment, quoted for a shell."""
        settings = (f"{name}={value}" for name, value in self.env.items())
        return shlex.join(("env", "-i", *settings, *self.command))

    @property
    def command_line(self) -> str:
        """What a person can paste into a shell of the node to start the same."""
        return f"cd {shlex.quote(str(self.base))} && {self.words}"


@dataclass(frozen=True)
class PlannedRank:
    """One rank and its place."""

    rank: int
    node: str
    device_id: int
    local_rank: int
    device_ip: str | None = None
    """Of its device, where it is known."""


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A job ready to be started: the run does exactly this."""

    job_id: str
    cluster: str
    base: PurePosixPath
    nodes: tuple[str, ...]
    """In rank order: the primary first."""
    ranks: tuple[PlannedRank, ...]
    starts: tuple[Start, ...]
    """What ascendboot starts, the primary's first: the launcher starts the ranks of all nodes that
    have no start of their own."""
    files: tuple[tuple[str, FileWrite], ...]
    """What is written before the start, with the node it is written on."""
    mpirun: PurePosixPath | None
    """None where nothing of Open MPI takes part."""
    python: str
    script: PurePosixPath
    workdir: PurePosixPath
    grace_s: float
    script_source: str = ""
    """As `LaunchRequest.script_source`."""
    rank_table: PurePosixPath | None = None
    rank_table_sha256: str = ""
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By node, what it is called in what ranks write: addresses, `server_id`, its name."""
    launcher: LauncherChoice = MPIRUN
    min_nodes: int | None = None
    """As `LaunchRequest.min_nodes`."""
    alone: bool = True
    """No other job may run on its nodes."""
    meeting_point: str = ""
    """As `LaunchRequest.meeting_point`."""
    notes: tuple[str, ...] = ()
    """As `LaunchRequest.notes`."""
    log_limit: int = 0
    """How many bytes of each log are kept on its node, and as many here; 0: all of them."""

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
        """What a person can paste into a shell of the primary to start the same."""
        return self.starts[0].command_line

    @property
    def script_words(self) -> str:
        """Which script runs, and where it comes from."""
        if self.script_source:
            return f"script: {self.script}, copied from {self.script_source} on the control machine"
        return f"script: {self.script}, found under code.path on the nodes"

    @property
    def script_json(self) -> dict[str, str | None]:
        """The same for `--json`."""
        return {"path": str(self.script), "copied_from": self.script_source or None}

    def ranks_on(self, node: str) -> tuple[PlannedRank, ...]:
        """The ranks of one node, ascending."""
        return tuple(rank for rank in self.ranks if rank.node == node)

    def files_on(self, node: str) -> tuple[FileWrite, ...]:
        """The files to be written on one node."""
        return tuple(file for name, file in self.files if name == node)

    def logs_on(self, node: str) -> tuple[str, ...]:
        """Names of the logs in the job's folder of one node."""
        ranks = (rank_log(rank.rank) for rank in self.ranks_on(node))
        return (*ranks, *(start.log for start in self.starts if start.node == node))

    def describe(self) -> str:
        """The plan for a person."""
        size = f"{counted(len(self.ranks), 'rank')} on {counted(len(self.nodes), 'node')}"
        lines = [f"job {self.job_id}: {size}"]
        for node in self.nodes:
            ranks = self.ranks_on(node)
            devices = ",".join(str(rank.device_id) for rank in ranks)
            lines.append(f"  {node}: ranks {ranks[0].rank}-{ranks[-1].rank} on devices {devices}")
        lines.append(self.script_words)
        lines += ["files:", *(f"  {node}: {_shown(file)}" for node, file in self.files)]
        lines += ["environment of the launcher:"]
        lines += [f"  {name}={value}" for name, value in self.starts[0].env.items()]
        lines.append(f"launcher: {self.launcher.words}")
        if self.min_nodes is not None:
            lines.append(f"elastic: goes on as long as {self.min_nodes} of its nodes are left")
        for start in self.starts:
            lines += [f"command, on {start.node}:", f"  {start.command_line}"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The plan as documented in the reference of `train --plan --json`."""
        return {
            "job_id": self.job_id,
            "cluster": self.cluster,
            "primary": self.primary,
            "folder": str(self.job_folder),
            "workdir": str(self.workdir),
            "script": self.script_json,
            "launcher": {"name": self.launcher.name, "why": self.launcher.why},
            "min_nodes": self.min_nodes,
            "log_limit": self.log_limit,
            "command": list(self.starts[0].command),
            "command_line": self.command_line,
            "env": dict(self.starts[0].env),
            "starts": [
                {"node": s.node, "command": list(s.command), "log": s.log} for s in self.starts
            ],
            "addresses": {node: list(names) for node, names in self.addresses.items()},
            "ranks": [
                {
                    "rank": r.rank,
                    "node": r.node,
                    "device": r.device_id,
                    "local_rank": r.local_rank,
                    "device_ip": r.device_ip,
                }
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


def _shown(file: FileWrite) -> str:
    return f"{file.path} ({len(file.content)} bytes, mode {file.mode:04o})"


PLAN_FILE = "plan.json"
PREFLIGHT = "preflight"
"""Folder, in that of a run, of the preflight before its job."""


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job as its plan said it; the names are those of `LaunchPlan`."""

    job_id: str
    cluster: str
    job_folder: PurePosixPath
    nodes: tuple[str, ...]
    ranks: tuple[PlannedRank, ...]
    started_on: tuple[str, ...]
    """The nodes on which ascendboot started something: the launcher, or an agent of its."""
    command_line: str
    grace_s: float
    started: str
    """When it was about to be started, ISO 8601, UTC."""
    clocks: NodeClocks
    """As they stood then."""
    log_limit: int = 0
    """As `LaunchPlan.log_limit`."""
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """As `LaunchPlan.addresses`."""
    notes: tuple[str, ...] = ()
    """As `LaunchPlan.notes`."""
    script_json: Mapping[str, str | None] | None = None
    """As `LaunchPlan.script_json`."""

    @property
    def primary(self) -> str:
        """The node from which the job was started."""
        return self.nodes[0]

    def ranks_on(self, node: str) -> tuple[PlannedRank, ...]:
        """The ranks of one node, ascending."""
        return tuple(rank for rank in self.ranks if rank.node == node)

    def logs_on(self, node: str) -> tuple[str, ...]:
        """Names of the logs in the job's folder of one node."""
        ranks = (rank_log(rank.rank) for rank in self.ranks_on(node))
        starts = (start_log(self.nodes.index(node)),) if node in self.started_on else ()
        return (*ranks, *starts)


def preflight_id(job_id: str) -> str:
    """The id of the preflight before a job."""
    return f"{job_id}.{PREFLIGHT}"


def record_folder(runs: Path, job_id: str) -> Path | None:
    """Where the record of the job, or preflight, with this id would be; None: not an id of one."""
    run_id = job_id.removesuffix(preflight_id(""))
    run = runs / run_id
    if run.parent != runs:
        return None
    return run if run_id == job_id else run / PREFLIGHT


def record_of(plan: LaunchPlan, *, started: str, clocks: NodeClocks) -> dict[str, object]:
    """The plan as it is kept beside the job's logs; `read_record` reads it."""
    return {
        **plan.to_json(),
        "grace_s": plan.grace_s,
        "started": started,
        "notes": list(plan.notes),
        "clock_offsets": dict(clocks.offsets),
        "clock_uncertainty_s": clocks.uncertainty_s,
    }


def read_record(folder: Path) -> JobRecord | None:
    """The record in the folder of a run; None when the run was not one that starts a job.

    Raises:
        AscendbootError: there is one that cannot be read.
    """
    path = folder / PLAN_FILE
    try:
        return _from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise AscendbootError(
            f"{path}: could not be read ({error!r}); it was written by another version or damaged"
        ) from error


def _from_json(document: Mapping[str, Any]) -> JobRecord:
    ranks = tuple(
        PlannedRank(e["rank"], e["node"], e["device"], e["local_rank"], e.get("device_ip"))
        for e in document["ranks"]
    )
    return JobRecord(
        job_id=document["job_id"],
        cluster=document["cluster"],
        job_folder=PurePosixPath(document["folder"]),
        nodes=tuple(dict.fromkeys(rank.node for rank in ranks)),
        ranks=ranks,
        # Plans of before there were several starts name none.
        started_on=tuple(start["node"] for start in document.get("starts", document["ranks"][:1])),
        command_line=document["command_line"],
        grace_s=document["grace_s"],
        started=document["started"],
        clocks=NodeClocks(document["clock_offsets"], document.get("clock_uncertainty_s", 0.0)),
        log_limit=document.get("log_limit", 0),
        addresses={node: tuple(names) for node, names in document.get("addresses", {}).items()},
        notes=tuple(document.get("notes", ())),
        script_json=document.get("script"),
    )
