"""What the nodes say of what a job needs of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.api import NOT_ASKED, Answer, part_of, sections_of
from ascendboot.parse import disk, hccn_conf, npu_smi, npu_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.facts.surroundings import Surroundings
    from ascendboot.parse.disk import FileSystem
    from ascendboot.parse.npu_table import DeviceIds
    from ascendboot.parse.sections import Section
    from ascendboot.parse.ss import Listener
    from ascendboot.transport.api import Result

_SCRIPT = "the script that looks at what the job needs"

Launcher: TypeAlias = Literal["runs", "gone", "none"]
DataState: TypeAlias = Literal["absent", "unreadable", "silent"]


@dataclass(frozen=True)
class Packages:
    """What the interpreter of the job has, and what of it the script imports."""

    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """By the name of the distribution, with `_` for `-`."""
    used: frozenset[str] = frozenset()
    lacks: str = ""
    """The module that it must have and has not."""


@dataclass(frozen=True)
class JobProcess:
    """A process that carries the id of a job of ours."""

    pid: int
    job_id: str
    command: str


@dataclass(frozen=True)
class JobFolder:
    """The folder of such a job, and what became of its launcher here; none: there was none."""

    job_id: str
    launcher: Launcher
    path: str


@dataclass(frozen=True)
class Jobs:
    """What lives of jobs on a node."""

    processes: tuple[JobProcess, ...] = ()
    folders: tuple[JobFolder, ...] = ()


@dataclass(frozen=True)
class Holder:
    """A process that uses devices; by its pid on the host side, where it may not be seen."""

    pid: int
    devices: tuple[int, ...]
    job_id: str = ""
    command: str = ""


@dataclass(frozen=True)
class DeviceIps:
    """The addresses of the devices by physical id: at boot, and now where that was asked."""

    at_boot: Mapping[int, str]
    now: Mapping[int, Answer[str | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class DevicePorts:
    """Links that are up and TLS switches that are on, by physical id, where they were asked for."""

    link: Mapping[int, Answer[bool]] = field(default_factory=dict)
    tls: Mapping[int, Answer[bool]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NodeLook:
    """The answers of one node; a question that was not put is `NOT_ASKED`."""

    lacks: Answer[tuple[str, ...]] = NOT_ASKED
    opening: Answer[str] = NOT_ASKED
    """The first line of the script where it begins with `#!`."""
    packages: Answer[Packages] = NOT_ASKED
    data: Answer[tuple[tuple[DataState, str], ...]] = NOT_ASKED
    """The paths that cannot be read, each with how that is."""
    jobs: Answer[Jobs] = NOT_ASKED
    listeners: Answer[tuple[Listener, ...]] = NOT_ASKED
    disk: Answer[FileSystem] = NOT_ASKED
    holders: Answer[tuple[Holder, ...]] = NOT_ASKED
    present: Answer[tuple[int, ...]] = NOT_ASKED
    """The devices that the server has; empty where they cannot be told."""
    health: Answer[Mapping[int, str]] = NOT_ASKED
    """How they are, in the tool's words."""
    device_ips: Answer[DeviceIps] = NOT_ASKED
    surroundings: Answer[Surroundings] = NOT_ASKED
    """Which of the devices the node's container has."""
    ports: Answer[DevicePorts] = NOT_ASKED

    @classmethod
    def of(cls, answers: Mapping[str, Answer[Any]]) -> NodeLook:
        """The look in what `ask` returned; other names are left out."""
        return cls(**{name: answers[name] for name in cls.__dataclass_fields__ if name in answers})


def parse_lacks(result: Result) -> tuple[str, ...]:
    """Which programs are missing, each with what to do."""
    return tuple(_lines(_part(result, "lacks")))


def parse_opening(result: Result) -> str:
    """How the script begins, if it says what it is to be run by."""
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
    """What the interpreter said of itself."""
    lines = _lines(_part(result, "packages"))
    said: dict[str, list[str]] = {"python": [], "uses": [], "lacks": []}
    versions: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match line.split(" "):
            case [("python" | "uses" | "lacks") as kind, word]:
                said[kind].append(word)
            case [name, version] if name and version:
                versions[name] = version
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "a package and its version")
    if len(said["python"]) != 1:
        raise NotUnderstoodError(_SCRIPT, 1, "", "one version of Python")
    lacks = "".join(said["lacks"])
    return Packages(said["python"][0], versions, frozenset(said["uses"]), lacks)


