"""A job to start, its plan (ranks, commands, files), and the record of a started job."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Final

from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.cluster import MPIRUN, LauncherChoice, NodeClocks, Placement
from ascendboot.model.names import counted, fold, ranks_named
from ascendboot.transport.api import FileWrite
from ascendboot.value import Value, as_json, field, from_json

PLAN_FILE = "plan.json"
PREFLIGHT = "preflight"
"""Folder, in that of a run, of the preflight before its job."""
_PART: Final = re.compile(rf"{PREFLIGHT}|g[0-9]{{1,6}}")
"""Folder, in that of a run, of its preflight or of a generation of its supervised job."""
LAUNCHER_LOG = "launcher.log"
TORCH_LOGS = "torchelastic"
"""Folder in the job's folder for the error files of scripts with torchelastic's `@record`."""


def rank_log(rank: int) -> str:
    """Name of a rank's log, on its node and on the control machine."""
    return f"rank.{rank}.log"


def rank_plogs(rank: int) -> str:
    """Name of the folder of CANN's own logs of a rank, beside its log."""
    return f"rank.{rank}.plog"


def rank_marks(rank: int) -> str:
    """Name of the file in which a rank's node records the size of its log over time."""
    return f"rank.{rank}.marks"


def start_log(node_rank: int) -> str:
    """Name of the log of the launcher or of an agent."""
    return f"agent.{node_rank}.log" if node_rank else LAUNCHER_LOG


class Login(Value, kw_only=True):
    """The user of the job on every node."""

    user: str
    uid: int
    home: PurePosixPath


class LaunchRequest(Value, kw_only=True):
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
    order_words: str = ""
    """How the order of ranks was chosen; empty if no node states a leaf switch."""
    master_index: int | None = None
    """The primary's place in the inventory, where ranks follow leaf switches; None: they do not."""
    launcher: LauncherChoice = MPIRUN
    ssh_port: int = 0
    """Of the cluster's own sshd, for horovodrun."""
    mpi_args: tuple[str, ...] = ()
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
    """After this time nodes end a start in which not every rank has begun; `train`
    gives up earlier."""
    log_limit: int = 0
    """Bytes kept of each log; 0: all of them."""
    loss_form: str = ""
    """How ranks print their loss, with `<NUMBER>`; empty: in one of the usual forms."""
    meeting_point: str = ""
    """ADDRESS/PORT on the primary that must be free; empty: not checked."""
    notes: tuple[str, ...] = ()
    """Notes about the time before the start, for the report."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """More variables of every rank."""
    files: tuple[FileWrite, ...] = ()
    """More files for the job's folder on every node."""
    lists_devices: bool = False
    """The ranks of a node see only its devices of this job, counted from 0, as PyTorch needs it."""

    @property
    def folder(self) -> PurePosixPath:
        """The job's folder on every node."""
        return self.base / "jobs" / self.job_id


class Start(Value, kw_only=True):
    """One process to start: the launcher on the primary, an agent of it on another node."""

    node: str
    node_rank: int
    base: PurePosixPath
    command: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def log(self) -> str:
        """The name of its log."""
        return start_log(self.node_rank)

    @property
    def words(self) -> str:
        """The command in its environment, quoted for a shell."""
        settings = (f"{name}={value}" for name, value in self.env.items())
        return shlex.join(("env", "-i", *settings, *self.command))

    @property
    def command_line(self) -> str:
        """A line for a shell of the node that starts the same."""
        return f"cd {shlex.quote(str(self.base))} && {self.words}"


class PlannedRank(Value):
    """One rank and its place."""

    rank: int
    node: str
    device_id: int = field(name="device")
    local_rank: int
    device_ip: str | None = None
    """Of its device, where it is known."""


