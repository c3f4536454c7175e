"""NodeFacts: the questions to a node, and its answers, each with its own success or failure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.api import NOT_ASKED, Answer, Clock, Fact, part_of, sections_of
from ascendboot.facts.code import code_questions
from ascendboot.facts.container import container_question
from ascendboot.facts.launchers import launcher_questions
from ascendboot.facts.npus import DeviceNetwork, RootInfo, npu_questions
from ascendboot.facts.own import base_script
from ascendboot.facts.scripts import SERVICES, SYSTEM, WORK
from ascendboot.facts.surroundings import confinement_question, surroundings_question
from ascendboot.parse import disk, hccn_conf, ip, kernel_ports, openmpi, python, ss, sshd, system
from ascendboot.parse.openmpi import OpenMpi
from ascendboot.parse.python import Python
from ascendboot.parse.sshd import Ssh, Sshd
from ascendboot.parse.system import System
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.facts.surroundings import Confinement, Surroundings
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.code import CodeTree
    from ascendboot.parse.container import Engines
    from ascendboot.parse.disk import FileSystem
    from ascendboot.parse.hccn_conf import HccnConf
    from ascendboot.parse.horovod import Horovod
    from ascendboot.parse.ip import Interface
    from ascendboot.parse.kernel_ports import KernelPorts
    from ascendboot.parse.npu_smi import NpuList, NpuMap
    from ascendboot.parse.spod_info import SuperPodPlace
    from ascendboot.parse.ss import Listener
    from ascendboot.parse.torch import Torch
    from ascendboot.transport.api import Result

_SYSTEM = Command(
    argv=("bash", "-c", SYSTEM), purpose="look at the system", effect=Effect.READ, timeout_s=30.0
)
_SERVICES = Command(
    argv=("bash", "-c", SERVICES),
    purpose="look at the services",
    effect=Effect.READ,
    timeout_s=30.0,
)
_SCRIPT = "the script that asks the node"


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
    """The answers of one node; a question that was not put is `NOT_ASKED`."""

    node: str
    host: Answer[System] = NOT_ASKED
    """The host side and our login there."""
    container: Answer[Engines] = NOT_ASKED
    system: Answer[System] = NOT_ASKED
    """The workload side and as whom we are there."""
    machine: Answer[str] = NOT_ASKED
    """Boot id and network namespace: equal only where two names lead to one machine."""
    work_machine: Answer[str] = NOT_ASKED
    """The same for the container: equal to the host's where it shares the host's network."""
    first_process: Answer[str] = NOT_ASKED
    """Of the container: answered where its environment can be read, from which ranks get theirs."""
    surroundings: Answer[Surroundings] = NOT_ASKED
    confinement: Answer[Confinement] = NOT_ASKED
    """Of a node with a container."""
    clock: Answer[Clock] = NOT_ASKED
    interfaces: Answer[tuple[Interface, ...]] = NOT_ASKED
    npus: Answer[NpuMap] = NOT_ASKED
    npu_list: Answer[NpuList] = NOT_ASKED
    health: Answer[Mapping[int, str]] = NOT_ASKED
    """The word of npu-smi by physical id; empty where the tool's ids are no devices'."""
    unknown_lines: Answer[tuple[str, ...]] = NOT_ASKED
    """What the vendor's tools printed around their answers, by tool."""
    stated: tuple[str, ...] = ()
    """Why the inventory stands in for the vendor's tools (`facts: stated`), where it does."""
    super_pods: Answer[Mapping[int, Answer[SuperPodPlace | None]]] = NOT_ASKED
    """By physical id where each chip of an A3 server is, None: in no super pod; empty elsewhere."""
    root_info: Answer[RootInfo | None] = NOT_ASKED
    """None: it is no 950."""
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
    """The cluster's folder, or the first one above it that is there: we can write in it."""
    code: Answer[Code] = NOT_ASKED
    code_tree: Answer[CodeTree] = NOT_ASKED
    """The files below the code's path; where this side sends them, those of the source alone."""

    @classmethod
    def from_answers(cls, node: str, answers: Mapping[str, Answer[Any]]) -> NodeFacts:
        """The facts in what `ask` returned; names that are no facts of a node are left out."""
        names = {field.name for field in fields(cls)} - {"node", "stated"}
        known: dict[str, Any] = {name: answers[name] for name in names if name in answers}
        return cls(node=node, **known)


