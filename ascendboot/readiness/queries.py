"""What a job needs of its nodes, and the queries of the nodes just before its start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, Final

from ascendboot.checks.collective.findings import PACKAGES
from ascendboot.checks.finding import grouped
from ascendboot.checks.network import forced_roce
from ascendboot.errors import NotUnderstoodError
from ascendboot.facts import npus
from ascendboot.facts.node_facts import NodeEnvironment, environment_query
from ascendboot.facts.parsers import hccn_tool, npu_smi, system
from ascendboot.facts.query import NOT_QUERIED, Answer, Fact, Sections, Unanswered, queries_of
from ascendboot.hccl.variables import hccl_ports
from ascendboot.launch.launchers import traits_of
from ascendboot.model.cluster import Cluster, Node
from ascendboot.setup.record import SetupRecord
from ascendboot.templates import script
from ascendboot.transport.api import read_script
from ascendboot.value import Value, field, replace

_MOST_PORTS = 1024
_STATES_FIRST_PORT = "HCCL_IF_BASE_PORT"


class JobRequirements(Value, kw_only=True):
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
    devices: Mapping[str, Mapping[int, str | None]]
    """By node, the devices of the job with their IP in the rank table, if there is one."""
    linked: Mapping[str, tuple[int, ...]]
    """By node, the devices that use their network ports; usually empty for a job on one node."""
    crosses_pods: bool = False
    """Whether A3 devices need their network ports: in several super pods, or by a variable."""
    data: tuple[str, ...]
    used: frozenset[str]
    """Packages that the job uses whatever the script imports."""
    skipped: frozenset[str]
    own_job: str = ""
    """The id of the supervised job of which a generation is to start; empty: of none."""

    def makes(self, check: str) -> bool:
        """Whether a check is made."""
        return check not in self.skipped


def job_requirements(
    cluster: Cluster, record: SetupRecord, script: PurePosixPath | None, skipped: Collection[str]
) -> JobRequirements:
    """Derives what a job of this cluster needs from the inventory and the record of setup."""
    launcher = traits_of(record.launcher)
    with_table = cluster.resource_mode == "rank-table"
    placement = record.placement(cluster)
    many, forced = len(placement.nodes) > 1, forced_roce(cluster)
    devices: dict[str, dict[int, str | None]] = {node.name: {} for node in placement.nodes}
    linked: dict[str, tuple[int, ...]] = dict.fromkeys(devices, ())
    for name, device_id, device_ip in record.slots:
        devices[name][device_id] = device_ip if with_table else None
        by_ports = many and (cluster.product != "a3" or record.crosses_pods)
        if device_ip and (by_ports or forced):
            linked[name] += (device_id,)
    envs = {node.name: cluster.env_of(node) for node in placement.nodes}
    ports = {n: tuple(sorted({*chain(*hccl_ports(env))})) for n, env in envs.items()}
    used = {"torch", "torch_npu"} if cluster.is_for_torch else set()
    if cluster.profile == "rec-sdk-tf":
        used |= {"tensorflow", "npu_bridge", "horovod"}
    inside = any(node.sshd for node in record.nodes.values())
    return JobRequirements(
        base=record.base,
        python=cluster.python,
        mpirun=record.mpirun if launcher.openmpi else "",
        module=launcher.module,
        script=script,
        primary=placement.primary.name,
        meeting_port=cluster.chief_port if launcher.sets_meeting or not with_table else None,
        hccl_ports={n: p if many and len(p) <= _MOST_PORTS else () for n, p in ports.items()},
        hccl_is_stated=frozenset(name for name, env in envs.items() if _STATES_FIRST_PORT in env),
        sshd_port=record.port if inside else None,
        containers={node.name: node.container for node in placement.nodes},
        devices=devices,
        linked=linked,
        crosses_pods=record.crosses_pods or forced,
        data=cluster.data,
        used=frozenset(used) | launcher.packages,
        skipped=frozenset(skipped),
    )


SPAWNS = ("mp.spawn(", "multiprocessing.spawn(")
VERSIONS: Final = f"PACKAGES = {PACKAGES!r}\nSPAWNS = {SPAWNS!r}\n" + script("package-versions.py")
WORK: Final = script("readiness-work.sh")
HOST: Final = script("readiness-host.sh", left=5, enough=20, call_s=npus.CALL_TIMEOUT_S)
"""A busy tool gets half a second: the job waits, too."""


class Packages(Value):
    """Packages of the job's interpreter, and those that the script imports."""

    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    """By the name of the distribution, with `_` for `-`."""
    used: frozenset[str] = frozenset()
    lacks: str = ""
    """The required module that is missing; may be empty."""
    spawns: bool = False


