"""Folding and expanding names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.model.names import counted, expand, fold, ranks_named, runs


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["lab-2", "lab-1", "lab-3"], "lab-[1-3]"),
        (["a"], "a"),
        (["n01", "n02", "n10"], "n[01-02,10]"),
        (["b", "a"], "a,b"),
        ([], ""),
    ],
)
def test_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("atlas-1", ("atlas-1",)),
        ("atlas-[09-11]", ("atlas-09", "atlas-10", "atlas-11")),
        ("192.0.2.[9-10]", ("192.0.2.9", "192.0.2.10")),
        ("2001:db8::1", ("2001:db8::1",)),
    ],
)
def test_expand(pattern: str, names: tuple[str, ...]) -> None:
    assert expand(pattern) == names


def test_a_broken_range_is_an_error() -> None:
    with pytest.raises(ValueError, match="missing bracket"):
        expand("atlas-[1-")


def test_one_is_not_many() -> None:
    assert [counted(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_ranks_are_named_as_people_count_them() -> None:
    assert [ranks_named(ranks) for ranks in ((3,), (1, 0, 2, 9), [0, 1])] == [
        "rank 3",
        "ranks 0-2,9",
        "ranks 0-1",
    ]


@settings(deadline=None)  # the machine may be busy
@given(st.sets(st.integers(0, 60)))
def test_runs_stand_for_their_numbers(numbers: set[int]) -> None:
    found: set[int] = set()
    for part in filter(None, runs(numbers).split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers
