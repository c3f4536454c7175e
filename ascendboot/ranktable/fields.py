"""Fields of rank tables: integers, addresses, device and server ids."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.rules import TableCheck
    from ascendboot.ranktable.text import JsonPath

MOST_U32 = 4294967295
MOST_TCP_PORT = 65535

_LEADING_NUMBER = re.compile(r"[ \t\n\v\f\r]*\+?([0-9]+)")
_PLACEHOLDER = re.compile(r"[{}<>]|\.\.\.|…|\*\*|^\s*$|\b[xX]{1,3}(\.[xX]{1,3})+\b|\b[xX]{2,}\b")


def list_of(
    judging: TableCheck, members: Mapping[str, object], name: str, path: JsonPath
) -> list[object] | None:
    """A list with something in it; None after a problem was noted."""
    if name not in members:
        judging.say("missing", path, f"{name} is missing", name=name)
        return None
    value = members[name]
    if not isinstance(value, list):
        judging.say("wrong-type", (*path, name), f"{name} is {kind(value)}, not a list", name=name)
        return None
    if not value:
        judging.say("empty", (*path, name), f"{name} is empty", name=name)
        return None
    return value


def object_at(
    judging: TableCheck, value: object, path: JsonPath, what: str
) -> dict[str, object] | None:
    """An object; None after a problem was noted."""
    if isinstance(value, dict):
        return value
    judging.say("wrong-type", path, f"{what} is {kind(value)}, not an object", name=what)
    return None


def text_of(
    judging: TableCheck,
    members: Mapping[str, object],
    name: str,
    path: JsonPath,
    *,
    optional: bool = False,
) -> str | None:
    """A string as it stands; None where there is none, or after a problem was noted."""
    value = members.get(name)
    if isinstance(value, str):
        return value
    if name not in members:
        if not optional:
            judging.say("missing", path, f"{name} is missing", name=name)
    else:
        judging.say(
            "not-a-string", (*path, name), f"{name} is {kind(value)}, not a string", name=name
        )
    return None


def number_of(
    judging: TableCheck,
    members: Mapping[str, object],
    name: str,
    path: JsonPath,
    *,
    optional: bool = False,
) -> int | None:
    """The number in a string of digits; None where there is none, or after a problem was noted."""
    text = text_of(judging, members, name, path, optional=optional)
    if text is None:
        return None
    value = number(text)
    if value is None and not placeholder(judging, text, name, path):
        judging.say(
            "not-digits",
            (*path, name),
            f'{name} is "{cut(text)}"; a whole number is wanted',
            hccl="" if taken_by_hccl(text) else None,
            name=name,
            value=cut(text),
        )
    return value


def number(text: str) -> int | None:
    """The number that a string of digits stands for, if HCCL has room for it."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    value = int(digits) if len(digits) <= len(str(MOST_U32)) else MOST_U32 + 1
    return value if value <= MOST_U32 else None


def taken_by_hccl(text: str) -> bool:
    """Whether HCCL's reader makes a number of a text that is none: of "8x" it takes the 8."""
    match = _LEADING_NUMBER.match(text)
    return match is not None and number(match[1]) is not None


def port_of(
    judging: TableCheck, members: Mapping[str, object], name: str, path: JsonPath
) -> int | None:
    """A port, where one is stated; None where not, or after a problem was noted."""
    value = number_of(judging, members, name, path, optional=True)
    if value is not None and not 1 <= value <= MOST_TCP_PORT:
        hccl = None if value else "please do not use the reserved port number[0]"
        words = f"{name} {value} is no port"
        judging.say("port", (*path, name), words, hccl=hccl, name=name, value=value)
        return None
    return value


def packed(address: str) -> bytes | None:
    """The bytes of an IPv4 or IPv6 address, read as HCCL reads it; None where it is none."""
    plain, percent, interface = address.partition("%")
    if percent and not interface:
        return None
    family = socket.AF_INET6 if plain.count(":") > 1 else socket.AF_INET
    try:
        return socket.inet_pton(family, plain)
    except (OSError, ValueError):  # ValueError: a null character
        return None


