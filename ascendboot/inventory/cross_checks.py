"""Rules across several keys of an inventory."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, TypeAlias

from ascendboot.hccl.profiles import profile_env, why_not_value
from ascendboot.hccl.variables import (
    VARIABLES,
    WITHOUT_CM,
    Conflict,
    conflicts,
    hccl_ports,
    why_not,
    why_not_read,
)
from ascendboot.inventory.messages import (
    OPEN,
    did_you_mean,
    why_not_env,
    why_not_of_one_node,
    why_not_option,
    why_not_parameter,
    why_not_shown,
    why_not_with_torch,
)
from ascendboot.model.cluster import LAUNCHER_NAMES, ResourceMode, has_meeting_port
from ascendboot.model.files import FOLDER
from ascendboot.model.names import fold
from ascendboot.model.secrets import is_secret_name, is_secret_value, to_mask

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ascendboot.inventory.nodes import Entry
    from ascendboot.inventory.schema import InventoryKeys
    from ascendboot.inventory.yaml import Mark, Sheet

if TYPE_CHECKING:
    Section: TypeAlias = tuple[Mapping[str, str], Mark]
    """Variables that are stated, and where that is."""

_NOT_HERE = {
    "ASCEND_VISIBLE_DEVICES": "the container runtime reads it when a container is made, ranks "
    "never do; remove it",
    "ASCEND_DEVICE_ID": "ascendboot tells every rank its DEVICE_ID; remove it",
}


def environment(keys: InventoryKeys) -> dict[str, str]:
    """What every rank gets: the profile's variables, and those stated, which count before them."""
    return {**profile_env(keys.profile), **keys.env, **keys.hccl}


def report_settings(sheet: Sheet, keys: InventoryKeys, *, has_meeting_port: bool) -> None:
    """Report every variable that its software would refuse, misread or not read."""
    for name, value in keys.env.items():
        reason = why_not_stated(name, value, keys)
        if reason is None and name in keys.hccl:
            reason = "stands under `hccl` as well; keep one"
        if reason:
            sheet.report(sheet.mark.at("env", name), reason)
    for name, value in keys.hccl.items():
        if reason := _why_not_here(name, sheet) or _why_not_together(name, value, keys.product):
            sheet.report(sheet.mark.at("hccl", name), reason)
    # the profile's own are never to blame
    for problem in together(keys, environment(keys), has_meeting_port=has_meeting_port):
        report_first(sheet, _sections_with_env(sheet, keys), problem)


def report_one_address(sheet: Sheet, keys: InventoryKeys, nodes: int) -> None:
    """An address for all nodes is right for one of them at most."""
    if nodes > 1:
        text = "one address cannot be that of several nodes; ascendboot sets each node's own: "
        problem = Conflict(("HCCL_IF_IP",), f"{text}remove it")
        report_first(sheet, _sections_with_env(sheet, keys), problem)


def why_not_stated(name: str, value: str, keys: InventoryKeys) -> str | None:
    """Why a variable cannot have this value in an `env`; None where it can."""
    reason = why_not_env(name) or why_not_shown(name, value, keys.secret_names)
    return reason or why_not_value(name, value) or why_not(name, value, keys.product)


def report_unknown_secrets(
    sheet: Sheet, keys: InventoryKeys, of_nodes: Iterable[Mapping[str, str]]
) -> None:
    """Report every name in `secret_env` that no variable has: its secret would be shown."""
    known = {*environment(keys), *(name for env in of_nodes for name in env)}
    for index, name in enumerate(keys.secret_env):
        if name not in known:
            hint = did_you_mean(name, known, sheet) or "; remove it, or state the variable"
            sheet.report(sheet.mark.at("secret_env", index), f"no `env` states {name}{hint}")


def together(
    keys: InventoryKeys, env: Mapping[str, str], *, has_meeting_port: bool
) -> Iterator[Conflict]:
    """What of a whole environment contradicts something else, in it or in the inventory."""
    yield from conflicts(env)
    yield from _ports(keys, env, has_meeting_port=has_meeting_port)


def report_first(sheet: Sheet, sections: Sequence[Section], problem: Conflict) -> bool:
    """At the first of its names that these sections state; False where they state none of them."""
    for name in problem.names:
        for stated, mark in sections:
            if name in stated:
                sheet.report(mark.at(name), problem.text)
                return True
    return False


