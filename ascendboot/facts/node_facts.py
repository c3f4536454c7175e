"""The facts of a node (system, ports, software, environment) and the queries for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts import query
from ascendboot.facts.container import code_queries, container_query
from ascendboot.facts.installed import base_script
from ascendboot.facts.npus import DeviceNetwork, RootInfo, npu_queries
from ascendboot.facts.parsers import hccn_tool, npu_smi, software, system
from ascendboot.facts.parsers.base import only, some_lines
from ascendboot.facts.query import NOT_QUERIED, Answer, Answered, Fact, Unanswered, value_of
from ascendboot.hccl.profiles import profile_paths
from ascendboot.model.cluster import Cluster, Device, Node
from ascendboot.model.files import CodeTree
from ascendboot.templates import script
from ascendboot.transport.api import Command, read_script
from ascendboot.value import Value, replace

T = TypeVar("T")

MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
"""Device nodes that every NPU needs besides its own."""
MOST_SHOWN = 200

_DEVICE = re.compile(r"davinci([0-9]{1,3})")
_IDS = re.compile(r"(?:npu-)?(?:Ascend910-)?([0-9]{1,3})(?:-([0-9]{1,3}))?")
_LIMIT = re.compile(r"[0-9]{1,20}")

SINGLE_COPY = script("single-copy.py")
SURROUNDINGS = script("facts-environment.sh")
CONFINEMENT = script("facts-confinement.sh")


class NodeEnvironment(Value, kw_only=True):
    """The environment of the ranks of a node."""

    single_copy: str = ""
    """Why a rank cannot copy from the memory of another; empty: it can, or this is unknown."""
    device_nodes: frozenset[str] = frozenset()
    visible: str | None = None
    """ASCEND_VISIBLE_DEVICES of the first process, for a container's runtime; None: unset."""
    memlock_kib: int | None = None
    """How much memory a process may lock; None: unlimited."""
    label: str = ""
    """The SELinux or AppArmor label of the process; empty without either."""

    @property
    def device_ids(self) -> tuple[int, ...]:
        """The physical ids of the devices that have a device node."""
        matches = map(_DEVICE.fullmatch, self.device_nodes)
        return tuple(sorted(int(match[1]) for match in matches if match))


class Confinement(Value):
    """State of SELinux and AppArmor on the host side."""

    enforcing: bool = False
    denials: tuple[str, ...] = ()
    """The last kernel messages about denials, if our user may read them."""


