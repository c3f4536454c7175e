"""Which numbers of nodes a parallel job can run on."""

from __future__ import annotations

from ascendboot.model.cluster import Parallel
from ascendboot.model.names import counted


def legal_world(
    shape: Parallel, available: int, devices: int, *, at_least: int = 1, at_most: int | None = None
) -> int | None:
    """Return how many of `available` nodes of `devices` NPUs form the largest world; None: none.

    The number of ranks is a multiple of TP x PP x CP, the data parallel size is at least `dp_min`,
    and the global batch is a multiple of `mbs` times the data parallel size.
    """
    most = available if at_most is None else min(available, at_most)
    for nodes in range(most, max(at_least, 1) - 1, -1):
        dp, rest = divmod(nodes * devices, shape.model_devices)
        if rest or dp < shape.dp_min:
            continue
        if shape.gbs is None or shape.gbs % (shape.mbs * dp) == 0:
            return nodes
    return None


def why_not_legal(shape: Parallel, available: int, devices: int, at_least: int) -> str:
    """Say why no number of nodes is legal, for a message."""
    seen = f"{counted(available, 'node')} of {devices} devices"
    if available < at_least:
        return f"{seen}: fewer than min_nodes {at_least}; release or repair a node"
    of_batch = f", and gbs {shape.gbs} a multiple of mbs {shape.mbs} x DP" if shape.gbs else ""
    return (
        f"{seen}: the number of ranks must be a multiple of {shape.model_devices} ({shape.words}), "
        f"DP at least {shape.dp_min} (dp_min){of_batch}; add nodes or change these"
    )