class Job(Value, kw_only=True, dict=True):
    """What the plan of a job and its record share; much of it is as in the request."""

    job_id: str
    cluster: str
    job_folder: PurePosixPath = field(name="folder")
    """On every node."""
    nodes: tuple[str, ...]
    """In rank order: the primary first."""
    ranks: tuple[PlannedRank, ...]
    started_on: tuple[str, ...]
    """The nodes on which ascendboot starts the launcher or an agent."""
    grace_s: float
    log_limit: int
    loss_form: str = ""
    addresses: Mapping[str, tuple[str, ...]]
    """By node: its names in the output of ranks, such as addresses and `server_id`."""
    notes: tuple[str, ...]
    command_line: str
    """A line for a shell of the primary that starts the same."""
    script: Mapping[str, str | None]
    """Its `path` on the nodes, and where it was `copied_from`, if it was."""
    launcher_kind: str
    """As `launcher.kind` names it."""
    python: str
    """The interpreter of its ranks."""

    @property
    def primary(self) -> str:
        """The node from which the job is started."""
        return self.nodes[0]

    def ranks_on(self, node: str) -> tuple[PlannedRank, ...]:
        """Return the ranks of one node, ascending."""
        return self._by_node.get(node, ())

    @cached_property
    def _by_node(self) -> Mapping[str, tuple[PlannedRank, ...]]:
        # The ranks of a node are consecutive: a plan with others is refused.
        return {node: tuple(ranks) for node, ranks in groupby(self.ranks, lambda rank: rank.node)}

    def logs_on(self, node: str) -> tuple[str, ...]:
        """Return the names of the logs in the job's folder of one node."""
        ranks = (rank_log(rank.rank) for rank in self.ranks_on(node))
        starts = (start_log(self.nodes.index(node)),) if node in self.started_on else ()
        return (*ranks, *starts)