class JobProcess(Value):
    """A process with the id of a job in its environment."""

    pid: int
    job_id: str
    command: str


class JobFolder(Value):
    """The folder of a job, and the state of its launcher on this node."""

    job_id: str
    launcher: str
    """`runs`, `gone` or `none`: it had none here."""
    path: str


class Jobs(Value):
    """Jobs with processes or an open folder on a node."""

    processes: tuple[JobProcess, ...] = ()
    folders: tuple[JobFolder, ...] = ()


class Holder(Value):
    """A process that uses devices; its pid on the host side may not be visible to us."""

    pid: int
    devices: tuple[int, ...]
    job_id: str = ""
    command: str = ""


class DeviceIps(Value):
    """Addresses of devices by physical id: at boot, and now for those that were queried."""

    at_boot: Mapping[int, str]
    now: Mapping[int, Answer[str | None]] = field(default_factory=dict)


class DevicePorts(Value):
    """Whether links are up and TLS is on, by physical id, for devices that were queried."""

    link: Mapping[int, Answer[bool]] = field(default_factory=dict)
    tls: Mapping[int, Answer[bool]] = field(default_factory=dict)


class NodeProbe(Value, kw_only=True):
    """The answers of one node; `NOT_QUERIED` if there was no query."""

    lacks: Answer[tuple[str, ...]] = NOT_QUERIED
    opening: Answer[str] = NOT_QUERIED
    """The first line of the script where it begins with `#!`; missing: there is no such file."""
    packages: Answer[Packages] = NOT_QUERIED
    data: Answer[tuple[tuple[str, ...], ...]] = NOT_QUERIED
    """The paths that cannot be read, each after its state: `absent`, `unreadable` or `silent`."""
    jobs: Answer[Jobs] = NOT_QUERIED
    listeners: Answer[tuple[system.Listener, ...]] = NOT_QUERIED
    disk: Answer[system.FileSystem] = NOT_QUERIED
    holders: Answer[tuple[Holder, ...]] = NOT_QUERIED
    present: Answer[tuple[int, ...]] = NOT_QUERIED
    """The devices of the server; empty if unknown."""
    health: Answer[Mapping[int, str]] = NOT_QUERIED
    device_ips: Answer[DeviceIps] = NOT_QUERIED
    surroundings: Answer[NodeEnvironment] = NOT_QUERIED
    ports: Answer[DevicePorts] = NOT_QUERIED

    @property
    def has_script(self) -> bool:
        """Whether the script is there."""
        return not (isinstance(self.opening, Unanswered) and self.opening.kind == "missing")

    @classmethod
    def of(cls, answers: Mapping[str, Answer[Any]]) -> NodeProbe:
        """Takes the answers that are fields of this class."""
        return cls(**{name: answers[name] for name in cls.__struct_fields__ if name in answers})


