"""Builds a rank table from servers and their devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.ranktable.convert import Order, from_server_list
from ascendboot.ranktable.formats.servers import from_members
from ascendboot.ranktable.generations import FORMATS, Generation
from ascendboot.ranktable.rules import CALLED, Product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.ranktable.formats.parts import Member, Table


def generation_for(product: Product | None, members: Sequence[Member]) -> Generation:
    """The generation that a product reads; of A3 1.2, where the servers are in super pods.

    Raises:
        RankTableError: some servers are in a super pod and others are not.
    """
    in_pods = [member for member in members if member.super_pod_id is not None]
    if product == "a3" and in_pods:
        if len(in_pods) < len(members):
            others = ", ".join(m.server_id for m in members if m.super_pod_id is None)
            raise RankTableError(
                f"could not write a rank table: {in_pods[0].server_id} is in a super pod, and "
                f"{others} is not; write one for servers that are in super pods, or say --to 1.0"
            )
        return "1.2"
    return next((name for name, known in FORMATS.items() if product in known.products), "1.0")


def build(
    members: Sequence[Member], generation: Generation, order: Order, product: Product | None
) -> Table:
    """Ranks server by server, in the order of the members or of their `server_id` as text.

    Raises:
        RankTableError: the product does not read that generation, or something is missing.
    """
    wanted = FORMATS[generation]
    if product is not None and product not in wanted.products:
        readers = " and ".join(CALLED[reader] for reader in wanted.products)
        raise RankTableError(
            f"could not write {wanted.called}: it is for {readers}, and the NPUs are of "
            f"{CALLED[product]}"
        )
    if order == "server-id":
        members = sorted(members, key=lambda member: member.server_id)
    if wanted.from_members is not None:
        return wanted.from_members(members)
    return from_server_list(from_members(members), generation).table
