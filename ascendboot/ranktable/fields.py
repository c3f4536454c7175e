"""Members of a document, each taken as HCCL takes it, or a problem that says why not."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.jsontext import Path
    from ascendboot.ranktable.problem import Judging

MOST_U32 = 4294967295
MOST_PORT = 65535

_LEADING_NUMBER = re.compile(r"[ \t\n\v\f\r]*\+?([0-9]+)")
_PLACEHOLDER = re.compile(r"[{}<>]|\.\.\.|…|\*\*|^\s*$|\b[xX]{1,3}(\.[xX]{1,3})+\b|\b[xX]{2,}\b")


def list_of(
    judging: Judging, members: Mapping[str, object], name: str, path: Path
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


def object_at(judging: Judging, value: object, path: Path, what: str) -> dict[str, object] | None:
    """An object; None after a problem was noted."""
    if isinstance(value, dict):
        return value
    judging.say("wrong-type", path, f"{what} is {kind(value)}, not an object", name=what)
    return None


def text_of(
    judging: Judging,
    members: Mapping[str, object],
    name: str,
    path: Path,
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
    judging: Judging,
    members: Mapping[str, object],
    name: str,
    path: Path,
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


def port_of(judging: Judging, members: Mapping[str, object], name: str, path: Path) -> int | None:
    """A port, where one is stated; None where not, or after a problem was noted."""
    value = number_of(judging, members, name, path, optional=True)
    if value is not None and not 1 <= value <= MOST_PORT:
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


def placeholder(judging: Judging, text: str, name: str, path: Path) -> bool:
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