class NodeFacts(Value, kw_only=True):
    """The answers of one node; `NOT_QUERIED` if there was no query."""

    node: str
    host: Answer[system.System] = NOT_QUERIED
    """The host side and our user on it."""
    container: Answer[system.Engines] = NOT_QUERIED
    machine: Answer[str] = NOT_QUERIED
    """Boot id and network namespace: equal only if two names lead to one machine."""
    work_machine: Answer[str] = NOT_QUERIED
    """The same in the container: equal if it shares the network of its host."""
    first_process: Answer[str] = NOT_QUERIED
    """Answered if we can read the environment of the container's first process: ranks get it."""
    surroundings: Answer[NodeEnvironment] = NOT_QUERIED
    confinement: Answer[Confinement] = NOT_QUERIED
    clock: Answer[query.Clock] = NOT_QUERIED
    interfaces: Answer[tuple[system.Interface, ...]] = NOT_QUERIED
    npus: Answer[npu_smi.NpuMap] = NOT_QUERIED
    npu_processes: Answer[tuple[npu_smi.NpuProcess, ...]] = NOT_QUERIED
    health: Answer[Mapping[int, str]] = NOT_QUERIED
    """Health as npu-smi reports it, by physical id; empty if its ids are not those of devices."""
    free_memory: Answer[Mapping[int, int]] = NOT_QUERIED
    unknown_lines: Answer[tuple[str, ...]] = NOT_QUERIED
    """Lines that vendor tools printed around their answers, by tool."""
    stated: tuple[str, ...] = ()
    """The failures for which the inventory replaces answers of vendor tools (`facts: stated`)."""
    super_pods: Answer[Mapping[int, Answer[npu_smi.SuperPodPlace | None]]] = NOT_QUERIED
    """Chips of an A3 server by physical id, None: in no super pod; empty for other products."""
    root_info: Answer[RootInfo | None] = NOT_QUERIED
    """None: the server is not a 950."""
    device_networks: Answer[tuple[DeviceNetwork, ...]] = NOT_QUERIED
    hccn_conf: Answer[Mapping[int, str]] = NOT_QUERIED
    """The addresses in the file by physical id."""
    neighbours: Answer[Mapping[int, Answer[hccn_tool.LldpNeighbour]]] = NOT_QUERIED
    """The LLDP neighbour of each used device; only with `topology.leaves: lldp`."""
    listeners: Answer[tuple[system.Listener, ...]] = NOT_QUERIED
    kernel_ports: Answer[system.KernelPorts] = NOT_QUERIED
    sshd: Answer[software.Sshd] = NOT_QUERIED
    openmpi: Answer[software.Program] = NOT_QUERIED
    python: Answer[software.Program] = NOT_QUERIED
    ssh: Answer[software.Program] = NOT_QUERIED
    horovod: Answer[software.Horovod] = NOT_QUERIED
    torch: Answer[software.Torch] = NOT_QUERIED
    disk: Answer[tuple[system.FileSystem, ...]] = NOT_QUERIED
    """The file systems of the cluster's folder and of /tmp."""
    place: Answer[str] = NOT_QUERIED
    """The kind of file system of the cluster's folder, if our user can write in it."""
    code_tree: Answer[CodeTree] = NOT_QUERIED
    """The files below the code's path; with `code.source`, only those of the source."""
    system: Answer[system.System] = NOT_QUERIED
    """The workload side and our user on it."""

    @classmethod
    def from_answers(cls, node: str, answers: Mapping[str, Answer[Any]]) -> NodeFacts:
        """Takes the answers that are fields of this class."""
        known: dict[str, Any] = {n: a for n, a in answers.items() if n in cls.__struct_fields__}
        return cls(node=node, **known)


FactsByNode: TypeAlias = Mapping[str, NodeFacts]

_SYSTEM = read_script(script("facts-system.sh"), purpose="look at the system")
_SERVICES = read_script(script("facts-services.sh"), purpose="look at the services")
LAUNCHERS = script("facts-launchers.sh")
TORCH = script("torch-versions.py")


def queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """All queries of setup for a node whose ranks run on the host itself."""
    return {**host_queries(cluster, node), **work_queries(cluster, node)}


def host_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the host side, by the names of NodeFacts' fields."""
    ports = ("port_range", "reserved_ports")
    sshd = query.of_sections(_SERVICES, _sshd, "find the OpenSSH server")
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
        **npu_queries(node, with_lldp=cluster.reads_leaves and node.leaf is None),
    }


def work_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the workload side, by the names of NodeFacts' fields."""
    place = f" in the container {node.container}" if node.container else ""
    text = base_script(cluster.name) + script("facts-work.sh")
    purpose = "look at Python, Open MPI and disk"
    work = read_script(text, cluster.python, purpose=purpose, timeout_s=90.0)
    python, openmpi = software.parse_python_version, software.parse_openmpi_version
    facts: dict[str, Fact[Any]] = {
        "system": _fact(
            _SYSTEM, f"read the names of the system{place}", system.parse_system, *_NAMES
        ),
        "python": _program_fact(work, f"find {cluster.python}{place}", "python", python),
        "openmpi": _program_fact(work, f"find Open MPI{place}", "mpirun", openmpi),
        "disk": _fact(work, f"measure the free disk space{place}", system.parse_disk, "disk"),
        "place": _fact(work, f"use the cluster's folder{place}", _place, "place"),
        **code_queries(cluster),
        **launcher_queries(cluster, node),
        **environment_query(node, "" if cluster.launcher == "torchrun" else cluster.python),
    }
    if not cluster.serves_from_host(node):
        facts["sshd"] = query.of_sections(_SERVICES, _sshd, f"find the OpenSSH server{place}")
    if node.container is not None:
        purpose = f"identify the network{place}"
        facts["work_machine"] = _fact(_SYSTEM, purpose, system.parse_machine, *_MACHINE)
        purpose = f"read what the image and `run -e` set{place}"
        facts["first_process"] = _fact(work, purpose, str, "first_process")
    return facts


