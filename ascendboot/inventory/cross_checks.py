"""Rules across several keys of an inventory, and what `reserved.yaml` forbids to set."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from ascendboot.hccl import variables as hccl
from ascendboot.hccl.profiles import profile_env, why_not_value
from ascendboot.inventory.messages import did_you_mean
from ascendboot.inventory.nodes import Entry
from ascendboot.inventory.schema import InventoryKeys
from ascendboot.inventory.values import ENV_NAME, is_match
from ascendboot.inventory.yaml import Location, Mark, Sheet
from ascendboot.model.cluster import LAUNCHER_NAMES, Node, ResourceMode, has_meeting_port
from ascendboot.model.files import FOLDER
from ascendboot.model.names import fold
from ascendboot.model.secrets import is_secret_name, is_secret_value, to_mask
from ascendboot.value import Value, data_file

Section: TypeAlias = tuple[Mapping[str, str], Mark]
"""Variables, and where they are stated."""

_NOT_HERE = {
    "ASCEND_VISIBLE_DEVICES": "the container runtime reads it when a container is made, ranks "
    "never do; remove it",
    "ASCEND_DEVICE_ID": "ascendboot tells every rank its DEVICE_ID; remove it",
}
_ADDRESS = "HCCL_IF_IP"
_UNDER_ENV = "; other variables belong under `env`"


def environment(keys: InventoryKeys) -> dict[str, str]:
    """The variables of every rank: those of the profile, overridden by those of the inventory.

    HCCL's manual: processes that share an NPU need ports of their own, which `auto` gives them.
    """
    shared = {name: "auto" for name in hccl.PORT_RANGES if keys.launcher.ranks_per_device > 1}
    return {**shared, **profile_env(keys.profile), **keys.env, **keys.hccl}


def resource_mode(keys: InventoryKeys) -> ResourceMode:
    """The stated mode, or the default of the launcher."""
    if keys.resources.mode is not None:
        return keys.resources.mode
    by_root = keys.launcher.kind == "torchrun" or _rank_keys(keys)
    return "root-info" if by_root else "rank-table"


def report_contradictions(sheet: Sheet, keys: InventoryKeys) -> None:
    """Report keys that contradict each other, and variables that their software would refuse."""
    for location, text in (*_mpi_args(keys), *_contradictions(keys), *_settings(sheet, keys)):
        sheet.report(sheet.mark.at(*location), text)
    # the profile's own variables are never to blame
    for conflict in _conflicts(keys, environment(keys)):
        _report_first(sheet, _sections_of(sheet, keys), conflict.names, conflict.text)


def report_parallel_sizes(sheet: Sheet, keys: InventoryKeys, nodes: Sequence[Node]) -> None:
    """Report sizes that do not fit the stated devices, or the batch that they divide."""
    sizes, mark = keys.parallel, sheet.mark.at("parallel")
    if sizes is None:
        return
    if sizes.gbs is not None and sizes.gbs % sizes.mbs:
        text = f"gbs is {sizes.gbs}, which mbs {sizes.mbs} does not divide; write a multiple of it"
        sheet.report(mark.at("gbs"), text)
    counts = [node.device_count or len(node.devices) for node in nodes]
    devices, of_model = sum(counts), sizes.tp * sizes.pp * sizes.cp
    if not all(counts) or not devices:
        return
    if devices % of_model:
        text = f"tp * pp * cp is {of_model}, which does not divide the {devices} devices of all "
        sheet.report(mark, f"{text}nodes; state sizes that divide them")
    elif devices // of_model < sizes.dp_min:
        held = f"{devices} devices hold {devices // of_model} of a model on {of_model}"
        sheet.report(mark.at("dp_min"), f"dp_min is {sizes.dp_min}, and {held}; state less")


def report_node_settings(sheet: Sheet, keys: InventoryKeys, entries: Sequence[Entry]) -> None:
    """Report variables of nodes that are invalid or contradict others, and unknown secrets."""
    # Groups and defaults are layers of many entries: each place once.
    sections = {mark.path: (env, mark) for entry in entries for env, mark in _env_of(entry)}
    for stated, mark in sections.values():
        for name, value in stated.items():
            if reason := _why_not_of_node(name, value, keys):
                sheet.report(mark.at(name), reason)
    everywhere = set(_conflicts(keys, environment(keys)))
    for entry in entries:
        own = {*_conflicts(keys, {**environment(keys), **entry.env})} if entry.env else set()
        for conflict in own - everywhere:
            if not _report_first(sheet, _env_of(entry), conflict.names, conflict.text):
                sheet.report(entry.mark, conflict.text)
    known = {*environment(keys), *(name for stated, _ in sections.values() for name in stated)}
    for index, name in enumerate(keys.secret_env):
        if name not in known:  # its secret would be shown
            hint = did_you_mean(name, known, sheet) or "; remove it, or state the variable"
            sheet.report(sheet.mark.at("secret_env", index), f"no `env` states {name}{hint}")
    _report_shared_address(sheet, keys, entries)
    _report_handed_on(sheet, keys, entries)


def _contradictions(keys: InventoryKeys) -> Iterator[tuple[Location, str]]:
    mode, kind = resource_mode(keys), keys.launcher.kind
    path, source = keys.code.path, keys.code.source
    if keys.resources.file is not None and mode != "rank-table":
        yield ("resources", "file"), f"{mode} has no use for a rank table; leave one of the two out"
    if source is not None and path is None:
        words = "code.path is missing: where the code belongs on the nodes; state it"
        yield ("code", "source"), words
    elif source is not None and _is_system_folder(str(path)):
        words = f"{path} is a folder of the system, and setup would make it equal to code.source"
        yield ("code", "path"), f"{words}; state a folder that holds the code alone"
    if keys.topology.shape == "pipeline" and (keys.parallel is None or keys.parallel.pp == 1):
        yield ("topology", "shape"), "parallel.pp is missing: the number of stages; state it"
    if mode == "no-rank-table" and keys.product in hccl.WITHOUT_CM:
        servers = f"{hccl.WITHOUT_CM[keys.product]} servers (product: {keys.product})"
        words = "HCCL reads CM_ variables on 910 and A2 only; write rank-table"
        words = f"no-rank-table does not exist on {servers}: {words}"
        yield ("resources", "mode"), words
    if _is_for_torch(keys):
        yield from _not_for_torch(keys, mode)
    if kind == "srun":
        yield from _not_for_srun(keys)
    yield from _unlike_one_rank_per_device(keys, mode)
    if keys.ssh.standby and keys.ssh.trust == "pinned":
        words = "with `trust: pinned` nodes accept one key, that of the primary; write `trust: ca`"
        yield ("ssh", "standby"), words
    if has_meeting_port(mode, kind) and keys.ssh.port == keys.resources.chief_port:
        words = f"{keys.ssh.port} is also resources.chief_port, where the ranks meet; state another"
        yield ("ssh", "port"), words


def _unlike_one_rank_per_device(
    keys: InventoryKeys, mode: ResourceMode
) -> Iterator[tuple[Location, str]]:
    stated = _rank_keys(keys)
    for name in stated:
        if mode != "root-info":
            words = f"{mode} has one rank for each device; leave it out, or write root-info"
            yield ("resources", "mode"), f"launcher.{name} is stated, and {words}"
        if keys.parallel is not None:
            words = "`parallel` counts one rank for each device; leave one of the two out"
            yield ("launcher", name), words
    if len(stated) > 1:
        yield ("launcher", stated[1]), f"{stated[0]} is stated as well; leave one of the two out"


def _rank_keys(keys: InventoryKeys) -> list[str]:
    """The keys that state another number of ranks than one for each device."""
    of = keys.launcher
    of_node = ["ranks_per_node"] if of.ranks_per_node is not None else []
    return [*of_node, *(["ranks_per_device"] if of.ranks_per_device > 1 else [])]


def _not_for_srun(keys: InventoryKeys) -> Iterator[tuple[Location, str]]:
    if keys.launcher.mpi_args:
        yield ("launcher", "mpi_args"), "words for mpirun, and `launcher.kind` is srun; remove them"
    if any(of.container for of in (keys.defaults, *keys.groups.values(), *keys.nodes.values())):
        words = "slurmd starts ranks on the servers, not in a `container`; leave one of the two out"
        yield ("launcher", "kind"), words


def _not_for_torch(keys: InventoryKeys, mode: ResourceMode) -> Iterator[tuple[Location, str]]:
    kind = keys.launcher.kind
    if mode == "no-rank-table":
        words = "no-rank-table is for TensorFlow, and `launcher.kind` is torchrun; write root-info"
        yield ("resources", "mode"), words
    if mode == "root-info" and kind == "horovod":
        words = "horovod makes no communicator by root info; write torchrun or mpirun"
        yield ("launcher", "kind"), words
    if keys.profile == "rec-sdk-tf":
        words = "rec-sdk-tf is for TensorFlow, which torchrun and root-info are not for; remove it"
        yield ("profile",), words
    if kind == "torchrun" and keys.launcher.mpi_args:
        words = "words for mpirun, and `launcher.kind` is torchrun; remove them"
        yield ("launcher", "mpi_args"), words
    for name in keys.env:
        if reason := _why_not_with_torch(name, by_torchrun=kind == "torchrun"):
            yield ("env", name), reason


def _is_for_torch(keys: InventoryKeys) -> bool:
    return resource_mode(keys) == "root-info" or keys.launcher.kind == "torchrun"


def _settings(sheet: Sheet, keys: InventoryKeys) -> Iterator[tuple[Location, str]]:
    for name, value in keys.env.items():
        reason = _why_not_stated(name, value, keys)
        if reason is None and name in keys.hccl:
            reason = "stands under `hccl` as well; keep one"
        if reason:
            yield ("env", name), reason
    for name, value in keys.hccl.items():
        if name not in hccl.variables():
            hint = did_you_mean(name, hccl.variables(), sheet)
            unknown = f"no variable of HCCL has this name{hint or _UNDER_ENV}"
            yield ("hccl", name), _NOT_HERE.get(name) or why_not_env(name) or unknown
        else:
            reason = hccl.why_not(name, value, keys.product)
            if reason := reason or hccl.why_not_read(name, keys.product):
                yield ("hccl", name), reason


def _why_not_stated(name: str, value: str, keys: InventoryKeys) -> str | None:
    """Why a variable cannot have this value in an `env`; None where it can."""
    return (
        why_not_env(name)
        or _why_not_shown(name, value, keys.secret_names)
        or why_not_value(name, value)
        or hccl.why_not(name, value, keys.product)
    )


def _why_not_of_node(name: str, value: str, keys: InventoryKeys) -> str | None:
    reason = _why_not_stated(name, value, keys)
    if reason is None and _is_for_torch(keys):
        reason = _why_not_with_torch(name, by_torchrun=keys.launcher.kind == "torchrun")
    if reason is None and re.fullmatch(_listed().meeting, name):
        reason = "all ranks meet at one place: state it under `env` of the inventory"
    return reason


def _conflicts(keys: InventoryKeys, env: Mapping[str, str]) -> Iterator[hccl.Conflict]:
    """Contradictions within a whole environment, and between it and the ports of the inventory."""
    yield from hccl.conflicts(env)
    meets = has_meeting_port(resource_mode(keys), keys.launcher.kind)
    ports = {
        "resources.chief_port, where the ranks meet": keys.resources.chief_port if meets else None,
        "ssh.port": keys.ssh.port if isinstance(keys.ssh.port, int) else None,
    }
    for taken in hccl.hccl_ports(env):
        for what, port in ports.items():
            if port is not None and port in taken:
                names = ("HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_IF_BASE_PORT")
                why = f"HCCL takes {taken.start}-{taken.stop - 1}, and {port} of them is {what}"
                yield hccl.Conflict(names, f"{why}; move one of the two")


def _sections_of(sheet: Sheet, keys: InventoryKeys) -> list[Section]:
    return [(keys.hccl, sheet.mark.at("hccl")), (keys.env, sheet.mark.at("env"))]


def _env_of(entry: Entry) -> list[Section]:
    """Where the variables of an entry and of its container are stated, highest priority first."""
    layers = [layer for layer in entry.layers if layer.keys.env]
    stated: list[Section] = [(layer.keys.env, layer.mark.at("env")) for layer in layers]
    if made := entry.created:
        stated.append((made.env, entry.mark_of("container").at("env")))
    return stated


def _report_first(
    sheet: Sheet, sections: Sequence[Section], names: Sequence[str], text: str
) -> bool:
    """Report at the first of the names that these sections state; False if they state none."""
    for name in names:
        for stated, mark in sections:
            if name in stated:
                sheet.report(mark.at(name), text)
                return True
    return False


def _report_shared_address(sheet: Sheet, keys: InventoryKeys, entries: Sequence[Entry]) -> None:
    if sum(len(entry.names) for entry in entries) > 1:
        text = "one address cannot be that of several nodes; ascendboot sets each node's own: "
        _report_first(sheet, _sections_of(sheet, keys), (_ADDRESS,), f"{text}remove it")
    holders: dict[str, list[Entry]] = {}
    for entry in entries:
        if _ADDRESS in entry.env:
            holders.setdefault(entry.env[_ADDRESS], []).append(entry)
    for having in holders.values():
        names = [name for entry in having for name in entry.names]
        if len(names) > 1:
            text = f"one address cannot be that of {fold(names)}; give each node its own"
            _report_first(sheet, _env_of(having[-1]), (_ADDRESS,), text)


def _report_handed_on(sheet: Sheet, keys: InventoryKeys, entries: Sequence[Entry]) -> None:
    """Report variables of the primary that its horovodrun would set on all nodes."""
    kind = keys.launcher.kind
    may_be_horovodrun = kind == "horovod" or (kind == "auto" and resource_mode(keys) != "root-info")
    if not may_be_horovodrun or not entries:
        return
    name_of_primary = keys.primary or entries[0].names[0]
    primary = next((entry for entry in entries if name_of_primary in entry.names), entries[0])
    shared = environment(keys)
    for name in LAUNCHER_NAMES:
        without = [n for entry in entries if name not in entry.env for n in entry.names]
        if name in primary.env and name not in shared and without:
            text = f"horovodrun would hand the primary's value on to {fold(without)}: state one "
            text += "for the others too, or a `launcher.kind` of mpirun or torchrun"
            _report_first(sheet, _env_of(primary), (name,), text)


def _mpi_args(keys: InventoryKeys) -> Iterator[tuple[Location, str]]:
    """Words that hold a secret, that mpirun refuses, or that contradict ascendboot's own."""
    words, marked = keys.launcher.mpi_args, keys.secret_names
    all_words, seen = "\0".join(words), set[str]()
    stated = to_mask(v for n, v in keys.env.items() if n in marked or is_secret_name(n))
    secrets = [secret for secret in stated if secret in all_words]
    for index, (word, before) in enumerate(zip(words, ["", *words], strict=False)):
        reason = _why_secret(word, before, marked, secrets) or _why_not_word(words, index, seen)
        if reason:
            yield ("launcher", "mpi_args", index), reason


