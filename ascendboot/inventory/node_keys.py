"""The keys of a node, with what the keys of an inventory have in common."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from ascendboot.inventory.kinds import (
    ENV_NAME,
    TAG,
    Address,
    ClusterIp,
    Container,
    DeviceId,
    Environment,
    Fingerprint,
    Interface,
    Ip,
    Jump,
    Kind,
    Line,
    Name,
    PathHere,
    Port,
    ServerId,
    User,
    by_type,
    choice,
)

# Pydantic would read the metadata of every package that is installed, before every job, to find
# plugins of its own; none has a say in what an inventory may hold.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


class Keys(BaseModel):
    """A mapping that has these keys and no others."""

    # Built when an inventory is read: once for the whole of it, and not for every part by itself.
    # For that the parts have their defaults by `model_construct`, which needs nothing built.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def nothing() -> list[str]:
    """An empty list; of a function in Python, other than of `list`, the signature is known."""
    return []


def unset(default: str, example: object, description: str) -> Any:  # noqa: ANN401 (as pydantic's Field)
    """A key that may be left out; `default` says in words what holds then."""
    return Field(
        default=None,
        description=description,
        examples=[example],
        json_schema_extra={"x-default": default},
    )


class DeviceKeys(Keys):
    """A device, stated with its address."""

    device_id: DeviceId = Field(
        description="The physical id of the NPU: the N of /dev/davinciN.",
        examples=[0],
        json_schema_extra={"x-default": "required"},
    )
    device_ip: Ip | None = unset(
        "what `hccn_tool` reports",
        "198.51.100.10",
        "The address that the device's network port should have. Takes a range.",
    )


DeviceItem = Annotated[
    Annotated[DeviceId, Tag(f"{TAG}id")] | Annotated[DeviceKeys, Tag(f"{TAG}keys")],
    by_type(id=int, keys=dict),
    Kind("a device id or {device_id, device_ip}"),
]


def _devices(value: object) -> str | None:
    if type(value) is int:
        return f"{TAG}count"
    return f"{TAG}list" if isinstance(value, list) and value else None


Devices = Annotated[
    Annotated[int, Field(ge=1), Tag(f"{TAG}count")]
    | Annotated[list[DeviceItem], Field(min_length=1), Tag(f"{TAG}list")],
    Discriminator(_devices),
    Kind("a number of devices (1 or more), a list of ids, or a list of {device_id, device_ip}"),
]


class NodeKeys(Keys):
    """What a node may have; `defaults` and every group may have it too."""

    address: Address | None = unset(
        "required",
        "192.0.2.11",
        "Where SSH reaches the node from the operator's side: an IP address or host name. "
        "A range stands for as many as the node's name.",
    )
    cluster_address: ClusterIp | None = unset(
        "`address`; required where that is a host name or IPv6",
        "198.51.100.1",
        "The IPv4 address at which the other nodes reach it: mpirun of Open MPI 4.1 takes no IPv6. "
        "Takes a range.",
    )
    server_id: ServerId | None = unset(
        "`cluster_address`",
        "198.51.100.1",
        "The node's server_id in the rank table; unique, kept as written. Takes a range.",
    )
    user: User | None = unset("your login name, as with ssh", "root", "The login name on the node.")
    port: Port = Field(
        default=22, description="The port of the node's own SSH server.", examples=[2222]
    )
    identity: PathHere | None = unset(
        "the keys and the agent that ssh uses",
        "~/.ssh/id_ed25519",
        "The private key to log in with: a file on the operator's side, from the folder in "
        "which ascendboot is called; or the .pub of one that ssh-agent holds. A certificate beside "
        "it (FILE-cert.pub) is tried first.",
    )
    jump: Jump | None = unset(
        "none: the node is reached directly",
        "root@203.0.113.5",
        "The machine through which the node is reached: the name of a node of this inventory, "
        "or USER@HOST[:PORT].",
    )
    fingerprint: Fingerprint | None = unset(
        "none: the host key must be in known_hosts",
        "SHA256:uNiVztksCsDhcc0u9e8BrYwXdZ4wwRfTwJvOVJpxAqA",
        "The fingerprint of the node's host key, as `ssh-keygen -l` prints it.",
    )
    container: Container | None = unset(
        "none: ranks run on the host itself",
        "rec-sdk",
        "The running container in which ranks run, on the host's network.",
    )
    engine: Annotated[
        Literal["auto", "docker", "podman"], Kind(choice("auto", "docker", "podman"))
    ] = Field(
        default="auto",
        description="What runs the container; auto: docker if it has one of that name, else "
        "podman.",
        examples=["podman"],
    )
    devices: Devices | None = unset(
        "all that the node has",
        [0, 1, 2, 3],
        "How many devices the node has, or which of them to use, in this order; "
        "with their addresses as `{device_id: 0, device_ip: 198.51.100.10}`.",
    )
    interface: Interface | None = unset(
        "the one that has `cluster_address`",
        "eth0",
        "The network interface that the nodes' own traffic uses.",
    )
    leaf: Line | None = unset(
        "not stated", "leaf-1", "The leaf switch to which the node is connected."
    )
    env: Environment = Field(
        default_factory=dict,
        description="Environment variables of the ranks of this node alone. They count before the "
        "inventory's own `env` and `hccl`, variable by variable, and variables of HCCL may stand "
        "here too.",
        examples=[{"HCCL_SOCKET_IFNAME": "eth1"}],
        json_schema_extra={"propertyNames": {"pattern": ENV_NAME}},
    )
    groups: Annotated[list[Name], Kind("a list of group names")] | None = unset(
        "none", ["rack1"], "The groups whose keys the node takes over; earlier ones count first."
    )


NodeMapping = Annotated[NodeKeys, Kind("a mapping of node keys", example={"address": "192.0.2.11"})]
GroupMapping = Annotated[NodeKeys, Kind("a mapping of node keys", example={"leaf": "leaf-1"})]
