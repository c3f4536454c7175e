"""The profiles of training stacks: their variables, limits and paths."""

from __future__ import annotations

from pathlib import PurePosixPath

from ascendboot.hccl.variables import Whole
from ascendboot.value import Value


class Variable(Value):
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

LIMITS = {
    "GLOG_stderrthreshold": Whole(least=-2, most=2),
    "MULTI_LOOKUP_TIMES": Whole(least=1, most=127),
    "KEY_PROCESS_THREAD_NUM": Whole(least=1, most=10),
}
"""Variables that Rec SDK checks itself; those of HCCL are in `variables.yaml`."""


def profile_env(profile: str) -> dict[str, str]:
    """The variables of a profile with their defaults; none for `none`."""
    wanted = REC_SDK_TF if profile == "rec-sdk-tf" else ()
    return {variable.name: variable.default for variable in wanted}


def packages_of(python: str, version: str) -> str:
    """The packages folder of the interpreter at this path, of version X.Y[.Z]."""
    series = ".".join(version.split(".")[:2])
    return str(PurePosixPath(python).parent.parent / "lib" / f"python{series}" / "site-packages")


def profile_paths(profile: str, packages: str) -> dict[str, str]:
    """The search paths of a profile within the packages of the job's Python."""
    if profile != "rec-sdk-tf":
        return {}
    libasc = f"{packages}/mx_rec/libasc"
    return {
        "PYTHONPATH": libasc,
        "LD_LIBRARY_PATH": f"{libasc}:{packages}/rec_sdk_common/lib:/usr/local/lib",
    }


def why_not_value(name: str, value: str) -> str | None:
    """Why the software would refuse this value of a variable; None where nothing is known."""
    return LIMITS[name].why_not(value) if name in LIMITS else None