def launcher_queries(cluster: Cluster, node: Node) -> dict[str, Fact[Any]]:
    """The queries about launchers: one script, in the environment that Horovod may need to load."""
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
        "horovod": query.of_sections(command, _horovod, "find Horovod"),
        **({"torch": torch} if cluster.is_for_torch else {}),
    }


_NAMES = ("hostname", "uname", "user", "uid", "home")
_MACHINE = ("boot_id", "namespace")


def _fact(command: Command, purpose: str, parse: Callable[..., T], *names: str) -> Fact[T]:
    """A query whose answer is in these sections; `parse` gets their texts."""
    return query.of_sections(command, lambda sections: parse(*map(sections.text, names)), purpose)


def _program_fact(
    command: Command, purpose: str, name: str, parse_version: Callable[[str], str]
) -> Fact[software.Program]:
    """The same of the sections NAME (the path) and NAME_version."""

    def parse(path: str, version: str) -> software.Program:
        return software.Program(system.parse_path(path, f"path of {name}"), parse_version(version))

    return _fact(command, purpose, parse, name, f"{name}_version")


def _horovod(sections: query.Sections) -> software.Horovod:
    path = system.parse_path(sections.text("horovodrun"), "path of horovodrun")
    version = software.parse_horovod_version(sections.text("horovod_version"))
    if "horovod_build" not in sections:
        return software.Horovod(path, version)
    return software.Horovod(path, version, software.parse_has_mpi(sections.text("horovod_build")))


def _sshd(sections: query.Sections) -> software.Sshd:
    path = system.parse_path(sections.text("sshd"), "path of sshd")
    # The call fails on a server before 9.2: an unknown option.
    version = software.parse_sshd_version(sections["sshd_version"].text)
    return software.Sshd(path, version, accepts_login=sections.text("account") != "locked")


def _place(text: str) -> str:
    lines = some_lines(text, "stat -f -c %T", "the kind of a file system")
    return only(lines).match(r"[A-Za-z0-9_/ ().-]{1,60}")[0]


def environment_query(node: Node, python: str = "") -> dict[str, Fact[NodeEnvironment]]:
    """The query for the workload side; `python` tries a single copy, as Open MPI makes it."""
    words = (python, SINGLE_COPY) if python else ("", "")
    command = read_script(SURROUNDINGS, *words, purpose="query the environment of ranks")
    place = f" in the container {node.container}" if node.container else ""
    purpose = f"read the devices and limits of ranks{place}"
    return {"surroundings": query.of_sections(command, _surroundings, purpose)}


def _surroundings(sections: query.Sections) -> NodeEnvironment:
    memlock = sections.text("memlock").strip()
    visible = sections.text("visible").strip()
    if memlock != "unlimited" and not _LIMIT.fullmatch(memlock):
        raise NotUnderstoodError("ulimit -l", 1, memlock, "a number of KiB or unlimited")
    return NodeEnvironment(
        single_copy=sections.text("single_copy").strip().partition("refused ")[2][:MOST_SHOWN],
        device_nodes=frozenset(sections.text("device_nodes").split()),
        visible=visible.partition("=")[2] if visible else None,
        memlock_kib=None if memlock == "unlimited" else int(memlock),
        label=sections.text("label").strip()[:MOST_SHOWN],
    )


