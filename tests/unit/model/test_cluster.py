"""Times of nodes by the operator's clock, and back."""

from __future__ import annotations

from ascendboot.model.cluster import NodeClocks


def test_a_clock_that_is_ahead_or_behind_or_not_known() -> None:
    clocks = NodeClocks({"a-1": 2.5, "a-2": -1.0})
    assert [clocks.here(node, 10.0) for node in ("a-1", "a-2", "a-3")] == [7.5, 11.0, 10.0]
    assert [clocks.there(node, 10.0) for node in ("a-1", "a-2", "a-3")] == [12.5, 9.0, 10.0]
