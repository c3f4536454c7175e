"""Legal worlds: what must hold for all shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.model.cluster import Parallel
from ascendboot.supervise.shape import legal_world, why_not_legal

NONE = "no number of nodes is legal; change tp, pp, cp, gbs or dp_min"
SIZES = "ranks (tp 8 x pp 2 x cp 1)"


def test_bounds_of_the_operator_are_kept() -> None:
    shape = Parallel(tp=8, pp=2)
    assert legal_world(shape, 9, 8, at_most=5) == 4
    assert legal_world(shape, 3, 8, at_least=3) is None


SHAPES = st.builds(
    Parallel,
    tp=st.integers(1, 8),
    pp=st.integers(1, 4),
    cp=st.integers(1, 2),
    gbs=st.none() | st.integers(1, 512),
    mbs=st.integers(1, 4),
    dp_min=st.integers(1, 4),
)


@given(shape=SHAPES, available=st.integers(0, 40), devices=st.sampled_from([1, 2, 4, 8, 16]))
def test_no_larger_number_of_nodes_is_legal(shape: Parallel, available: int, devices: int) -> None:
    def is_legal(nodes: int) -> bool:
        block = shape.tp * shape.pp * shape.cp
        dp = nodes * devices // block
        fits = nodes * devices % block == 0 and dp >= shape.dp_min
        return fits and (shape.gbs is None or shape.gbs % (shape.mbs * dp) == 0)

    expected = max((n for n in range(1, available + 1) if is_legal(n)), default=None)
    assert legal_world(shape, available, devices) == expected


@pytest.mark.parametrize(
    ("shape", "available", "at_least", "expected"),
    [
        (Parallel(tp=8, pp=2), 1, 1, f"no multiple of 16 {SIZES}; 2 nodes would be enough"),
        (Parallel(), 1, 2, "fewer than min_nodes 2; release or repair a node"),
        (Parallel(tp=8, dp_min=4), 3, 1, "DP is at most 3, dp_min is 4; 4 nodes would be enough"),
        (Parallel(gbs=7), 2, 1, f"gbs 7 is no multiple of mbs 1 x DP (8, 16); {NONE}"),
    ],
)
def test_a_message_says_why_and_what_would_be_enough(
    shape: Parallel, available: int, at_least: int, expected: str
) -> None:
    nodes = "1 node" if available == 1 else f"{available} nodes"
    why = why_not_legal(shape, available, 8, at_least)
    assert why == f"{nodes} of 8 devices: {expected}"


@given(shape=SHAPES, available=st.integers(0, 12), at_least=st.integers(1, 4))
def test_there_is_always_a_reason(shape: Parallel, available: int, at_least: int) -> None:
    if legal_world(shape, available, 8, at_least=at_least) is None:
        assert "; " in why_not_legal(shape, available, 8, at_least)
