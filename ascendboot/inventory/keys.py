"""Every key of an inventory: its type, default, meaning and example; those of a node beside it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Tag

from ascendboot.hccl import VARIABLES
from ascendboot.inventory.kinds import (
    ENV_NAME,
    NAME,
    NAME_OR_RANGE,
    TAG,
    AbsolutePath,
    ChiefPort,
    DeviceId,
    Environment,
    EnvName,
    EnvValue,
    FolderOrPrimary,
    Kind,
    LogSize,
    Name,
    PathHere,
    Pattern,
    Port,
    ProductName,
    Program,
    Word,
    by_type,
    choice,
)
from ascendboot.inventory.node_keys import GroupMapping, Keys, NodeKeys, NodeMapping, nothing, unset
from ascendboot.model.cluster import CHIEF_PORT


class SshKeys(Keys):
    """Keys of the cluster's own SSH."""

    port: Annotated[
        Annotated[Literal["auto"], Tag(f"{TAG}word")] | Annotated[Port, Tag(f"{TAG}number")],
        by_type(word=str, number=int),
        Kind("auto or a whole number from 1 to 65535"),
    ] = Field(
        default="auto",
        description="The port of the cluster's own sshd, the same on all nodes; auto: one that "
        "is free on all of them.",
        examples=[7722],
    )
    via: Annotated[Literal["sshd", "engine"], Kind(choice("sshd", "engine"))] = Field(
        default="sshd",
        description="How nodes reach each other's containers: sshd: the cluster's own sshd runs "
        "in them; engine: it runs on the host and lets logins into the container alone, by "
        "`docker exec`, so that no image needs an OpenSSH server.",
        examples=["engine"],
    )
    trust: Annotated[Literal["ca", "pinned"], Kind(choice("ca", "pinned"))] = Field(
        default="ca",
        description="How nodes know each other: ca: by certificates that two keys on the "
        "operator's side sign; pinned: by host keys read over the authenticated session.",
        examples=["pinned"],
    )


class ResourceKeys(Keys):
    """Keys of how ranks learn of each other."""

    mode: (
        Annotated[
            Literal["rank-table", "no-rank-table", "root-info"],
            Kind(choice("rank-table", "no-rank-table", "root-info")),
        ]
        | None
    ) = unset(
        "`rank-table`; `root-info` with `launcher.kind: torchrun`",
        "no-rank-table",
        "rank-table: every node gets one file that names all ranks; no-rank-table: "
        "TensorFlow's ranks meet at a port of the primary (`CM_…` variables; 910 and A2 only); "
        "root-info: PyTorch's ranks meet there (`MASTER_ADDR`, `MASTER_PORT`).",
    )
    file: PathHere | None = unset(
        "none: made from what the devices say",
        "hccl_json_16p_2_host.json",
        "A rank table of yours, used as it is; a path from the folder in which ascendboot is "
        "called. It decides which devices take part, in which order.",
    )
    chief_port: ChiefPort = Field(
        default=CHIEF_PORT,
        description="The port of the primary where ranks meet in the modes no-rank-table and "
        "root-info, and under torchrun.",
        examples=[CHIEF_PORT],
    )
    chief_device: DeviceId = Field(
        default=0,
        description="The primary's device that leads them in that mode, by its logic id.",
        examples=[0],
    )


class LauncherKeys(Keys):
    """Keys of the program that starts the ranks."""

    kind: Annotated[
        Literal["auto", "mpirun", "horovod", "torchrun"],
        Kind(choice("auto", "mpirun", "horovod", "torchrun")),
    ] = Field(
        default="auto",
        description="mpirun: plain Open MPI; horovod: horovodrun; torchrun: one on every node, "
        "without Open MPI; auto: with `resources.mode: root-info` torchrun if `code.python` has "
        "torch on every node, else mpirun; with the other modes horovodrun if it works beside "
        "`code.python` on the primary and all nodes have Horovod, else mpirun.",
        examples=["mpirun"],
    )
    mpi_args: Annotated[list[Word], Kind("a list of words")] = Field(
        default_factory=nothing,
        description="More words for mpirun's command line, also under horovodrun. What ascendboot "
        "or horovodrun sets itself is refused.",
        examples=[["--mca", "btl_tcp_links", "2"]],
    )


class CodeKeys(Keys):
    """Keys of the training code."""

    path: AbsolutePath | None = unset(
        "none: scripts are copied to the nodes",
        "/workspace/little_demo",
        "The folder of the training code, the same on every node.",
    )
    source: FolderOrPrimary | None = unset(
        "none: it is on the nodes already, and only compared",
        "./little_demo",
        "What `setup` makes `path` equal to on every node: a folder on the operator's side, from "
        "the folder in which ascendboot is called; or `primary`: the primary's own `path`.",
    )
    exclude: Annotated[list[Pattern], Kind("a list of patterns")] = Field(
        default_factory=nothing,
        description="What below `path` and `source` is no code, such as data and results: names, "
        "or paths where a pattern has a slash. `.git`, `__pycache__` and `*.pyc` never are.",
        examples=[["*.log", "data", "out/*.ckpt"]],
    )
    python: Program = Field(
        default="python3",
        description="The interpreter that runs the ranks.",
        examples=["/usr/local/bin/python3.10"],
    )


