"""What a node is and has: system, ports, software, launchers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

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
from ascendboot.facts.parsers import hccn_tool, software, system
from ascendboot.facts.parsers.hccn_tool import DeviceAddress, HccnConf
from ascendboot.facts.parsers.npu_smi import Npu, NpuList, NpuMap, SuperPodPlace
from ascendboot.facts.parsers.software import (
    Horovod,
    OpenMpi,
    Python,
    Ssh,
    Sshd,
    Torch,
    parse_sshd_version,
)
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
    value_of,
)
from ascendboot.hccl.profiles import profile_paths
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.model.cluster import Cluster, Device, Node
    from ascendboot.model.files import CodeTree

_LAUNCHERS_SCRIPT = "the script that looks for launchers"

TORCH = r"""
import importlib.util, os, sys
def version(name):
    found = importlib.util.find_spec(name)
    if found is None or not found.origin:
        return "-"
    said = {}
    with open(os.path.join(os.path.dirname(found.origin), "version.py")) as file:
        exec(file.read(), said)
    return said["__version__"]
if version("torch") == "-":
    sys.stderr.write("there is no torch for " + sys.executable)
    sys.exit(127)
print(version("torch"), version("torch_npu"))
"""
"""The versions of torch and torch_npu, `-` without one; neither is imported: that takes seconds."""

LAUNCHERS = script("facts-launchers.sh")


def launcher_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries about launchers, by name; they share one run of one script.

    It runs with the environment of the inventory and the profile: Horovod may need their
    LD_LIBRARY_PATH to load.
    """
    is_tried = node == cluster.primary and cluster.launcher in ("auto", "horovod")
    queries_torch = cluster.is_for_torch
    env = cluster.env_of(node)
    # Every user of the node can see these arguments; finding a launcher needs no secret.
    stated = (f"{n}={value}" for n, value in env.items() if not cluster.is_secret(n, value))
    paths = profile_paths(cluster.profile, "{packages}").items()
    of_profile = (f"%{name}={value}" for name, value in paths if name not in env)
    wanted = ("try" if is_tried else "", TORCH if queries_torch else "")
    words = (cluster.python, *wanted, *stated, *of_profile)
    command = Command(
        argv=("bash", "-c", LAUNCHERS, "ascendboot", *words),
        purpose="look for launchers",
        effect=Effect.READ,
        timeout_s=150.0,
    )
    facts: dict[str, Fact[Any]] = {
        "ssh": Fact(command, _ssh, "find ssh"),
        "horovod": Fact(command, _horovod, "find Horovod"),
    }
    if queries_torch:
        facts["torch"] = Fact(command, _torch, "find torch")
    return facts


def _ssh(result: Result) -> Ssh:
    sections = Sections(result, _LAUNCHERS_SCRIPT)
    path = system.parse_path(sections.text("ssh"), "path of ssh")
    return Ssh(path, parse_sshd_version(sections.text("ssh_version")))


def _horovod(result: Result) -> Horovod:
    sections = Sections(result, _LAUNCHERS_SCRIPT)
    path = system.parse_path(sections.text("horovodrun"), "path of horovodrun")
    version = software.parse_horovod_version(sections.text("horovod_version"))
    if "horovod_build" not in sections:
        return Horovod(path, version)
    build = sections.text("horovod_build")
    return Horovod(path, version, software.parse_has_mpi(build))


def _torch(result: Result) -> Torch:
    return software.parse(Sections(result, _LAUNCHERS_SCRIPT).text("torch"))


