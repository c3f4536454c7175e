"""Legal worlds: what must hold for all shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.model.cluster import Parallel
from ascendboot.supervise.policy import legal_world, why_not_legal

MUST = "the number of ranks must be a multiple of"
BATCH = ", and gbs 7 a multiple of mbs 2 x DP"
CHANGE = "add nodes or change these"


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
    ("shape", "at_least", "expected"),
    [
        (Parallel(), 4, "fewer than min_nodes 4; release or repair a node"),
        (
            Parallel(tp=8, pp=2, dp_min=4),
            1,
            f"{MUST} 16 (tp 8 x pp 2 x cp 1), DP at least 4 (dp_min); {CHANGE}",
        ),
        (
            Parallel(gbs=7, mbs=2),
            1,
            f"{MUST} 1 (tp 1 x pp 1 x cp 1), DP at least 1 (dp_min){BATCH}; {CHANGE}",
        ),
    ],
)
def test_a_message_says_what_must_hold(shape: Parallel, at_least: int, expected: str) -> None:
    assert legal_world(shape, 3, 8, at_least=at_least) is None
    assert why_not_legal(shape, 3, 8, at_least) == f"3 nodes of 8 devices: {expected}"
