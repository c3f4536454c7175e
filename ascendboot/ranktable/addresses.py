"""Rules of the addresses of a table of version 2.0."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ascendboot.ranktable.fields import cut, kind, object_at, packed
from ascendboot.ranktable.integers import integer_of, string_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.jsontext import Path
    from ascendboot.ranktable.problem import Judging

TYPES = ("EID", "IPV4", "IPV6")
MOST_ADDRESSES = 24
MOST_ADDRESS = 256
MOST_PLANE = 1024
MOST_PORTS = 16
MOST_PORT = 32
MOST_BACKUPS = 16

_EID = re.compile(r"[0-9a-fA-F]{32}")
_PORT = re.compile(r"[0-9]+/[0-9]+|d2h")
_BYTES = {"IPV4": 4, "IPV6": 16}


def judge_addresses(
    level: Mapping[str, object], path: Path, seen: dict[str, Path], judging: Judging
) -> int | None:
    """Note what is wrong with the addresses of a level; how many they are."""
    where = (*path, "rank_addr_list")
    if "rank_addr_list" not in level:
        judging.say("missing", path, "rank_addr_list is missing", name="rank_addrs")
        return None
    values = level["rank_addr_list"]
    if not isinstance(values, list):
        words = f"rank_addr_list is {kind(values)}, not a list"
        judging.say("wrong-type", where, words, name="rank_addrs")
        return None
    if len(values) > MOST_ADDRESSES:
        _too_many(len(values), (0, MOST_ADDRESSES), where, judging)
    for index, value in enumerate(values):
        place = (*where, index)
        address = object_at(judging, value, place, "an address")
        if address is not None:
            _address(address, place, seen, judging)
    return len(values)


def judge_control_plane(value: object, path: Path, judging: Judging) -> None:
    """Note what is wrong with the control plane of a rank."""
    plane = object_at(judging, value, path, "control_plane")
    if plane is not None:
        _typed(plane, path, judging)
        integer_of(judging, plane, "listen_port", path, least=1, most=65536)


def _address(
    address: Mapping[str, object], path: Path, seen: dict[str, Path], judging: Judging
) -> None:
    text = _typed(address, path, judging)
    if text is not None:
        first = seen.setdefault(text, path)
        # a rank may use an address on several levels
        if first[:2] != path[:2]:
            words = f"addr {text} is that of rank_list[{first[1]}], too"
            judging.say("address-twice", (*path, "addr"), words, level="warning")
    if "plane_id" in address:
        string_of(judging, address, "plane_id", path, most=MOST_PLANE)
    _ports(address, path, judging)
    if "backup_addr" in address:
        _backups(address, path, judging)


def _typed(address: Mapping[str, object], path: Path, judging: Judging) -> str | None:
    """The address, where type and address fit together."""
    kind_of = string_of(judging, address, "addr_type", path)
    if kind_of is not None and kind_of not in TYPES:
        words = f'addr_type "{cut(kind_of)}" is none of {", ".join(TYPES)}'
        judging.say("not-among", (*path, "addr_type"), words, name="addrType")
        kind_of = None
    text = string_of(judging, address, "addr", path, least=1, most=MOST_ADDRESS)
    if text is None or kind_of is None:
        return None
    if is_address(kind_of, text):
        return text
    words = f'addr "{cut(text)}" is no {kind_of}{", 32 hex digits" if kind_of == "EID" else ""}'
    judging.say("address", (*path, "addr"), words, value=cut(text))
    return None


def is_address(kind_of: str, text: str) -> bool:
    """Whether a text is an address of that type."""
    if kind_of == "EID":
        return _EID.fullmatch(text) is not None
    found = packed(text)
    return found is not None and len(found) == _BYTES[kind_of]


def _ports(address: Mapping[str, object], path: Path, judging: Judging) -> None:
    where = (*path, "ports")
    if "ports" not in address:
        judging.say("missing", path, "ports is missing", name="ports")
        return
    ports = address["ports"]
    if not isinstance(ports, list):
        judging.say("wrong-type", where, f"ports is {kind(ports)}, not a list", name="ports")
        return
    if not 1 <= len(ports) <= MOST_PORTS:
        _too_many(len(ports), (1, MOST_PORTS), where, judging)
    for index, port in enumerate(ports):
        place = (*where, index)
        if not isinstance(port, str):
            words = f"a port is {kind(port)}, not a string"
            judging.say("wrong-type", place, words, name="ports")
        elif not _PORT.fullmatch(port) or len(port) > MOST_PORT:
            words = f'port "{cut(port)}" is not DIE/PORT, such as 0/4, and not d2h'
            judging.say("not-among", place, words, name="port")


def _backups(address: Mapping[str, object], path: Path, judging: Judging) -> None:
    where = (*path, "backup_addr")
    backups, kind_of = address["backup_addr"], address.get("addr_type")
    if not isinstance(backups, list):
        words = f"backup_addr is {kind(backups)}, not a list"
        judging.say("wrong-type", where, words, name="backup_addr")
        return
    if len(backups) > MOST_BACKUPS:
        _too_many(len(backups), (0, MOST_BACKUPS), where, judging)
    for index, backup in enumerate(backups):
        if not isinstance(backup, str):
            words = f"a backup address is {kind(backup)}, not a string"
            judging.say("wrong-type", (*where, index), words, name="backup_addr")
        elif kind_of not in _BYTES or not is_address(str(kind_of), backup):
            words = f'backup address "{cut(backup)}" is no {cut(str(kind_of))} of IPV4 and IPV6'
            judging.say("address", (*where, index), words, value=cut(backup))


def _too_many(count: int, taken: tuple[int, int], where: Path, judging: Judging) -> None:
    (least, most), name = taken, where[-1]
    words = f"{name} has {count}, and {least} to {most} are taken"
    judging.say("out-of-range", where, words, name=name, value=count, least=least, most=most)