_SYSTEM = Command(
    argv=("bash", "-c", script("facts-system.sh")),
    purpose="look at the system",
    effect=Effect.READ,
    timeout_s=30.0,
)
_SERVICES = Command(
    argv=("bash", "-c", script("facts-services.sh")),
    purpose="look at the services",
    effect=Effect.READ,
    timeout_s=30.0,
)
_NODE_SCRIPT = "the script that asks the node"


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The file systems that our own files and temporary files go to."""

    base: FileSystem
    tmp: FileSystem


@dataclass(frozen=True, kw_only=True)
class Code:
    """The path of the training code as the inventory states it, seen on the node."""

    path: str
    exists: bool
    readable: bool


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """The answers of one node; `NOT_ASKED` if there was no query."""

    node: str
    host: Answer[System] = NOT_ASKED
    """The host side and our login on it."""
    container: Answer[Engines] = NOT_ASKED
    system: Answer[System] = NOT_ASKED
    """The workload side and our user on it."""
    machine: Answer[str] = NOT_ASKED
    """Boot id and network namespace: equal only where two names lead to one machine."""
    work_machine: Answer[str] = NOT_ASKED
    """The same for the container: equal to the host's where it shares the host's network."""
    first_process: Answer[str] = NOT_ASKED
    """Of the container: answered where its environment can be read, from which ranks get theirs."""
    surroundings: Answer[NodeEnvironment] = NOT_ASKED
    confinement: Answer[Confinement] = NOT_ASKED
    """Of a node with a container."""
    clock: Answer[Clock] = NOT_ASKED
    interfaces: Answer[tuple[Interface, ...]] = NOT_ASKED
    npus: Answer[NpuMap] = NOT_ASKED
    npu_list: Answer[NpuList] = NOT_ASKED
    health: Answer[Mapping[int, str]] = NOT_ASKED
    """Health as npu-smi reports it, by physical id; empty if its ids are not those of devices."""
    unknown_lines: Answer[tuple[str, ...]] = NOT_ASKED
    """Lines that the vendor's tools printed around their answers, by tool."""
    stated: tuple[str, ...] = ()
    """Why the inventory replaces answers of the vendor's tools (`facts: stated`), if it does."""
    super_pods: Answer[Mapping[int, Answer[SuperPodPlace | None]]] = NOT_ASKED
    """By physical id where each chip of an A3 server is, None: in no super pod; empty elsewhere."""
    root_info: Answer[RootInfo | None] = NOT_ASKED
    """None: the server is not a 950."""
    device_networks: Answer[tuple[DeviceNetwork, ...]] = NOT_ASKED
    hccn_conf: Answer[HccnConf] = NOT_ASKED
    listeners: Answer[tuple[Listener, ...]] = NOT_ASKED
    kernel_ports: Answer[KernelPorts] = NOT_ASKED
    sshd: Answer[Sshd] = NOT_ASKED
    openmpi: Answer[OpenMpi] = NOT_ASKED
    python: Answer[Python] = NOT_ASKED
    ssh: Answer[Ssh] = NOT_ASKED
    horovod: Answer[Horovod] = NOT_ASKED
    torch: Answer[Torch] = NOT_ASKED
    disk: Answer[Disk] = NOT_ASKED
    place: Answer[str] = NOT_ASKED
    """The cluster's folder, or the nearest existing one above it: we can write in it."""
    code: Answer[Code] = NOT_ASKED
    code_tree: Answer[CodeTree] = NOT_ASKED
    """The files below the code's path; with `code.source`, only those of the source."""

    @classmethod
    def from_answers(cls, node: str, answers: Mapping[str, Answer[Any]]) -> NodeFacts:
        """Takes the answers that are fields of this class."""
        names = {field.name for field in fields(cls)} - {"node", "stated"}
        known: dict[str, Any] = {name: answers[name] for name in names if name in answers}
        return cls(node=node, **known)


def queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """All queries of setup for a node whose ranks run on the host itself."""
    return {**host_queries(cluster, node), **work_queries(cluster, node)}


