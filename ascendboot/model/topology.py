"""Rank orders by leaf switch: nodes on one leaf become neighbours, so fewer links cross leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations, pairwise, permutations, product
from math import ceil, log2
from operator import ne
from types import MappingProxyType
from typing import Literal, TypeAlias

from ascendboot.value import Value

Shape = Literal["ring", "chain", "halving-doubling", "pipeline"]
Leaf: TypeAlias = str | tuple[tuple[int, str], ...]
"""The leaf of a whole node, or (device id, leaf) of each device."""
Signature: TypeAlias = tuple[str, ...]
"""The leaf of each rail; a rail is what has one device id on every node."""
Hops: TypeAlias = Sequence[Sequence[int]]
"""A square matrix: on how many rails two signatures have different leaves."""

LEAST_ORDERED = 3
"""With fewer nodes no order is better, as in the vendor's rank-table routing."""
MOST_EXACT = 12
"""Up to this many distinct signatures, the order is exact."""
_MOST_PERMUTED = 8
"""Up to this many nodes, all orders are tried for halving-doubling and pipelines."""
_MOST_STARTS = 32
_STEPS = 2_000_000
"""Limits the search among many signatures to about one second."""


class RankOrder(Value):
    """Nodes in an order by leaf switch, with its cost.

    The cost is the number of rails between neighbours whose two ends are on different leaves.
    With halving-doubling, nodes at a distance of 2^k are neighbours with the weight 2^-k. With
    pipeline, each stage is a ring, and nodes of stages that follow each other have the weight 0.1.
    """

    nodes: tuple[str, ...]
    before: float
    """The cost of the order that was given."""
    after: float
    bound: float
    """A proven lower bound of the cost of all orders with this first node."""
    shape: Shape = "ring"

    @property
    def is_optimal(self) -> bool:
        """Whether no order costs less."""
        return self.after <= self.bound

    @property
    def words(self) -> str:
        """The cost before and after, as a part of a sentence."""
        if self.is_optimal and self.before == self.after:
            return f"already optimal, {self.shape} cost {shown(self.after)}"
        proof = "optimal" if self.is_optimal else f"at least {shown(self.bound)} in any order"
        costs = f"{shown(self.before)} before, {shown(self.after)} after"
        return f"{self.shape} cost {costs} ({proof})"


def shown(cost: float) -> str:
    """A cost without digits that are not needed: `8`, `3.25`."""
    return f"{cost:.10g}"


def order_nodes(
    leaves: Mapping[str, Signature],
    shape: Shape = "ring",
    stages: int = 1,
    slices: Mapping[str, int] = MappingProxyType({}),
) -> RankOrder:
    """The order of least cost that begins with the first node of `leaves`.

    docs/how-to/order-ranks.md says what it promises for each shape. A pipeline has `stages`; nodes
    with one signature are in the order of `slices`, else keep theirs.
    """
    names = tuple(leaves)
    if shape == "halving-doubling":
        if len(names) & (len(names) - 1) == 0:
            return _in_blocks(leaves, shape, 1, slices)
        shape = "ring"
    if shape == "pipeline":
        if len(names) % stages == 0 and len(names) > stages:
            return _in_blocks(leaves, shape, stages, slices)
        shape = "chain"
    groups: dict[Signature, list[str]] = {}
    for name in _by_slice(names, slices):
        groups.setdefault(leaves[name], []).append(name)
    before = cost_of(names, leaves, shape)
    if len(groups) < 2 or before == 0:  # noqa: PLR2004 - with one group there is nothing to order
        return RankOrder(names, before, before, before, shape)
    # By the triangle inequality a best order has all nodes of a signature together.
    keys, closed = sorted(groups), shape == "ring"
    hops, first = _hops(keys), keys.index(leaves[names[0]])
    if len(keys) > MOST_EXACT:
        bound = _bound(hops, closed=closed)
        tour = _searched(hops, first, bound, closed=closed)
    else:
        places = {name: place for place, name in enumerate(names)}
        starts = [Counter(places[name] - i for i, name in enumerate(groups[key])) for key in keys]
        tour = _exact(hops, first, starts, closed=closed)
        bound = _length(tour, hops, closed=closed)
        if closed:
            tour = _direction(tour, [len(groups[key]) for key in keys], hops)
    nodes = tuple(name for index in tour for name in groups[keys[index]])
    after = cost_of(nodes, leaves, shape)
    if after >= before:
        return RankOrder(names, before, before, bound, shape)
    return RankOrder(nodes, before, after, bound, shape)


