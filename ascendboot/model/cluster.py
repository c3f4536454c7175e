"""The cluster of an inventory: nodes, devices, containers, launcher, placement, clock offsets."""

from __future__ import annotations

import getopt
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from ascendboot.model import topology
from ascendboot.model.files import PRIMARY
from ascendboot.model.names import names_among
from ascendboot.model.secrets import is_secret_name, is_secret_value, to_mask
from ascendboot.value import Value, field, replace

Product = Literal["auto", "910", "a2", "a3", "a5"]
Trust = Literal["ca", "pinned"]
ResourceMode = Literal["rank-table", "no-rank-table", "root-info"]
Profile = Literal["none", "rec-sdk-tf"]
Engine = Literal["auto", "docker", "podman"]
SshVia = Literal["sshd", "engine"]
LauncherKind = Literal["auto", "mpirun", "horovod", "torchrun", "srun"]
CheckpointKind = Literal["megatron", "tensorflow", "torch", "mindspore", "manifest"]

CHIEF_PORT = 61000
"""Outside HCCL's own 60000-60031 and the ports that Linux gives to outgoing connections."""
CHIEF_PORTS = 100
"""The chief port and those above it: each generation of a supervised job meets at another, so that
it does not matter what a killed one left open."""


def has_meeting_port(mode: ResourceMode, launcher: LauncherKind) -> bool:
    """Whether the ranks of such jobs always connect to the chief port."""
    return mode != "rank-table" or launcher == "torchrun"


class Device(Value):
    """An NPU of the inventory; `device_id` is the physical id (/dev/davinciN)."""

    device_id: int
    device_ip: str | None = None


SSH_PORT = 22


class SshAccess(Value, kw_only=True):
    """How the control machine reaches a node's host side."""

    user: str
    port: int = SSH_PORT
    identity: str | None = None
    """Private key on the control machine; None: the keys and the agent that ssh uses."""
    jump: str | None = None
    """The jump host `USER@HOST:PORT`; user and port are optional, an IPv6 host is in brackets.
    With several, separated by commas, the last one reaches the node."""
    fingerprint: str | None = None
    """`SHA256:…` of the right host key, as the inventory states it."""
    sudo: Literal["none", "nopasswd", "ask"] = "none"
    """Whether everything there runs as root by sudo, and whether it wants a password."""
    files: tuple[str, ...] = ()
    """Private keys that ~/.ssh/config names, in place of the usual ones."""
    only_files: bool = False
    """Whether no other key of the agent is tried (IdentitiesOnly)."""
    known_as: str | None = None
    """The name of its host key that ~/.ssh/config states (HostKeyAlias)."""
    unstated: tuple[str, ...] = ()
    """What the inventory does not state: the value is a default that ~/.ssh/config overrides."""


def jump_of(command: str) -> str | None:
    """Return the jump host of a ProxyCommand `ssh -W %h:%p USER@HOST`; None of any other."""
    program, *words = command.removeprefix("exec ").split() or [""]
    try:
        options, hosts = getopt.gnu_getopt(words, "W:p:l:o:q")
    except getopt.GetoptError:
        return None
    stated = dict(options)
    is_known = all(flag != "-o" or value.startswith(_OF_HOST_KEYS) for flag, value in options)
    is_whole = len(hosts) == 1 and stated.get("-W") in ("%h:%p", "[%h]:%p")
    if not (is_known and is_whole and PurePosixPath(program).name == "ssh"):
        return None
    user, _, host = hosts[0].rpartition("@")
    user, port, host = stated.get("-l", user), stated.get("-p"), host.strip("[]")
    host = f"[{host}]" if ":" in host else host
    jump = f"{f'{user}@' if user else ''}{host}{f':{port}' if port else ''}"
    return None if "%" in jump else jump


