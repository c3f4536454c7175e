"""Of which product the NPUs of a node are, by the names of their chips."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.judge.finding import Finding, judged_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster

_CHIPS = {
    "a5": re.compile(r"Ascend950.*"),
    "a3": re.compile(r"Ascend910_93.*"),
    "a2": re.compile(r"Ascend910B[1-4].*"),
    "910": re.compile(r"Ascend910(A|Pro[AB]|PremiumA)"),
}
"""Names of chips by product. Ascend910B without a digit was a 910 once: it tells nothing."""


def product_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module: what is stated counts, for chips whose names say nothing."""
    for node, seen in judged_nodes(cluster, facts):
        told, stated = product_of(seen), cluster.product
        if stated != "auto" and told not in (None, stated):
            yield Finding(
                id="product-contradicts",
                level="warning",
                nodes=(node.name,),
                text=f"the inventory states product {stated}, and the chips are called as those of"
                f" {told}: rank table and HCCL's variables are judged for {stated}",
                remedy="Correct `product`, or leave it out",
            )


def product_of(seen: NodeFacts) -> str | None:
    """The product as the inventory calls it, where the names of the chips tell it.

    `npu-smi info -m` says "Ascend 910A", "Ascend 910B3" (A2), "Ascend910" (A3, two chips a card)
    and "Ascend950PR".
    """
    npus = value_of(seen.npus)
    if npus is None:
        return None
    names = {npu.chip_name.replace(" ", "") for npu in npus.npus}
    if names == {"Ascend910"} and any(npu.chip_id for npu in npus.npus):
        return "a3"
    for product, pattern in _CHIPS.items():
        if names and all(pattern.fullmatch(name) for name in names):
            return product
    return None