def cost_of(order: Sequence[str], leaves: Mapping[str, Signature], shape: Shape) -> int:
    """How many rails between neighbours cross leaves, for a chain or a ring with its link back."""
    following = (*order[1:], *order[:1]) if shape == "ring" else order[1:]
    return sum(hop(leaves[a], leaves[b]) for a, b in zip(order, following, strict=False))


def _by_slice(names: Sequence[str], slices: Mapping[str, int]) -> tuple[str, ...]:
    """The nodes by slice; the first stays."""
    return (names[0], *sorted(names[1:], key=lambda name: slices.get(name, 0)))


def hop(one: Signature, other: Signature) -> int:
    """On how many rails two nodes are on different leaves."""
    return sum(map(ne, one, other))


def _in_blocks(
    leaves: Mapping[str, Signature], shape: Shape, stages: int, slices: Mapping[str, int]
) -> RankOrder:
    """The order for a pipeline of `stages`, or for halving-doubling over 2^k nodes."""
    names, keys = tuple(leaves), sorted(set(leaves.values()))
    hops, size = _hops(keys), len(leaves) // stages
    of = {name: keys.index(signature) for name, signature in leaves.items()}

    def measured(order: Sequence[str]) -> float:
        ids = [of[name] for name in order]
        return _of_stages(ids, hops, size) if shape == "pipeline" else _of_doubling(ids, hops)

    before = measured(names)
    if before == 0:
        return RankOrder(names, before, before, before, shape)
    if len(names) <= _MOST_PERMUTED:
        orders = ((names[0], *rest) for rest in permutations(names[1:]))
        nodes = min(orders, key=lambda order: (measured(order), sum(map(ne, order, names))))
        return RankOrder(nodes, before, measured(nodes), measured(nodes), shape)
    sliced = _by_slice(names, slices)
    groups = sorted(([n for n in sliced if of[n] == i] for i in range(len(keys))), key=len)[::-1]
    packed = _packed(groups, size if shape == "pipeline" else 0)
    ring = order_nodes(leaves, slices=slices).nodes
    start = packed.index(names[0])
    if shape == "pipeline":
        begin = start - start % size
        stage = packed[begin : begin + size]
        turned = (*stage[start - begin :], *stage[: start - begin])
        packed = (*turned, *packed[:begin], *packed[begin + size :])
    else:  # the partners of all nodes stay the same
        packed = tuple(packed[i ^ start] for i in range(len(packed)))
    best = _exchanged(min(names, ring, packed, key=measured), of, measured)
    sizes, shortest = [len(group) for group in groups], min(min(sorted(row)[1:]) for row in hops)
    bound = _pipeline_bound(sizes, size) if shape == "pipeline" else _doubling_bound(sizes)
    return RankOrder(best, before, measured(best), bound * shortest, shape)


def _of_doubling(ids: Sequence[int], hops: Hops) -> float:
    """The cost of recursive halving-doubling: pairs at a distance of 2^k have the weight 2^-k."""
    cost, distance = 0.0, 1
    while distance < len(ids):
        pairs = sum(hops[a][ids[i ^ distance]] for i, a in enumerate(ids))
        cost += pairs / (2 * distance)
        distance *= 2
    return cost


def _direction(tour: list[int], sizes: Sequence[int], hops: Hops) -> list[int]:
    """The direction of a ring in which halving-doubling, which HCCL may use as well, is cheaper."""
    if sum(sizes) & (sum(sizes) - 1):
        return tour
    directions = (tour, [tour[0], *tour[:0:-1]])
    return min(
        directions, key=lambda way: _of_doubling([i for i in way for _ in range(sizes[i])], hops)
    )


def _of_stages(ids: Sequence[int], hops: Hops, size: int) -> float:
    """The cost of the rings of all stages, and a tenth of the links from stage to stage."""
    blocks = [ids[start : start + size] for start in range(0, len(ids), size)]
    rings = sum(_length(block, hops, closed=True) for block in blocks)
    between = sum(hops[a][b] for a, b in zip(ids, ids[size:], strict=False))
    return (10 * rings + between) / 10