def family(address: bytes) -> str:
    """The family of a packed address, in words."""
    return "IPv4" if len(address) == 4 else "IPv6"  # noqa: PLR2004 - the bytes of an address


def family_number(address: bytes) -> int:
    """What HCCL prints for it."""
    return 2 if len(address) == 4 else 10  # noqa: PLR2004 - AF_INET, AF_INET6


def placeholder(judging: TableCheck, text: str, name: str, path: JsonPath) -> bool:
    """Whether a text is a manual's placeholder, which then was noted."""
    if not _PLACEHOLDER.search(text) or not text.strip():
        return False
    judging.say("placeholder", (*path, name), f'{name} is still the placeholder "{cut(text)}"')
    return True


def kind(value: object) -> str:
    """What a value is, with the value where it is short: `the number 3`."""
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "null"
        case int() | float():
            return f"the number {value}"
        case str():
            return f'the string "{cut(value)}"'
        case list():
            return "a list"
        case _:
            return "an object"


def cut(text: str, most: int = 60) -> str:
    """The text on one line, not longer than anybody reads."""
    line = "".join(c if c.isprintable() else "?" for c in text)
    return line if len(line) <= most else f"{line[:most]}…"


def integer_of(
    judging: TableCheck,
    members: Mapping[str, object],
    name: str,
    path: JsonPath,
    *,
    least: int = 0,
    most: int = MOST_U32,
) -> int | None:
    """A whole number in its range; None after a problem was noted."""
    if name not in members:
        judging.say("missing", path, f"{name} is missing", name=name)
        return None
    value = members[name]
    if type(value) is not int or value < 0:
        words = f"{name} is {kind(value)}, not a whole number without quotes, 0 or more"
        judging.say("not-an-integer", (*path, name), words, name=name)
        return None
    if least <= value <= most:
        return value
    words = f"{name} {value} is not from {least} to {most}"
    judging.say(
        "out-of-range", (*path, name), words, name=name, value=value, least=least, most=most
    )
    return None


def string_of(
    judging: TableCheck,
    members: Mapping[str, object],
    name: str,
    path: JsonPath,
    *,
    least: int = 0,
    most: int | None = None,
) -> str | None:
    """A string of a fitting length in bytes; None after a problem was noted."""
    if name not in members:
        judging.say("missing", path, f"{name} is missing", name=name)
        return None
    value = members[name]
    where = (*path, name)
    if not isinstance(value, str):
        words = f"{name} is {kind(value)}, not a string"
        judging.say("wrong-type", where, words, name=name)
        return None
    if placeholder(judging, value, name, path):
        return None
    length = len(value.encode())
    if length < least or (most is not None and length > most):
        words = f'{name} "{cut(value)}" has {length} bytes, and {least} to {most} are taken'
        judging.say(
            "out-of-range",
            where,
            words,
            name=f"{name} length",
            value=length,
            least=least,
            most=most,
        )
        return None
    return value


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


def check_addresses(
    level: Mapping[str, object], path: JsonPath, seen: dict[str, JsonPath], judging: TableCheck
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


def check_control_plane(value: object, path: JsonPath, judging: TableCheck) -> None:
    """Note what is wrong with the control plane of a rank."""
    plane = object_at(judging, value, path, "control_plane")
    if plane is not None:
        _typed(plane, path, judging)
        integer_of(judging, plane, "listen_port", path, least=1, most=65536)


def _address(
    address: Mapping[str, object], path: JsonPath, seen: dict[str, JsonPath], judging: TableCheck
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


def _typed(address: Mapping[str, object], path: JsonPath, judging: TableCheck) -> str | None:
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


def _ports(address: Mapping[str, object], path: JsonPath, judging: TableCheck) -> None:
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


def _backups(address: Mapping[str, object], path: JsonPath, judging: TableCheck) -> None:
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


def _too_many(count: int, taken: tuple[int, int], where: JsonPath, judging: TableCheck) -> None:
    (least, most), name = taken, where[-1]
    words = f"{name} has {count}, and {least} to {most} are taken"
    judging.say("out-of-range", where, words, name=name, value=count, least=least, most=most)
