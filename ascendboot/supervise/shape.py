"""Which numbers of nodes a parallel job can run on."""

from __future__ import annotations

from ascendboot.model.cluster import Parallel
from ascendboot.model.names import counted


def legal_world(
    shape: Parallel,
    available: int,
    devices: int,
    *,
    at_least: int = 1,
    at_most: int | None = None,
) -> int | None:
    """Return how many of `available` nodes of `devices` NPUs form the largest world; None: none.

    The number of ranks is a multiple of TP x PP x CP, the data parallel size is at least `dp_min`,
    and the global batch is a multiple of `mbs` times the data parallel size.
    """
    most = available if at_most is None else min(available, at_most)
    for nodes in range(most, max(at_least, 1) - 1, -1):
        dp, rest = divmod(nodes * devices, shape.model_devices)
        if not rest and dp >= shape.dp_min and _divides(shape, dp):
            return nodes
    return None


def why_not_legal(shape: Parallel, available: int, devices: int, at_least: int) -> str:
    """Say why no number of nodes is legal, and how many nodes would be, for a message."""
    seen = f"{counted(available, 'node')} of {devices} devices"
    if available < at_least:
        return f"{seen}: fewer than min_nodes {at_least}; release or repair a node"
    if need := _next_legal(shape, available, devices):
        remedy = f"{counted(need, 'node')} would be enough"
    else:
        remedy = "no number of nodes is legal; change tp, pp, cp, gbs or dp_min"
    ranks = range(max(at_least, 1) * devices, available * devices + 1, devices)
    sizes = [count // shape.model_devices for count in ranks if count % shape.model_devices == 0]
    if not sizes:
        return f"{seen}: no multiple of {shape.model_devices} ranks ({shape.words}); {remedy}"
    if max(sizes) < shape.dp_min:
        return f"{seen}: DP is at most {max(sizes)}, dp_min is {shape.dp_min}; {remedy}"
    shown = ", ".join(map(str, sizes))
    return f"{seen}: gbs {shape.gbs} is no multiple of mbs {shape.mbs} x DP ({shown}); {remedy}"


def _divides(shape: Parallel, dp: int) -> bool:
    return shape.gbs is None or shape.gbs % (shape.mbs * dp) == 0


def _next_legal(shape: Parallel, available: int, devices: int) -> int | None:
    """The smallest legal number of nodes above `available`.

    With a global batch, the data parallel size is at most gbs / mbs. Without one, a legal number
    comes at the latest `block` nodes above the smallest data parallel size.
    """
    dp_most = shape.dp_min + 1 if shape.gbs is None else shape.gbs // shape.mbs
    last = max(available, dp_most * shape.model_devices // devices) + shape.model_devices
    for nodes in range(available + 1, last + 1):
        if legal_world(shape, nodes, devices, at_least=nodes):
            return nodes
    return None