NO_PROXY_COMMAND = "no program is run to connect; state ProxyJump, or `ssh -W %h:%p HOST`"
_OF_HOST_KEYS = ("StrictHostKeyChecking", "UserKnownHostsFile", "LogLevel")
"""Options that change nothing here: host keys are always checked."""


class Creation(Value, kw_only=True):
    """How setup creates the container of a node."""

    image: str
    devices: Literal["used", "all"] = "used"
    mounts: Sequence[str] = ()
    """`SOURCE:TARGET` or `SOURCE:TARGET:ro`."""
    shm: str = "1 GiB"
    runtime: Literal["default", "ascend"] = "default"
    env: Mapping[str, str] = field(default_factory=dict)


class Node(Value, kw_only=True):
    """One server of the cluster."""

    name: str
    address: str
    """Where the control machine reaches it by SSH."""
    cluster_address: str
    """Where the other nodes reach it; default: `address`."""
    server_id: str
    """Its `server_id` in the rank table: unique, as stated."""
    ssh: SshAccess
    container: str | None = None
    """Where ranks run; None: on the host itself."""
    engine: Engine = "auto"
    """The container's engine; auto: the first engine that has a container of this name."""
    creation: Creation | None = None
    """How setup creates the container; None: it does not."""
    devices: tuple[Device, ...] = ()
    """The devices to use, in this order; empty: all devices of the node, by physical id."""
    device_count: int | None = None
    """The stated number of devices; None: not stated (`devices` may name them)."""
    npu_ports: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By device id what hccn_tool is to set: `ip` (ADDRESS/NETMASK), `gateway`, `netdetect`, `mtu`
    and `tls`; without what setup leaves alone."""
    interface: str | None = None
    leaf: topology.Leaf | None = None
    """The leaf switch of the node or of each device; None: not stated."""
    slice_id: int = 0
    """Its place at the leaf switch, as MindCluster numbers them; 0 also where it is unknown."""
    groups: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its ranks only; they override those of the cluster."""

    def __hash__(self) -> int:
        """Without `env`, which has none."""
        return hash((self.name, self.address))

    @property
    def leaf_names(self) -> frozenset[str]:
        """The leaf switches of the node and of its devices."""
        if isinstance(self.leaf, tuple):
            return frozenset(leaf for _, leaf in self.leaf)
        return frozenset([self.leaf] if self.leaf else ())

    def leaf_of(self, device_id: int) -> str | None:
        """The leaf switch of a device; None: not stated."""
        return dict(self.leaf).get(device_id) if isinstance(self.leaf, tuple) else self.leaf


class OwnTable(Value, kw_only=True):
    """A rank table of the operator, used unchanged."""

    text: str
    generation: str
    """1.0, 1.2, 2.0 or group list."""
    places: tuple[tuple[str, int, str | None], ...]
    """`server_id`, device id and device IP of every rank, in rank order."""


class CheckpointRules(Value, kw_only=True):
    """Where a job keeps its checkpoints, and how it is told to resume from one."""

    kind: CheckpointKind
    """Which program writes them: it decides which files make a complete checkpoint."""
    dir: str
    """Absolute path of their folder on the workload side of every node."""
    resume_arg: str | None = None
    """Words for the script, with {path} and {step}; None: it reads variables only."""
    reshardable: bool = False
    """Whether a checkpoint can be loaded by another number of ranks."""
    shared: bool = False
    """Whether all nodes see the same folder."""
    model_parts: int | None = None
    """tp * pp, if the inventory states them: the least number of Megatron's rank folders."""