def _sections_with_env(sheet: Sheet, keys: InventoryKeys) -> tuple[Section, Section]:
    return (keys.hccl, sheet.mark.at("hccl")), (keys.env, sheet.mark.at("env"))


def _why_not_here(name: str, sheet: Sheet) -> str | None:
    if name in VARIABLES:
        return None
    reason = _NOT_HERE.get(name) or why_not_env(name)
    hint = did_you_mean(name, VARIABLES, sheet) or "; other variables belong under `env`"
    return reason or f"no variable of HCCL has this name{hint}"


def _why_not_together(name: str, value: str, product: str) -> str | None:
    return why_not(name, value, product) or why_not_read(name, product)


def _ports(
    keys: InventoryKeys, env: Mapping[str, str], *, has_meeting_port: bool
) -> Iterator[Conflict]:
    meeting = keys.resources.chief_port if has_meeting_port else None
    taken = {
        "resources.chief_port, where the ranks meet": meeting,
        "ssh.port": keys.ssh.port if isinstance(keys.ssh.port, int) else None,
    }
    names = ("HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_IF_BASE_PORT")
    for ports in hccl_ports(env):
        for what, port in taken.items():
            if port is not None and port in ports:
                last = f"{ports.start}-{ports.stop - 1}"
                text = f"HCCL takes {last}, and {port} of them is {what}; move one of the two"
                yield Conflict(names, text)


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
    """Report every pair of keys that cannot both hold."""
    _report_mpi_args(sheet, keys.launcher.mpi_args, keys)
    if keys.resources.file is not None and resource_mode(keys) != "rank-table":
        sheet.report(
            sheet.mark.at("resources", "file"),
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
    kind = sheet.mark.at("launcher", "kind")
    stated_mode = sheet.mark.at("resources", "mode")
    if mode == "no-rank-table":
        sheet.report(
            stated_mode,
            "no-rank-table is for TensorFlow, and `launcher.kind` is torchrun; write root-info",
        )
    if mode == "root-info" and keys.launcher.kind == "horovod":
        sheet.report(kind, "horovod makes no communicator by root info; write torchrun or mpirun")
    if keys.profile == "rec-sdk-tf":
        sheet.report(
            sheet.mark.at("profile"),
            "rec-sdk-tf is for TensorFlow, which torchrun and root-info are not for; remove it",
        )
    if keys.launcher.kind == "torchrun" and keys.launcher.mpi_args:
        sheet.report(
            sheet.mark.at("launcher", "mpi_args"),
            "words for mpirun, and `launcher.kind` is torchrun; remove them",
        )
    for name in keys.env:
        if reason := why_not_with_torch(name, by_torchrun=keys.launcher.kind == "torchrun"):
            sheet.report(sheet.mark.at("env", name), reason)


def _report_port(sheet: Sheet, keys: InventoryKeys) -> None:
    if keys.ssh.port == keys.resources.chief_port:
        sheet.report(
            sheet.mark.at("ssh", "port"),
            f"{keys.ssh.port} is also resources.chief_port, where the ranks meet; state another",
        )


def _report_source(sheet: Sheet, path: str | None) -> None:
    if path is None:
        sheet.report(
            sheet.mark.at("code", "source"),
            "code.path is missing: where the code belongs on the nodes; state it",
        )
        return
    plain = f"/{posixpath.normpath(path).strip('/')}"
    first = plain.split("/")[1]
    if plain in _NOT_FOR_CODE or first in _OF_THE_SYSTEM or _is_ours(plain):
        sheet.report(
            sheet.mark.at("code", "path"),
            f"{path} is a folder of the system, and setup would make it equal to code.source; "
            "state a folder that holds the code alone",
        )


def _is_ours(path: str) -> bool:
    return path == FOLDER or path.startswith(f"{FOLDER}/")


def _report_without_table(sheet: Sheet, keys: InventoryKeys) -> None:
    mark = sheet.mark.at("resources")
    if keys.product in WITHOUT_CM:
        sheet.report(
            mark.at("mode"),
            f"no-rank-table does not exist on {WITHOUT_CM[keys.product]} servers (product: "
            f"{keys.product}): HCCL reads CM_ variables on 910 and A2 only; write rank-table",
        )


def _report_mpi_args(sheet: Sheet, words: list[str], keys: InventoryKeys) -> None:
    mark = sheet.mark.at("launcher", "mpi_args")
    seen: set[str] = set()
    marked = keys.secret_names
    all_words = "\0".join(words)
    stated = to_mask(v for n, v in keys.env.items() if n in marked or is_secret_name(n))
    held = [secret for secret in stated if secret in all_words]
    for index, (word, before) in enumerate(zip(words, ["", *words], strict=False)):
        reason = _why_secret(word, before, marked, held) or _why_not_word(words, index, seen)
        if reason:
            sheet.report(mark.at(index), reason)


def _why_secret(word: str, before: str, marked: Collection[str], held: Sequence[str]) -> str | None:
    """Why a word cannot stand on a command line; the reason does not repeat it."""
    name, is_set, value = word.partition("=")
    if is_set and value and (is_secret_name(name) or name in marked):
        what = f"gives {name} a value"
    elif is_secret_value(word) or any(secret in word for secret in held):
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


_ADDRESS = "HCCL_IF_IP"


def report_node_settings(sheet: Sheet, keys: InventoryKeys, entries: Sequence[Entry]) -> None:
    """Report every variable of a node that cannot be, or not beside all that the node has."""
    for stated, mark in _sections(entries):
        for name, value in stated.items():
            if reason := _why_not(name, value, keys):
                sheet.report(mark.at(name), reason)
    meets = ranks_meet(keys)
    everywhere = set(together(keys, environment(keys), has_meeting_port=meets))
    for entry in entries:
        if entry.env:
            env = {**environment(keys), **entry.env}
            for problem in together(keys, env, has_meeting_port=meets):
                if problem not in everywhere and not report_first(sheet, _of(entry), problem):
                    sheet.report(entry.mark, problem.text)
    _report_shared_address(sheet, entries)
    _report_handed_on(sheet, keys, entries)


def _of(entry: Entry) -> list[Section]:
    """Where the variables of an entry stand; what counts first stands first."""
    return [(layer.keys.env, layer.mark.at("env")) for layer in entry.layers if layer.keys.env]


def _sections(entries: Sequence[Entry]) -> Iterator[Section]:
    """Each place once: groups and defaults are layers of many entries."""
    sections = {mark.path: (env, mark) for entry in entries for env, mark in _of(entry)}
    yield from sections.values()


def _why_not(name: str, value: str, keys: InventoryKeys) -> str | None:
    reason = why_not_stated(name, value, keys)
    if reason is None and is_for_torch(keys):
        reason = why_not_with_torch(name, by_torchrun=keys.launcher.kind == "torchrun")
    return reason or why_not_of_one_node(name)


def _report_shared_address(sheet: Sheet, entries: Sequence[Entry]) -> None:
    """HCCL's address is a node's own."""
    holders: dict[str, list[Entry]] = {}
    for entry in entries:
        if _ADDRESS in entry.env:
            holders.setdefault(entry.env[_ADDRESS], []).append(entry)
    for having in holders.values():
        names = [name for entry in having for name in entry.names]
        if len(names) > 1:
            text = f"one address cannot be that of {fold(names)}; give each node its own"
            report_first(sheet, _of(having[-1]), Conflict((_ADDRESS,), text))


def _report_handed_on(sheet: Sheet, keys: InventoryKeys, entries: Sequence[Entry]) -> None:
    """The horovodrun of the primary gives all nodes the variables by which it finds its parts."""
    if not _may_be_horovodrun(keys) or not entries:
        return
    name_of_primary = keys.primary or entries[0].names[0]
    primary = next((entry for entry in entries if name_of_primary in entry.names), entries[0])
    shared = environment(keys)
    for name in LAUNCHER_NAMES:
        without = [n for entry in entries if name not in entry.env for n in entry.names]
        if name in primary.env and name not in shared and without:
            text = (
                f"horovodrun would hand the primary's value on to {fold(without)}: state one for "
                "the others too, or a `launcher.kind` of mpirun or torchrun"
            )
            report_first(sheet, _of(primary), Conflict((name,), text))


def _may_be_horovodrun(keys: InventoryKeys) -> bool:
    kind = keys.launcher.kind
    return kind == "horovod" or (kind == "auto" and resource_mode(keys) != "root-info")