def confinement_query(node: Node) -> dict[str, Fact[Confinement]]:
    """The query for the host side of a node with a container."""
    if node.container is None:
        return {}
    purpose = "read what SELinux and AppArmor refused"
    command = read_script(CONFINEMENT, purpose=purpose, timeout_s=20.0)
    return {"confinement": query.of_sections(command, _confinement)}


def _confinement(sections: query.Sections) -> Confinement:
    denials = sections.text("denials").split("\n")
    enforcing = sections.text("enforcing").strip() == "1"
    return Confinement(enforcing, tuple(line for line in denials if line.strip()))


def granted_devices(visible: str) -> tuple[int, ...]:
    """The physical ids in ASCEND_VISIBLE_DEVICES as ascend-docker-runtime reads it; or an error."""
    if visible in ("", "void"):
        return ()
    ids: set[int] = set()
    for word in (part.strip() for part in visible.split(",")):
        match = _IDS.fullmatch(word)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise NotUnderstoodError("ASCEND_VISIBLE_DEVICES", 1, visible, "ids and ranges of ids")
        ids.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(ids))


def with_stated(cluster: Cluster, node: Node, facts: NodeFacts) -> NodeFacts:
    """Fills facts that the tools did not report from the inventory (`facts: stated`).

    Only ports of NPUs that setup sets count as they will be; a step compares what is there.
    """
    facts = _with_ports_set(node, facts)
    if cluster.facts != "stated" or not node.devices:
        return facts
    unread = (facts.npus, facts.device_networks)
    reasons = [answer.message for answer in unread if isinstance(answer, Unanswered)]
    if isinstance(facts.npus, Unanswered):
        ids = (device.device_id for device in node.devices)
        npus = (npu_smi.Npu(npu_id=i, chip_id=0, device_id=i) for i in ids)
        facts = replace(facts, npus=Answered(npu_smi.NpuMap(tuple(npus))))
    reported = {network.device_id: network for network in value_of(facts.device_networks) or ()}
    networks = []
    for device in node.devices:
        network = reported.pop(device.device_id, None)
        if network is not None and isinstance(network.addresses, Unanswered) and device.device_ip:
            reasons.append(network.addresses.message)
        networks.append(_network(device, network))
    if not reasons:
        return facts
    answer = Answered((*networks, *reported.values()))
    return replace(facts, device_networks=answer, stated=tuple(dict.fromkeys(reasons)))


def _with_ports_set(node: Node, facts: NodeFacts) -> NodeFacts:
    networks = value_of(facts.device_networks)
    if not node.npu_ports or networks is None:
        return facts

    def as_set(network: DeviceNetwork) -> DeviceNetwork:
        wanted = node.npu_ports.get(network.device_id)
        if wanted is None:
            return network
        addresses = Answered((hccn_tool.DeviceAddress(*wanted["ip"].split("/")),))
        tls = Answered(wanted["tls"] == "1") if "tls" in wanted else network.tls_enabled
        return replace(network, addresses=addresses, tls_enabled=tls)

    set_ = Answered(tuple(map(as_set, networks)))
    return replace(facts, device_networks=set_, hccn_conf=NOT_QUERIED)


def _network(device: Device, reported: DeviceNetwork | None) -> DeviceNetwork:
    """The network of a device with the stated addresses, unless the tool reports its addresses."""
    ips = [ip for ip in (device.device_ip or "").split(",") if ip]
    stated = Answered(tuple(hccn_tool.DeviceAddress(ip, netmask="") for ip in ips))
    if reported is None:
        return DeviceNetwork(device_id=device.device_id, addresses=stated)
    if isinstance(reported.addresses, Answered) or not ips:
        return reported
    link, tls = (
        NOT_QUERIED if isinstance(answer, Unanswered) else answer
        for answer in (reported.link_up, reported.tls_enabled)
    )
    return replace(reported, addresses=stated, link_up=link, tls_enabled=tls)
