"""`ip -j addr`: the network interfaces of a node and their addresses.

Or `ip addr` where there is no `-j`: busybox, and iproute2 before 4.14 (CentOS 7).
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass, replace

from ascendboot.errors import NotUnderstoodError
from ascendboot.parse.reading import lines_of

TOOL = "ip -j addr"
PLAIN = "ip addr"
_HEAD = re.compile(r"[0-9]+: ([^\s@:]+)(?:@\S+)?: <([A-Z0-9_,-]*)> .*")
_INET = re.compile(r"\s+inet6? (\S+?)(?: peer \S+?)?(?:/([0-9]{1,3}))?(?: .*)? scope (\S+)(?: .*)?")
_OTHER = re.compile(r"\s+(?!inet)\S.*")
_LONGEST_SHOWN = 120


@dataclass(frozen=True)
class InterfaceAddress:
    """One address of an interface, with the length of its network's prefix."""

    address: str
    prefix_length: int
    scope: str = "global"

    @property
    def network(self) -> str:
        """The network in CIDR form, `198.18.0.0/16`."""
        return str(ipaddress.ip_interface(f"{self.address}/{self.prefix_length}").network)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface; `is_up` is its administrator's wish, `has_carrier` the cable's state."""

    name: str
    is_up: bool
    has_carrier: bool
    addresses: tuple[InterfaceAddress, ...] = ()


def parse(text: str) -> tuple[Interface, ...]:
    """The interfaces, in the kernel's order.

    Raises:
        NotUnderstoodError: this is neither the JSON that iproute2 prints nor its plain form.
    """
    if re.match(r"[0-9]+: ", text):
        return _plain(text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = text.strip().split("\n")[0]
        raise NotUnderstoodError(TOOL, 1, line[:_LONGEST_SHOWN], "JSON") from error
    if not isinstance(found, list):
        raise _not_understood(found, "a list of interfaces")
    return tuple(_interface(item) for item in found)


def _plain(text: str) -> tuple[Interface, ...]:
    found: list[Interface] = []
    addresses: list[list[InterfaceAddress]] = []
    for line in lines_of(text):
        expected = "NUMBER: NAME: <FLAGS>, inet ADDRESS/LENGTH, or an indented line"
        if head := _HEAD.fullmatch(line.text):
            flags = head[2].split(",")
            found.append(
                Interface(name=head[1], is_up="UP" in flags, has_carrier="LOWER_UP" in flags)
            )
            addresses.append([])
        elif found and (inet := _INET.fullmatch(line.text)):
            try:
                length = ipaddress.ip_interface(f"{inet[1]}/{inet[2]}" if inet[2] else inet[1])
            except ValueError:
                raise line.not_understood(PLAIN, expected) from None
            addresses[-1].append(InterfaceAddress(inet[1], length.network.prefixlen, inet[3]))
        elif not (found and _OTHER.fullmatch(line.text)):
            raise line.not_understood(PLAIN, expected)
    return tuple(
        replace(one, addresses=tuple(of)) for one, of in zip(found, addresses, strict=True)
    )


def _interface(item: object) -> Interface:
    match item:
        case {"ifname": str(name), "flags": list(flags), "addr_info": list(addresses)}:
            return Interface(
                name=name,
                is_up="UP" in flags,
                has_carrier="LOWER_UP" in flags,
                addresses=tuple(_address(address) for address in addresses),
            )
        case _:
            raise _not_understood(item, "an interface with ifname, flags and addr_info")


def _address(item: object) -> InterfaceAddress:
    match item:
        case {"local": str(local), "prefixlen": int(length), "scope": str(scope)}:
            try:
                ipaddress.ip_interface(f"{local}/{length}")
            except ValueError:
                raise _not_understood(item, "an IP address and a prefix length") from None
            return InterfaceAddress(local, length, scope)
        case _:
            raise _not_understood(item, "an address with local, prefixlen and scope")


def _not_understood(item: object, expected: str) -> NotUnderstoodError:
    return NotUnderstoodError(TOOL, 1, json.dumps(item)[:_LONGEST_SHOWN], expected)
