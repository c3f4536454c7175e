"""Keys that are right by themselves and contradict each other."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from ascendboot.hccl import WITHOUT_CM
from ascendboot.inventory.refused import (
    OPEN,
    why_not_env,
    why_not_option,
    why_not_parameter,
    why_not_with_torch,
)
from ascendboot.inventory.settings import report_settings
from ascendboot.model.cluster import has_meeting_port
from ascendboot.model.own_file import FOLDER
from ascendboot.model.secrets import is_secret_name, is_secret_value, to_mask

if TYPE_CHECKING:
    from ascendboot.inventory.keys import InventoryKeys
    from ascendboot.inventory.sheet import Sheet
    from ascendboot.model.cluster import ResourceMode

_MCA_SET_BY_US = {
    *("pml", "btl", "plm_rsh_agent", "plm_rsh_args", "plm_rsh_no_tree_spawn"),
    *("plm_rsh_num_concurrent", "btl_tcp_if_include", "oob_tcp_if_include"),
    *("orte_keep_fqdn_hostnames", "odls_base_sigkill_timeout"),
}
"""Parameters that stand on the command line already, be it by us or by horovodrun."""
_OPTIONS_SET_BY_US = {
    *("np", "n", "c", "H", "host", "hostfile", "machinefile", "default-hostfile", "app", "wdir"),
    *("bind-to", "map-by", "prefix", "allow-run-as-root", "tag-output", "output-filename"),
}
_NOT_FOR_CODE = {
    *("/", "/home", "/mnt", "/opt", "/root", "/srv", "/tmp"),  # noqa: S108 - to be refused
    *("/usr", "/usr/local", "/var", "/var/lib", "/var/log"),
}
_OF_THE_SYSTEM = {"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys"}


def report_contradictions(sheet: Sheet, keys: InventoryKeys) -> None:
    """Note every pair of keys that cannot both hold."""
    _report_mpi_args(sheet, keys.launcher.mpi_args, keys)
    if keys.resources.file is not None and resource_mode(keys) != "rank-table":
        sheet.report(
            sheet.spot.at("resources", "file"),
            f"{resource_mode(keys)} has no use for a rank table; leave one of the two out",
        )
    if keys.code.source is not None:
        _report_source(sheet, keys.code.path)
    mode = resource_mode(keys)
    if mode == "no-rank-table":
        _report_without_table(sheet, keys)
    if is_for_torch(keys):
        _report_torch(sheet, keys, mode)
    if ranks_meet(keys):
        _report_port(sheet, keys)
    report_settings(sheet, keys, has_meeting_port=ranks_meet(keys))


def resource_mode(keys: InventoryKeys) -> ResourceMode:
    """The mode stated, or the one that suits the launcher."""
    if keys.resources.mode is not None:
        return keys.resources.mode
    return "root-info" if keys.launcher.kind == "torchrun" else "rank-table"


def is_for_torch(keys: InventoryKeys) -> bool:
    """Whether the ranks meet as PyTorch's do, for certain."""
    return resource_mode(keys) == "root-info" or keys.launcher.kind == "torchrun"


def ranks_meet(keys: InventoryKeys) -> bool:
    """Whether the ranks meet at `resources.chief_port` for certain."""
    return has_meeting_port(resource_mode(keys), keys.launcher.kind)


def _report_torch(sheet: Sheet, keys: InventoryKeys, mode: ResourceMode) -> None:
    """What PyTorch's jobs cannot have."""
    kind = sheet.spot.at("launcher", "kind")
    stated_mode = sheet.spot.at("resources", "mode")
    if mode == "no-rank-table":
        sheet.report(
            stated_mode,
            "no-rank-table is for TensorFlow, and `launcher.kind` is torchrun; write root-info",
        )
    if mode == "root-info" and keys.launcher.kind == "horovod":
        sheet.report(kind, "horovod makes no communicator by root info; write torchrun or mpirun")
    if keys.profile == "rec-sdk-tf":
        sheet.report(
            sheet.spot.at("profile"),
            "rec-sdk-tf is for TensorFlow, which torchrun and root-info are not for; remove it",
        )
    if keys.launcher.kind == "torchrun" and keys.launcher.mpi_args:
        sheet.report(
            sheet.spot.at("launcher", "mpi_args"),
            "words for mpirun, and `launcher.kind` is torchrun; remove them",
        )
    for name in keys.env:
        if reason := why_not_with_torch(name, by_torchrun=keys.launcher.kind == "torchrun"):
            sheet.report(sheet.spot.at("env", name), reason)


