"""Product profiles, and the generated reference page of the variables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from ascendboot.hccl.variables import VARIABLES


@dataclass(frozen=True)
class Variable:
    """A variable of Rec SDK's run.sh (little_demo, RecSDK@61ea9bb7) with its default there."""

    name: str
    default: str
    meaning: str = "read by main.py and its configuration"


REC_SDK_TF: tuple[Variable, ...] = (
    Variable("USE_MODE", "train", "train, load_and_train or predict"),
    Variable("CACHE_MODE", "HBM", "HBM, DDR or SSD"),
    Variable("BIND_INFO", "0:12 12:48 60:48", "run.sh gives it to mpirun with -x"),
    Variable("GLOG_stderrthreshold", "0", "run.sh gives it to mpirun with -x"),
    Variable("GLOG_logtostderr", "true", "run.sh gives it to mpirun with -x"),
    Variable("HCCL_CONNECT_TIMEOUT", "1200", "how long ranks wait for each other at the start"),
    Variable("HCCL_OP_RETRY_ENABLE", "L0:0, L1:0, L2:0", "HCCL's own retries, by level"),
    Variable("JOB_ID", "10086", "the job's id for the NPU software"),
    Variable("MXREC_LOG_LEVEL", "INFO", "level of mx_rec's log"),
    Variable("TF_CPP_MIN_LOG_LEVEL", "3", "least level of TensorFlow's log"),
    Variable("ASCEND_GLOBAL_LOG_LEVEL", "3", "level of the NPU software's log"),
    Variable("MXREC_MODE", "ASC"),
    Variable("USE_DYNAMIC", "1"),
    Variable("USE_DYNAMIC_EXPANSION", "0"),
    Variable("USE_MULTI_LOOKUP", "1"),
    Variable("MULTI_LOOKUP_TIMES", "2"),
    Variable("USE_MODIFY_GRAPH", "1"),
    Variable("USE_TIMESTAMP", "0"),
    Variable("USE_ONE_SHOT", "0"),
    Variable("USE_DP", "0"),
    Variable("USE_COMBINE_FAAE", "0"),
    Variable("USE_DETERMINISTIC", "0"),
    Variable("USE_TUPLE_DATA_FORMAT", "0"),
    Variable("USE_PADDING_KEYS", "0"),
    Variable("KEY_PROCESS_THREAD_NUM", "6"),
    Variable("FAST_UNIQUE", "0"),
    Variable("MGMT_HBM_TASK_MODE", "0"),
    Variable("PRECISION_CHECK", "0", "1 overrides several of these"),
)

LIMITS: dict[str, tuple[int, int]] = {
    "GLOG_stderrthreshold": (-2, 2),
    "MULTI_LOOKUP_TIMES": (1, 127),
    "KEY_PROCESS_THREAD_NUM": (1, 10),
}
"""Smallest and largest value of variables that Rec SDK checks itself; those of HCCL are in
`ascendboot.hccl`."""


def profile_env(profile: str) -> dict[str, str]:
    """The variables of a profile with their defaults; none for `none`."""
    wanted = REC_SDK_TF if profile == "rec-sdk-tf" else ()
    return {variable.name: variable.default for variable in wanted}


def packages_of(python: str, version: str) -> str:
    """Where the packages of the interpreter at this path, of version X.Y[.Z], lie."""
    series = ".".join(version.split(".")[:2])
    return str(PurePosixPath(python).parent.parent / "lib" / f"python{series}" / "site-packages")


def profile_paths(profile: str, packages: str) -> dict[str, str]:
    """Where a profile's libraries and modules lie, beside the packages of the job's Python."""
    if profile != "rec-sdk-tf":
        return {}
    libasc = f"{packages}/mx_rec/libasc"
    return {
        "PYTHONPATH": libasc,
        "LD_LIBRARY_PATH": f"{libasc}:{packages}/rec_sdk_common/lib:/usr/local/lib",
    }


def why_not_value(name: str, value: str) -> str | None:
    """Why the software would refuse this value of a variable; None where nothing is known."""
    if name not in LIMITS:
        return None
    least, most = LIMITS[name]
    digits = value.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and least <= int(value) <= most:
        return None
    return f'"{value}" is not a whole number from {least} to {most}'


def profiles_markdown() -> str:
    """The page `docs/reference/rec-sdk-tf.md`."""
    rows = [f"| `{v.name}` | `{v.default}` | {_limits(v.name)} | {v.meaning} |" for v in REC_SDK_TF]
    return _PAGE.format(rows="\n".join(rows))


