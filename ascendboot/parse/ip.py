"""`ip -j addr`: the network interfaces of a node and their addresses."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass

from ascendboot.errors import NotUnderstoodError

TOOL = "ip -j addr"
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
        NotUnderstoodError: this is not the JSON that iproute2 prints.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = text.strip().split("\n")[0]
        raise NotUnderstoodError(TOOL, 1, line[:_LONGEST_SHOWN], "JSON") from error
    if not isinstance(found, list):
        raise _not_understood(found, "a list of interfaces")
    return tuple(_interface(item) for item in found)


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
