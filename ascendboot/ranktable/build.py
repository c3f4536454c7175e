"""A table made from what is known of servers and their devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.ranktable.convert import convert, in_order, numbered
from ascendboot.ranktable.rule import CALLED
from ascendboot.ranktable.servers import RankedDevice, RankTable, Server, SuperPod
from ascendboot.ranktable.validate import NAMED, PRODUCTS_OF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.ranktable.convert import Order
    from ascendboot.ranktable.reading import Table
    from ascendboot.ranktable.rule import Product
    from ascendboot.ranktable.validate import Generation


@dataclass(frozen=True, slots=True)
class MemberDevice:
    """A device that takes part."""

    device_id: int
    device_ip: str | None = None
    super_device_id: int | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A server that takes part, with its devices in rank order."""

    server_id: str
    devices: tuple[MemberDevice, ...]
    super_pod_id: str | None = None


def generation_for(product: Product | None, members: Sequence[Member]) -> Generation:
    """The generation that a product reads; of A3 1.2, where the super pods are known.

    Raises:
        RankTableError: nothing that servers tell makes a table for the product.
    """
    if product == "a5":
        raise RankTableError(
            "could not write a rank table for 950: of each device, what is missing is local_id and "
            "level_list, which its tools tell in a way that ascendboot does not read yet. Merge "
            "the servers' own tables of version 2.0: ranktable.convert FILE --file FILE"
        )
    with_pods = product == "a3" and all(member.super_pod_id is not None for member in members)
    return "1.2" if with_pods else "1.0"


def build(
    members: Sequence[Member], generation: Generation, order: Order, product: Product | None
) -> Table:
    """Ranks server by server, in the order of the members or of their `server_id` as text.

    Raises:
        RankTableError: the product does not read that generation, or something is missing.
    """
    if product is not None and product not in PRODUCTS_OF[generation]:
        readers = " and ".join(CALLED[reader] for reader in PRODUCTS_OF[generation])
        raise RankTableError(
            f"could not write {NAMED[generation]}: it is for {readers}, and the NPUs are of "
            f"{CALLED[product]}"
        )
    with_pods = generation == "1.2"
    servers = [
        Server(
            member.server_id,
            tuple(
                RankedDevice(
                    device.device_id,
                    device.device_ip,
                    0,
                    device.super_device_id if with_pods else None,
                )
                for device in member.devices
            ),
        )
        for member in members
    ]
    table = RankTable(numbered(servers), "1.0", _pods(members) if with_pods else ())
    return convert(in_order(table, order), generation).table


def _pods(members: Sequence[Member]) -> tuple[SuperPod, ...]:
    servers: dict[str, list[str]] = {}
    for member in members:
        if member.super_pod_id is not None:
            servers.setdefault(member.super_pod_id, []).append(member.server_id)
    return tuple(SuperPod(pod, tuple(names)) for pod, names in servers.items())