def _why_secret(
    word: str, before: str, marked: Collection[str], secrets: Iterable[str]
) -> str | None:
    """Why a word cannot be on a command line; the reason does not quote it."""
    name, is_set, value = word.partition("=")
    if is_set and value and (is_secret_name(name) or name in marked):
        what = f"gives {name} a value"
    elif is_secret_value(word) or any(secret in word for secret in secrets):
        what = "holds a secret"
    elif is_secret_name(before) and not before.startswith("-"):
        what = f"gives {before} a value"
    else:
        return None
    return f"{what}, and {_OPEN}; state the variable under `env`, which keeps it secret"


def _why_not_word(words: list[str], index: int, seen: set[str]) -> str | None:
    """Why mpirun would refuse or misread this word; `seen` collects parameters."""
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
        return _why_not_mca(following, seen)
    if option in _listed().options_set:
        return f"ascendboot sets {word} itself; remove it"
    reason = _listed().options.get(option)
    return f"--{option}: {reason}" if reason else None


def _why_not_mca(following: list[str], seen: set[str]) -> str | None:
    if len(following) != 2:  # noqa: PLR2004 - a parameter has a name and a value
        return "a parameter needs a name and a value; write for example --mca btl_tcp_links 2"
    name = following[0]
    if name in seen:
        return f"{name} is set twice, which mpirun refuses; keep one"
    seen.add(name)
    if name in _listed().parameters_set:
        return f"ascendboot or horovodrun sets {name}, and mpirun refuses it twice; remove it"
    if reason := _reason(_listed().parameters, name):
        return f"{name}: {reason}"
    partner = name.replace("_exclude", "_include")
    if partner != name and partner in _listed().parameters_set:
        return f"ascendboot sets {partner}, and Open MPI takes one of the two; remove {name}"
    return None


