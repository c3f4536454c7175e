"""Keys and variables that an inventory refuses with a reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ascendboot.inventory.kinds import ENV_NAME, is_match
from ascendboot.model.launcher import LAUNCHER_NAMES
from ascendboot.model.secrets import is_secret_name, is_secret_value

if TYPE_CHECKING:
    from collections.abc import Collection

OPEN = "every user of a node can read the launcher's command line"
SECRETS = "secrets never stand in an inventory"

_SET_BY_OTHERS = (
    (
        re.compile(
            r"RANK_TABLE_FILE|RANK_ID|RANK_SIZE|DEVICE_ID|RANK|LOCAL_RANK|WORLD_SIZE"
            r"|(CM_|ASCENDBOOT_).*"
        ),
        (
            "ascendboot sets this variable for every rank; a fixed value would contradict it: "
            "remove it"
        ),
    ),
    (
        re.compile(r"ascendboot_.*", re.IGNORECASE),
        "names that begin with ascendboot_ are ascendboot's own: remove it",
    ),
    (
        re.compile(r"(OMPI_(?!MCA_)|PMIX_|OMPI_MCA_(ess|orte_ess|orte_hnp)_).*"),
        "mpirun sets this variable for every rank; a fixed value would contradict it: remove it",
    ),
    (
        re.compile(
            r"_|BASH.*|COMP_.*|COPROC|DIRSTACK|ENV|EPOCH(REALTIME|SECONDS)|E?UID|FUNCNAME"
            r"|GLOBIGNORE|GROUPS|HISTCMD|IFS|LINENO|MAPFILE|(OLD)?PWD|OPT(ARG|ERR|IND)|PIPESTATUS"
            r"|POSIXLY_CORRECT|PPID|S?RANDOM|READLINE_.*|REPLY|SECONDS|SHELLOPTS|SHLVL|TIMEFORMAT"
            r"|TMOUT"
        ),
        "bash sets this variable or changes its ways by it, and a rank begins in bash: remove it",
    ),
)
_AGENT = (
    "it would replace the ssh or the daemon that starts ranks on other nodes, or their options, "
    "and ascendboot answers for those: remove it"
)
_PARAMETER_FILE = (
    "it has mpirun read parameters from a file, which may set what ascendboot sets: remove it, and "
    "write each parameter as `--mca NAME VALUE`"
)
_PARAMETERS = (
    (re.compile(r"plm|pl[ms]_rsh_(agent|args)|orte_(rsh|launch|fork)_agent"), _AGENT),
    (
        re.compile(
            r"mca_(base_)?param_files|mca_base_(override_param_file|param_file_path(_force)?)"
            r"|mca_base_(param|envar)_file_prefix"
        ),
        _PARAMETER_FILE,
    ),
)
_OPTIONS = {"launch-agent": _AGENT, "am": _PARAMETER_FILE, "tune": _PARAMETER_FILE}
_OF_MPI = "OMPI_MCA_"
_MEETING = re.compile(r"MASTER_(ADDR|PORT)")
_SET_BY_TORCHRUN = re.compile(r"(LOCAL|GROUP|ROLE)_(WORLD_SIZE|RANK|NAME)|TORCHELASTIC_.*|PET_.*")
_SECRET = re.compile(
    r"(.*[_-])?(pass|passwd|password|passphrase|secret|credentials?)([_-].*)?", re.IGNORECASE
)
ENV_SET_BY_US = (
    "RANK_TABLE_FILE, RANK_ID, RANK_SIZE, RANK, LOCAL_RANK, WORLD_SIZE, DEVICE_ID, CM_*, "
    "ASCENDBOOT_*; and those of mpirun, such as OMPI_COMM_WORLD_*, and of bash, such as IFS"
)


def is_secret(key: str) -> bool:
    """Whether a key of this name would hold a secret."""
    return _SECRET.fullmatch(key) is not None


def why_not_env(name: str) -> str | None:
    """Why a variable of this name cannot stand in `env`; None when it can."""
    if not is_match(ENV_NAME, name):
        return "is not the name of an environment variable; use letters, digits and _"
    for pattern, reason in _SET_BY_OTHERS:
        if pattern.fullmatch(name):
            return reason
    return why_not_parameter(name.removeprefix(_OF_MPI)) if name.startswith(_OF_MPI) else None


def why_not_parameter(name: str) -> str | None:
    """Why a parameter of Open MPI cannot be set, wherever it stands; None when it can."""
    return next((reason for pattern, reason in _PARAMETERS if pattern.fullmatch(name)), None)


def why_not_option(option: str) -> str | None:
    """Why an option of mpirun, without its dashes, cannot be given; None when it can."""
    reason = _OPTIONS.get(option)
    return f"--{option}: {reason}" if reason else None


def why_not_shown(name: str, value: str, marked: Collection[str]) -> str | None:
    """Why a variable cannot be a secret, if it is one: the launcher gets it as words."""
    is_for_launcher = name.startswith("OMPI_MCA_") or name in LAUNCHER_NAMES
    if is_for_launcher and (name in marked or is_secret_name(name) or is_secret_value(value)):
        return f"holds a secret, and {OPEN}: remove it"
    return None


def why_not_of_one_node(name: str) -> str | None:
    """Why one node cannot have a value of its own for a variable; None when it can."""
    if _MEETING.fullmatch(name):
        return "all ranks meet at one place: state it under `env` of the inventory"
    return None


def why_not_with_torch(name: str, *, by_torchrun: bool) -> str | None:
    """Why a variable cannot stand in `env` where PyTorch's ranks meet; None when it can."""
    if _MEETING.fullmatch(name):
        return "the ranks meet on the primary, at resources.chief_port: remove it"
    if by_torchrun and _SET_BY_TORCHRUN.fullmatch(name):
        return "torchrun sets this variable, or reads it as one of its options: remove it"
    return None
