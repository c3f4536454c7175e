"""Builds a table from servers and their devices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.ranktable.convert import Order, convert, in_order, numbered
from ascendboot.ranktable.formats import (
    LevelRank,
    LevelTable,
    RankedDevice,
    RankTable,
    Server,
    SuperPod,
)
from ascendboot.ranktable.rules import CALLED, Product
from ascendboot.ranktable.validate import NAMED, PRODUCTS_OF, Generation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.ranktable.read import Table


@dataclass(frozen=True, slots=True)
class MemberDevice:
    """A device that takes part."""

    device_id: int
    device_ip: str | None = None
    super_device_id: int | None = None
    """Where its server is in a super pod of A3."""
    place: LevelRank | None = None
    """Of 950: its place in each layer of the network; the rank in it is not used."""


@dataclass(frozen=True, slots=True)
class Member:
    """A server that takes part, with its devices in rank order."""

    server_id: str
    devices: tuple[MemberDevice, ...]
    super_pod_id: str | None = None
    """None: in none, or not known."""


def generation_for(product: Product | None, members: Sequence[Member]) -> Generation:
    """The generation that a product reads; of A3 1.2, where the servers are in super pods.

    Raises:
        RankTableError: some servers are in a super pod and others are not.
    """
    if product == "a5":
        return "2.0"
    in_pods = [member for member in members if member.super_pod_id is not None]
    if product != "a3" or not in_pods:
        return "1.0"
    if len(in_pods) < len(members):
        others = ", ".join(m.server_id for m in members if m.super_pod_id is None)
        raise RankTableError(
            f"could not write a rank table: {in_pods[0].server_id} is in a super pod, and {others} "
            "is not; write one for servers that are in super pods, or say --to 1.0"
        )
    return "1.2"


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
    if generation == "2.0":
        by_text = order == "server-id"
        return _levels(sorted(members, key=lambda m: m.server_id) if by_text else members)
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


def _levels(members: Sequence[Member]) -> LevelTable:
    missing = [
        f"{member.server_id} device {device.device_id}"
        for member in members
        for device in member.devices
        if device.place is None
    ]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise RankTableError(
            f"could not write version 2.0: what is missing is local_id and level_list of "
            f"{missing[0]}{more}; the servers of 950 have them in /etc/hccl_rootinfo.json"
        )
    places = [d.place for m in members for d in m.devices if d.place is not None]
    return LevelTable(tuple(replace(place, rank_id=rank) for rank, place in enumerate(places)))


def _pods(members: Sequence[Member]) -> tuple[SuperPod, ...]:
    servers: dict[str, list[str]] = {}
    for member in members:
        if member.super_pod_id is not None:
            servers.setdefault(member.super_pod_id, []).append(member.server_id)
    return tuple(SuperPod(pod, tuple(names)) for pod, names in servers.items())