class Parallel(Value, kw_only=True):
    """How a job divides its model and its batch; all sizes are 1 or more."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    gbs: int | None = None
    """Global batch size, in samples of one step; None: it changes with the number of ranks."""
    mbs: int = 1
    dp_min: int = 1

    @property
    def model_devices(self) -> int:
        """How many devices hold one copy of the model."""
        return self.tp * self.pp * self.cp

    @property
    def words(self) -> str:
        """`tp 8 x pp 2 x cp 1`."""
        return f"tp {self.tp} x pp {self.pp} x cp {self.cp}"


class Cluster(Value, kw_only=True, dict=True):
    """The desired cluster: nodes in inventory order and the settings they share.

    `inventory/keys.yaml` explains the keys from which the fields come.
    """

    name: str
    nodes: tuple[Node, ...]
    primary_name: str
    source: str
    """The inventory file, for messages."""
    product: Product = "auto"
    facts: Literal["read", "stated"] = "read"
    ssh_port: int | None = None
    """Port of the cluster's sshd; None: setup chooses one that is free on all nodes."""
    ssh_via: SshVia = "sshd"
    trust: Trust = "ca"
    standby: tuple[str, ...] = ()
    resource_mode: ResourceMode = "rank-table"
    own_table: OwnTable | None = None
    """Replaces the rank table that setup would build from facts."""
    chief_port: int = CHIEF_PORT
    chief_device: int = 0
    launcher: LauncherKind = "auto"
    mpi_args: tuple[str, ...] = ()
    ranks_per_node: Literal[1] | None = None
    """One rank has all devices of its node; None: `ranks_per_device` counts."""
    ranks_per_device: int = 1
    firewall: bool = False
    profile: Profile = "none"
    """The training stack to prepare for; `env` already has its variables."""
    code_path: str | None = None
    code_source: str | None = None
    code_exclude: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    python: str = "python3"
    log_limit: int = 1 << 30
    """How many bytes of a rank's log to keep; 0: all."""
    loss_form: str = ""
    """How ranks print their loss, with `<NUMBER>`; empty: in one of the usual forms."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every rank, without those of single nodes."""
    secret_env: frozenset[str] = frozenset()
    topology_order: Literal["auto", "inventory"] = "auto"
    cores: tuple[tuple[str, str], ...] = ()
    """The group, such as a pod, of each leaf switch; a link between groups costs twice as much."""
    topology_shape: topology.Shape | Literal["auto"] = "auto"
    """What the order is for; auto: as `order_shape` finds it."""
    reads_leaves: bool = False
    """Whether setup reads the leaf switches of nodes that state none, by LLDP."""
    checkpoint: CheckpointRules | None = None
    parallel: Parallel | None = None

    def with_leaves(self, leaves: Mapping[str, topology.Leaf]) -> Cluster:
        """The cluster with the leaf switches in `leaves`, by node, where a node states none."""
        nodes = (
            replace(node, leaf=leaves.get(node.name)) if node.leaf is None else node
            for node in self.nodes
        )
        return replace(self, nodes=tuple(nodes)) if leaves else self

    @property
    def primary(self) -> Node:
        """The node of rank 0, from which jobs are started."""
        return self.node(self.primary_name)

    @property
    def heads(self) -> tuple[Node, ...]:
        """The nodes from which jobs can be started, the primary first."""
        others = (node for node in self.nodes if node.name in self.standby)
        return (self.primary, *(node for node in others if node != self.primary))

    @property
    def code_folder(self) -> str | None:
        """The folder on the control machine that is the source of the code."""
        return None if self.code_source == PRIMARY else self.code_source

    @property
    def has_logins(self) -> bool:
        """Whether nodes must log in to each other: one server alone needs no SSH of its own."""
        return len(self.nodes) > 1

    @property
    def has_meeting_port(self) -> bool:
        """Whether the ranks always connect to `chief_port`."""
        return has_meeting_port(self.resource_mode, self.launcher)

    @property
    def is_for_torch(self) -> bool:
        """Whether the settings are those of PyTorch jobs."""
        return self.resource_mode == "root-info" or self.launcher == "torchrun"

    @property
    def rank_order(self) -> tuple[Node, ...]:
        """The nodes in rank order: as in the own rank table, by leaf switch, or as given.

        The primary is first; without leaf switches the others follow in inventory order.
        """
        if self.leaf_order is None or not self.follows_leaves:
            return self.given_order
        by_name = {node.name: node for node in self.nodes}
        return tuple(by_name[name] for name in self.leaf_order.nodes)

    @property
    def given_order(self) -> tuple[Node, ...]:
        """The nodes as in the own rank table, else the primary first, then in inventory order."""
        if self.own_table is not None:
            order = list(dict.fromkeys(server for server, *_ in self.own_table.places))
            return tuple(sorted(self.nodes, key=lambda node: order.index(node.server_id)))
        return (self.primary, *(n for n in self.nodes if n.name != self.primary_name))

    @property
    def follows_leaves(self) -> bool:
        """Whether leaf switches may change the order of ranks."""
        return self.own_table is None and self.topology_order == "auto"

    @property
    def master_index(self) -> int | None:
        """The primary's place in the inventory; None where ranks do not follow leaf switches."""
        by_leaf = self.follows_leaves and any(node.leaf is not None for node in self.nodes)
        return self.nodes.index(self.primary) if by_leaf else None

    @property
    def rails(self) -> tuple[int, ...]:
        """The device ids whose leaf switches may differ; none if no node states leaves of devices.

        Devices that a node does not use are left out.
        """
        ids: set[int] = set()
        for node in self.nodes:
            if isinstance(node.leaf, tuple):
                listed = {device.device_id for device in node.devices}
                ids |= listed or {device_id for device_id, _ in node.leaf}
        return tuple(sorted(ids))

    @cached_property
    def leaves(self) -> Mapping[str, topology.Signature]:
        """The leaf switch of each rail by node, in the given order; empty if no node states one.

        An unknown leaf counts as a leaf of its own, `?NODE`; a device that is not used as `-`.
        With `cores`, the group of each leaf switch follows.
        """
        if all(node.leaf is None for node in self.nodes):
            return {}
        rails, cores = self.rails, dict(self.cores)
        leaves = {node.name: _signature(node, rails) for node in self.given_order}
        if not cores:
            return leaves
        return {n: (*own, *(cores.get(leaf, "") for leaf in own)) for n, own in leaves.items()}

    @cached_property
    def leaf_order(self) -> topology.RankOrder | None:
        """The best order by leaf switch; None if no node states a leaf."""
        if not self.leaves:
            return None
        slices = {node.name: node.slice_id for node in self.nodes}
        return topology.order_nodes(self.leaves, self.order_shape, self.stages, slices)

    @property
    def order_shape(self) -> topology.Shape:
        """The stated shape; else a pipeline by `parallel`, or what HCCL certainly uses, or a ring.

        A 910 with 2^k servers uses halving-doubling (HCCL's manual, HCCL_ALGO).
        """
        if self.topology_shape != "auto":
            return self.topology_shape
        if self.stages > 1:
            return "pipeline"
        algorithm = self.env.get("HCCL_ALGO", "")
        doubles = "level1:H-D_R" in algorithm or (not algorithm and self.product == "910")
        return "halving-doubling" if doubles else "ring"

    @property
    def stages(self) -> int:
        """The number of pipeline stages; 1 without a pipeline."""
        return self.parallel.pp if self.parallel else 1

    @property
    def order_words(self) -> str:
        """How the order of ranks was chosen, and its cost; empty if no node states a leaf."""
        best = self.leaf_order
        if best is None:
            return ""
        if self.follows_leaves and len(self.nodes) < topology.LEAST_ORDERED:
            least = topology.LEAST_ORDERED
            return f"rank order by leaf switches: skipped, it needs at least {least} nodes"
        if self.follows_leaves:
            return f"rank order by leaf switches: {best.words}"
        by = "topology.order" if self.own_table is None else "resources.file"
        cheaper = ""
        if best.after < best.before:
            cheaper = f"; by leaf switches it would be {topology.shown(best.after)}"
        return f"rank order by {by}: {best.shape} cost {topology.shown(best.before)}{cheaper}"

    def serves_from_host(self, node: Node) -> bool:
        """Whether the node's ranks run in a container and our sshd does not."""
        return node.container is not None and self.ssh_via == "engine"

    def env_of(self, node: Node) -> dict[str, str]:
        """The environment variables of a node's ranks."""
        return {**self.env, **node.env}

    def is_secret(self, name: str, value: str) -> bool:
        """Whether the value of a variable must stay hidden."""
        return name in self.secret_env or is_secret_name(name) or is_secret_value(value)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of all secret variables: they must not appear in any output, report or log."""
        created = (node.creation.env for node in self.nodes if node.creation)
        envs = (self.env, *(node.env for node in self.nodes), *created)
        stated = [item for env in envs for item in env.items()]
        return to_mask([value for name, value in stated if self.is_secret(name, value)])

    def chosen(self, text: str | None, flag: str = "--nodes") -> tuple[Node, ...]:
        """The nodes that a flag names, or all for None; UsageError if it names none, or others."""
        known = [node.name for node in self.nodes]
        names = known if text is None else names_among(flag, text, known, self.groups)
        return tuple(map(self.node, names))

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """The names of the nodes of each group."""
        names = sorted({group for node in self.nodes for group in node.groups})
        return {name: [node.name for node in self.nodes if name in node.groups] for name in names}

    def node(self, name: str) -> Node:
        """The node called `name`; KeyError when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


