"""The members of an object in a rank table, each read with its checks."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping

from ascendboot.ranktable.rules import Level, TableCheck
from ascendboot.ranktable.text import JsonPath
from ascendboot.value import Value

MOST_U32 = 4294967295
MOST_TCP_PORT = 65535

_LEADING_NUMBER = re.compile(r"[ \t\n\v\f\r]*\+?([0-9]+)")
_PLACEHOLDER = re.compile(r"[{}<>]|\.\.\.|…|\*\*|^\s*$|\b[xX]{1,3}(\.[xX]{1,3})+\b|\b[xX]{2,}\b")

_FAMILY = {4: "IPv4", 16: "IPv6"}
_FAMILY_NUMBER = {4: 2, 16: 10}
"""AF_INET and AF_INET6, as HCCL prints them, by the bytes of an address."""


class Members(Value):
    """An object of the document with its path; reports what is wrong with its members.

    Methods that read a member return None after a report.
    """

    check: TableCheck
    values: Mapping[str, object]
    path: JsonPath = ()

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def report(
        self,
        rule_id: str,
        name: str | None,
        text: str,
        /,
        *,
        level: Level | None = None,
        hccl: str | None = None,
        **details: object,
    ) -> None:
        """Add a problem with the member `name`, or with the object itself."""
        path = self.path if name is None else (*self.path, name)
        self.check.report(rule_id, path, text, level=level, hccl=hccl, **{"name": name, **details})

    def missing(self, name: str, called: str | None = None) -> None:
        """Report that a member is missing; HCCL calls it `called`."""
        self.report("missing", None, f"{name} is missing", name=called or name)

    def list_of(self, name: str, called: str | None = None) -> list[object] | None:
        """A list; HCCL calls it `called`."""
        value = self.values.get(name)
        if isinstance(value, list):
            return value
        if name not in self:
            self.missing(name, called)
        else:
            words = f"{name} is {kind(value)}, not a list"
            self.report("wrong-type", name, words, name=called or name)
        return None

    def filled_list(self, name: str) -> list[object] | None:
        """A list with something in it."""
        values = self.list_of(name)
        if values == []:
            self.report("empty", name, f"{name} is empty")
        return values or None

    def objects(self, name: str, what: str) -> Iterator[Members]:
        """The objects in a list; `what` is one of them, such as "a server"."""
        values = self.values.get(name)
        for index, value in enumerate(values if isinstance(values, list) else ()):
            if isinstance(value, dict):
                yield Members(self.check, value, (*self.path, name, index))
            else:
                text = f"{what} is {kind(value)}, not an object"
                self.check.report("wrong-type", (*self.path, name, index), text, name=what)

    def text(self, name: str, *, optional: bool = False) -> str | None:
        """A string as it stands."""
        value = self.values.get(name)
        if isinstance(value, str):
            return value
        if name in self:
            rule_id = "wrong-type" if self.check.is_v2 else "not-a-string"
            self.report(rule_id, name, f"{name} is {kind(value)}, not a string")
        elif not optional:
            self.missing(name)
        return None

    def label(self, name: str, most: int, *, hccl_if_empty: str | None = None) -> str | None:
        """A name of at most `most` bytes; `hccl_if_empty`: what HCCL prints for an empty one."""
        text = self.text(name)
        if text is None or self.is_placeholder(name, text):
            return None
        if not text and hccl_if_empty is not None:
            self.report("empty", name, f"{name} is empty", hccl=hccl_if_empty)
            return None
        length = len(text.encode())
        if length > most:
            words = f"{name} has {length} bytes, and {most} are the most"
            self.report("too-long", name, words, length=length, most=most)
        return text

    def number(self, name: str, *, optional: bool = False) -> int | None:
        """The number in a string of digits."""
        text = self.text(name, optional=optional)
        value = None if text is None else number(text)
        if text is not None and value is None and not self.is_placeholder(name, text):
            words = f'{name} is "{cut(text)}"; a whole number is wanted'
            # of "8x" HCCL takes the 8
            leading = _LEADING_NUMBER.match(text)
            hccl = "" if leading is not None and number(leading[1]) is not None else None
            self.report("not-digits", name, words, hccl=hccl, value=cut(text))
        return value

    def port(self, name: str) -> int | None:
        """A TCP port, where one is stated: a string of digits, or an integer in version 2.0."""
        if name not in self:
            return None
        is_v2 = self.check.is_v2
        value = self.integer(name) if is_v2 else self.number(name)
        if value is None or 1 <= value <= MOST_TCP_PORT:
            return value
        hccl = None if value or is_v2 else "please do not use the reserved port number[0]"
        self.report("port", name, f"{name} {value} is no port", hccl=hccl, value=value)
        return None

    def address(self, name: str, text: str) -> bytes | None:
        """The bytes of an IP address that stands in the member `name`."""
        address = packed(text)
        if address is None and not self.is_placeholder(name, text):
            self.report("address", name, f'{name} "{cut(text)}" is no IP address', value=cut(text))
        return address

    def other_family(self, rule_id: str, name: str, text: str, first: bytes, rank: int) -> None:
        """Report an address that is not of the family of the first one."""
        address = packed(text) or first
        if len(address) != len(first):
            words = f"{name} {text} is {_FAMILY[len(address)]}, others are {_FAMILY[len(first)]}"
            value, other = (_FAMILY_NUMBER[len(one)] for one in (address, first))
            server = self.values.get("server_id")
            self.report(rule_id, name, words, value=value, other=other, rank=rank, server=server)

    def count(
        self, name: str, value: int | None, length: int | None, of: str, hccl: str | None = None
    ) -> None:
        """Report a count that is not the length of its list; `of` is "server_list has"."""
        if None not in (value, length) and value != length:
            words = f"{name} is {value}, and {of} {length}"
            self.report("count", name, words, hccl=hccl, value=value, length=length)

    def is_placeholder(self, name: str, text: str) -> bool:
        """Whether a text is a placeholder of a manual, which is then reported."""
        if not _PLACEHOLDER.search(text) or not text.strip():
            return False
        self.report("placeholder", name, f'{name} is still the placeholder "{cut(text)}"')
        return True

    def integer(self, name: str, *, least: int = 0, most: int = MOST_U32) -> int | None:
        """A whole number in its range, as version 2.0 has them."""
        value = self.values.get(name)
        if name not in self:
            self.missing(name)
        elif type(value) is not int or value < 0:
            words = f"{name} is {kind(value)}, not a whole number without quotes, 0 or more"
            self.report("not-an-integer", name, words)
        elif not least <= value <= most:
            words = f"{name} {value} is not from {least} to {most}"
            self.report("out-of-range", name, words, value=value, least=least, most=most)
        else:
            return value
        return None

    def string(self, name: str, *, least: int = 0, most: int | None = None) -> str | None:
        """A string of a fitting length in bytes, as version 2.0 has them."""
        value = self.text(name)
        if value is None or self.is_placeholder(name, value):
            return None
        length = len(value.encode())
        if length < least or (most is not None and length > most):
            words = f'{name} "{cut(value)}" has {length} bytes, and {least} to {most} are taken'
            called = f"{name} length"
            self.report(
                "out-of-range", name, words, name=called, value=length, least=least, most=most
            )
            return None
        return value

    def word(self, name: str, words: tuple[str, ...], called: str) -> str | None:
        """One of some words; HCCL calls the member `called`."""
        value = self.string(name)
        if value is None or value in words:
            return value
        text = f'{name} "{cut(value)}" is none of {", ".join(words)}'
        self.report("not-among", name, text, name=called)
        return None

    def sized(
        self, name: str, called: str, least: int, most: int, *, is_set: bool = False
    ) -> list[object] | None:
        """A list whose length is in its range; equal values of a set count once."""
        values = self.list_of(name, called)
        if values is None:
            return None
        length = len({str(value) for value in values} if is_set else values)
        if not least <= length <= most:
            words = f"{name} has {length}, and {least} to {most} are taken"
            self.report("out-of-range", name, words, value=length, least=least, most=most)
        return values

    def strings(
        self, name: str, what: str, least: int, most: int, *, is_set: bool = False
    ) -> Iterator[tuple[JsonPath, str]]:
        """The strings in a `sized` list, with their paths; `what` is one of them."""
        for index, value in enumerate(self.sized(name, name, least, most, is_set=is_set) or ()):
            path = (*self.path, name, index)
            if isinstance(value, str):
                yield path, value
            else:
                text = f"{what} is {kind(value)}, not a string"
                self.check.report("wrong-type", path, text, name=name)

    def check_highest(self, device_id: int | None, most: int, of: str) -> None:
        """Report a device id that is above the highest `of` a product."""
        if device_id is not None and device_id > most:
            words = f"device_id {device_id} is above {most}, the highest of {of}"
            self.report("device-id", "device_id", words, value=device_id, most=most)


def number(text: object) -> int | None:
    """The number that a string of digits stands for, if HCCL has room for it."""
    if not (isinstance(text, str) and text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    value = int(digits) if len(digits) <= len(str(MOST_U32)) else MOST_U32 + 1
    return value if value <= MOST_U32 else None


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
    """The text on one line, shortened."""
    line = "".join(c if c.isprintable() else "?" for c in text)
    return line if len(line) <= most else f"{line[:most]}…"
