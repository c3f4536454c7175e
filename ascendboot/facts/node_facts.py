"""The facts of a node (system, ports, software, launchers) and the queries for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.container import code_queries, container_query
from ascendboot.facts.environment import (
    Confinement,
    NodeEnvironment,
    confinement_query,
    environment_query,
)
from ascendboot.facts.installed import base_script
from ascendboot.facts.npus import DeviceNetwork, RootInfo, npu_queries
from ascendboot.facts.parsers import hccn_tool, npu_smi, software, system
from ascendboot.facts.parsers.system import (
    Engines,
    FileSystem,
    Interface,
    KernelPorts,
    Listener,
    System,
)
from ascendboot.facts.query import (
    NOT_ASKED,
    Answer,
    Answered,
    Clock,
    Fact,
    Sections,
    Unanswered,
    read_script,
    value_of,
)
from ascendboot.hccl.profiles import profile_paths
from ascendboot.model.cluster import Cluster, Device, Node
from ascendboot.model.files import CodeTree
from ascendboot.templates import script
from ascendboot.transport.api import Command, Result

T = TypeVar("T")
CodeState: TypeAlias = Literal["absent", "unreadable", "readable"]


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """The answers of one node; `NOT_ASKED` if there was no query."""

    node: str
    host: Answer[System] = NOT_ASKED
    """The host side and our user on it."""
    container: Answer[Engines] = NOT_ASKED
    system: Answer[System] = NOT_ASKED
    """The workload side and our user on it."""
    machine: Answer[str] = NOT_ASKED
    """Boot id and network namespace: equal only if two names lead to one machine."""
    work_machine: Answer[str] = NOT_ASKED
    """The same in the container: equal if it shares the network of its host."""
    first_process: Answer[str] = NOT_ASKED
    """Answered if we can read the environment of the container's first process: ranks get it."""
    surroundings: Answer[NodeEnvironment] = NOT_ASKED
    confinement: Answer[Confinement] = NOT_ASKED
    """Only for a node with a container."""
    clock: Answer[Clock] = NOT_ASKED
    interfaces: Answer[tuple[Interface, ...]] = NOT_ASKED
    npus: Answer[npu_smi.NpuMap] = NOT_ASKED
    npu_list: Answer[npu_smi.NpuList] = NOT_ASKED
    health: Answer[Mapping[int, str]] = NOT_ASKED
    """Health as npu-smi reports it, by physical id; empty if its ids are not those of devices."""
    unknown_lines: Answer[tuple[str, ...]] = NOT_ASKED
    """Lines that vendor tools printed around their answers, by tool."""
    stated: tuple[str, ...] = ()
    """The failures for which the inventory replaces answers of vendor tools (`facts: stated`)."""
    super_pods: Answer[Mapping[int, Answer[npu_smi.SuperPodPlace | None]]] = NOT_ASKED
    """Chips of an A3 server by physical id, None: in no super pod; empty for other products."""
    root_info: Answer[RootInfo | None] = NOT_ASKED
    """None: the server is not a 950."""
    device_networks: Answer[tuple[DeviceNetwork, ...]] = NOT_ASKED
    hccn_conf: Answer[hccn_tool.HccnConf] = NOT_ASKED
    listeners: Answer[tuple[Listener, ...]] = NOT_ASKED
    kernel_ports: Answer[KernelPorts] = NOT_ASKED
    sshd: Answer[software.Sshd] = NOT_ASKED
    openmpi: Answer[software.Program] = NOT_ASKED
    python: Answer[software.Program] = NOT_ASKED
    ssh: Answer[software.Program] = NOT_ASKED
    horovod: Answer[software.Horovod] = NOT_ASKED
    torch: Answer[software.Torch] = NOT_ASKED
    disk: Answer[tuple[FileSystem, FileSystem]] = NOT_ASKED
    """The file systems of the cluster's folder and of /tmp."""
    place: Answer[str] = NOT_ASKED
    """The cluster's folder, or the nearest existing one above it, if our user can write in it."""
    code: Answer[CodeState] = NOT_ASKED
    code_tree: Answer[CodeTree] = NOT_ASKED
    """The files below the code's path; with `code.source`, only those of the source."""

    @classmethod
    def from_answers(cls, node: str, answers: Mapping[str, Answer[Any]]) -> NodeFacts:
        """Takes the answers that are fields of this class."""
        known: dict[str, Any] = {n: a for n, a in answers.items() if n in cls.__dataclass_fields__}
        return cls(node=node, **known)