def host_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the host side, by the names of NodeFacts' fields."""
    sshd = Fact(_SERVICES, _sshd, "find the OpenSSH server")
    return {
        **({"sshd": sshd} if cluster.serves_from_host(node) else {}),
        "host": Fact(_SYSTEM, _system, "read the names of the system"),
        "machine": Fact(_SYSTEM, _machine, "tell the machine from others"),
        "interfaces": Fact(_SYSTEM, _interfaces, "list the network interfaces"),
        "kernel_ports": Fact(_SYSTEM, _kernel_ports, "read the kernel's ports"),
        **container_query(node),
        **confinement_query(node),
        "listeners": Fact(_SERVICES, _listeners, "list the ports in use"),
        "hccn_conf": Fact(_SERVICES, _hccn_conf, f"read {hccn_tool.FILE}"),
        **npu_queries(),
    }


def work_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the workload side, by the names of NodeFacts' fields."""
    place = f" in the container {node.container}" if node.container else ""
    query = base_script(cluster.name) + script("facts-work.sh")
    work = Command(
        argv=("bash", "-c", query, "ascendboot", cluster.python, cluster.code_path or ""),
        purpose="look at Python, Open MPI, disk and code",
        effect=Effect.READ,
        timeout_s=90.0,
    )
    facts: dict[str, Fact[Any]] = {
        "system": Fact(_SYSTEM, _system, f"read the names of the system{place}"),
        "python": Fact(work, _python, f"find {cluster.python}{place}"),
        "openmpi": Fact(work, _openmpi, f"find Open MPI{place}"),
        "disk": Fact(work, _disk, f"measure the free disk space{place}"),
        "place": Fact(work, _place, f"use the cluster's folder{place}"),
        **code_queries(cluster),
        **launcher_queries(cluster, node),
        **environment_query(cluster, node),
    }
    if not cluster.serves_from_host(node):
        purpose = f"find the OpenSSH server{place}"
        facts["sshd"] = Fact(_SERVICES, _sshd, purpose)
    if cluster.code_path is not None:
        purpose = f"look at the code's path{place}"
        facts["code"] = Fact(work, _code(cluster.code_path), purpose)
    if node.container is not None:
        purpose = f"tell the network{place} from others"
        facts["work_machine"] = Fact(_SYSTEM, _machine, purpose)
        purpose = f"read what the image and `run -e` set{place}"
        facts["first_process"] = Fact(work, _first_process, purpose)
    return facts


def _system(result: Result) -> System:
    sections = Sections(result, _NODE_SCRIPT)

    def printed(name: str) -> str:
        return sections.text(name)

    return System(
        hostname=system.parse_hostname(printed("hostname")),
        arch=system.parse_uname(printed("uname")),
        user=system.parse_user(printed("user")),
        uid=system.parse_uid(printed("uid")),
        home=system.parse_home(printed("home")),
    )


def _machine(result: Result) -> str:
    sections = Sections(result, _NODE_SCRIPT)
    boot_id = system.parse_boot_id(sections.text("boot_id"))
    return f"{boot_id} {system.parse_namespace(sections.text('namespace'))}"


def _interfaces(result: Result) -> tuple[Interface, ...]:
    return system.parse_ip(_part(result, "interfaces"))


def _kernel_ports(result: Result) -> KernelPorts:
    return system.parse_kernel_ports(_part(result, "port_range"), _part(result, "reserved_ports"))


def _listeners(result: Result) -> tuple[Listener, ...]:
    return system.parse_ss(_part(result, "listeners"))


def _hccn_conf(result: Result) -> HccnConf:
    return hccn_tool.parse_conf(_part(result, "hccn_conf"))


def _sshd(result: Result) -> Sshd:
    sections = Sections(result, _NODE_SCRIPT)
    path = system.parse_path(sections.text("sshd"), "path of sshd")
    # both exit with an error on a sound server too: an unknown option, no host key yet
    version, complaints = sections.get("sshd_version"), sections.get("sshd_test")
    if version is None or complaints is None:
        raise NotUnderstoodError(
            _NODE_SCRIPT, len(sections), "", "sections sshd_version, sshd_test"
        )
    return Sshd(
        path,
        software.parse_sshd_version(version.text),
        software.missing_folder(complaints.text),
        lets_us_in=sections.text("account") != "locked",
    )


