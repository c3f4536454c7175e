"""Rank orders by leaf switch: nodes on one leaf become neighbours, so fewer links cross leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from operator import itemgetter, ne
from typing import Literal, TypeAlias

Shape = Literal["ring", "chain"]
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
_MOST_SWAPPED = 6
"""When nodes are picked, up to this many groups may be exchanged for cheaper ones."""
_MOST_TRIED = 256
_MOST_STARTS = 32
_STEPS = 2_000_000
"""Limits the search among many signatures to about one second."""


@dataclass(frozen=True)
class RankOrder:
    """Nodes in an order by leaf switch, with its cost.

    The cost is the number of rails between neighbours whose two ends are on different leaves.
    """

    nodes: tuple[str, ...]
    before: int
    """The cost of the order that was given."""
    after: int
    bound: int
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
            return f"already optimal, {self.shape} cost {self.after}"
        proof = "optimal" if self.is_optimal else f"at least {self.bound} in any order"
        return f"{self.shape} cost {self.before} before, {self.after} after ({proof})"


def order_nodes(leaves: Mapping[str, Signature], shape: Shape = "ring") -> RankOrder:
    """The order of least cost that begins with the first node of `leaves`.

    Up to 12 distinct signatures the result is exact, else a local optimum with a lower bound. An
    order that is not cheaper than the given one is not used. Within a signature nodes keep their
    order.
    """
    names = tuple(leaves)
    groups: dict[Signature, list[str]] = {}
    for name in names:
        groups.setdefault(leaves[name], []).append(name)
    before = cost_of(names, leaves, shape)
    if len(groups) < 2 or before == 0:  # noqa: PLR2004 - with one group there is nothing to order
        return RankOrder(names, before, before, before, shape)
    keys = sorted(groups)
    tour, bound = _tour(keys, keys.index(leaves[names[0]]), closed=shape == "ring")
    nodes = tuple(name for index in tour for name in groups[keys[index]])
    after = cost_of(nodes, leaves, shape)
    if after >= before:
        return RankOrder(names, before, before, bound, shape)
    return RankOrder(nodes, before, after, bound, shape)


def cost_of(order: Sequence[str], leaves: Mapping[str, Signature], shape: Shape) -> int:
    """How many rails between neighbours in `order` cross leaves; a ring has a last link back."""
    following = (*order[1:], *order[:1]) if shape == "ring" else order[1:]
    return sum(hop(leaves[a], leaves[b]) for a, b in zip(order, following, strict=False))


def hop(one: Signature, other: Signature) -> int:
    """On how many rails two nodes are on different leaves."""
    return sum(map(ne, one, other))


def _tour(keys: Sequence[Signature], first: int, *, closed: bool) -> tuple[list[int], int]:
    """The signatures in their best order from `first`, and a lower bound of its cost.

    By the triangle inequality a best order exists that has all nodes of a signature together.
    """
    hops = _hops(keys)
    if len(keys) > MOST_EXACT:
        bound = _bound(hops, closed=closed)
        tour = _searched(hops, first, bound, closed=closed)
    else:
        tour = _exact(hops, 0 if closed else first, closed=closed)
        bound = _length(tour, hops, closed=closed)
    start = tour.index(first)
    return tour[start:] + tour[:start], bound


def _hops(keys: Sequence[Signature]) -> Hops:
    hops = [[0] * len(keys) for _ in keys]
    for (i, one), (j, other) in combinations(enumerate(keys), 2):
        hops[i][j] = hops[j][i] = hop(one, other)
    return hops


def _length(tour: Sequence[int], hops: Hops, *, closed: bool) -> int:
    length = sum(hops[a][b] for a, b in pairwise(tour))
    return length + hops[tour[-1]][tour[0]] if closed else length


def _exact(hops: Hops, first: int, *, closed: bool) -> list[int]:
    """The shortest tour or path from `first` (Held and Karp 1962)."""
    others = [i for i in range(len(hops)) if i != first]
    best = {(1 << i, i): (hops[first][i], first) for i in others}
    for size in range(2, len(others) + 1):
        for subset in combinations(others, size):
            visited = sum(1 << i for i in subset)
            for last in subset:
                rest = visited & ~(1 << last)
                best[visited, last] = min(
                    (best[rest, i][0] + hops[i][last], i) for i in subset if i != last
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
    """The best of several nearest-neighbour tours, each improved until no exchange helps."""
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
    return best


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
    """`count` nodes of `leaves` on few leaf switches, always with those in `keep`; in their order.

    Nodes with equal leaves form a group. The smallest group that holds all nodes is taken, else
    the groups of `keep`, then the largest groups as a whole and the smallest that holds the rest.

    Raises:
        ValueError: there are fewer than `count` nodes, or `keep` has more or unknown ones.
    """
    unknown = sorted(set(keep) - leaves.keys())
    if unknown:
        raise ValueError(f"could not keep {', '.join(unknown)}: not among the nodes to pick from")
    if not len(set(keep)) <= count <= len(leaves):
        raise ValueError(
            f"could not pick {count} of {len(leaves)} nodes and keep {len(set(keep))} of them"
        )
    groups: dict[Signature, list[str]] = {}
    for name in leaves:
        groups.setdefault(leaves[name], []).append(name)
    sizes = {key: len(names) for key, names in groups.items()}
    chosen = set(keep)
    for key in _filled(sizes, count, {leaves[name] for name in keep}):
        left = [name for name in groups[key] if name not in chosen]
        chosen.update(left[: count - len(chosen)])
    return tuple(name for name in leaves if name in chosen)


def _filled(
    sizes: Mapping[Signature, int], count: int, fixed: Collection[Signature]
) -> list[Signature]:
    """Groups that hold `count` nodes; some are exchanged where that makes the ring cheaper."""
    used = sorted(fixed, key=lambda key: (-sizes[key], key))
    free = sorted((key for key in sizes if key not in fixed), key=lambda key: -sizes[key])
    spare = sum(sizes[key] for key in used) - count
    while spare < 0:
        fitting = [key for key in free if sizes[key] >= -spare]
        following = min(fitting, key=sizes.__getitem__) if fitting else free[0]
        free.remove(following)
        used.append(following)
        spare += sizes[following]
    while 1 < len(used) <= _MOST_SWAPPED:
        swaps = (
            (_price([*(key for key in used if key != out), into]), out, into)
            for out in used
            for into in free[:_MOST_TRIED]
            if out not in fixed and sizes[into] >= sizes[out] - spare
        )
        price, out, into = min(swaps, key=itemgetter(0), default=(_price(used), used[0], used[0]))
        if price >= _price(used):
            break
        used[used.index(out)], free[free.index(into)] = into, out
        spare += sizes[into] - sizes[out]
    return used


def _price(keys: Collection[Signature]) -> int:
    """The cost of a ring of nodes with these signatures."""
    return order_nodes({str(number): key for number, key in enumerate(keys)}).after