def _signature(node: Node, rails: tuple[int, ...]) -> topology.Signature:
    """The leaf of each rail at a node; without rails that of the whole node."""
    if not rails:
        return (node.leaf if isinstance(node.leaf, str) else f"?{node.name}",)
    used = {device.device_id for device in node.devices} or set(rails)
    return tuple((node.leaf_of(i) or f"?{node.name}") if i in used else "-" for i in rails)


OWN_ONLY = "podman shows each user nothing but his own containers"


class ContainerExec(Value):
    """Runs commands in a container from the host side of its node."""

    engine: str
    """The program `docker` or `podman` on the host side, as a path."""
    container: str

    @property
    def engine_name(self) -> str:
        """`docker` or `podman`."""
        return PurePosixPath(self.engine).name

    def argv(self, *words: str) -> tuple[str, ...]:
        """The command on the host side that runs `words` in the container with the same stdin.

        BASH_ENV is cleared: some images set it, and bash would read that file before our scripts.
        """
        return (self.engine, "exec", "-i", "-e", "BASH_ENV=", self.container, *words)

    def remedy(self, message: str) -> str:
        """What an operator can do about this error message of the engine."""
        for form, remedy in _REMEDIES.items():
            if re.search(form, message.lower()):
                return remedy.format(engine=self.engine_name, name=self.container)
        return f"look at it: {self.engine_name} ps -a"


