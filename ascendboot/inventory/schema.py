"""The keys of an inventory: pydantic models and their JSON schema."""

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
from ascendboot.model.cluster import CHIEF_PORT, CheckpointKind, LauncherKind


class Keys(BaseModel):
    """A mapping that has these keys and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def unset(default: str, example: object, description: str) -> Any:  # noqa: ANN401 (as pydantic's Field)
    """A key that may be left out; `default` says in words what holds then."""
    return Field(
        default=None,
        description=description,
        examples=[example],
        json_schema_extra={"x-default": default},
    )


def key(default: object, example: object, description: str, **schema: Any) -> Any:  # noqa: ANN401
    """A key with a default; `schema` adds to its JSON schema."""
    return Field(
        default=default, description=description, examples=[example], json_schema_extra={**schema}
    )


class DeviceKeys(Keys):
    """A device, stated with its address."""

    device_id: values.DeviceId = Field(
        description="The physical id of the NPU: the N of /dev/davinciN.",
        examples=[0],
        json_schema_extra={"x-default": "required"},
    )
    device_ip: values.Ip | None = unset(
        "what `hccn_tool` reports",
        "198.51.100.10",
        "The address that the device's network port should have. Takes a range.",
    )


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


class ContainerKeys(Keys):
    """A container that setup creates where it states an image."""

    name: values.Container = Field(
        description="The name of the container.",
        examples=["rec-sdk"],
        json_schema_extra={"x-default": "required"},
    )
    image: values.Image | None = unset(
        "none: the container exists, and setup does not create it",
        "rec-sdk-tf:7.3.0",
        "The image from which `setup` creates the container. The keys below need it.",
    )
    pull: values.Truth = key(
        default=False,
        example=True,
        description="Whether `setup` pulls the image where the node does not have it; false: that "
        "is an error.",
        **{"x-default": "`false`"},
    )
    devices: Literal["used", "all"] = key(
        "used",
        "all",
        "The NPUs that it gets: used: those that the job uses on this node; all: all of the node.",
    )
    runtime: Literal["default", "ascend"] = key(
        "default",
        "ascend",
        "What gives it the NPUs: default: device nodes and mounts of the driver; ascend: "
        "ascend-docker-runtime of docker, by `ASCEND_VISIBLE_DEVICES`.",
    )
    mounts: Annotated[list[values.Mount], Kind("a list of SOURCE:TARGET or SOURCE:TARGET:ro")] = (
        key(
            [],
            ["/data:/data", "/data/code:/workspace:ro"],
            "Files and folders of the server that it sees, besides those of the driver. They must "
            "exist.",
        )
    )
    shm: values.SharedMemory = key("1 GiB", "64 GiB", "The size of its `/dev/shm`.")
    env: values.Environment = key(
        {},
        {"TZ": "UTC"},
        "Environment variables of all its processes. Variables of the ranks belong under the "
        "node's or the inventory's `env`: those change without a new container.",
        propertyNames={"pattern": values.ENV_NAME},
    )


class NodeKeys(Keys):
    """What a node may have; `defaults` and every group may have it too."""

    address: values.Address | None = unset(
        "required",
        "192.0.2.11",
        "Where SSH reaches the node from the operator's side: an IP address or host name. "
        "A range stands for as many as the node's name.",
    )
    cluster_address: values.ClusterIp | None = unset(
        "`address`; required where that is a host name or IPv6",
        "198.51.100.1",
        "The IPv4 address at which the other nodes reach it: mpirun of Open MPI 4.1 takes no IPv6. "
        "Takes a range.",
    )
    server_id: values.ServerId | None = unset(
        "`cluster_address`",
        "198.51.100.1",
        "The node's server_id in the rank table; unique, kept as written. Takes a range.",
    )
    user: values.User | None = unset(
        "your login name, as with ssh", "root", "The login name on the node."
    )
    port: values.Port = key(22, 2222, "The port of the node's own SSH server.")
    identity: values.PathHere | None = unset(
        "the keys and the agent that ssh uses",
        "~/.ssh/id_ed25519",
        "The private key to log in with: a file on the operator's side, from the folder in "
        "which ascendboot is called; or the .pub of one that ssh-agent holds. A certificate beside "
        "it (FILE-cert.pub) is tried first.",
    )
    jump: values.Jump | None = unset(
        "none: the node is reached directly",
        "root@203.0.113.5",
        "The machine through which the node is reached: the name of a node of this inventory, "
        "or USER@HOST[:PORT].",
    )
    fingerprint: values.Fingerprint | None = unset(
        "none: the host key must be in known_hosts",
        "SHA256:uNiVztksCsDhcc0u9e8BrYwXdZ4wwRfTwJvOVJpxAqA",
        "The fingerprint of the node's host key, as `ssh-keygen -l` prints it.",
    )
    container: (
        Annotated[
            Annotated[values.Container, Tag(f"{TAG}name")]
            | Annotated[ContainerKeys, Tag(f"{TAG}keys")],
            values.by_type(name=str, keys=dict),
            Kind("the name of a container, or a mapping of its keys"),
        ]
        | None
    ) = unset(
        "none: ranks run on the host itself",
        "rec-sdk",
        "The container in which ranks run, on the host's network: one that runs, or, as "
        "`{name: rec-sdk, image: IMAGE}`, one that `setup` creates.",
    )
    engine: Literal["auto", "docker", "podman"] = key(
        "auto",
        "podman",
        "What runs the container; auto: docker if it has one of that name, else podman. `setup` "
        "creates it with docker if the node has both.",
    )
    devices: Devices | None = unset(
        "all that the node has",
        [0, 1, 2, 3],
        "How many devices the node has, or which of them to use, in this order; "
        "with their addresses as `{device_id: 0, device_ip: 198.51.100.10}`.",
    )
    interface: values.Interface | None = unset(
        "the one that has `cluster_address`",
        "eth0",
        "The network interface that the nodes' own traffic uses.",
    )
    leaf: values.Leaves | None = unset(
        "not stated",
        "leaf-1",
        "The leaf switch of the network of the NPUs to which the node is connected, or one for "
        "each device, by device ids: `{0-1,6-7: leaf-1, 2-5: leaf-2}`. It decides the order of "
        "the ranks, see `topology.order`.",
    )
    env: values.Environment = key(
        {},
        {"HCCL_SOCKET_IFNAME": "eth1"},
        "Environment variables of the ranks of this node alone. They count before the "
        "inventory's own `env` and `hccl`, variable by variable, and variables of HCCL may stand "
        "here too.",
        propertyNames={"pattern": values.ENV_NAME},
    )
    groups: Annotated[list[values.Name], Kind("a list of group names")] | None = unset(
        "none", ["rack1"], "The groups whose keys the node takes over; earlier ones count first."
    )


NodeMapping = Annotated[NodeKeys, Kind("a mapping of node keys", example={"address": "192.0.2.11"})]
GroupMapping = Annotated[NodeKeys, Kind("a mapping of node keys", example={"leaf": "leaf-1"})]


class SshKeys(Keys):
    """Keys of the cluster's own SSH."""

    port: Annotated[
        Annotated[Literal["auto"], Tag(f"{TAG}word")] | Annotated[values.Port, Tag(f"{TAG}number")],
        values.by_type(word=str, number=int),
        Kind("auto or a whole number from 1 to 65535"),
    ] = key(
        "auto",
        7722,
        "The port of the cluster's own sshd, the same on all nodes; auto: one that "
        "is free on all of them.",
    )
    via: Literal["sshd", "engine"] = key(
        "sshd",
        "engine",
        "How nodes reach each other's containers: sshd: the cluster's own sshd runs "
        "in them; engine: it runs on the host and lets logins into the container alone, by "
        "`docker exec`, so that no image needs an OpenSSH server.",
    )
    trust: Literal["ca", "pinned"] = key(
        "ca",
        "pinned",
        "How nodes know each other: ca: by certificates that two keys on the "
        "operator's side sign; pinned: by host keys read over the authenticated session.",
    )
    standby: Annotated[list[values.Name], Kind("a list of names of nodes")] = key(
        [],
        ["atlas-2"],
        "Nodes that can take the place of the primary in a supervised job. Each gets a key with "
        "which it can log in to the other nodes, as the primary does. Only with `trust: ca`.",
    )