def questions(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """Everything that setup wants to know of a node whose ranks run on the host itself."""
    return {**host_questions(cluster, node), **work_questions(cluster, node)}


def host_questions(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """What is asked of the host side, by the names of NodeFacts' fields."""
    sshd = Fact("sshd", _SERVICES, _sshd, "find the OpenSSH server")
    return {
        **({"sshd": sshd} if cluster.serves_from_host(node) else {}),
        "host": Fact("host", _SYSTEM, _system, "read the names of the system"),
        "machine": Fact("machine", _SYSTEM, _machine, "tell the machine from others"),
        "interfaces": Fact("interfaces", _SYSTEM, _interfaces, "list the network interfaces"),
        "kernel_ports": Fact("kernel_ports", _SYSTEM, _kernel_ports, "read the kernel's ports"),
        **container_question(node),
        **confinement_question(node),
        "listeners": Fact("listeners", _SERVICES, _listeners, "list the ports in use"),
        "hccn_conf": Fact("hccn_conf", _SERVICES, _hccn_conf, f"read {hccn_conf.FILE}"),
        **npu_questions(),
    }


def work_questions(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """What is asked of the workload side, by the names of NodeFacts' fields."""
    place = f" in the container {node.container}" if node.container else ""
    script = base_script(cluster.name) + WORK
    work = Command(
        argv=("bash", "-c", script, "ascendboot", cluster.python, cluster.code_path or ""),
        purpose="look at Python, Open MPI, disk and code",
        effect=Effect.READ,
        timeout_s=90.0,
    )
    facts: dict[str, Fact[Any]] = {
        "system": Fact("system", _SYSTEM, _system, f"read the names of the system{place}"),
        "python": Fact("python", work, _python, f"find {cluster.python}{place}"),
        "openmpi": Fact("openmpi", work, _openmpi, f"find Open MPI{place}"),
        "disk": Fact("disk", work, _disk, f"measure the free disk space{place}"),
        "place": Fact("place", work, _place, f"use the cluster's folder{place}"),
        **code_questions(cluster),
        **launcher_questions(cluster, node),
        **surroundings_question(cluster, node),
    }
    if not cluster.serves_from_host(node):
        purpose = f"find the OpenSSH server{place}"
        facts["sshd"] = Fact("sshd", _SERVICES, _sshd, purpose)
    if cluster.code_path is not None:
        purpose = f"look at the code's path{place}"
        facts["code"] = Fact("code", work, _code(cluster.code_path), purpose)
    if node.container is not None:
        purpose = f"tell the network{place} from others"
        facts["work_machine"] = Fact("work_machine", _SYSTEM, _machine, purpose)
        purpose = f"read what the image and `run -e` set{place}"
        facts["first_process"] = Fact("first_process", work, _first_process, purpose)
    return facts


def _system(result: Result) -> System:
    sections = sections_of(result, _SCRIPT)

    def said(name: str) -> str:
        return part_of(sections, name, _SCRIPT)

    return System(
        hostname=system.parse_hostname(said("hostname")),
        arch=system.parse_uname(said("uname")),
        user=system.parse_user(said("user")),
        uid=system.parse_uid(said("uid")),
        home=system.parse_home(said("home")),
    )


def _machine(result: Result) -> str:
    sections = sections_of(result, _SCRIPT)
    boot_id = system.parse_boot_id(part_of(sections, "boot_id", _SCRIPT))
    return f"{boot_id} {system.parse_namespace(part_of(sections, 'namespace', _SCRIPT))}"


def _interfaces(result: Result) -> tuple[Interface, ...]:
    return ip.parse(_part(result, "interfaces"))


def _kernel_ports(result: Result) -> KernelPorts:
    return kernel_ports.parse(_part(result, "port_range"), _part(result, "reserved_ports"))


def _listeners(result: Result) -> tuple[Listener, ...]:
    return ss.parse(_part(result, "listeners"))


def _hccn_conf(result: Result) -> HccnConf:
    return hccn_conf.parse(_part(result, "hccn_conf"))


def _sshd(result: Result) -> Sshd:
    sections = sections_of(result, _SCRIPT)
    path = system.parse_path(part_of(sections, "sshd", _SCRIPT), "path of sshd")
    # both exit with an error on a sound server too: an unknown option, no host key yet
    version, complaints = sections.get("sshd_version"), sections.get("sshd_test")
    if version is None or complaints is None:
        raise NotUnderstoodError(_SCRIPT, len(sections), "", "sections sshd_version, sshd_test")
    return Sshd(
        path,
        sshd.parse_version(version.text),
        sshd.missing_folder(complaints.text),
        lets_us_in=part_of(sections, "account", _SCRIPT) != "locked",
    )


def _python(result: Result) -> Python:
    path = system.parse_path(_part(result, "python"), "path of Python")
    return Python(path, python.parse_version(_part(result, "python_version")))


def _openmpi(result: Result) -> OpenMpi:
    path = system.parse_path(_part(result, "mpirun"), "path of mpirun")
    return OpenMpi(path, openmpi.parse_version(_part(result, "mpirun_version")))


def _place(result: Result) -> str:
    return system.parse_path(_part(result, "place"), "the cluster's folder")


def _first_process(result: Result) -> str:
    return _part(result, "first_process")


def _disk(result: Result) -> Disk:
    found = disk.parse(_part(result, "disk"))
    match found:
        case (base, tmp):
            return Disk(base=base, tmp=tmp)
        case _:
            raise NotUnderstoodError(disk.TOOL, len(found) + 1, "", "two rows")


def _code(path: str) -> Callable[[Result], Code]:
    def parse(result: Result) -> Code:
        state = _part(result, "code")
        if state not in ("absent", "unreadable", "readable"):
            raise NotUnderstoodError(_SCRIPT, 1, state, "absent, unreadable or readable")
        return Code(path=path, exists=state != "absent", readable=state == "readable")

    return parse


def _part(result: Result, name: str) -> str:
    return part_of(sections_of(result, _SCRIPT), name, _SCRIPT)