def _limits(name: str) -> str:
    if name in VARIABLES:
        return VARIABLES[name].kind.words
    if name not in LIMITS:
        return ""
    least, most = LIMITS[name]
    return f"{least} to {most}"


_PAGE = """\
# Profile rec-sdk-tf

`profile: rec-sdk-tf` in an inventory gives every rank what `run.sh` of Rec SDK TensorFlow's
little_demo sets (RecSDK, `examples/demo/little_demo/run.sh`), so that `train main.py` replaces it.
What the inventory states under `env` counts before these defaults.

| variable | default | limits | meaning |
|---|---|---|---|
{rows}

Set by ascendboot for each node, unless `env` states them:

| variable | value |
|---|---|
| `NCCL_SOCKET_IFNAME` | the interface that has the node's `cluster_address`; names may differ |
| `PYTHONPATH` | `mx_rec/libasc` beside the packages of the node's `code.python` |
| `LD_LIBRARY_PATH` | that, `rec_sdk_common/lib` and `/usr/local/lib` |
| `LD_PRELOAD` | `libgomp.so.1` and `libstdc++.so.6` of `/usr/lib64`, where the node has them |

`setup` asks `horovodrun` whether it works, and `train` starts it, with this `PYTHONPATH` and
`LD_LIBRARY_PATH`.
`set_env.sh` of CANN and `setenv.bash` of the driver are read first where they are. The devices of
all nodes must have the same ids in the same order: mx_rec takes the list of the first node for all.
Not taken over: `kill -9` of every Python process, `tee` (it loses the exit code),
`RANK_TABLE_FILE`, `RANK_SIZE` and `CM_…`, which `resources.mode` decides.
"""


def variables_markdown() -> str:
    """The page `docs/reference/hccl.md`."""
    rows = [
        f"| `{v.name}` | {_cell(v.kind.words)} | {f'`{v.default}`' if v.default else ''} "
        f"| {v.product_names} | {_cell(v.meaning)} |"
        for v in VARIABLES.values()
    ]
    return _VARIABLES_PAGE.format(rows="\n".join(rows))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


_VARIABLES_PAGE = """\
# HCCL settings

The section `hccl` of an inventory takes these variables by their names, and gives them to every
rank:

```yaml
hccl:
  HCCL_CONNECT_TIMEOUT: 1200
  HCCL_BUFFSIZE: 400
```

What HCCL would refuse, misread or not read at all is refused here, with file, line, key and what is
documented; a name that is not in this list is refused too. The same variables may stand under
`env`: their values are checked as well, and each stands in one place. Under the `env` of a node or
a group they hold there alone, and count before. Other variables belong under `env`.

Where `product` is stated, its limits count, and variables of other products are refused; with
`product: auto` the widest limits count, and `setup` and `check` check again by what the nodes
report (finding `hccl-setting`).

| variable | value | default | read by | meaning |
|---|---|---|---|---|
{rows}

## What contradicts what

* `HCCL_CONNECT_TIMEOUT` must be less than `HCCL_EXEC_TIMEOUT`, which with
  `HCCL_OP_EXPANSION_MODE: AIV` is 1091 at most, also where it is 0 or not stated; with `CCU_SCHED`
  and `CCU_MS` it is 65535 at most.
* `HCCL_WHITELIST_DISABLE: 0` wants `HCCL_WHITELIST_FILE`.
* Of `HCCL_INTRA_ROCE_ENABLE` and `HCCL_INTRA_PCIE_ENABLE` exactly one is 1.
* `HCCL_IF_BASE_PORT` and `HCCL_HOST_SOCKET_PORT_RANGE` do not stand together; neither may take
  `resources.chief_port`, where ranks meet, or a stated `ssh.port`. `HCCL_IF_BASE_PORT: 29500` is
  PyTorch's own port.
* A level of `HCCL_OP_RETRY_ENABLE` that is 1 has no effect where the rank table does not state a
  `host_ip` for every server, as those that `setup` makes do not: a warning of `setup` and `check`.
* `ASCEND_RT_VISIBLE_DEVICES` begins with the devices of the node's ranks: an error of both.

## What ascendboot sets

`RANK_TABLE_FILE`, `RANK_ID`, `RANK_SIZE`, `DEVICE_ID` and `CM_…`: never stated, and never of both
families at once ([inventory](inventory.md), `resources`). Neither is `ASCEND_DEVICE_ID`, an older
name for `DEVICE_ID`, nor `ASCEND_VISIBLE_DEVICES`, which the container runtime reads when a
container is made: for ranks it means nothing.
"""