class ResourceKeys(Keys):
    """Keys of how ranks learn of each other."""

    mode: Literal["rank-table", "no-rank-table", "root-info"] | None = unset(
        "`rank-table`; `root-info` with `launcher.kind: torchrun`",
        "no-rank-table",
        "rank-table: every node gets one file that names all ranks; no-rank-table: "
        "TensorFlow's ranks meet at a port of the primary (`CM_…` variables; 910 and A2 only); "
        "root-info: PyTorch's ranks meet there (`MASTER_ADDR`, `MASTER_PORT`).",
    )
    file: values.PathHere | None = unset(
        "none: made from what the devices say",
        "hccl_json_16p_2_host.json",
        "A rank table of yours, used as it is; a path from the folder in which ascendboot is "
        "called. It decides which devices take part, in which order.",
    )
    chief_port: values.ChiefPort = key(
        CHIEF_PORT,
        CHIEF_PORT,
        "The port of the primary where ranks meet in the modes no-rank-table and "
        "root-info, and under torchrun.",
    )
    chief_device: values.DeviceId = key(
        0, 0, "The primary's device that leads them in that mode, by its logic id."
    )


class LauncherKeys(Keys):
    """Keys of the program that starts the ranks."""

    kind: LauncherKind = key(
        "auto",
        "mpirun",
        "mpirun: plain Open MPI; horovod: horovodrun; torchrun: one on every node, "
        "without Open MPI; auto: with `resources.mode: root-info` torchrun if `code.python` has "
        "torch on every node, else mpirun; with the other modes horovodrun if it works beside "
        "`code.python` on the primary and all nodes have Horovod, else mpirun.",
    )
    mpi_args: Annotated[list[values.Word], Kind("a list of words")] = key(
        [],
        ["--mca", "btl_tcp_links", "2"],
        "More words for mpirun's command line, also under horovodrun. What ascendboot "
        "or horovodrun sets itself is refused.",
    )