def _packed(groups: Sequence[Sequence[str]], size: int) -> tuple[str, ...]:
    """Whole blocks of `size` nodes of one group first; with size 0 blocks of 2^k, large first."""
    blocks: list[Sequence[str]] = []
    for group in groups:
        start = 0
        while start < len(group):
            left = len(group) - start
            wanted = size or 1 << (left.bit_length() - 1)
            blocks.append(group[start : start + wanted])
            start += wanted
    return tuple(name for block in sorted(blocks, key=len, reverse=True) for name in block)


def _exchanged(
    order: Sequence[str], of: Mapping[str, int], measured: Callable[[Sequence[str]], float]
) -> tuple[str, ...]:
    """The order after exchanges of two nodes that make it cheaper; the first node stays."""
    best, cost = list(order), measured(order)
    tries, changed = _STEPS // (len(best) * len(best).bit_length()), True
    while changed and tries > 0:
        changed = False
        for i, j in combinations(range(1, len(best)), 2):
            if of[best[i]] == of[best[j]]:
                continue
            best[i], best[j] = best[j], best[i]
            now, tries = measured(best), tries - 1
            if now < cost:
                cost, changed = now, True
            else:
                best[i], best[j] = best[j], best[i]
            if tries <= 0:
                break
    return tuple(best)


def _pipeline_bound(sizes: Sequence[int], size: int) -> float:
    """A lower bound of the cost of stages of `size` nodes if groups are at a distance of 1.

    A stage with several groups costs 2 or more. If there is none, as many changes from stage to
    stage as there are groups but one cross leaves at all of their nodes.
    """
    mixed = sum(sizes) // size - sum(count // size for count in sizes)
    return 2 * mixed if mixed else min(2, size * (len(sizes) - 1) / 10)