_SCRIPT = "the script that queries the node"
_SYSTEM = read_script(script("facts-system.sh"), purpose="look at the system", timeout_s=30.0)
_SERVICES = read_script(script("facts-services.sh"), purpose="look at the services", timeout_s=30.0)
LAUNCHERS = script("facts-launchers.sh")
TORCH = script("torch-versions.py")


def queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """All queries of setup for a node whose ranks run on the host itself."""
    return {**host_queries(cluster, node), **work_queries(cluster, node)}


def host_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the host side, by the names of NodeFacts' fields."""
    ports = ("port_range", "reserved_ports")
    sshd = Fact(_SERVICES, _sshd, "find the OpenSSH server")
    return {
        "host": _fact(_SYSTEM, "read the names of the system", system.parse_system, *_NAMES),
        "machine": _fact(_SYSTEM, "identify the machine", system.parse_machine, *_MACHINE),
        "interfaces": _fact(_SYSTEM, "list the network interfaces", system.parse_ip, "interfaces"),
        "kernel_ports": _fact(
            _SYSTEM, "read the kernel's ports", system.parse_kernel_ports, *ports
        ),
        "listeners": _fact(_SERVICES, "list the ports in use", system.parse_ss, "listeners"),
        "hccn_conf": _fact(_SERVICES, f"read {hccn_tool.FILE}", hccn_tool.parse_conf, "hccn_conf"),
        **({"sshd": sshd} if cluster.serves_from_host(node) else {}),
        **container_query(node),
        **confinement_query(node),
        **npu_queries(),
    }


def work_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the workload side, by the names of NodeFacts' fields."""
    place = f" in the container {node.container}" if node.container else ""
    work = read_script(
        base_script(cluster.name) + script("facts-work.sh"),
        *(cluster.python, cluster.code_path or ""),
        purpose="look at Python, Open MPI, disk and code",
        timeout_s=90.0,
    )
    python, openmpi = software.parse_python_version, software.parse_openmpi_version
    facts: dict[str, Fact[Any]] = {
        "system": _fact(
            _SYSTEM, f"read the names of the system{place}", system.parse_system, *_NAMES
        ),
        "python": _program_fact(work, f"find {cluster.python}{place}", "python", python),
        "openmpi": _program_fact(work, f"find Open MPI{place}", "mpirun", openmpi),
        "disk": _fact(work, f"measure the free disk space{place}", _disk, "disk"),
        "place": _fact(work, f"use the cluster's folder{place}", _place, "place"),
        **code_queries(cluster),
        **launcher_queries(cluster, node),
        **environment_query(cluster, node),
    }
    if not cluster.serves_from_host(node):
        facts["sshd"] = Fact(_SERVICES, _sshd, f"find the OpenSSH server{place}")
    if cluster.code_path is not None:
        facts["code"] = _fact(work, f"look at the code's path{place}", _code, "code")
    if node.container is not None:
        purpose = f"identify the network{place}"
        facts["work_machine"] = _fact(_SYSTEM, purpose, system.parse_machine, *_MACHINE)
        purpose = f"read what the image and `run -e` set{place}"
        facts["first_process"] = _fact(work, purpose, str, "first_process")
    return facts


def launcher_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries about launchers, which share one run of one script.

    It runs with the environment of the inventory and the profile: Horovod may need their
    LD_LIBRARY_PATH to load.
    """
    is_tried = node == cluster.primary and cluster.launcher in ("auto", "horovod")
    env = cluster.env_of(node)
    # Every user of the node can see these arguments; finding a launcher needs no secret.
    stated = (f"{n}={value}" for n, value in env.items() if not cluster.is_secret(n, value))
    paths = profile_paths(cluster.profile, "{packages}").items()
    of_profile = (f"%{name}={value}" for name, value in paths if name not in env)
    words = ("try" if is_tried else "", TORCH if cluster.is_for_torch else "", *stated, *of_profile)
    command = read_script(
        LAUNCHERS, cluster.python, *words, purpose="look for launchers", timeout_s=150.0
    )
    torch = _fact(command, "find torch", software.parse_torch, "torch")
    return {
        "ssh": _program_fact(command, "find ssh", "ssh", software.parse_sshd_version),
        "horovod": Fact(command, _horovod, "find Horovod"),
        **({"torch": torch} if cluster.is_for_torch else {}),
    }


_NAMES = ("hostname", "uname", "user", "uid", "home")
_MACHINE = ("boot_id", "namespace")


def _fact(command: Command, purpose: str, parse: Callable[..., T], *names: str) -> Fact[T]:
    """A query whose answer is in these sections; `parse` gets their texts."""

    def parse_result(result: Result) -> T:
        sections = Sections(result, _SCRIPT)
        return parse(*(sections.text(name) for name in names))

    return Fact(command, parse_result, purpose)


def _program_fact(
    command: Command, purpose: str, name: str, parse_version: Callable[[str], str]
) -> Fact[software.Program]:
    """A query whose answer is in the sections NAME (the path) and NAME_version."""

    def parse(path: str, version: str) -> software.Program:
        return software.Program(system.parse_path(path, f"path of {name}"), parse_version(version))

    return _fact(command, purpose, parse, name, f"{name}_version")


def _horovod(result: Result) -> software.Horovod:
    sections = Sections(result, _SCRIPT)
    path = system.parse_path(sections.text("horovodrun"), "path of horovodrun")
    version = software.parse_horovod_version(sections.text("horovod_version"))
    if "horovod_build" not in sections:
        return software.Horovod(path, version)
    return software.Horovod(path, version, software.parse_has_mpi(sections.text("horovod_build")))


def _sshd(result: Result) -> software.Sshd:
    sections = Sections(result, _SCRIPT)
    path = system.parse_path(sections.text("sshd"), "path of sshd")
    # Both calls may fail on a server in order: an unknown option, no host key yet.
    version, complaints = sections.get("sshd_version"), sections.get("sshd_test")
    if version is None or complaints is None:
        raise NotUnderstoodError(_SCRIPT, len(sections), "", "sections sshd_version, sshd_test")
    return software.Sshd(
        path,
        software.parse_sshd_version(version.text),
        software.missing_folder(complaints.text),
        lets_us_in=sections.text("account") != "locked",
    )


def _place(text: str) -> str:
    return system.parse_path(text, "the cluster's folder")


def _disk(text: str) -> tuple[FileSystem, FileSystem]:
    match system.parse_disk(text):
        case (base, tmp):
            return base, tmp
        case found:
            raise NotUnderstoodError(system.DISK_TOOL, len(found) + 1, "", "two rows")


def _code(state: str) -> CodeState:
    match state:
        case "absent" | "unreadable" | "readable":
            return state
        case _:
            raise NotUnderstoodError(_SCRIPT, 1, state, "absent, unreadable or readable")


def with_stated(cluster: Cluster, node: Node, facts: NodeFacts) -> NodeFacts:
    """Fills facts that the tools did not report from the inventory (`facts: stated`).

    Reported facts stay: checks compare them with the inventory as usual.
    """
    if cluster.facts != "stated" or not node.devices:
        return facts
    unread = (facts.npus, facts.device_networks)
    reasons = [answer.message for answer in unread if isinstance(answer, Unanswered)]
    if isinstance(facts.npus, Unanswered):
        npus = npu_smi.NpuMap(tuple(_npu(device) for device in node.devices))
        facts = replace(facts, npus=Answered(npus), npu_list=NOT_ASKED)
    reported = {network.device_id: network for network in value_of(facts.device_networks) or ()}
    networks = []
    for device in node.devices:
        network = reported.pop(device.device_id, None)
        if network is not None and isinstance(network.addresses, Unanswered) and device.device_ip:
            reasons.append(network.addresses.message)
        networks.append(_network(device, network))
    if not reasons:
        return facts
    return replace(
        facts,
        device_networks=Answered((*networks, *reported.values())),
        stated=tuple(dict.fromkeys(reasons)),
    )


def _npu(device: Device) -> npu_smi.Npu:
    id_ = device.device_id
    return npu_smi.Npu(
        npu_id=id_, chip_id=0, device_id=id_, device_id_assumed=False, logic_id=None, chip_name=""
    )


def _network(device: Device, reported: DeviceNetwork | None) -> DeviceNetwork:
    """The network of a device with the stated addresses, unless the tool reports its addresses."""
    ips = [ip for ip in (device.device_ip or "").split(",") if ip]
    stated = Answered(tuple(hccn_tool.DeviceAddress(ip, netmask="") for ip in ips))
    if reported is None:
        return DeviceNetwork(device_id=device.device_id, addresses=stated)
    if isinstance(reported.addresses, Answered) or not ips:
        return reported
    link, tls = (
        NOT_ASKED if isinstance(answer, Unanswered) else answer
        for answer in (reported.link_up, reported.tls_enabled)
    )
    return replace(reported, addresses=stated, link_up=link, tls_enabled=tls)