class CodeKeys(Keys):
    """Keys of the training code."""

    path: values.AbsolutePath | None = unset(
        "none: scripts are copied to the nodes",
        "/workspace/little_demo",
        "The folder of the training code, the same on every node.",
    )
    source: values.FolderOrPrimary | None = unset(
        "none: it is on the nodes already, and only compared",
        "./little_demo",
        "What `setup` makes `path` equal to on every node: a folder on the operator's side, from "
        "the folder in which ascendboot is called; or `primary`: the primary's own `path`.",
    )
    exclude: Annotated[list[values.Pattern], Kind("a list of patterns")] = key(
        [],
        ["*.log", "data", "out/*.ckpt"],
        "What below `path` and `source` is no code, such as data and results: names, "
        "or paths where a pattern has a slash. `.git`, `__pycache__` and `*.pyc` never are.",
    )
    python: values.Program = key(
        "python3", "/usr/local/bin/python3.10", "The interpreter that runs the ranks."
    )


class TopologyKeys(Keys):
    """Keys of the order of ranks by leaf switch."""

    order: Literal["auto", "inventory"] = key(
        "auto",
        "inventory",
        "The order of the nodes by rank: auto: by leaf switch where nodes state a `leaf`, so that "
        "neighbours are on one leaf, otherwise as inventory; inventory: the primary first, then "
        "as in this file. A `resources.file` has its own order.",
    )
    cores: Annotated[dict[str, values.Line], Kind("a mapping of leaf switches to groups")] = key(
        {},
        {"leaf-1": "pod-1", "leaf-2": "pod-1"},
        "The group of each leaf switch, such as its pod: all of these leaf switches reach each "
        "other without the core. A link between groups costs twice as much.",
    )
    leaves: values.FileOrLldp | None = unset(
        "none: only what nodes state as `leaf`",
        "ranktable_tor.json",
        "The leaf switches of nodes that state no `leaf`. `lldp`: setup and check read them from "
        "the NPUs with `hccn_tool -i ID -lldp -g`. Otherwise a file, as a path from the folder in "
        "which ascendboot is called: a `basic-tor-node-cm` of MindCluster, a `ranktable_tor.json`, "
        "or Slurm's `topology.conf`; servers are found by server_id, address or name.",
    )
    shape: Literal["auto", "ring", "chain", "halving-doubling", "pipeline"] = key(
        "auto",
        "ring",
        "What the order is for: ring: a ring of all nodes; chain: the same without the link from "
        "the last node to the first; halving-doubling: HCCL's H-D_R over 2^k nodes; pipeline: the "
        "`parallel.pp` stages of a job, a ring each; auto: pipeline where `parallel.pp` is more "
        "than 1, halving-doubling where `HCCL_ALGO` states level1:H-D_R or with `product: 910`, "
        "else ring.",
    )