def work_queries(job: JobRequirements, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the workload side; all share one run of one script."""
    with_ports = job.makes("ports")
    meeting = [job.meeting_port] if job.meeting_port and node.name == job.primary else []
    free = [*meeting, *job.hccl_ports[node.name]] if with_ports else []
    sshd = f"{job.sshd_port:04X}" if job.sshd_port and with_ports else ""
    words = (job.base, job.python, job.module, job.script or "", job.mpirun)
    data = job.data if job.makes("data") else ()
    with_versions = bool(job.module) or (job.makes("packages") and len(job.devices) > 1)
    versions = VERSIONS if with_versions else ""
    command = read_script(
        WORK,
        *map(str, words),
        *("|".join(f"{port:04X}" for port in free), versions, sshd, *data),
        purpose="look at what the job needs",
        timeout_s=30.0 + 6.0 * len(data),
    )
    parts: dict[str, Any] = {
        "lacks": ("look for programs", lambda sections: tuple(sections.text("lacks").splitlines())),
        "opening": ("see how the script begins", lambda sections: sections.text("opening").strip()),
        "jobs": ("look for jobs", _jobs),
        "listeners": ("see who has the ports", _listeners),
        "disk": ("measure the free disk space", lambda s: system.parse_disk(s.text("disk"))[0]),
    }
    if with_versions:
        parts["packages"] = (f"list the packages of {job.python}", _packages)
    if data:
        states = "(absent|unreadable|silent) (.*)"
        parts["data"] = (
            "look for the data",
            lambda sections: tuple(sections.rows("data", states, "a path and how it is")),
        )
    # Only containers hide devices.
    devices = environment_query(node) if node.container and job.makes("devices") else {}
    return {**queries_of(command, parts), **devices}


def host_queries(job: JobRequirements, node: Node) -> dict[str, Fact[Any]]:
    """The queries about devices for the host side; they are slow, so they run beside the others."""
    users = "users" if job.makes("devices") else ""
    ips = job.devices[node.name] if job.makes("device-ips") else {}
    # A device with two ports has two addresses, but hccn.conf holds one.
    pairs = [f"{id_}={ip}" for id_, ip in ips.items() if ip and "," not in ip]
    linked = job.linked[node.name]
    checks = (("link", "links"), ("tls", "tls"))  # what hccn_tool calls it, and the check
    tools = [what for what, check in checks if linked and job.makes(check)]
    pods = "pods" if job.crosses_pods else ""
    words = (users, " ".join(tools), " ".join(map(str, linked)), pods, *pairs)
    command = read_script(HOST, *words, purpose="look at the devices", timeout_s=60.0, aside=True)
    parts: dict[str, Any] = {}
    if users:
        parts["holders"] = ("see who uses the devices", _holders)
        parts["present"] = ("see which devices there are", lambda s: tuple(_table(s).devices))
        parts["health"] = ("see how the devices are", lambda s: _table(s).health)
    if pairs:
        parts["device_ips"] = ("read the addresses of the devices", _device_ips)
    if tools:
        parts["ports"] = ("read links and TLS switches of the devices", _ports)
    return queries_of(command, parts)


def _packages(sections: Sections) -> Packages:
    rows = sections.rows("packages", "([^ ]+) ([^ ]+)", "a package and its version")
    printed: dict[str, list[str]] = grouped(rows)
    spawns = bool(printed.pop("spawns", []))
    (python, *more), used, lacks = (printed.pop(kind, [""]) for kind in ("python", "uses", "lacks"))
    if more or not python:
        raise NotUnderstoodError(sections.script, 1, "", "one version of Python")
    versions = {name: found[-1] for name, found in printed.items()}
    return Packages(python, versions, frozenset(filter(None, used)), "".join(lacks), spawns)


def _jobs(sections: Sections) -> Jobs:
    kinds = "(?:process ([0-9]{1,10})|folder (runs|gone|none)) ([^ ]*) (.*)"
    rows = sections.rows("jobs", kinds, "a process or a folder of a job")
    return Jobs(
        tuple(JobProcess(int(pid), job_id, command) for pid, _, job_id, command in rows if pid),
        tuple(JobFolder(job_id, state, path) for _, state, job_id, path in rows if state),
    )


def _listeners(sections: Sections) -> tuple[system.Listener, ...]:
    """The listeners other than our sshd; empty if no port of the job is taken."""
    printed, sshd = sections.text("listeners"), sections.text("sshd")
    found = system.parse_ss(printed) if printed else ()
    return tuple(listener for listener in found if str(listener.pid) != sshd)


def _table(sections: Sections) -> npu_smi.NpuTable:
    return npus.npu_smi_table(sections, "processes")


def _holders(sections: Sections) -> tuple[Holder, ...]:
    devices = grouped((process.pid, process.device_id) for process in _table(sections).processes)
    rows = sections.rows("holders", "([0-9]{1,10}) ([^ ]*) (.*)", "pid, job and command")
    seen = {int(pid): ("" if job_id == "-" else job_id, command) for pid, job_id, command in rows}
    return tuple(
        Holder(pid, tuple(sorted(ids)), *seen.get(pid, ("", ""))) for pid, ids in devices.items()
    )


def _device_ips(sections: Sections) -> DeviceIps:
    """The addresses at boot, and the current ones of devices that differ from the rank table."""
    if "hccn_conf" not in sections:
        return DeviceIps({})
    at_boot = hccn_tool.parse_conf(sections.text("hccn_conf"))
    if "hccn_tool" not in sections or sections["hccn_tool"].exit_code:
        return DeviceIps(at_boot)
    now = npus.hccn_tool_answers(sections, "ip")
    for id_, answer in now.items():
        if not isinstance(answer, Unanswered):
            device = npus.DeviceNetwork(device_id=id_, addresses=answer)
            now[id_] = replace(answer, value=device.device_ip)
    return DeviceIps(at_boot, now)


def _ports(sections: Sections) -> DevicePorts:
    """Links and TLS switches that hccn_tool reports; empty if the job needs none."""
    if "hccn_tool" not in sections:
        return DevicePorts()
    sections.text("hccn_tool")  # raises if the tool failed
    return DevicePorts(*(npus.hccn_tool_answers(sections, what) for what in ("link", "tls")))
