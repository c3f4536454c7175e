"""Ranks in words: `ranks 8-15`, `rank 3 on device 1`, and the nodes that they are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.model.names import ranks_named

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ascendboot.preflight.notes import Place


def ranks_shown(ranks: Collection[int], places: Sequence[Place]) -> str:
    """`ranks 8-15`; of one alone also the device."""
    if len(ranks) == 1:
        [rank] = ranks
        return f"rank {rank} on device {places[rank].device_id}"
    return ranks_named(ranks)


def nodes_of(ranks: Collection[int], places: Sequence[Place]) -> tuple[str, ...]:
    """Names of the nodes of some ranks, in rank order."""
    return tuple(dict.fromkeys(places[rank].node for rank in sorted(ranks)))