class LogKeys(Keys):
    """Keys of what ranks print."""

    max_size: values.LogSize = key(
        "1 GiB",
        "256 MiB",
        "What one log, of a rank or of the launcher, may take on its node, and once "
        "more on the operator's side. A log that outgrows it keeps a quarter of that from its "
        "beginning and at least half of it from its end; what lies between is dropped.",
    )
    loss: values.LossForm | None = unset(
        "the usual forms, such as `loss: 0.5`, `lm loss: 5.0E-01` and `loss = 0.5`",
        "mean cost <NUMBER>",
        "How ranks print their loss, with `<NUMBER>` in place of the number. `train` reports a "
        "loss that is nan or inf, or the same for long.",
    )


class CheckpointKeys(Keys):
    """Keys of the checkpoints that a job can resume from."""

    kind: CheckpointKind = Field(
        description="What writes them, which decides which files make a complete checkpoint "
        "(docs/how-to/save-checkpoints.md).",
        examples=["megatron"],
        json_schema_extra={"x-default": "required"},
    )
    dir: values.AbsolutePath = Field(
        description="Their folder, the same path on every node, where ranks run.",
        examples=["/data/checkpoints"],
        json_schema_extra={"x-default": "required"},
    )
    resume_arg: values.ResumeWords | None = unset(
        "none: the script reads ASCENDBOOT_RESUME_STEP",
        "--load {path}",
        "What is added to the script's arguments when a job resumes: {path} is the checkpoint, "
        "{step} its step.",
    )
    reshardable: values.Truth | None = unset(
        "`true` for tensorflow, torch and manifest, else `false`",
        example=True,
        description="Whether a checkpoint can be loaded by another number of ranks than saved it.",
    )
    shared: values.Truth = key(
        default=False,
        example=True,
        description="Whether `dir` is one folder on a file system that all nodes share; false: "
        "every node has its own.",
        **{"x-default": "`false`"},
    )


class ParallelKeys(Keys):
    """Keys of how a job divides its model and its batch."""

    tp: values.Size = key(1, 8, "Tensor parallel size.")
    pp: values.Size = key(1, 2, "Pipeline parallel size.")
    cp: values.Size = key(1, 1, "Context parallel size.")
    gbs: values.Size | None = unset(
        "none: it changes with the number of ranks",
        256,
        "Global batch size: the samples of one step, over all ranks.",
    )
    mbs: values.Size = key(1, 1, "Micro batch size: the samples of one pass on one rank.")
    dp_min: values.Size = key(
        1, 2, "The least data parallel size with which training may go on after a loss of nodes."
    )


def _hccl_schema() -> dict[str, Any]:
    """Each variable with its limits, for editors."""
    return {
        variable.name: {
            **variable.kind.json_schema,
            "description": f"{variable.meaning}. Read by: {variable.product_names}.",
            "examples": [variable.example],
            "x-kind": variable.kind.words,
            "x-default": variable.default or "none",
        }
        for variable in variables().values()
    }