class LaunchPlan(Job, kw_only=True):
    """A job ready to start: the run does exactly this."""

    request: LaunchRequest
    starts: tuple[Start, ...]
    """Processes that ascendboot starts, the primary's first. The launcher starts the ranks of all
    nodes without a start of their own."""
    files: tuple[tuple[str, FileWrite], ...]
    """Files to write before the start, each with its node."""
    mpirun: PurePosixPath | None
    """None for launchers without Open MPI."""
    workdir: PurePosixPath

    @property
    def script_words(self) -> str:
        """Which script runs, and where it comes from."""
        path, source = self.script["path"] or "", self.script["copied_from"]
        if source:
            return f"script: {posixpath.basename(path)} copied from {source} on the control machine"
        name = posixpath.relpath(path, self.workdir)
        return f"script: {name} from code.path {self.workdir} on the nodes"

    def files_on(self, node: str) -> tuple[FileWrite, ...]:
        """Return the files to write on one node."""
        return tuple(file for name, file in self.files if name == node)

    def describe(self) -> str:
        """Return the plan for a person."""
        size = f"{counted(len(self.ranks), 'rank')} on {counted(len(self.nodes), 'node')}"
        lines = [f"job {self.job_id}: {size}"]
        for node in self.nodes:
            ranks = self.ranks_on(node)
            slots = [slot for slot in self.request.placement.slots if slot.node.name == node]
            devices = [str(i) for slot in slots for i in (slot.device_id, *slot.others)]
            where = f"device{'' if len(devices) == 1 else 's'} {','.join(devices)}"
            lines.append(f"  {node}: {ranks_named([rank.rank for rank in ranks])} on {where}")
        lines += [words for words in (self.request.order_words, self.script_words) if words]
        lines.append(f"files in {self.job_folder}:")
        alike: dict[str, list[str]] = {}
        for node, file in self.files:
            path = posixpath.relpath(file.path, self.job_folder)
            words = f"{path} ({len(file.content)} bytes, mode {file.mode:04o})"
            alike.setdefault(words, []).append(node)
        lines += [f"  {fold(nodes)}: {words}" for words, nodes in alike.items()]
        lines.append("environment of the launcher:")
        lines += [f"  {name}={value}" for name, value in self.starts[0].env.items()]
        lines.append(f"launcher: {self.request.launcher.words}")
        for start in self.starts:
            lines += [f"command, on {start.node}:", f"  {start.command_line}"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the plan as documented in the reference of `train --plan --json`."""
        first, launcher = self.starts[0], self.request.launcher
        return {
            "job_id": self.job_id,
            "cluster": self.cluster,
            "primary": self.primary,
            "folder": str(self.job_folder),
            "workdir": str(self.workdir),
            "script": dict(self.script),
            "launcher": {"name": launcher.name, "why": launcher.why},
            "rank_order": self.request.order_words,
            "min_nodes": None,  # a start needs all its nodes; --elastic starts the job again
            "log_limit": self.log_limit,
            "loss_form": self.loss_form,
            "command": list(first.command),
            "command_line": self.command_line,
            "env": dict(first.env),
            "starts": [
                {"node": s.node, "command": list(s.command), "log": s.log} for s in self.starts
            ],
            "addresses": as_json(self.addresses),
            "ranks": as_json(self.ranks),
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


class JobRecord(Job, kw_only=True):
    """A started job, as its plan was recorded beside its logs."""

    started: str
    """The time just before the start, ISO 8601, UTC."""
    clocks: NodeClocks
    """At that time."""


def preflight_id(job_id: str) -> str:
    """Return the id of the preflight before a job."""
    return f"{job_id}.{PREFLIGHT}"


def generation_id(job_id: str, generation: int) -> str:
    """Return the id of one generation of a supervised job."""
    return f"{job_id}.g{generation}"


def record_folder(runs: Path, job_id: str) -> Path | None:
    """Return the folder of a record, by the beginning or end of its id; None: no valid id."""
    run_id, _, part = job_id.rpartition(".")
    if _PART.fullmatch(part) is None:
        run_id, part = job_id, ""
    run = runs / run_id
    if run.parent != runs:
        return None
    if run_id and not run.exists():
        names = {folder.relative_to(runs).parts[0] for folder in record_folders(runs)}
        run = runs / whole_id(names, run_id)
    return run / part


def whole_id(names: Iterable[str], short: str) -> str:
    """The one of the names of runs that `short` begins, or whose last part it begins.

    `short` itself if there is none; UsageError if there are several.
    """
    found = [
        name
        for name in sorted(names)
        if name.startswith(short) or name.rpartition("-")[2].startswith(short)
    ]
    exact = [name for name in found if name.endswith(f"-{short}")]
    found = exact or found
    if len(found) > 1:
        raise UsageError(f'"{short}" may be {" or ".join(found[-3:])}; write more of the id')
    return found[0] if found else short


def record_folders(runs: Path) -> list[Path]:
    """Return the folders of all records, the newest first: ids begin with a time."""
    places = ("*", f"*/{PREFLIGHT}", "*/g[0-9]*")
    plans = [path for place in places for path in runs.glob(f"{place}/{PLAN_FILE}")]
    return sorted((path.parent for path in plans), reverse=True)


def record_of(plan: LaunchPlan, *, started: str, clocks: NodeClocks) -> dict[str, object]:
    """Return the document that `read_record` reads, to be kept beside the job's logs."""
    return {
        **plan.to_json(),
        "grace_s": plan.grace_s,
        "launcher_kind": plan.launcher_kind,
        "python": plan.python,
        "started": started,
        "notes": list(plan.notes),
        "clock_offsets": dict(clocks.offsets),
        "clock_uncertainty_s": clocks.uncertainty_s,
    }


def read_record(folder: Path) -> JobRecord | None:
    """Read the record in the folder of a run; None if the run did not start a job."""
    path = folder / PLAN_FILE
    try:
        document = json.loads(path.read_bytes())
        offsets, uncertainty_s = document["clock_offsets"], document["clock_uncertainty_s"]
        derived = {
            "nodes": list(dict.fromkeys(rank["node"] for rank in document["ranks"])),
            "started_on": [start["node"] for start in document["starts"]],
            "clocks": {"offsets": offsets, "uncertainty_s": uncertainty_s},
        }
        return from_json({**document, **derived}, JobRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        words = f"{path}: could not be read: {error.strerror}; make it readable, then repeat"
        raise AscendbootError(words) from error
    except (KeyError, TypeError, ValueError) as error:
        raise AscendbootError(
            f"{path}: could not be read ({error!r}); it was written by another version or damaged"
        ) from error