_OPEN = "every user of a node can read the launcher's command line"
_OF_MPI = "OMPI_MCA_"


class _Pattern(Value, forbid_unknown_fields=True):
    pattern: str
    reason: str


class _Reserved(Value, forbid_unknown_fields=True):
    """The file; its comments describe the members."""

    variables: tuple[_Pattern, ...]
    meeting: str
    torchrun: str
    parameters: tuple[_Pattern, ...]
    options: dict[str, str]
    parameters_set: frozenset[str]
    options_set: frozenset[str]
    folders: frozenset[str]
    folders_below: frozenset[str]


@cache
def _listed() -> _Reserved:
    return data_file("inventory/reserved.yaml", _Reserved)


def why_not_env(name: str) -> str | None:
    """Why a variable of this name cannot stand in `env`; None when it can."""
    if not is_match(ENV_NAME, name):
        return "is not the name of an environment variable; use letters, digits and _"
    if reason := _reason(_listed().variables, name):
        return reason
    parameter = name.removeprefix(_OF_MPI)
    return None if parameter == name else _reason(_listed().parameters, parameter)


def _reason(patterns: Collection[_Pattern], name: str) -> str | None:
    return next((known.reason for known in patterns if re.fullmatch(known.pattern, name)), None)


def _why_not_shown(name: str, value: str, marked: Collection[str]) -> str | None:
    """Why a variable cannot hold a secret: it stands on the launcher's command line."""
    is_for_launcher = name.startswith(_OF_MPI) or name in LAUNCHER_NAMES
    if is_for_launcher and (name in marked or is_secret_name(name) or is_secret_value(value)):
        return f"holds a secret, and {_OPEN}: remove it"
    return None


def _why_not_with_torch(name: str, *, by_torchrun: bool) -> str | None:
    """Why a variable cannot stand in `env` where PyTorch's ranks meet; None when it can."""
    if re.fullmatch(_listed().meeting, name):
        return "the ranks meet on the primary, at resources.chief_port: remove it"
    if by_torchrun and re.fullmatch(_listed().torchrun, name):
        return "torchrun sets this variable, or reads it as one of its options: remove it"
    return None


def _is_system_folder(path: str) -> bool:
    """Whether a folder belongs to the system or to ascendboot, and cannot hold the code."""
    plain = f"/{posixpath.normpath(path).strip('/')}"
    if plain in _listed().folders or plain.split("/")[1] in _listed().folders_below:
        return True
    return plain == FOLDER or plain.startswith(f"{FOLDER}/")
