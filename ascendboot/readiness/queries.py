"""Queries the nodes of a job just before its start."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.npus import CALL_TIMEOUT_S, hccn_tool_output, npu_smi_output
from ascendboot.facts.parsers import hccn_tool, npu_smi, system
from ascendboot.facts.parsers.system import FileSystem, Listener
from ascendboot.facts.query import NOT_ASKED, Answer, Sections, attempt
from ascendboot.templates import script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ascendboot.facts.environment import NodeEnvironment
    from ascendboot.facts.parsers.npu_smi import DeviceIds
    from ascendboot.transport.api import Result


def file_system(path: Path) -> FileSystem:
    """The file system that holds a path; `path` stands for its mount point."""
    found = os.statvfs(path)
    return FileSystem(
        mount_point=str(path),
        free_bytes=found.f_bavail * found.f_frsize,
        free_inodes=found.f_favail if found.f_files else None,
    )


T = TypeVar("T")


def _each(
    sections: Sections, what: str, purpose: str, parse: Callable[[str, str], T]
) -> dict[int, Answer[T]]:
    names = [name for name in sections if name.endswith(f"/{what}")]
    device_ids = sorted(int(name.partition("/")[0]) for name in names)

    def printed(device_id: int) -> T:
        tool = f"hccn_tool -i {device_id} -{what} -g"
        return parse(hccn_tool_output(sections.get(f"{device_id}/{what}"), tool), tool)

    return {id_: attempt(f"{purpose} of device {id_}", partial(printed, id_)) for id_ in device_ids}


def _ips(text: str, tool: str) -> str | None:
    return ",".join(address.ip for address in hccn_tool.parse_ip(text, tool)) or None


PACKAGES: Final = (
    "torch",
    "torch_npu",
    "tensorflow",
    "tensorflow_cpu",
    "npu_bridge",
    "npu_device",
    "horovod",
    "mindspore",
    "mpi4py",
    "numpy",
)
"""Packages whose version a job depends on, by the names of their distributions."""

# importlib.metadata needs Python 3.8 and 30 ms; the folders beside a package give the same
# versions. No package is imported: a framework takes seconds.
VERSIONS: Final = f"""
import os, sys
module, script = sys.argv[1:3]
known, seen = {PACKAGES!r}, set()
print("python %d.%d.%d" % sys.version_info[:3])
for folder in sys.path[1:]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        stem, _, kind = entry.rpartition(".")
        name, _, version = stem.partition("-")
        name = name.replace("-", "_").replace(".", "_").lower()
        if kind in ("dist-info", "egg-info") and name in known and name not in seen and version:
            seen.add(name)
            print(name + " " + version.partition("-")[0])
try:
    lines = open(script, encoding="utf-8", errors="replace").readlines() if script else []
except OSError:
    lines = []
for line in lines:
    words = line.replace(",", " ").split()
    if words[:1] == ["from"]:
        words = words[:2]
    elif words[:1] != ["import"]:
        continue
    for word in words[1:]:
        if word.partition(".")[0] in known:
            print("uses " + word.partition(".")[0])
if module:
    import importlib.util
    if importlib.util.find_spec(module) is None:
        print("lacks " + module)
"""
"""Arguments: a module that must be there, and the script, or "" for none of them."""

WORK: Final = script("readiness-work.sh")
HOST: Final = script("readiness-host.sh", left=5, enough=20, call_s=CALL_TIMEOUT_S)
"""A busy tool gets half a second: the job waits, too."""

_SCRIPT = "the script that looks at what the job needs"

Launcher: TypeAlias = Literal["runs", "gone", "none"]
DataState: TypeAlias = Literal["absent", "unreadable", "silent"]


@dataclass(frozen=True)
class Packages:
    """Packages of the job's interpreter, and those that the script imports."""

    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """By the name of the distribution, with `_` for `-`."""
    used: frozenset[str] = frozenset()
    lacks: str = ""
    """The required module that is missing; may be empty."""