def _python(result: Result) -> Python:
    path = system.parse_path(_part(result, "python"), "path of Python")
    return Python(path, software.parse_python_version(_part(result, "python_version")))


def _openmpi(result: Result) -> OpenMpi:
    path = system.parse_path(_part(result, "mpirun"), "path of mpirun")
    return OpenMpi(path, software.parse_openmpi_version(_part(result, "mpirun_version")))


def _place(result: Result) -> str:
    return system.parse_path(_part(result, "place"), "the cluster's folder")


def _first_process(result: Result) -> str:
    return _part(result, "first_process")


def _disk(result: Result) -> Disk:
    found = system.parse_disk(_part(result, "disk"))
    match found:
        case (base, tmp):
            return Disk(base=base, tmp=tmp)
        case _:
            raise NotUnderstoodError(system.DISK_TOOL, len(found) + 1, "", "two rows")


def _code(path: str) -> Callable[[Result], Code]:
    def parse(result: Result) -> Code:
        state = _part(result, "code")
        if state not in ("absent", "unreadable", "readable"):
            raise NotUnderstoodError(_NODE_SCRIPT, 1, state, "absent, unreadable or readable")
        return Code(path=path, exists=state != "absent", readable=state == "readable")

    return parse


def _part(result: Result, name: str) -> str:
    return Sections(result, _NODE_SCRIPT).text(name)


_UNKNOWN_MASK = ""


def with_stated(cluster: Cluster, node: Node, facts: NodeFacts) -> NodeFacts:
    """Fills facts that the tools did not report from the inventory (`facts: stated`).

    Reported facts stay: checks compare them with the inventory as usual.
    """
    if cluster.facts != "stated" or not node.devices:
        return facts
    reasons: list[str] = []
    npus = facts.npus
    if isinstance(npus, Unanswered):
        reasons.append(npus.message)
        npus = Answered(NpuMap(tuple(_npu(device) for device in node.devices)))
    known = {network.device_id: network for network in value_of(facts.device_networks) or ()}
    if isinstance(facts.device_networks, Unanswered):
        reasons.append(facts.device_networks.message)
    networks = [_network(device, known.get(device.device_id), reasons) for device in node.devices]
    others = [n for i, n in known.items() if i not in {device.device_id for device in node.devices}]
    if not reasons:
        return facts
    return replace(
        facts,
        npus=npus,
        npu_list=facts.npu_list if npus is facts.npus else NOT_ASKED,
        device_networks=Answered((*networks, *others)),
        stated=tuple(dict.fromkeys(reasons)),
    )


def _npu(device: Device) -> Npu:
    return Npu(
        npu_id=device.device_id,
        chip_id=0,
        device_id=device.device_id,
        device_id_assumed=False,
        logic_id=None,
        chip_name="",
    )


def _network(device: Device, facts: DeviceNetwork | None, reasons: list[str]) -> DeviceNetwork:
    stated = tuple(
        DeviceAddress(ip, _UNKNOWN_MASK) for ip in (device.device_ip or "").split(",") if ip
    )
    if facts is None:
        return DeviceNetwork(
            device_id=device.device_id,
            addresses=Answered(stated),
            link_up=NOT_ASKED,
            tls_enabled=NOT_ASKED,
        )
    if not isinstance(facts.addresses, Unanswered) or not stated:
        return facts
    reasons.append(facts.addresses.message)
    link: Answer[bool] = NOT_ASKED if isinstance(facts.link_up, Unanswered) else facts.link_up
    tls: Answer[bool] = (
        NOT_ASKED if isinstance(facts.tls_enabled, Unanswered) else facts.tls_enabled
    )
    return replace(facts, addresses=Answered(stated), link_up=link, tls_enabled=tls)
