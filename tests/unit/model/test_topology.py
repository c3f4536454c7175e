"""Rank orders by leaf switch: known vectors, brute force, bounds, time, and what a cluster makes
of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations, permutations
from operator import eq

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ascendboot.model.cluster import Cluster, Device, Node, OwnTable, Parallel
from ascendboot.model.topology import (
    MOST_EXACT,
    Shape,
    Signature,
    _doubling_bound,
    _pipeline_bound,
    cost_of,
    order_nodes,
    pick,
)
from ascendboot.value import replace
from tests.unit.checks.well import cluster
from tests.unit.transport import builders

SIZES: dict[str, Signature] = {
    f"{leaf}{number}": (leaf,)
    for leaf, size in (("A", 5), ("B", 3), ("C", 2), ("D", 4))
    for number in range(size)
}
SHAPES: tuple[Shape, ...] = ("ring", "chain")


def dual(number: int) -> Signature:
    """The default of a server of 910B2: devices 0, 1, 6, 7 on one leaf, 2 to 5 on another."""
    return tuple(f"{'A' if d in (0, 1, 6, 7) else 'B'}{number}" for d in range(8))


@pytest.mark.parametrize(
    ("leaves", "primary", "costs", "order"),
    [
        ({f"n{i}": (f"S{i % 3}",) for i in range(6)}, "n0", (6, 3), "n0 n3 n2 n5 n1 n4"),
        ({f"n{i}": (f"S{i % 2}",) for i in range(8)}, "n3", (8, 2), "n3 n1 n5 n7 n0 n2 n4 n6"),
        ({f"n{i}": dual(i % 3) for i in range(6)}, "n0", (48, 24), "n0 n3 n2 n5 n1 n4"),
        (
            {f"n{i}": tuple(f"R{d}" for d in range(8)) for i in range(4)},
            "n0",
            (0, 0),
            "n0 n1 n2 n3",
        ),
    ],
    ids=["three-leaves", "two-leaves", "two-leaves-per-node", "leaf-per-rail"],
)
def test_the_known_vectors_hold(
    leaves: dict[str, Signature], primary: str, costs: tuple[float, float], order: str
) -> None:
    inventory_cost = cost_of(tuple(leaves), leaves, "ring")
    found = order_nodes({primary: leaves[primary], **leaves})
    assert [inventory_cost, found.after] == list(costs)
    assert " ".join(found.nodes) == order
    assert found.is_optimal


signatures = st.integers(1, 4).flatmap(
    lambda rails: st.lists(
        st.tuples(*[st.sampled_from("ABCD")] * rails), min_size=1, max_size=7
    ).map(lambda found: {f"n{i}": signature for i, signature in enumerate(found)})
)


@pytest.mark.parametrize("shape", SHAPES)
@given(leaves=signatures)
def test_no_order_that_begins_with_the_primary_is_cheaper(
    shape: Shape, leaves: dict[str, Signature]
) -> None:
    first, *others = leaves
    cheapest = min(cost_of((first, *rest), leaves, shape) for rest in permutations(others))
    found = order_nodes(leaves, shape)
    assert (found.after, found.bound) == (cheapest, cheapest)
    assert cost_of(found.nodes, leaves, shape) == found.after <= found.before
    assert found.nodes[0] == first
    assert sorted(found.nodes) == sorted(leaves)
    assert order_nodes(leaves, shape) == found


@pytest.mark.parametrize("shape", SHAPES)
@given(leaves=signatures)
def test_of_equally_cheap_orders_of_whole_groups_the_most_nodes_keep_their_number(
    shape: Shape, leaves: dict[str, Signature]
) -> None:
    def kept(order: Sequence[str]) -> int:
        return sum(map(eq, order, leaves))

    found = order_nodes(leaves, shape)
    assume(found.after < found.before and len(leaves) != 4)  # a ring of 2^k has another rule, too
    groups = {key: [name for name in leaves if leaves[name] == key] for key in leaves.values()}
    first = next(iter(leaves.values()))
    orders = (
        tuple(name for key in (first, *rest) for name in groups[key])
        for rest in permutations(groups.keys() - {first})
    )
    cheapest = [order for order in orders if cost_of(order, leaves, shape) == found.after]
    assert kept(found.nodes) == max(map(kept, cheapest))


@pytest.mark.parametrize("shape", ["ring", "halving-doubling"])
def test_nodes_on_one_leaf_are_in_the_order_of_their_slices(shape: Shape) -> None:
    leaves: dict[str, Signature] = {f"n{i}": (f"S{i % 2}",) for i in range(16)}
    slices = {f"n{i}": 20 - i for i in range(16)}
    found = order_nodes(leaves, shape, slices=slices)
    even, odd = (f"n{i}" for i in range(14, 1, -2)), (f"n{i}" for i in range(15, 0, -2))
    assert found.nodes == ("n0", *even, *odd)
    assert found.after == order_nodes(leaves, shape).after


@pytest.mark.parametrize("shape", SHAPES)
@given(
    leaves=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=13, max_size=30, unique=True
    )
)
def test_many_signatures_are_ordered_at_most_as_dearly_and_never_below_the_bound(
    shape: Shape, leaves: list[tuple[int, int]]
) -> None:
    given_order = {f"n{i}": (f"a{a}", f"b{b}") for i, (a, b) in enumerate(leaves)}
    found = order_nodes(given_order, shape)
    assert len(set(given_order.values())) > MOST_EXACT
    assert found.bound <= cost_of(found.nodes, given_order, shape) == found.after <= found.before
    assert found.nodes[0] == "n0"
    assert sorted(found.nodes) == sorted(given_order)


UNEVEN: dict[str, Signature] = {f"n{i}": (leaf,) for i, leaf in enumerate("ABCABCAB")}


def test_the_best_order_for_halving_doubling_is_not_the_best_ring() -> None:
    ring, doubling = order_nodes(UNEVEN), order_nodes(UNEVEN, "halving-doubling")
    as_doubling = {name: UNEVEN[name] for name in ring.nodes}
    assert order_nodes(as_doubling, "halving-doubling").before == 3.5
    assert (ring.after, doubling.after, doubling.bound) == (3, 3.25, 3.25)
    assert doubling.words == "halving-doubling cost 7 before, 3.25 after (optimal)"
    assert doubling.nodes[0] == "n0"


def test_equal_leaves_of_2_to_the_k_nodes_are_proven_optimal_for_halving_doubling() -> None:
    found = order_nodes({f"n{i}": (f"L{i % 4}",) for i in range(64)}, "halving-doubling")
    assert (found.is_optimal, found.nodes[0]) == (True, "n0")


def test_stages_of_a_pipeline_are_filled_from_whole_leaves() -> None:
    found = order_nodes({f"n{i}": (f"L{i % 3}",) for i in range(12)}, "pipeline", 3)
    assert found.nodes == tuple(f"n{i}" for leaf in (0, 2, 1) for i in range(leaf, 12, 3))
    assert found.words == "pipeline cost 9.8 before, 0.8 after (optimal)"


@pytest.mark.parametrize(
    ("shape", "count", "stages", "used"),
    [
        ("halving-doubling", 6, 1, "ring"),
        ("halving-doubling", 16, 1, "halving-doubling"),
        ("pipeline", 6, 6, "chain"),
        ("pipeline", 6, 4, "chain"),
        ("pipeline", 16, 4, "pipeline"),
    ],
)
def test_a_shape_that_the_nodes_cannot_have_is_replaced(
    shape: Shape, count: int, stages: int, used: str
) -> None:
    leaves: dict[str, Signature] = {f"n{i}": (f"L{i % 3}",) for i in range(count)}
    assert order_nodes(leaves, shape, stages).shape == used


@pytest.mark.parametrize(("shape", "stages"), [("halving-doubling", 1), ("pipeline", 2)])
@given(found=st.lists(st.tuples(*[st.sampled_from("ABC")] * 2), min_size=16, max_size=16))
@settings(max_examples=20)
def test_an_order_in_blocks_is_never_dearer_and_never_below_the_bound(
    shape: Shape, stages: int, found: list[Signature]
) -> None:
    leaves = {f"n{i}": signature for i, signature in enumerate(found)}
    order = order_nodes(leaves, shape, stages)
    assert order.bound <= order.after <= order.before
    assert order.nodes[0] == "n0"
    assert sorted(order.nodes) == sorted(leaves)
    again = order_nodes({name: leaves[name] for name in order.nodes}, shape, stages)
    assert again.before == order.after


@pytest.mark.parametrize("shape", ["halving-doubling", "pipeline"])
@given(found=st.lists(st.sampled_from("ABC"), min_size=8, max_size=8))
@settings(max_examples=10)
def test_the_bounds_of_orders_in_blocks_hold_for_all_orders(shape: Shape, found: list[str]) -> None:
    exact = order_nodes({f"n{i}": (leaf,) for i, leaf in enumerate(found)}, shape, 2)
    sizes = [found.count(leaf) for leaf in set(found)]
    bound = _pipeline_bound(sizes, 4) if shape == "pipeline" else _doubling_bound(sizes)
    assert bound <= exact.after


def test_a_ring_of_three_keeps_its_order_and_a_chain_does_not() -> None:
    leaves: dict[str, Signature] = {"n0": ("A",), "n1": ("B",), "n2": ("A",)}
    assert order_nodes(leaves).nodes == ("n0", "n1", "n2")
    assert order_nodes(leaves).words == "already optimal, ring cost 2"
    chain = order_nodes(leaves, "chain")
    assert chain.nodes == ("n0", "n2", "n1")
    assert chain.words == "chain cost 2 before, 1 after (optimal)"


@pytest.mark.parametrize("shape", ["ring", "chain", "halving-doubling", "pipeline"])
@pytest.mark.parametrize("distinct", [64, 1024])
def test_1024_nodes_take_less_than_two_processor_seconds(distinct: int, shape: Shape) -> None:
    leaves = {
        f"n{i}": tuple(f"L{rail // 2}-{i * (rail + 3) % distinct}" for rail in range(8))
        for i in range(1024)
    }
    began = time.process_time()
    found = order_nodes(leaves, shape, 16)
    took_s = time.process_time() - began
    assert found.bound <= found.after <= found.before
    assert took_s < 2


@pytest.mark.parametrize(
    ("count", "keep", "taken"),
    [
        (0, (), ""),
        (2, (), "C0 C1"),
        (3, (), "B0 B1 B2"),
        (5, (), "A0 A1 A2 A3 A4"),
        (7, (), "A0 A1 A2 A3 A4 C0 C1"),
        (8, (), "A0 A1 A2 A3 A4 B0 B1 B2"),
        (11, (), "A0 A1 A2 A3 A4 C0 C1 D0 D1 D2 D3"),
        (2, ("A4",), "A0 A4"),
        (4, ("C1", "B2"), "B0 B1 B2 C1"),
        (4, ("C1",), "B0 B1 C0 C1"),
        (14, (), " ".join(SIZES)),
    ],
)
def test_nodes_are_picked_from_few_leaves_and_large_ones_stay_whole(
    count: int, keep: tuple[str, ...], taken: str
) -> None:
    assert " ".join(pick(SIZES, count, keep=keep)) == taken


@given(leaves=signatures, data=st.data())
def test_picked_nodes_have_the_kept_ones_and_no_more_groups_than_needed(
    leaves: dict[str, Signature], data: st.DataObject
) -> None:
    keep = data.draw(st.sets(st.sampled_from(sorted(leaves))))
    count = data.draw(st.integers(len(keep), len(leaves)))
    taken = pick(leaves, count, keep=keep)
    assert taken == pick(leaves, count, keep=keep)
    assert list(taken) == [name for name in leaves if name in taken]
    assert (len(taken), keep - set(taken)) == (count, set())
    if not keep:
        groups = [len({leaves[n] for n in chosen}) for chosen in combinations(leaves, count)]
        assert len({leaves[n] for n in taken}) == min(groups)


@pytest.mark.parametrize(("count", "keep"), [(15, ()), (1, ("A0", "A1")), (-1, ()), (3, ("X",))])
def test_what_cannot_be_picked_or_kept(count: int, keep: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="could not"):
        pick(SIZES, count, keep=keep)


def node(name: str, **changes: object) -> Node:
    return replace(builders.node(name), **changes)


def names(cluster: Cluster) -> list[str]:
    return [node.name for node in cluster.rank_order]


ALTERNATING = [node(f"n{i}", leaf=f"S{i % 2}") for i in range(4)]


def test_a_cluster_without_leaves_keeps_its_order_and_says_nothing() -> None:
    plain = cluster(*(node(f"n{i}") for i in range(4)), primary_name="n2")
    assert names(plain) == ["n2", "n0", "n1", "n3"]
    assert (plain.leaf_order, plain.order_words) == (None, "")


def test_a_cluster_is_ordered_by_leaf_with_its_primary_first() -> None:
    found = cluster(*ALTERNATING, node("n4", leaf="S0"), primary_name="n3")
    assert [node.name for node in found.given_order] == ["n3", "n0", "n1", "n2", "n4"]
    assert names(found) == ["n3", "n1", "n0", "n2", "n4"]
    assert found.order_words == (
        "rank order by leaf switches: ring cost 4 before, 2 after (optimal)"
    )


def test_leaves_of_one_group_stay_together() -> None:
    leaves = ["A", "B", "C", "D", "A", "C"]
    cores = (("A", "x"), ("B", "y"), ("C", "x"), ("D", "y"))
    found = cluster(*(node(f"n{i}", leaf=leaf) for i, leaf in enumerate(leaves)), cores=cores)
    assert names(found) == ["n0", "n4", "n1", "n3", "n2", "n5"]
    assert found.leaves["n3"] == ("D", "y")
    assert found.order_words.endswith("ring cost 10 before, 6 after (optimal)")


def test_the_primary_s_place_in_the_inventory_is_told_where_ranks_follow_leaves() -> None:
    found = cluster(*ALTERNATING, primary_name="n3")
    assert found.master_index == 3
    assert replace(found, topology_order="inventory").master_index is None
    assert cluster(node("n1"), node("n2")).master_index is None


def test_the_shape_follows_what_the_job_and_hccl_do() -> None:
    found = cluster(*ALTERNATING)
    shapes = [
        replace(found, **changes).order_shape
        for changes in (
            {},
            {"product": "910"},
            {"product": "910", "env": {"HCCL_ALGO": "level0:NA;level1:ring"}},
            {"env": {"HCCL_ALGO": "level0:NA;level1:H-D_R"}},
            {"product": "910", "parallel": Parallel(pp=2)},
            {"parallel": Parallel(pp=2), "topology_shape": "ring"},
        )
    ]
    doubling = "halving-doubling"
    assert shapes == ["ring", doubling, "ring", doubling, "pipeline", "ring"]
    piped = replace(found, parallel=Parallel(pp=2))
    assert names(piped) == ["n0", "n2", "n1", "n3"]


def test_two_nodes_are_not_ordered() -> None:
    two = cluster(*ALTERNATING[:2])
    assert names(two) == ["n0", "n1"]
    assert two.order_words == "rank order by leaf switches: skipped, it needs at least 3 nodes"


def test_an_order_that_is_stated_is_kept_and_its_price_is_told() -> None:
    stated = cluster(*ALTERNATING, topology_order="inventory")
    assert names(stated) == ["n0", "n1", "n2", "n3"]
    assert stated.order_words == (
        "rank order by topology.order: ring cost 4; by leaf switches it would be 2"
    )
    places = tuple((f"n{i}", 0, None) for i in range(4))
    table = OwnTable(text="{}", generation="1.0", places=places)
    own = cluster(*ALTERNATING, own_table=table)
    assert names(own) == ["n0", "n1", "n2", "n3"]
    assert own.order_words.startswith("rank order by resources.file: ring cost 4; ")


def test_leaves_of_devices_give_one_rail_for_each_device_in_use() -> None:
    by_device = ((0, "a"), (1, "a"), (2, "b"))
    found = cluster(
        node("n1", leaf=by_device),
        node("n2", leaf=by_device, devices=(Device(2), Device(0))),
        node("n3", leaf="c", devices=(Device(7),)),
        node("n4"),
    )
    assert found.rails == (0, 1, 2)
    leaves = [("a", "a", "b"), ("a", "-", "b"), ("-", "-", "-"), ("?n4", "?n4", "?n4")]
    assert list(found.leaves.values()) == leaves