class InventoryKeys(Keys):
    """A cluster of Ascend servers, as its operator wants it."""

    model_config = ConfigDict(
        title="ascendboot inventory", json_schema_extra={"required": ["cluster", "nodes"]}
    )

    cluster: values.Name = key(
        "",
        "two-node",
        "The name of the cluster; names folders on the nodes.",
        **{"x-default": "required"},
    )
    nodes: Annotated[dict[str, NodeMapping], Kind("a mapping of node names to their keys")] = key(
        {},
        {"atlas-1": {"address": "192.0.2.11"}},
        "The nodes, by name. A name such as atlas-[01-16] stands for many.",
        **{
            "x-default": "required",
            "minProperties": 1,
            "propertyNames": {"pattern": values.NAME_OR_RANGE},
        },
    )
    primary: values.Name | None = unset(
        "the first node", "atlas-1", "The node of rank 0, from which jobs are started."
    )
    defaults: GroupMapping = key(
        NodeKeys(),
        {"user": "root"},
        "What holds for every node that does not state it itself or by a group.",
    )
    groups: Annotated[dict[str, GroupMapping], Kind("a mapping of group names to node keys")] = key(
        {},
        {"rack1": {"leaf": "leaf-1"}},
        "Keys that some nodes share: a node takes them over by `groups: [NAME]`.",
        propertyNames={"pattern": values.NAME},
    )
    product: values.ProductName = key(
        "auto", "a2", "The generation of the servers; auto: as the nodes report."
    )
    facts: Literal["read", "stated"] = key(
        "read",
        "stated",
        "Where npu-smi or hccn_tool cannot be read on a node, `stated` takes the "
        "`devices` of the inventory, with their `device_ip`, for what the tools would tell. "
        "`setup`, `check` and `train` warn of it; links, TLS switches and pings between such "
        "devices are not checked.",
    )
    profile: Literal["none", "rec-sdk-tf"] = key(
        "none",
        "rec-sdk-tf",
        "The training stack: rec-sdk-tf sets what Rec SDK TensorFlow's run.sh does "
        "(docs/reference/rec-sdk-tf.md); `env` counts before it.",
    )
    ssh: SshKeys = key(SshKeys(), {"port": 7722}, "The cluster's own SSH.")
    resources: ResourceKeys = key(
        ResourceKeys(), {"mode": "rank-table"}, "How ranks learn of each other."
    )
    topology: TopologyKeys = key(
        TopologyKeys(), {"order": "auto"}, "The order of ranks by leaf switch."
    )
    launcher: LauncherKeys = key(
        LauncherKeys(), {"kind": "mpirun"}, "The program that starts the ranks."
    )
    firewall: values.Truth = key(
        default=False,
        example=True,
        description="Whether `setup` closes the ports of jobs (mpirun's listeners and "
        "`resources.chief_port`) to machines outside of the cluster, with a table of nft on every "
        "host (docs/reference/ports.md). Needs nft, and root on the nodes.",
        **{"x-default": "`false`"},
    )
    code: CodeKeys = key(CodeKeys(), {"path": "/workspace/little_demo"}, "The training code.")
    data: Annotated[list[values.AbsolutePath], Kind("a list of absolute paths on the nodes")] = key(
        [],
        ["/data/criteo", "/data/weights.npz"],
        "What jobs read besides their code, files and folders: before each job it is "
        "looked at whether every node can read them where ranks run.",
    )
    logs: LogKeys = key(LogKeys(), {"max_size": "256 MiB"}, "What ranks print.")
    checkpoint: CheckpointKeys | None = unset(
        "none: nothing is known of checkpoints",
        {"kind": "megatron", "dir": "/data/checkpoints"},
        "The checkpoints that a job can resume from.",
    )
    parallel: ParallelKeys | None = unset(
        "none: any number of ranks will do",
        {"tp": 8, "pp": 2},
        "How a job divides its model and its batch.",
    )
    env: values.Environment = key(
        {},
        {"HCCL_CONNECT_TIMEOUT": 1200},
        "Environment variables of every rank; values count as written. What a node "
        "states under its own `env` counts before them.",
        propertyNames={"pattern": values.ENV_NAME},
    )
    secret_env: Annotated[
        list[values.EnvName], Kind("a list of names of environment variables")
    ] = key(
        [],
        ["WANDB_BASE_URL"],
        "Variables under any `env` that hold secrets although neither name nor value "
        "shows it: their values are shown nowhere, and only the user of the ranks can read them "
        "on the nodes.",
    )
    hccl: Annotated[dict[str, values.EnvValue], Kind("a mapping of HCCL's variables to values")] = (
        key(
            {},
            {"HCCL_CONNECT_TIMEOUT": 1200},
            "Variables of HCCL and the NPU software, checked against what is documented "
            "(docs/reference/hccl.md). A variable stands here or under `env`, not under both.",
            additionalProperties=False,
        )
    )

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
    made["properties"]["hccl"]["properties"] = _hccl_schema()
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