_ABSENT = "no such container|no container with name or id|no such object"
_REMEDIES = {
    "permission denied while trying to connect": (
        "let this user use {engine} (group {engine}), or log in as root"
    ),
    "cannot connect to the docker daemon|is the docker daemon running": (
        "start the engine: systemctl start {engine}"
    ),
    "is paused|state paused|unpause": "let it go on: {engine} unpause {name}",
    "is not running|running containers|state improper|is restarting": (
        "start it: {engine} start {name}"
    ),
    _ABSENT: "start it, or correct `container`",
    "no space left on device": "free space on the node (df -h shows the full disk)",
    "rootless": f"log in as the user who started it; {OWN_ONLY}",
    'workdir "|chdir to cwd|chdir `|current working directory': (
        "make its working directory again: {engine} exec -w / {name} mkdir -p …"
    ),
    '"bash": executable file|executable file `bash`': "install bash in its image",
    "no such file or directory|not found": (
        "is {engine} still on the host side? Run setup, which looks again"
    ),
}
"""By messages of docker 20.10 to 28 and podman 4.3."""


def is_absent(message: str) -> bool:
    """Whether an engine reports by this message that it has no such container."""
    return re.search(_ABSENT, message.lower()) is not None


LAUNCHER_NAMES = ("LD_LIBRARY_PATH", "PYTHONPATH")
"""The variables of ranks that launchers get, too: horovodrun and torchrun need them to load."""


