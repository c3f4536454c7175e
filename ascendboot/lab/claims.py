"""Who already uses addresses that a new lab would take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import TYPE_CHECKING, Any

from ascendboot.lab.programs import run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ascendboot.lab.shape import Shape

_SHORTEST_PREFIX = 8
"""Routes wider than this send "everything" somewhere; a lab's own route is narrower and wins."""


@dataclass(frozen=True)
class Claim:
    """A range that something on this machine uses."""

    network: IPv4Network
    holder: str


def claims_of_machine(own_interfaces: Iterable[str]) -> list[Claim]:
    """The addresses and routes of this machine, without those on interfaces of known labs."""
    addresses = json.loads(run(["ip", "-json", "-4", "addr"], purpose="list addresses"))
    argv = ["ip", "-json", "-4", "route", "show", "table", "all"]
    routes = json.loads(run(argv, purpose="list routes"))
    skip = set(own_interfaces)
    return [*address_claims(addresses, skip), *route_claims(routes, skip)]


def address_claims(links: Iterable[dict[str, Any]], skip: set[str]) -> list[Claim]:
    """What `ip -json addr` says is taken."""
    claims = []
    for link in links:
        name = link.get("ifname", "")
        if name in skip:
            continue
        for entry in link.get("addr_info", ()):
            address = IPv4Interface(f"{entry['local']}/{entry['prefixlen']}")
            claims.append(Claim(address.network, f"the address {address} on {name}"))
    return claims


def route_claims(routes: Iterable[dict[str, Any]], skip: set[str]) -> list[Claim]:
    """What `ip -json route` says is taken; default routes claim nothing."""
    claims = []
    for route in routes:
        device = route.get("dev", "")
        if route["dst"] == "default" or device in skip:
            continue
        network = IPv4Network(route["dst"], strict=False)
        if network.prefixlen >= _SHORTEST_PREFIX:
            via = f" on {device}" if device else ""
            claims.append(Claim(network, f"the route to {network}{via}"))
    return claims


def conflicts(shape: Shape, claims: Iterable[Claim]) -> list[str]:
    """Each network of `shape` that something else uses, with who does; empty when all are free."""
    found: list[str] = []
    for network in (shape.management, shape.npu):
        holders = [claim.holder for claim in claims if claim.network.overlaps(network)]
        found.extend(f"{network} is used by {holder}" for holder in holders[:1])
    return found


def labs_collide(one: Shape, other: Shape) -> bool:
    """Whether two labs cannot run side by side.

    A lab inside a range of a wider one can, as long as nobody of the wider one lives there: the
    narrower route wins on the machine. So tests run beside the default lab, which is a /16.
    """
    return _meet(one.management, _on_management(one), other.management, _on_management(other)) or (
        _meet(one.npu, _on_npu(one), other.npu, _on_npu(other))
        or one.management.overlaps(other.npu)
        or one.npu.overlaps(other.management)
    )


def _meet(
    one: IPv4Network, living_in_one: set[IPv4Address], other: IPv4Network, living: set[IPv4Address]
) -> bool:
    if one == other:
        return True
    if one.prefixlen < other.prefixlen:
        return any(address in other for address in living_in_one)
    return any(address in one for address in living)


def _on_management(shape: Shape) -> set[IPv4Address]:
    return {shape.operator_address, *(node.address for node in shape.nodes)}


def _on_npu(shape: Shape) -> set[IPv4Address]:
    devices = (device for node in shape.nodes for device in node.devices)
    return {shape.gateway, *(IPv4Address(d.device_ip) for d in devices if d.device_ip)}
