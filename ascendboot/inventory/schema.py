"""The keys of an inventory: pydantic models and their JSON schema, with texts from `keys.yaml`."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, Tag
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ascendboot.hccl.variables import variables
from ascendboot.inventory import values
from ascendboot.inventory.values import TAG, Kind
from ascendboot.inventory.yaml import Location
from ascendboot.model import cluster as model
from ascendboot.value import data_file


class Keys(BaseModel):
    """A mapping that has these keys and no others; `keys.yaml` says what each of them means."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class DeviceKeys(Keys):
    """A device, stated with its address."""

    device_id: values.DeviceId
    device_ip: values.Ip | None = None


DeviceItem = Annotated[
    Annotated[values.DeviceId, Tag(f"{TAG}id")] | Annotated[DeviceKeys, Tag(f"{TAG}keys")],
    values.by_type(id=int, keys=dict),
    Kind("a device id or {device_id, device_ip}"),
]

Devices = Annotated[
    Annotated[int, Field(ge=1), Tag(f"{TAG}count")]
    | Annotated[list[DeviceItem], Field(min_length=1), Tag(f"{TAG}list")],
    values.by_type(count=int, list=list),
    Kind("a number of devices (1 or more), a list of ids, or a list of {device_id, device_ip}"),
]


class NpuNetworkKeys(Keys):
    """How setup sets the network ports of a node's devices."""

    address: values.Ip
    netmask: values.Ip
    gateway: values.Ip | None = None
    netdetect: values.Ip | None = None
    tls: values.Truth | None = None
    mtu: values.Mtu | None = None


class ContainerKeys(Keys):
    """A container that setup creates."""

    name: values.Container
    image: values.Image
    devices: Literal["used", "all"] = "used"
    runtime: Literal["default", "ascend"] = "default"
    mounts: Annotated[list[values.Mount], Kind("a list of SOURCE:TARGET[:ro]")] = []
    shm: values.SharedMemory = "1 GiB"
    env: values.Environment = {}


ContainerValue = Annotated[
    Annotated[values.Container, Tag(f"{TAG}name")] | Annotated[ContainerKeys, Tag(f"{TAG}keys")],
    values.by_type(name=str, keys=dict),
    Kind("the name of a container, or a mapping of its keys"),
]


class NodeKeys(Keys):
    """What a node may have; `defaults` and every group may have it too."""

    address: values.Address | None = None
    cluster_address: values.ClusterIp | None = None
    server_id: values.ServerId | None = None
    user: values.User | None = None
    port: values.Port | None = None
    identity: values.PathHere | None = None
    jump: values.Jump | None = None
    sudo: Literal["none", "nopasswd", "ask"] = "none"
    fingerprint: values.Fingerprint | None = None
    container: ContainerValue | None = None
    engine: model.Engine = "auto"
    devices: Devices | None = None
    npu_network: Annotated[NpuNetworkKeys, Kind("a mapping with address and netmask")] | None = None
    interface: values.Interface | None = None
    leaf: values.Leaves | None = None
    env: values.Environment = {}
    groups: Annotated[list[values.Name], Kind("a list of group names")] | None = None


NodeMapping = Annotated[NodeKeys, Kind("a mapping of node keys", example={"address": "192.0.2.11"})]
GroupMapping = Annotated[NodeKeys, Kind("a mapping of node keys", example={"leaf": "leaf-1"})]


class SshKeys(Keys):
    """Keys of the cluster's own SSH."""

    port: Annotated[
        Annotated[Literal["auto"], Tag(f"{TAG}word")] | Annotated[values.Port, Tag(f"{TAG}number")],
        values.by_type(word=str, number=int),
        Kind("auto or a whole number from 1 to 65535"),
    ] = "auto"
    via: model.SshVia = "sshd"
    trust: model.Trust = "ca"
    standby: Annotated[list[values.Word], Kind("a list of sets of nodes")] = []


class ResourceKeys(Keys):
    """Keys of how ranks learn of each other."""

    mode: model.ResourceMode | None = None
    file: values.PathHere | None = None
    chief_port: values.ChiefPort = model.CHIEF_PORT
    chief_device: values.DeviceId = 0


class LauncherKeys(Keys):
    """Keys of the program that starts the ranks."""

    kind: model.LauncherKind = "auto"
    mpi_args: Annotated[list[values.Word], Kind("a list of words")] = []
    ranks_per_node: Annotated[Literal[1], Kind("1")] | None = None
    ranks_per_device: values.Size = 1


class CodeKeys(Keys):
    """Keys of the training code."""

    path: values.AbsolutePath | None = None
    source: values.FolderOrPrimary | None = None
    exclude: Annotated[list[values.Pattern], Kind("a list of patterns")] = []
    python: values.Program = "python3"


class TopologyKeys(Keys):
    """Keys of the order of ranks by leaf switch."""

    order: Literal["auto", "inventory"] = "auto"
    cores: Annotated[dict[str, values.Line], Kind("a mapping of leaf switches to groups")] = {}
    leaves: values.FileOrLldp | None = None
    shape: Literal["auto", "ring", "chain", "halving-doubling", "pipeline"] = "auto"