class LogKeys(Keys):
    """Keys of what ranks print."""

    max_size: LogSize = Field(
        default="1 GiB",
        description="What one log, of a rank or of the launcher, may take on its node, and once "
        "more on the operator's side. A log that outgrows it keeps a quarter of that from its "
        "beginning and at least half of it from its end; what lies between is dropped.",
        examples=["256 MiB"],
    )


def _hccl_schema() -> dict[str, Any]:
    """Each variable with its limits, for editors."""
    return {
        variable.name: {
            **variable.kind.schema,
            "description": f"{variable.meaning}. Read by: {variable.product_names}.",
            "examples": [variable.example],
            "x-kind": variable.kind.words,
            "x-default": variable.default or "none",
        }
        for variable in VARIABLES.values()
    }


class InventoryKeys(Keys):
    """A cluster of Ascend servers, as its operator wants it."""

    model_config = ConfigDict(
        title="ascendboot inventory", json_schema_extra={"required": ["cluster", "nodes"]}
    )

    cluster: Name = Field(
        default_factory=str,
        description="The name of the cluster; names folders on the nodes.",
        examples=["two-node"],
        json_schema_extra={"x-default": "required"},
    )
    nodes: Annotated[dict[str, NodeMapping], Kind("a mapping of node names to their keys")] = Field(
        default_factory=dict,
        description="The nodes, by name. A name such as atlas-[01-16] stands for many.",
        examples=[{"atlas-1": {"address": "192.0.2.11"}}],
        json_schema_extra={
            "x-default": "required",
            "minProperties": 1,
            "propertyNames": {"pattern": NAME_OR_RANGE},
        },
    )
    primary: Name | None = unset(
        "the first node", "atlas-1", "The node of rank 0, from which jobs are started."
    )
    defaults: GroupMapping = Field(
        default_factory=NodeKeys.model_construct,
        description="What holds for every node that does not state it itself or by a group.",
        examples=[{"user": "root"}],
    )
    groups: Annotated[dict[str, GroupMapping], Kind("a mapping of group names to node keys")] = (
        Field(
            default_factory=dict,
            description="Keys that some nodes share: a node takes them over by `groups: [NAME]`.",
            examples=[{"rack1": {"leaf": "leaf-1"}}],
            json_schema_extra={"propertyNames": {"pattern": NAME}},
        )
    )
    product: ProductName = Field(
        default="auto",
        description="The generation of the servers; auto: as the nodes report.",
        examples=["a2"],
    )
    facts: Annotated[Literal["read", "stated"], Kind(choice("read", "stated"))] = Field(
        default="read",
        description="Where npu-smi or hccn_tool cannot be read on a node, `stated` takes the "
        "`devices` of the inventory, with their `device_ip`, for what the tools would tell. "
        "`setup`, `check` and `train` warn of it; links, TLS switches and pings between such "
        "devices are not checked.",
        examples=["stated"],
    )
    profile: Annotated[Literal["none", "rec-sdk-tf"], Kind(choice("none", "rec-sdk-tf"))] = Field(
        default="none",
        description="The training stack: rec-sdk-tf sets what Rec SDK TensorFlow's run.sh does "
        "(docs/reference/rec-sdk-tf.md); `env` counts before it.",
        examples=["rec-sdk-tf"],
    )
    ssh: SshKeys = Field(
        default_factory=SshKeys.model_construct,
        description="The cluster's own SSH.",
        examples=[{"port": 7722}],
    )
    resources: ResourceKeys = Field(
        default_factory=ResourceKeys.model_construct,
        description="How ranks learn of each other.",
        examples=[{"mode": "rank-table"}],
    )
    launcher: LauncherKeys = Field(
        default_factory=LauncherKeys.model_construct,
        description="The program that starts the ranks.",
        examples=[{"kind": "mpirun"}],
    )
    code: CodeKeys = Field(
        default_factory=CodeKeys.model_construct,
        description="The training code.",
        examples=[{"path": "/workspace/little_demo"}],
    )
    data: Annotated[list[AbsolutePath], Kind("a list of absolute paths on the nodes")] = Field(
        default_factory=nothing,
        description="What jobs read besides their code, files and folders: before each job it is "
        "looked at whether every node can read them where ranks run.",
        examples=[["/data/criteo", "/data/weights.npz"]],
    )
    logs: LogKeys = Field(
        default_factory=LogKeys.model_construct,
        description="What ranks print.",
        examples=[{"max_size": "256 MiB"}],
    )
    env: Environment = Field(
        default_factory=dict,
        description="Environment variables of every rank; values count as written. What a node "
        "states under its own `env` counts before them.",
        examples=[{"HCCL_CONNECT_TIMEOUT": 1200}],
        json_schema_extra={"propertyNames": {"pattern": ENV_NAME}},
    )
    secret_env: Annotated[list[EnvName], Kind("a list of names of environment variables")] = Field(
        default_factory=nothing,
        description="Variables under any `env` that hold secrets although neither name nor value "
        "shows it: their values are shown nowhere, and only the user of the ranks can read them "
        "on the nodes.",
        examples=[["WANDB_BASE_URL"]],
    )
    hccl: Annotated[dict[str, EnvValue], Kind("a mapping of HCCL's variables to values")] = Field(
        default_factory=dict,
        description="Variables of HCCL and the NPU software, checked against what is documented "
        "(docs/reference/hccl.md). A variable stands here or under `env`, not under both.",
        examples=[{"HCCL_CONNECT_TIMEOUT": 1200}],
        json_schema_extra={"properties": _hccl_schema(), "additionalProperties": False},
    )