class LauncherChoice(Value):
    """The launcher of jobs, and why it was chosen."""

    kind: str
    """As `launcher.kind` names it."""
    why: str
    path: str | None = None
    """Absolute path of its program on the primary if it is not on PATH."""

    @property
    def name(self) -> str:
        """The name of the program."""
        return PurePosixPath(self.path).name if self.path else self.kind

    @property
    def words(self) -> str:
        """A sentence for reports and plans."""
        return f"{self.name} starts jobs: {self.why}"


MPIRUN = LauncherChoice("mpirun", "the default")


class Slot(Value):
    """A device of a node where one rank can run."""

    node: Node
    device_id: int
    device_ip: str | None
    local_rank: int
    others: tuple[int, ...] = ()
    """The node's other devices, where one rank has all of them."""


DeviceOfNode: TypeAlias = tuple[str, int, str | None]
"""Node, device id and device IP."""
TABLES = "hccl_json_"
"""With this the names of rank tables begin."""


class Placement(Value, dict=True):
    """The slots of a job in rank order: a slot's rank is its index."""

    slots: tuple[Slot, ...]

    @classmethod
    def on(cls, cluster: Cluster, devices: Iterable[DeviceOfNode]) -> Placement:
        """The ranks on these devices, which are in rank order: as many as the inventory states.

        Ranks that share devices take turns: local rank N has device N modulo their number.
        """
        slots: list[Slot] = []
        for name, of_node in groupby(devices, key=lambda device: device[0]):
            node, own = cluster.node(name), [device[1:] for device in of_node]
            if cluster.ranks_per_node:
                slots.append(Slot(node, *own[0], 0, tuple(device_id for device_id, _ in own[1:])))
            else:
                every = enumerate(own * cluster.ranks_per_device)
                slots += [Slot(node, *device, local_rank) for local_rank, device in every]
        return cls(tuple(slots))

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.slots)

    @property
    def primary(self) -> Node:
        """The node of rank 0."""
        return self.slots[0].node

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that hold ranks, in rank order."""
        return tuple({slot.node.name: slot.node for slot in self.slots}.values())

    @property
    def table_name(self) -> str:
        """`hccl_json_16p_2_host.json`, or `hccl_json_8p.json` for one node, as Rec SDK has it."""
        hosts = f"_{len(self.nodes)}_host" if len(self.nodes) > 1 else ""
        return f"{TABLES}{self.world_size}p{hosts}.json"

    def ranks_on(self, node: Node) -> tuple[int, ...]:
        """The ranks of one node, ascending."""
        return self._ranks.get(node.name, ())

    @cached_property
    def _ranks(self) -> dict[str, tuple[int, ...]]:
        ranks: dict[str, list[int]] = {}
        for rank, slot in enumerate(self.slots):
            ranks.setdefault(slot.node.name, []).append(rank)
        return {name: tuple(of_node) for name, of_node in ranks.items()}


class NodeClocks(Value):
    """The clock offset of each node; a missing node has the time of the control machine."""

    offsets: Mapping[str, float] = field(default_factory=dict)
    """Node minus control machine, in seconds."""
    uncertainty_s: float = 0.0
    """The greatest error of the offsets."""

    def here(self, node: str, at: float) -> float:
        """The time of the control machine when the node's clock shows `at`."""
        return at - self.offsets.get(node, 0.0)

    def there(self, node: str, at: float) -> float:
        """The time of the node's clock when that of the control machine shows `at`."""
        return at + self.offsets.get(node, 0.0)