def parse_jobs(result: Result) -> Jobs:
    """What lives of jobs."""
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
    """Who listens besides our sshd, where one of the ports is taken; nobody, where none is."""
    said, sshd = _part(result, "listeners"), _part(result, "sshd")
    if not said:
        return ()
    from ascendboot.parse import ss  # noqa: PLC0415 - of no use for most jobs

    return tuple(found for found in ss.parse(said) if str(found.pid) != sshd)


def parse_disk(result: Result) -> FileSystem:
    """The file system on which the job's folder will be."""
    found = disk.parse(_part(result, "disk"))
    if len(found) != 1:
        raise NotUnderstoodError(disk.TOOL, len(found) + 1, "", "one row")
    return found[0]


def parse_holders(result: Result) -> tuple[Holder, ...]:
    """Who uses which devices."""
    sections = sections_of(result, _SCRIPT)
    devices: dict[int, list[int]] = {}
    for process in npu_table.parse(*_table(sections)).processes:
        devices.setdefault(process.pid, []).append(process.device_id)
    seen = _seen(_lines(part_of(sections, "holders", _SCRIPT)))
    return tuple(
        Holder(pid, tuple(sorted(ids)), *seen.get(pid, ("", ""))) for pid, ids in devices.items()
    )


def parse_present(result: Result) -> tuple[int, ...]:
    """Which devices there are."""
    return npu_table.parse(*_table(sections_of(result, _SCRIPT))).device_ids


def parse_health(result: Result) -> Mapping[int, str]:
    """How the devices are, in the tool's words."""
    return npu_table.parse_health(*_table(sections_of(result, _SCRIPT)))


def parse_device_ips(result: Result) -> DeviceIps:
    """The addresses of the devices at boot, and of those that have another one, now."""
    sections = sections_of(result, _SCRIPT)
    if "hccn_conf" not in sections:
        return DeviceIps({})
    at_boot = hccn_conf.parse(part_of(sections, "hccn_conf", _SCRIPT)).addresses
    if "hccn_tool" not in sections:
        return DeviceIps(at_boot)
    from ascendboot.before.device_ips import addresses_now  # noqa: PLC0415 - as `ss`

    return DeviceIps(at_boot, addresses_now(sections))


def parse_ports(result: Result) -> DevicePorts:
    """What hccn_tool says of the devices' network ports; nothing where they need none."""
    sections = sections_of(result, _SCRIPT)
    if "hccn_tool" not in sections:
        return DevicePorts()
    part_of(sections, "hccn_tool", _SCRIPT)
    from ascendboot.before.device_ips import links_now, switches_now  # noqa: PLC0415 - as `ss`

    return DevicePorts(links_now(sections), switches_now(sections))


def _table(sections: Mapping[str, Section]) -> tuple[str, DeviceIds]:
    """The table of NPUs, and their physical ids where those were asked for."""
    table = _npu_smi_said(sections, "processes", npu_table.TOOL)
    if "mapping" not in sections:
        return table, {}
    mapping = _npu_smi_said(sections, "mapping", npu_smi.MAPPING)
    return table, npu_smi.parse_mapping(mapping).device_ids


def _npu_smi_said(sections: Mapping[str, Section], name: str, tool: str) -> str:
    if name in sections:
        npu_smi.refuse_failure(sections[name].text, tool)
    return part_of(sections, name, _SCRIPT)


def _seen(lines: Sequence[str]) -> dict[int, tuple[str, str]]:
    """By pid: the id of its job, if it has one, and its command."""
    found = {}
    for number, line in enumerate(lines, 1):
        match line.split(" ", 2):
            case [pid, job_id, command] if pid.isdecimal():
                found[int(pid)] = ("" if job_id == "-" else job_id, command)
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "pid, job and command")
    return found


def _part(result: Result, name: str) -> str:
    return part_of(sections_of(result, _SCRIPT), name, _SCRIPT)


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]
