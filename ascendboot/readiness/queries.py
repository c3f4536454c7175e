"""What a job needs of its nodes, and the queries of the nodes just before its start."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, TypeAlias, TypeVar

from ascendboot.checks.collective.rank import PACKAGES
from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.environment import NodeEnvironment, device_node_query
from ascendboot.facts.npus import CALL_TIMEOUT_S, hccn_tool_answer, npu_smi_output
from ascendboot.facts.parsers import hccn_tool, npu_smi, system
from ascendboot.facts.query import NOT_ASKED, Answer, Fact, Sections, read_script
from ascendboot.hccl.variables import hccl_ports
from ascendboot.launch.launchers.registry import traits_of
from ascendboot.model.cluster import Cluster, Node
from ascendboot.setup.record import SetupRecord
from ascendboot.templates import script
from ascendboot.transport.api import Result

T = TypeVar("T")
_MOST_PORTS = 1024
_STATES_FIRST_PORT = "HCCL_IF_BASE_PORT"


@dataclass(frozen=True, kw_only=True)
class JobRequirements:
    """What a job needs, as known before any query of a node."""

    base: PurePosixPath
    python: str
    mpirun: str
    """Empty if the job does not use Open MPI."""
    module: str
    """The module that the interpreter must have; may be empty."""
    script: PurePosixPath | None
    """Its path on the nodes; None: it comes from the control machine."""
    primary: str
    meeting_port: int | None
    """The port on the primary where the ranks meet, if they do."""
    hccl_ports: Mapping[str, tuple[int, ...]]
    """By node; empty if HCCL needs none or chooses its own."""
    hccl_is_stated: frozenset[str]
    """The nodes whose first HCCL port the inventory states: HCCL takes no other."""
    sshd_port: int | None
    """The port of the cluster's sshd, if it listens on the workload side."""
    containers: Mapping[str, str | None]
    """By node, the container in which its ranks run."""
    devices: Mapping[str, Mapping[int, str | None]]
    """By node, the devices of the job with their IP in the rank table, if there is one."""
    linked: Mapping[str, tuple[int, ...]]
    """By node, the devices that use their network ports; empty for a job on one node."""
    crosses_pods: bool = False
    """Whether A3 devices need their network ports, too: they are in several super pods."""
    data: tuple[str, ...]
    """Paths that must be readable."""
    used: frozenset[str]
    """Packages that the job uses whatever the script imports."""
    skipped: frozenset[str]
    """Ids of the checks that the operator skips."""

    def makes(self, check: str) -> bool:
        """Whether a check is made."""
        return check not in self.skipped

    def ports_on(self, node: str) -> tuple[int, ...]:
        """The ports that must be free on a node, without that of our sshd."""
        meeting = (self.meeting_port,) if self.meeting_port and node == self.primary else ()
        return (*meeting, *self.hccl_ports[node])


def job_requirements(
    cluster: Cluster, record: SetupRecord, script: PurePosixPath | None, skipped: Collection[str]
) -> JobRequirements:
    """Derives what a job of this cluster needs from the inventory and the record of setup."""
    launcher = traits_of(record.launcher)
    with_table = cluster.resource_mode == "rank-table"
    placement = record.placement(cluster)
    many = len(placement.nodes) > 1
    devices: dict[str, dict[int, str | None]] = {node.name: {} for node in placement.nodes}
    linked: dict[str, tuple[int, ...]] = dict.fromkeys(devices, ())
    for slot in placement.slots:
        devices[slot.node.name][slot.device_id] = slot.device_ip if with_table else None
        if many and slot.device_ip and (cluster.product != "a3" or record.crosses_pods):
            linked[slot.node.name] += (slot.device_id,)
    envs = {node.name: cluster.env_of(node) for node in placement.nodes}
    used = {"torch", "torch_npu"} if cluster.is_for_torch else set()
    if cluster.profile == "rec-sdk-tf":
        used |= {"tensorflow", "npu_bridge", "horovod"}
    from_host = any(cluster.serves_from_host(node) for node in cluster.nodes)
    return JobRequirements(
        base=record.base,
        python=cluster.python,
        mpirun=record.mpirun if launcher.openmpi else "",
        module=launcher.module,
        script=script,
        primary=placement.primary.name,
        meeting_port=cluster.chief_port if launcher.sets_meeting or not with_table else None,
        hccl_ports={name: _ports_of_hccl(env) if many else () for name, env in envs.items()},
        hccl_is_stated=frozenset(name for name, env in envs.items() if _STATES_FIRST_PORT in env),
        sshd_port=None if from_host else record.port,
        containers={node.name: node.container for node in placement.nodes},
        devices=devices,
        linked=linked,
        crosses_pods=record.crosses_pods,
        data=cluster.data,
        used=frozenset(used) | launcher.packages,
        skipped=frozenset(skipped),
    )


