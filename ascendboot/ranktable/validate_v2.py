"""Rules of tables with a `rank_list`: version 2.0, that of 950. Numbers are integers here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.ranktable.fields import (
    check_addresses,
    check_control_plane,
    cut,
    integer_of,
    kind,
    list_of,
    object_at,
    string_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.ranktable.rules import TableCheck
    from ascendboot.ranktable.text import JsonPath

MOST_RANKS = 65536
BACKUP_LOCAL_ID = 64
MOST_DEVICE_ID = 64
MOST_LEVELS = 8
MOST_LAYER = 7
MOST_INSTANCE_ID = 1024
NET_TYPES = ("TOPO_FILE_DESC", "CLOS", "1DMESH", "2DMESH", "A3_SERVER", "A2_AX_SERVER")

_DRAFT = re.compile(r"^(level|id|fabric_type|rank_addr_type|rank_addrs)$")


@dataclass
class _Seen:
    """What must be unique or alike among ranks."""

    ranks: dict[int, int] = field(default_factory=dict)
    local_ids: set[int] = field(default_factory=set)
    replaced: list[tuple[int, JsonPath]] = field(default_factory=list)
    places: dict[tuple[str, int], JsonPath] = field(default_factory=dict)
    """The rank that has a local id in a net instance of layer 0."""
    sizes: dict[tuple[int, str], int] = field(default_factory=dict)
    addresses: dict[str, JsonPath] = field(default_factory=dict)


def check_rank_list(document: Mapping[str, object], judging: TableCheck) -> None:
    """Note everything that is wrong with the table."""
    ranks = list_of(judging, document, "rank_list", ())
    count = integer_of(judging, document, "rank_count", (), least=1, most=MOST_RANKS)
    _detour(document, judging)
    if ranks is None:
        return
    if count is not None and count != len(ranks):
        judging.say(
            "count",
            ("rank_count",),
            f"rank_count is {count}, and rank_list has {len(ranks)}",
            name="rankCount",
            value=count,
            length=len(ranks),
        )
    if _is_draft(ranks):
        judging.say(
            "legacy-draft",
            ("rank_list", 0, "level_list"),
            "level, id, fabric_type and rank_addrs are the words of an old draft of 2.0",
            value="net_layer",
        )
        return
    seen = _Seen()
    for index, value in enumerate(ranks):
        path: JsonPath = ("rank_list", index)
        rank = object_at(judging, value, path, "a rank")
        if rank is not None:
            _rank(rank, path, seen, judging)
    _numbers(seen, len(ranks), judging)
    _replaced(seen, judging)


def _detour(document: Mapping[str, object], judging: TableCheck) -> None:
    if "detour" not in document:
        return
    value = document["detour"]
    if value not in ("true", "false", ""):
        words = f'detour is {kind(value)}; the strings "true" and "false" are known'
        judging.say("not-among", ("detour",), words, name="detour")


def _is_draft(ranks: Sequence[object]) -> bool:
    for rank in ranks:
        levels = rank.get("level_list") if isinstance(rank, dict) else None
        for level in levels if isinstance(levels, list) else ():
            if isinstance(level, dict) and any(_DRAFT.match(name) for name in level):
                return "net_layer" not in level
    return False


def _rank(rank: Mapping[str, object], path: JsonPath, seen: _Seen, judging: TableCheck) -> None:
    number = integer_of(judging, rank, "rank_id", path)
    if number is not None and number in seen.ranks:
        judging.say(
            "rank-ids",
            (*path, "rank_id"),
            f"rank_id {number} is there twice",
            index=path[-1],
            value=number,
        )
    if number is not None:
        seen.ranks.setdefault(number, int(path[-1]))
    local = integer_of(judging, rank, "local_id", path, most=BACKUP_LOCAL_ID)
    if local == BACKUP_LOCAL_ID:
        _backup(rank, path, seen, judging)
    elif local is not None:
        seen.local_ids.add(local)
    device = integer_of(judging, rank, "device_id", path)
    if device is not None and device > MOST_DEVICE_ID:
        words = f"device_id {device} is above {MOST_DEVICE_ID}, the highest of 950"
        judging.say("device-id", (*path, "device_id"), words, value=device, most=MOST_DEVICE_ID)
    for name in ("device_port", "host_port"):
        _port(rank, name, path, judging)
    _levels(rank, path, local, seen, judging)
    if "control_plane" in rank:
        check_control_plane(rank["control_plane"], (*path, "control_plane"), judging)


def _backup(rank: Mapping[str, object], path: JsonPath, seen: _Seen, judging: TableCheck) -> None:
    replaced = integer_of(judging, rank, "replaced_local_id", path, most=BACKUP_LOCAL_ID - 1)
    if replaced is not None:
        seen.replaced.append((replaced, (*path, "replaced_local_id")))


def _port(rank: Mapping[str, object], name: str, path: JsonPath, judging: TableCheck) -> None:
    if name not in rank:
        return
    value = integer_of(judging, rank, name, path)
    if value is not None and not 1 <= value <= 65535:  # noqa: PLR2004 - TCP
        judging.say("port", (*path, name), f"{name} {value} is no port", name=name, value=value)


def _levels(
    rank: Mapping[str, object], path: JsonPath, local: int | None, seen: _Seen, judging: TableCheck
) -> None:
    levels = list_of(judging, rank, "level_list", path)
    if levels is not None and len(levels) > MOST_LEVELS:
        words = f"level_list has {len(levels)}, and {MOST_LEVELS} are the most"
        judging.say(
            "out-of-range",
            (*path, "level_list"),
            words,
            name="level_list size",
            value=len(levels),
            least=1,
            most=MOST_LEVELS,
        )
    before = -1
    for index, value in enumerate(levels or ()):
        where = (*path, "level_list", index)
        level = object_at(judging, value, where, "a level")
        layer = _level(level, where, local, seen, judging) if level is not None else None
        if layer is not None and layer <= before:
            words = f"net_layer {layer} stands after {before}"
            judging.say("layers", (*where, "net_layer"), words)
        before = before if layer is None else layer


def _level(
    level: Mapping[str, object], path: JsonPath, local: int | None, seen: _Seen, judging: TableCheck
) -> int | None:
    """Its layer."""
    layer = integer_of(judging, level, "net_layer", path, most=MOST_LAYER)
    instance = string_of(judging, level, "net_instance_id", path, least=1, most=MOST_INSTANCE_ID)
    if "net_type" in level:
        kind_of_net = string_of(judging, level, "net_type", path)
        if kind_of_net is not None and kind_of_net not in NET_TYPES:
            words = f'net_type "{cut(kind_of_net)}" is none of {", ".join(NET_TYPES)}'
            judging.say("not-among", (*path, "net_type"), words, name="netType")
    if "net_attr" in level:
        string_of(judging, level, "net_attr", path)
    size = check_addresses(level, path, seen.addresses, judging)
    if layer is None or instance is None:
        return layer
    if size is not None and seen.sizes.setdefault((layer, instance), size) != size:
        words = (
            f'net instance "{cut(instance)}" of layer {layer} has {size} addresses here, '
            f"{seen.sizes[layer, instance]} at an earlier rank"
        )
        judging.say("instance-addresses", (*path, "rank_addr_list"), words, value=instance)
    if layer == 0 and local is not None:
        rank = path[:2]
        if seen.places.setdefault((instance, local), rank) != rank:
            words = f'local_id {local} is there twice in net instance "{cut(instance)}"'
            judging.say("local-id-twice", (*path[:-2], "local_id"), words)
    return layer


def _numbers(seen: _Seen, size: int, judging: TableCheck) -> None:
    high = {number: at for number, at in seen.ranks.items() if number >= size}
    missing = [number for number in range(size) if number not in seen.ranks]
    named = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")  # noqa: PLR2004
    for number, at in high.items():
        judging.say(
            "rank-ids",
            ("rank_list", at, "rank_id"),
            f"rank_id {number} is too high: {size} ranks are numbered 0 to {size - 1}; missing: "
            f"{named}",
            index=at,
            value=number,
        )


def _replaced(seen: _Seen, judging: TableCheck) -> None:
    for position, (value, path) in enumerate(seen.replaced):
        if position:
            judging.say("replaced", path, "a second backup; one is the most", value=value)
        elif value in seen.local_ids:
            words = f"local_id {value} is replaced, and a rank still has it"
            judging.say("replaced", path, words, value=value)
