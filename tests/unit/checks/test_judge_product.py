"""What the judge says where the inventory and the chips tell of two products."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.unit.checks import well

if TYPE_CHECKING:
    from collections.abc import Callable

    from ascendboot.facts.node_facts import NodeFacts
    from ascendboot.model.cluster import Product


@pytest.mark.parametrize(
    ("stated", "seen", "told"),
    [
        ("auto", well.facts, None),
        ("a2", well.facts, None),
        ("a3", well.a3, None),
        ("a3", well.facts, "a2"),
        ("910", well.a3, "a3"),
    ],
)
def test_a_product_that_is_not_what_the_chips_are_called(
    stated: Product, seen: Callable[[int], NodeFacts], told: str | None
) -> None:
    wish = replace(well.cluster(well.node(1)), product=stated)
    found = well.judged(wish, seen(1))
    expected = (
        f"product-contradicts warning lab-1: the inventory states product {stated}, and the chips "
        f"are called as those of {told}: rank table and HCCL's variables are checked for {stated}. "
        "Correct `product`, or leave it out."
    )
    assert [text for text in found if "product" in text] == ([expected] if told else [])


def test_chips_whose_name_tells_nothing_contradict_nothing() -> None:
    silent = well.facts(1, **well.chips(1, "Ascend910B", 8))
    wish = replace(well.cluster(well.node(1)), product="910")
    assert [text for text in well.judged(wish, silent) if "product" in text] == []
