"""The cluster of an inventory: nodes, devices, containers, launcher, placement, clock offsets."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from ascendboot.model.files import PRIMARY
from ascendboot.model.secrets import is_secret_name, is_secret_value, to_mask

if TYPE_CHECKING:
    from collections.abc import Mapping

Product = Literal["auto", "910", "a2", "a3", "a5"]
Trust = Literal["ca", "pinned"]
ResourceMode = Literal["rank-table", "no-rank-table", "root-info"]
Profile = Literal["none", "rec-sdk-tf"]
Engine = Literal["auto", "docker", "podman"]
SshVia = Literal["sshd", "engine"]
LauncherKind = Literal["auto", "mpirun", "horovod", "torchrun"]

CHIEF_PORT = 61000
"""Outside HCCL's own 60000-60031 and the ports that Linux gives to outgoing connections."""


def has_meeting_port(mode: ResourceMode, launcher: LauncherKind) -> bool:
    """Whether the ranks of such jobs meet at the chief port for certain."""
    return mode != "rank-table" or launcher == "torchrun"


@dataclass(frozen=True)
class Device:
    """An NPU that the inventory names; `device_id` is the physical id (/dev/davinciN)."""

    device_id: int
    device_ip: str | None = None


@dataclass(frozen=True, kw_only=True)
class SshAccess:
    """How the operator's side reaches a node's host side."""

    user: str
    port: int = 22
    identity: str | None = None
    """Private key on the operator's side; None: the keys and the agent that ssh uses."""
    jump: str | None = None
    """`USER@HOST:PORT` to go through, user and port optional, an IPv6 host in brackets."""
    fingerprint: str | None = None
    """`SHA256:…` of the host key that the operator knows to be right."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One server of the cluster."""

    name: str
    address: str
    """Where SSH reaches it from the operator's side."""
    cluster_address: str
    """Where the other nodes reach it; `address` unless the inventory says otherwise."""
    server_id: str
    """Its `server_id` in the rank table: unique, kept as stated."""
    ssh: SshAccess
    container: str | None = None
    """Where ranks run; None: on the host itself."""
    engine: Engine = "auto"
    """What runs the container; auto: the first that has one of this name."""
    devices: tuple[Device, ...] = ()
    """The devices to use, in this order; empty: all that the node has, by physical id."""
    device_count: int | None = None
    """How many devices the inventory states; None: no number stated (`devices` may name them)."""
    interface: str | None = None
    leaf: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Environment variables of its ranks alone; they count before those of the cluster."""


@dataclass(frozen=True, kw_only=True)
class OwnTable:
    """A rank table of the operator's, used as it is."""

    text: str
    generation: str
    """1.0, 1.2, 2.0 or group list."""
    places: tuple[tuple[str, int, str | None], ...]
    """`server_id`, device id and device IP of every rank, in rank order."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The desired cluster: nodes in inventory order and the settings they share."""

    name: str
    nodes: tuple[Node, ...]
    primary_name: str
    source: str
    """The inventory file it was read from, for messages."""
    product: Product = "auto"
    facts: Literal["read", "stated"] = "read"
    """Whether stated devices and addresses stand in for vendor tools that cannot be read."""
    ssh_port: int | None = None
    """Port of the cluster's own sshd; None: one that is free on all nodes is found."""
    ssh_via: SshVia = "sshd"
    """How a login gets into a container: by our sshd in it, or by its engine from the host side."""
    trust: Trust = "ca"
    resource_mode: ResourceMode = "rank-table"
    own_table: OwnTable | None = None
    """In place of one made from what the devices say."""
    chief_port: int = CHIEF_PORT
    """Where the ranks meet on the primary without a rank table, and under torchrun."""
    chief_device: int = 0
    """Logic id of the primary's device that leads the meeting."""
    launcher: LauncherKind = "auto"
    mpi_args: tuple[str, ...] = ()
    """More words for mpirun's command line."""
    profile: Profile = "none"
    """The training stack whose needs are met; its variables are in `env` already."""
    code_path: str | None = None
    """Absolute path of the training code on every node; None: scripts are copied there."""
    code_source: str | None = None
    """A folder on the operator's side, or `primary`: what setup makes the others equal to."""
    code_exclude: tuple[str, ...] = ()
    """What below it is no code, as patterns."""
    data: tuple[str, ...] = ()
    """Absolute paths that jobs read besides, on every node."""
    python: str = "python3"
    """The interpreter that runs the ranks, as a program name or an absolute path on the nodes."""
    log_limit: int = 1 << 30
    """How many bytes of a rank's log are kept; 0: all of them."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every rank, except those of one node alone."""
    secret_env: frozenset[str] = frozenset()
    """Variables whose values are secrets though they do not look like it."""

    @property
    def primary(self) -> Node:
        """The node of rank 0, from which jobs are started."""
        return self.node(self.primary_name)

    @property
    def code_folder(self) -> str | None:
        """The folder on the operator's side from which the code comes."""
        return None if self.code_source == PRIMARY else self.code_source

    @property
    def needs_equal_devices(self) -> bool:
        """Whether every node must use the same device ids in the same order (mx_rec)."""
        return self.profile == "rec-sdk-tf"

    @property
    def has_meeting_port(self) -> bool:
        """Whether the ranks meet at `chief_port` for certain."""
        return has_meeting_port(self.resource_mode, self.launcher)

    @property
    def is_for_torch(self) -> bool:
        """Whether the inventory says that its jobs are PyTorch's."""
        return self.resource_mode == "root-info" or self.launcher == "torchrun"

    @property
    def rank_order(self) -> tuple[Node, ...]:
        """The nodes as ranks are given out: as in the own rank table, else the primary first."""
        if self.own_table is not None:
            order = list(dict.fromkeys(server for server, *_ in self.own_table.places))
            return tuple(sorted(self.nodes, key=lambda node: order.index(node.server_id)))
        return (self.primary, *(n for n in self.nodes if n.name != self.primary_name))

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
        """What stands in no output, report or log: the values of all such variables."""
        stated = [item for env in (self.env, *(n.env for n in self.nodes)) for item in env.items()]
        return to_mask([value for name, value in stated if self.is_secret(name, value)])

    def node(self, name: str) -> Node:
        """The node called `name`; KeyError when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


OWN_ONLY = "podman shows each user nothing but his own containers"


@dataclass(frozen=True)
class ContainerExec:
    """From a node's host side into one of its containers."""

    engine: str
    """The program `docker` or `podman`, as it is called on the host side."""
    container: str

    @property
    def engine_name(self) -> str:
        """The engine as people say it."""
        return PurePosixPath(self.engine).name

    def argv(self, *words: str) -> tuple[str, ...]:
        """What to run on the host side so that `words` run in the container, stdin passed on.

        BASH_ENV: some images set it, and bash would read that file before any of our scripts.
        """
        return (self.engine, "exec", "-i", "-e", "BASH_ENV=", self.container, *words)

    def remedy(self, words: str) -> str:
        """What an operator can do when the engine refuses with these words."""
        message = words.lower()
        engine, name = self.engine_name, self.container
        for marks, remedy in (
            (_DENIED, f"let this user use {engine} (group {engine}), or log in as root"),
            (_NO_SERVICE, f"start the engine: systemctl start {engine}"),
            (_PAUSED, f"let it go on: {engine} unpause {name}"),
            (_STOPPED, f"start it: {engine} start {name}"),
            (_ABSENT, "start it, or correct `container`"),
            (_ROOTLESS, f"log in as the user who started it; {OWN_ONLY}"),
            (_NO_FOLDER, f"make its working directory again: {engine} exec -w / {name} mkdir -p …"),
            (_NO_BASH, "install bash in its image"),
            (_NO_ENGINE, f"is {engine} still on the host side? Run setup, which looks again"),
        ):
            if any(mark in message for mark in marks):
                return remedy
        return f"look at it: {engine} ps -a"