@dataclass(frozen=True)
class JobProcess:
    """A process with the id of a job in its environment."""

    pid: int
    job_id: str
    command: str


@dataclass(frozen=True)
class JobFolder:
    """The folder of a job, and the state of its launcher on this node; none: it had none here."""

    job_id: str
    launcher: Launcher
    path: str


@dataclass(frozen=True)
class Jobs:
    """Jobs with processes or an open folder on a node."""

    processes: tuple[JobProcess, ...] = ()
    folders: tuple[JobFolder, ...] = ()


@dataclass(frozen=True)
class Holder:
    """A process that uses devices; its pid on the host side may not be visible to us."""

    pid: int
    devices: tuple[int, ...]
    job_id: str = ""
    command: str = ""


@dataclass(frozen=True)
class DeviceIps:
    """Addresses of devices by physical id: at boot, and now for those that were queried."""

    at_boot: Mapping[int, str]
    now: Mapping[int, Answer[str | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class DevicePorts:
    """Whether links are up and TLS is on, by physical id, for devices that were queried."""

    link: Mapping[int, Answer[bool]] = field(default_factory=dict)
    tls: Mapping[int, Answer[bool]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NodeProbe:
    """The answers of one node; `NOT_ASKED` if there was no query."""

    lacks: Answer[tuple[str, ...]] = NOT_ASKED
    opening: Answer[str] = NOT_ASKED
    """The first line of the script where it begins with `#!`."""
    packages: Answer[Packages] = NOT_ASKED
    data: Answer[tuple[tuple[DataState, str], ...]] = NOT_ASKED
    """The paths that cannot be read, each with its state."""
    jobs: Answer[Jobs] = NOT_ASKED
    listeners: Answer[tuple[Listener, ...]] = NOT_ASKED
    disk: Answer[FileSystem] = NOT_ASKED
    holders: Answer[tuple[Holder, ...]] = NOT_ASKED
    present: Answer[tuple[int, ...]] = NOT_ASKED
    """The devices of the server; empty if unknown."""
    health: Answer[Mapping[int, str]] = NOT_ASKED
    """Their health as npu-smi reports it."""
    device_ips: Answer[DeviceIps] = NOT_ASKED
    surroundings: Answer[NodeEnvironment] = NOT_ASKED
    """The devices in the node's container."""
    ports: Answer[DevicePorts] = NOT_ASKED

    @classmethod
    def of(cls, answers: Mapping[str, Answer[Any]]) -> NodeProbe:
        """Takes the answers that are fields of this class."""
        return cls(**{name: answers[name] for name in cls.__dataclass_fields__ if name in answers})


def parse_lacks(result: Result) -> tuple[str, ...]:
    """The missing programs, each with a remedy."""
    return tuple(_lines(_part(result, "lacks")))


def parse_opening(result: Result) -> str:
    """The first line of the script if it names an interpreter."""
    return _part(result, "opening").strip()


def parse_data(result: Result) -> tuple[tuple[DataState, str], ...]:
    """Which paths cannot be read."""
    found: list[tuple[DataState, str]] = []
    for number, line in enumerate(_lines(_part(result, "data")), 1):
        match line.split(" ", 1):
            case [("absent" | "unreadable" | "silent") as state, path]:
                found.append((state, path))
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "a path and how it is")
    return tuple(found)


def parse_packages(result: Result) -> Packages:
    """The versions that the interpreter reported."""
    lines = _lines(_part(result, "packages"))
    printed: dict[str, list[str]] = {"python": [], "uses": [], "lacks": []}
    versions: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match line.split(" "):
            case [("python" | "uses" | "lacks") as kind, word]:
                printed[kind].append(word)
            case [name, version] if name and version:
                versions[name] = version
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "a package and its version")
    if len(printed["python"]) != 1:
        raise NotUnderstoodError(_SCRIPT, 1, "", "one version of Python")
    lacks = "".join(printed["lacks"])
    return Packages(printed["python"][0], versions, frozenset(printed["uses"]), lacks)


def parse_jobs(result: Result) -> Jobs:
    """Processes and folders of jobs."""
    processes, folders = [], []
    for number, line in enumerate(_lines(_part(result, "jobs")), 1):
        match line.split(" ", 3):
            case ["process", pid, job_id, command] if pid.isdecimal():
                processes.append(JobProcess(int(pid), job_id, command))
            case ["folder", ("runs" | "gone" | "none") as state, job_id, path]:
                folders.append(JobFolder(job_id, state, path))
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "a process or a folder of a job")
    return Jobs(tuple(processes), tuple(folders))