def _doubling_bound(sizes: Sequence[int]) -> float:
    """A lower bound of the cost of halving-doubling if any two groups are at a distance of 1.

    In a hypercube of dimension n at least s(n - log2 s) edges leave a set of s corners (Harper
    1964); the bound assumes that these are the edges with the least weights.
    """
    count = sum(sizes)
    dimension = count.bit_length() - 1
    leaving = sum(size * (dimension - log2(size)) for size in sizes) / 2
    edges, distance, cost = ceil(leaving - 1e-9), count // 2, 0.0
    while edges > 0:
        cost += min(edges, count // 2) / distance
        edges, distance = edges - count // 2, distance // 2
    return cost


def _hops(keys: Sequence[Signature]) -> Hops:
    rails = list(zip(*keys, strict=True))
    hops = [[len(rails)] * len(keys) for _ in keys]
    for rail in rails:
        alike: dict[str, list[int]] = {}
        for index, leaf in enumerate(rail):
            alike.setdefault(leaf, []).append(index)
        for indices in alike.values():
            for i, j in product(indices, repeat=2):
                hops[i][j] -= 1
    return hops


def _length(tour: Sequence[int], hops: Hops, *, closed: bool) -> int:
    length = sum(hops[a][b] for a, b in pairwise(tour))
    return length + hops[tour[-1]][tour[0]] if closed else length


def _exact(hops: Hops, first: int, starts: Sequence[Counter[int]], *, closed: bool) -> list[int]:
    """The shortest tour or path from `first` (Held and Karp 1962).

    Of equal ones that in which most nodes keep their number. `starts`: by signature, how many of
    its nodes keep it if its block starts there.
    """
    others = [i for i in range(len(hops)) if i != first]
    sizes = [count.total() for count in starts]
    hops = [[distance * (sum(sizes) + 1) for distance in row] for row in hops]
    best = {(1 << i, i): (hops[first][i] - starts[i][sizes[first]], first) for i in others}
    for size in range(2, len(others) + 1):
        for subset in combinations(others, size):
            visited = sum(1 << i for i in subset)
            place = sizes[first] + sum(sizes[i] for i in subset)
            for last in subset:
                rest, kept = visited & ~(1 << last), starts[last][place - sizes[last]]
                best[visited, last] = min(
                    (best[rest, i][0] + hops[i][last] - kept, i) for i in subset if i != last
                )
    visited = sum(1 << i for i in others)
    back = [row[first] if closed else 0 for row in hops]
    _, last = min((best[visited, i][0] + back[i], i) for i in others)
    path: list[int] = []
    while visited:
        path.append(last)
        visited, last = visited & ~(1 << last), best[visited, last][1]
    return [first, *reversed(path)]


def _searched(hops: Hops, first: int, bound: int, *, closed: bool) -> list[int]:
    """The best of several nearest-neighbour tours, each improved, turned to begin with `first`."""
    count = len(hops)
    most = max(1, min(_MOST_STARTS, count, _STEPS // (10 * count**2)))
    starts = [first, *(i for i in range(count) if i != first)][:most] if closed else [first]
    best: list[int] = []
    for start in starts:
        tour = _improved(_nearest(hops, start), hops, closed=closed)
        if not best or _length(tour, hops, closed=closed) < _length(best, hops, closed=closed):
            best = tour
        if _length(best, hops, closed=closed) <= bound:
            break
    turn = best.index(first)
    return best[turn:] + best[:turn]


def _nearest(hops: Hops, start: int) -> list[int]:
    tour, left = [start], set(range(len(hops))) - {start}
    while left:
        row = hops[tour[-1]]
        following = min(left, key=lambda i: (row[i], i))
        left.remove(following)
        tour.append(following)
    return tour


def _improved(tour: list[int], hops: Hops, *, closed: bool) -> list[int]:
    """The tour after reversals of parts that shorten it (2-opt); its start stays."""
    count, changed = len(tour), True
    for _ in range(max(1, _STEPS // count**2)):
        if not changed:
            break
        changed = False
        for i, j in combinations(range(count), 2):
            a, b, c = tour[i], tour[i + 1], tour[j]
            gain = hops[a][b] - hops[a][c]
            if closed or j + 1 < count:
                d = tour[(j + 1) % count]
                gain += hops[c][d] - hops[b][d]
            if gain > 0:
                tour[i + 1 : j + 1] = tour[i + 1 : j + 1][::-1]
                changed = True
    return tour


def _bound(hops: Hops, *, closed: bool) -> int:
    """A lower bound: the shortest spanning tree, for a ring also by two links per signature."""
    nearest = list(hops[0])
    left, tree = set(range(1, len(hops))), 0
    while left:
        following = min(left, key=nearest.__getitem__)
        left.remove(following)
        tree += nearest[following]
        nearest = list(map(min, nearest, hops[following]))
    if not closed:
        return tree
    two = sum(sum(sorted(row)[1:3]) for row in hops)  # the first is the distance to itself
    shortest = min(sorted(row)[1] for row in hops)
    return max(tree + shortest, -(-two // 2))


def pick(
    leaves: Mapping[str, Signature], count: int, *, keep: Collection[str] = ()
) -> tuple[str, ...]:
    """`count` nodes of `leaves`, with those in `keep`, in their order; ValueError if impossible.

    Nodes with equal leaves form a group. The smallest group that holds all nodes is taken, else
    the groups of `keep`, then the largest groups as a whole and the smallest that holds the rest.
    """
    unknown = sorted(set(keep) - leaves.keys())
    if unknown:
        raise ValueError(f"could not keep {', '.join(unknown)}: not among the nodes to pick from")
    if not len(set(keep)) <= count <= len(leaves):
        words = f"could not pick {count} of {len(leaves)} nodes and keep"
        raise ValueError(f"{words} {len(set(keep))} of them")
    groups: dict[Signature, list[str]] = {}
    for name in leaves:
        groups.setdefault(leaves[name], []).append(name)
    fixed, chosen = {leaves[name] for name in keep}, set(keep)
    used = sorted(fixed, key=lambda key: (-len(groups[key]), key))
    free = sorted((k for k in groups if k not in fixed), key=lambda key: -len(groups[key]))
    lacking = count - sum(len(groups[key]) for key in used)
    while lacking > 0:
        fitting = [key for key in free if len(groups[key]) >= lacking] or free[:1]
        used.append(min(fitting, key=lambda key: len(groups[key])))
        free.remove(used[-1])
        lacking -= len(groups[used[-1]])
    for key in used:
        left = [name for name in groups[key] if name not in chosen]
        chosen.update(left[: count - len(chosen)])
    return tuple(name for name in leaves if name in chosen)