# docker 20.10 to 28 and podman 4.3 say it in these words
_DENIED = ("permission denied while trying to connect",)
_NO_SERVICE = ("cannot connect to the docker daemon", "is the docker daemon running")
_PAUSED = ("is paused", "state paused", "unpause")
_STOPPED = ("is not running", "running containers", "state improper", "is restarting")
_ABSENT = ("no such container", "no container with name or id", "no such object")
_ROOTLESS = ("rootless",)
_NO_FOLDER = ('workdir "', "chdir to cwd", "chdir `", "current working directory")
_NO_BASH = ('"bash": executable file', "executable file `bash`")
_NO_ENGINE = ("no such file or directory", "not found")


def is_absent(words: str) -> bool:
    """Whether an engine says by these words that it has no such container."""
    return any(mark in words.lower() for mark in _ABSENT)


LAUNCHER_NAMES = ("LD_LIBRARY_PATH", "PYTHONPATH")
"""What horovodrun and torchrun may need to load their libraries; no other variable of the ranks
reaches a launcher."""


@dataclass(frozen=True)
class LauncherChoice:
    """The launcher of jobs, and why it was chosen."""

    kind: str
    """As `launcher.kind` names it."""
    why: str
    path: str | None = None
    """Absolute path of its program on the primary, where it is not found otherwise."""

    @property
    def name(self) -> str:
        """The name of the program."""
        return PurePosixPath(self.path).name if self.path else self.kind

    @property
    def words(self) -> str:
        """A sentence for reports and plans."""
        return f"{self.name} starts jobs: {self.why}"


MPIRUN = LauncherChoice("mpirun", "nothing else was asked for")


@dataclass(frozen=True)
class Slot:
    """A device of a node where one rank can run."""

    node: Node
    device_id: int
    device_ip: str | None
    local_rank: int


@dataclass(frozen=True)
class Placement:
    """The slots of a job in rank order: a slot's rank is its index."""

    slots: tuple[Slot, ...]

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

    def on(self, node: Node) -> tuple[Slot, ...]:
        """The slots of one node, by local rank."""
        return tuple(self.slots[rank] for rank in self.ranks_on(node))

    def ranks_on(self, node: Node) -> tuple[int, ...]:
        """The ranks of one node, ascending."""
        return self._ranks.get(node.name, ())

    @cached_property
    def _ranks(self) -> dict[str, tuple[int, ...]]:
        ranks: dict[str, list[int]] = {}
        for rank, slot in enumerate(self.slots):
            ranks.setdefault(slot.node.name, []).append(rank)
        return {name: tuple(of_node) for name, of_node in ranks.items()}


@dataclass(frozen=True)
class NodeClocks:
    """By how much each node's clock is ahead; one that is not named goes as the operator's."""

    offsets: Mapping[str, float] = field(default_factory=dict)
    """In seconds; below 0 where it is behind."""
    uncertainty_s: float = 0.0
    """By how much each of them may be wrong."""

    def here(self, node: str, at: float) -> float:
        """What the operator's clock shows when that of a node shows `at`."""
        return at - self.offsets.get(node, 0.0)

    def there(self, node: str, at: float) -> float:
        """What a node's clock shows when the operator's shows `at`."""
        return at + self.offsets.get(node, 0.0)