def parse_listeners(result: Result) -> tuple[Listener, ...]:
    """The listeners other than our sshd; empty if no port of the job is taken."""
    printed, sshd = _part(result, "listeners"), _part(result, "sshd")
    if not printed:
        return ()
    return tuple(found for found in system.parse_ss(printed) if str(found.pid) != sshd)


def parse_disk(result: Result) -> FileSystem:
    """The file system on which the job's folder will be."""
    found = system.parse_disk(_part(result, "disk"))
    if len(found) != 1:
        raise NotUnderstoodError(system.DISK_TOOL, len(found) + 1, "", "one row")
    return found[0]


def parse_holders(result: Result) -> tuple[Holder, ...]:
    """The processes that use devices."""
    sections = Sections(result, _SCRIPT)
    devices: dict[int, list[int]] = {}
    for process in npu_smi.parse_table(*_table(sections)).processes:
        devices.setdefault(process.pid, []).append(process.device_id)
    seen = _seen(_lines(sections.text("holders")))
    return tuple(
        Holder(pid, tuple(sorted(ids)), *seen.get(pid, ("", ""))) for pid, ids in devices.items()
    )


def parse_present(result: Result) -> tuple[int, ...]:
    """The devices that npu-smi lists."""
    return npu_smi.parse_table(*_table(Sections(result, _SCRIPT))).device_ids


def parse_health(result: Result) -> Mapping[int, str]:
    """The health of the devices as npu-smi reports it."""
    return npu_smi.parse_health(*_table(Sections(result, _SCRIPT)))


def parse_device_ips(result: Result) -> DeviceIps:
    """The addresses at boot, and the current ones of devices that differ from the rank table."""
    sections = Sections(result, _SCRIPT)
    if "hccn_conf" not in sections:
        return DeviceIps({})
    at_boot = hccn_tool.parse_conf(sections.text("hccn_conf")).addresses
    if "hccn_tool" not in sections or sections["hccn_tool"].exit_code:
        return DeviceIps(at_boot)
    return DeviceIps(at_boot, _each(sections, "ip", "read the IP", _ips))


def parse_ports(result: Result) -> DevicePorts:
    """Links and TLS switches that hccn_tool reports; empty if the job needs none."""
    sections = Sections(result, _SCRIPT)
    if "hccn_tool" not in sections:
        return DevicePorts()
    sections.text("hccn_tool")

    return DevicePorts(
        _each(sections, "link", "read the link", hccn_tool.parse_link),
        _each(sections, "tls", "read the TLS switch", hccn_tool.parse_tls),
    )


def _table(sections: Sections) -> tuple[str, DeviceIds]:
    """The table of NPUs, and their physical ids if the script queried them."""
    table = npu_smi_output(sections, "processes", npu_smi.TOOL)
    if "mapping" not in sections:
        return table, {}
    mapping = npu_smi_output(sections, "mapping", npu_smi.MAPPING)
    return table, npu_smi.parse_mapping(mapping).device_ids


def _seen(lines: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Maps each pid to the id of its job (may be empty) and its command."""
    found = {}
    for number, line in enumerate(lines, 1):
        match line.split(" ", 2):
            case [pid, job_id, command] if pid.isdecimal():
                found[int(pid)] = ("" if job_id == "-" else job_id, command)
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "pid, job and command")
    return found


def _part(result: Result, name: str) -> str:
    return Sections(result, _SCRIPT).text(name)


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]
