"""The variables that nodes have by themselves: what of them is wrong where they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.hccl import Problem
from ascendboot.inventory.contradictions import is_for_torch, ranks_meet, resource_mode
from ascendboot.inventory.refused import why_not_of_one_node, why_not_with_torch
from ascendboot.inventory.settings import environment, report_first, together, why_not_stated
from ascendboot.model.launcher import LAUNCHER_NAMES
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ascendboot.inventory.entries import Entry
    from ascendboot.inventory.keys import InventoryKeys
    from ascendboot.inventory.settings import Section
    from ascendboot.inventory.sheet import Sheet

_ADDRESS = "HCCL_IF_IP"


def report_node_settings(sheet: Sheet, keys: InventoryKeys, entries: Sequence[Entry]) -> None:
    """Note every variable of a node that cannot be, or not beside all that the node has."""
    for stated, spot in _sections(entries):
        for name, value in stated.items():
            if reason := _why_not(name, value, keys):
                sheet.report(spot.at(name), reason)
    meets = ranks_meet(keys)
    everywhere = set(together(keys, environment(keys), has_meeting_port=meets))
    for entry in entries:
        if entry.env:
            env = {**environment(keys), **entry.env}
            for problem in together(keys, env, has_meeting_port=meets):
                if problem not in everywhere and not report_first(sheet, _of(entry), problem):
                    sheet.report(entry.spot, problem.text)
    _report_shared_address(sheet, entries)
    _report_handed_on(sheet, keys, entries)


def _of(entry: Entry) -> list[Section]:
    """Where the variables of an entry stand; what counts first stands first."""
    return [(layer.keys.env, layer.spot.at("env")) for layer in entry.layers if layer.keys.env]


def _sections(entries: Sequence[Entry]) -> Iterator[Section]:
    """Each place once: groups and defaults are layers of many entries."""
    sections = {spot.path: (env, spot) for entry in entries for env, spot in _of(entry)}
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
            report_first(sheet, _of(having[-1]), Problem((_ADDRESS,), text))


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
            report_first(sheet, _of(primary), Problem((name,), text))


def _may_be_horovodrun(keys: InventoryKeys) -> bool:
    kind = keys.launcher.kind
    return kind == "horovod" or (kind == "auto" and resource_mode(keys) != "root-info")