def _report_port(sheet: Sheet, keys: InventoryKeys) -> None:
    if keys.ssh.port == keys.resources.chief_port:
        sheet.report(
            sheet.spot.at("ssh", "port"),
            f"{keys.ssh.port} is also resources.chief_port, where the ranks meet; state another",
        )


def _report_source(sheet: Sheet, path: str | None) -> None:
    if path is None:
        sheet.report(
            sheet.spot.at("code", "source"),
            "code.path is missing: where the code belongs on the nodes; state it",
        )
        return
    plain = f"/{posixpath.normpath(path).strip('/')}"
    first = plain.split("/")[1]
    if plain in _NOT_FOR_CODE or first in _OF_THE_SYSTEM or _is_ours(plain):
        sheet.report(
            sheet.spot.at("code", "path"),
            f"{path} is a folder of the system, and setup would make it equal to code.source; "
            "state a folder that holds the code alone",
        )


def _is_ours(path: str) -> bool:
    return path == FOLDER or path.startswith(f"{FOLDER}/")


def _report_without_table(sheet: Sheet, keys: InventoryKeys) -> None:
    spot = sheet.spot.at("resources")
    if keys.product in WITHOUT_CM:
        sheet.report(
            spot.at("mode"),
            f"no-rank-table does not exist on {WITHOUT_CM[keys.product]} servers (product: "
            f"{keys.product}): HCCL reads CM_ variables on 910 and A2 only; write rank-table",
        )


def _report_mpi_args(sheet: Sheet, words: list[str], keys: InventoryKeys) -> None:
    spot = sheet.spot.at("launcher", "mpi_args")
    seen: set[str] = set()
    for index in range(len(words)):
        reason = _why_secret(words[: index + 1], keys) or _why_not_word(words, index, seen)
        if reason:
            sheet.report(spot.at(index), reason)


def _why_secret(words: list[str], keys: InventoryKeys) -> str | None:
    """Why the last word cannot stand on a command line, without saying it."""
    word, before = words[-1], ["", *words][-2]
    name, is_set, value = word.partition("=")
    stated = to_mask(v for n, v in keys.env.items() if n in keys.secret_env or is_secret_name(n))
    if is_set and value and (is_secret_name(name) or name in keys.secret_env):
        what = f"gives {name} a value"
    elif is_secret_value(word) or any(secret in word for secret in stated):
        what = "holds a secret"
    elif is_secret_name(before) and not before.startswith("-"):
        what = f"gives {before} a value"
    else:
        return None
    return f"{what}, and {OPEN}; state the variable under `env`, which keeps it secret"


def _why_not_word(words: list[str], index: int, seen: set[str]) -> str | None:
    """Why mpirun would refuse this word, or take it for something else; `seen` are parameters."""
    word, following = words[index], words[index + 1 : index + 3]
    option = word.lstrip("-")
    if word == ":" and index:
        return '":" would begin another program; remove it'
    if option == word:
        why = f'"{word}" would be taken for the program to run; begin with an option'
        return None if index else why
    if option == "x" and following:
        reason = why_not_env(following[0].partition("=")[0])
        return f"{following[0]}: {reason}" if reason else None
    if option in ("mca", "gmca"):
        return _why_not_parameter(following, seen)
    if option in _OPTIONS_SET_BY_US:
        return f"ascendboot sets {word} itself; remove it"
    return why_not_option(option)


def _why_not_parameter(following: list[str], seen: set[str]) -> str | None:
    if len(following) != 2:  # noqa: PLR2004 - a parameter has a name and a value
        return "a parameter needs a name and a value; write for example --mca btl_tcp_links 2"
    name = following[0]
    if name in seen:
        return f"{name} is set twice, which mpirun refuses; keep one"
    seen.add(name)
    if name in _MCA_SET_BY_US:
        return (
            f"ascendboot or horovodrun sets {name} itself, and mpirun refuses it twice; remove it"
        )
    if reason := why_not_parameter(name):
        return f"{name}: {reason}"
    partner = name.replace("_exclude", "_include")
    if partner != name and partner in _MCA_SET_BY_US:
        return f"ascendboot sets {partner}, and Open MPI takes one of the two; remove {name}"
    return None