class LogKeys(Keys):
    """Keys of what ranks print."""

    max_size: values.LogSize = "1 GiB"
    loss: values.LossForm | None = None


class CheckpointKeys(Keys):
    """Keys of the checkpoints that a job can resume from."""

    kind: model.CheckpointKind
    dir: values.AbsolutePath
    resume_arg: values.ResumeWords | None = None
    reshardable: values.Truth | None = None
    shared: values.Truth = False


class ParallelKeys(Keys):
    """Keys of how a job divides its model and its batch."""

    tp: values.Size = 1
    pp: values.Size = 1
    cp: values.Size = 1
    gbs: values.Size | None = None
    mbs: values.Size = 1
    dp_min: values.Size = 1


class InventoryKeys(Keys):
    """A cluster of Ascend servers, as its operator wants it."""

    model_config = ConfigDict(
        title="ascendboot inventory", json_schema_extra={"required": ["cluster", "nodes"]}
    )

    cluster: values.Name = ""
    nodes: Annotated[
        dict[str, NodeMapping],
        Kind(
            "a mapping of node names to their keys",
            {"minProperties": 1, "propertyNames": {"pattern": values.NAME_OR_RANGE}},
        ),
    ] = {}
    primary: values.Name | None = None
    defaults: GroupMapping = Field(default_factory=NodeKeys)
    groups: Annotated[
        dict[str, GroupMapping],
        Kind("a mapping of group names to node keys", {"propertyNames": {"pattern": values.NAME}}),
    ] = {}
    product: values.ProductName = "auto"
    facts: Literal["read", "stated"] = "read"
    profile: model.Profile = "none"
    ssh: SshKeys = Field(default_factory=SshKeys)
    resources: ResourceKeys = Field(default_factory=ResourceKeys)
    topology: TopologyKeys = Field(default_factory=TopologyKeys)
    launcher: LauncherKeys = Field(default_factory=LauncherKeys)
    firewall: values.Truth = False
    code: CodeKeys = Field(default_factory=CodeKeys)
    data: Annotated[list[values.AbsolutePath], Kind("a list of absolute paths on the nodes")] = []
    logs: LogKeys = Field(default_factory=LogKeys)
    checkpoint: CheckpointKeys | None = None
    parallel: ParallelKeys | None = None
    env: values.Environment = {}
    secret_env: Annotated[
        list[values.EnvName], Kind("a list of names of environment variables")
    ] = []
    hccl: Annotated[
        dict[str, values.EnvValue], Kind("a mapping of HCCL's variables to values")
    ] = {}

    @cached_property
    def secret_names(self) -> frozenset[str]:
        """The names of `secret_env`, for many look-ups."""
        return frozenset(self.secret_env)


Shape: TypeAlias = "dict[str, Any]"


class _WithoutNull(GenerateJsonSchema):
    """Without nulls and empty defaults: a key that is left out stands nowhere in the file."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return {**super().literal_schema(schema), "x-kind": values.choice(*schema["expected"])}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        if isinstance(made.get("default"), (dict, list)) or made.get("default", 0) in (None, ""):
            del made["default"]
        return made


@cache
def whole() -> Shape:
    """The schema of the whole file; `x-kind` and `x-default` are texts for messages and pages."""
    made = InventoryKeys.model_json_schema(schema_generator=_WithoutNull)
    hccl = {  # what a value may be is in `variables.yaml`
        variable.name: {
            "description": f"{variable.meaning}. Read by: {variable.product_names}.",
            "examples": [variable.example],
            "x-kind": variable.kind.words,
            "x-default": variable.default or "none",
        }
        for variable in variables().values()
    }
    made["properties"]["hccl"] |= {"properties": hccl, "additionalProperties": False}
    models = {**made["$defs"], InventoryKeys.__name__: made}
    for owner, keys in data_file("inventory/keys.yaml", dict[str, Any]).items():
        for name, key in keys.items():
            shape = models[owner]["properties"][name]
            shape |= {"description": key["text"], "examples": [key["example"]]}
            if "default" in key:
                shape["x-default"] = key["default"]
    return made


def resolve(shape: Shape) -> Shape:
    """`shape` with its `$ref` replaced by what it refers to; what stands beside it wins."""
    reference = shape.get("$ref")
    if reference is None:
        return shape
    referred = whole()["$defs"][reference.rpartition("/")[2]]
    return {**referred, **{key: value for key, value in shape.items() if key != "$ref"}}


def shape_at(location: Location) -> Shape:
    """The shape of the value at `location`, or the innermost one on the way there."""
    shape = whole()
    for step in location:
        inner = _within(shape, step)
        if inner is None:
            break
        shape = inner
    return shape


def _within(shape: Shape, step: str | int) -> Shape | None:
    for form in (shape, *map(resolve, shape.get("oneOf", ()))):
        if isinstance(step, int):
            inner = form.get("items")
        else:
            inner = form.get("properties", {}).get(step, form.get("additionalProperties"))
        if inner:
            return resolve(inner)
    return None