def _ports_of_hccl(env: Mapping[str, str]) -> tuple[int, ...]:
    ports = sorted({port for ports in hccl_ports(env) for port in ports})
    return tuple(ports) if len(ports) <= _MOST_PORTS else ()


VERSIONS: Final = f"PACKAGES = {PACKAGES!r}\n" + script("package-versions.py")
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
    listeners: Answer[tuple[system.Listener, ...]] = NOT_ASKED
    disk: Answer[system.FileSystem] = NOT_ASKED
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


_LINKS = {"link": "links", "tls": "tls"}
"""The check that needs a query of hccn_tool."""


def work_queries(job: JobRequirements, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the workload side; all share one run of one script."""
    with_ports = job.makes("ports")
    ports = [f"{port:04X}" for port in job.ports_on(node.name)] if with_ports else []
    sshd = f"{job.sshd_port:04X}" if job.sshd_port and with_ports else ""
    words = (job.base, job.python, job.module, job.script or "", job.mpirun)
    data = job.data if job.makes("data") else ()
    with_versions = bool(job.module) or (job.makes("packages") and len(job.devices) > 1)
    versions = VERSIONS if with_versions else ""
    command = read_script(
        WORK,
        *map(str, words),
        *("|".join(ports), versions, sshd, *data),
        purpose="look at what the job needs",
        timeout_s=30.0 + 6.0 * len(data),
    )
    packages = Fact(command, parse_packages, f"ask {job.python} for packages")
    return {
        **({"packages": packages} if with_versions else {}),
        **({"data": Fact(command, parse_data, "look for the data")} if data else {}),
        **(device_node_query(node) if job.makes("devices") else {}),
        "lacks": Fact(command, parse_lacks, "look for programs"),
        "opening": Fact(command, parse_opening, "see how the script begins"),
        "jobs": Fact(command, parse_jobs, "look for jobs"),
        "listeners": Fact(command, parse_listeners, "see who has the ports"),
        "disk": Fact(command, parse_disk, "measure the free disk space"),
    }


def host_queries(job: JobRequirements, node: Node) -> dict[str, Fact[Any]]:
    """The queries about devices for the host side; they are slow, so they run beside the others."""
    users = "users" if job.makes("devices") else ""
    ips = job.devices[node.name] if job.makes("device-ips") else {}
    # A device with two ports has two addresses, but hccn.conf holds one.
    pairs = [f"{id_}={ip}" for id_, ip in ips.items() if ip and "," not in ip]
    linked = job.linked[node.name]
    tools = [what for what, check in _LINKS.items() if linked and job.makes(check)]
    if not (users or pairs or tools):
        return {}
    pods = "pods" if job.crosses_pods else ""
    words = (users, " ".join(tools), " ".join(map(str, linked)), pods, *pairs)
    command = read_script(HOST, *words, purpose="look at the devices", timeout_s=60.0, aside=True)
    of_users: dict[str, Fact[Any]] = {
        "holders": Fact(command, parse_holders, "see who uses the devices"),
        "present": Fact(command, parse_present, "see which devices there are"),
        "health": Fact(command, parse_health, "see how the devices are"),
    }
    addresses = Fact(command, parse_device_ips, "read the addresses of the devices")
    ports = Fact(command, parse_ports, "read links and TLS switches of the devices")
    return {
        **(of_users if users else {}),
        **({"device_ips": addresses} if pairs else {}),
        **({"ports": ports} if tools else {}),
    }


def parse_lacks(result: Result) -> tuple[str, ...]:
    """The missing programs, each with a remedy."""
    return tuple(_lines(result, "lacks"))


def parse_opening(result: Result) -> str:
    """The first line of the script if it names an interpreter."""
    return _part(result, "opening").strip()


def parse_data(result: Result) -> tuple[tuple[DataState, str], ...]:
    """Which paths cannot be read."""
    found: list[tuple[DataState, str]] = []
    for number, line in enumerate(_lines(result, "data"), 1):
        match line.split(" ", 1):
            case [("absent" | "unreadable" | "silent") as state, path]:
                found.append((state, path))
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "a path and how it is")
    return tuple(found)


def parse_packages(result: Result) -> Packages:
    """The versions that the interpreter reported."""
    printed: dict[str, list[str]] = {"python": [], "uses": [], "lacks": []}
    versions: dict[str, str] = {}
    for number, line in enumerate(_lines(result, "packages"), 1):
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
    for number, line in enumerate(_lines(result, "jobs"), 1):
        match line.split(" ", 3):
            case ["process", pid, job_id, command] if pid.isdecimal():
                processes.append(JobProcess(int(pid), job_id, command))
            case ["folder", ("runs" | "gone" | "none") as state, job_id, path]:
                folders.append(JobFolder(job_id, state, path))
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "a process or a folder of a job")
    return Jobs(tuple(processes), tuple(folders))


def parse_listeners(result: Result) -> tuple[system.Listener, ...]:
    """The listeners other than our sshd; empty if no port of the job is taken."""
    printed, sshd = _part(result, "listeners"), _part(result, "sshd")
    if not printed:
        return ()
    return tuple(found for found in system.parse_ss(printed) if str(found.pid) != sshd)


def parse_disk(result: Result) -> system.FileSystem:
    """The file system on which the job's folder will be."""
    found = system.parse_disk(_part(result, "disk"))
    if len(found) != 1:
        raise NotUnderstoodError(system.DISK_TOOL, len(found) + 1, "", "one row")
    return found[0]


def parse_holders(result: Result) -> tuple[Holder, ...]:
    """The processes that use devices."""
    devices: dict[int, list[int]] = {}
    for process in npu_smi.parse_table(*_table(result)).processes:
        devices.setdefault(process.pid, []).append(process.device_id)
    seen = {}
    for number, line in enumerate(_lines(result, "holders"), 1):
        match line.split(" ", 2):
            case [pid, job_id, command] if pid.isdecimal():
                seen[int(pid)] = ("" if job_id == "-" else job_id, command)
            case _:
                raise NotUnderstoodError(_SCRIPT, number, line, "pid, job and command")
    return tuple(
        Holder(pid, tuple(sorted(ids)), *seen.get(pid, ("", ""))) for pid, ids in devices.items()
    )


def parse_present(result: Result) -> tuple[int, ...]:
    """The devices that npu-smi lists."""
    return npu_smi.parse_table(*_table(result)).device_ids


def parse_health(result: Result) -> Mapping[int, str]:
    """The health of the devices as npu-smi reports it."""
    return npu_smi.parse_health(*_table(result))


def _table(result: Result) -> tuple[str, npu_smi.DeviceIds]:
    """The table of NPUs, and their physical ids if the script queried them."""
    sections = Sections(result, _SCRIPT)
    table = npu_smi_output(sections, "processes", npu_smi.TOOL)
    if "mapping" not in sections:
        return table, {}
    mapping = npu_smi_output(sections, "mapping", npu_smi.MAPPING)
    return table, npu_smi.parse_mapping(mapping).device_ids


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


def _each(
    sections: Sections, what: str, purpose: str, parse: Callable[[str, str], T]
) -> dict[int, Answer[T]]:
    """The answers of hccn_tool to one query, by device."""
    names = [name for name in sections if name.endswith(f"/{what}")]
    ids = sorted(int(name.partition("/")[0]) for name in names)
    return {id_: hccn_tool_answer(sections, id_, what, purpose, parse) for id_ in ids}


def _ips(text: str, tool: str) -> str | None:
    return ",".join(address.ip for address in hccn_tool.parse_ip(text, tool)) or None


def _part(result: Result, name: str) -> str:
    return Sections(result, _SCRIPT).text(name)


def _lines(result: Result, name: str) -> list[str]:
    return [line for line in _part(result, name).split("\n") if line]


def file_system(path: Path) -> system.FileSystem:
    """The file system that holds a path; `path` stands for its mount point."""
    found = os.statvfs(path)
    return system.FileSystem(
        mount_point=str(path),
        free_bytes=found.f_bavail * found.f_frsize,
        free_inodes=found.f_favail if found.f_files else None,
    )
