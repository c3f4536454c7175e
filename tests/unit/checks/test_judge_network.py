"""The judge on the nodes' own network: one test per rule, over the whole message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ascendboot.facts.derive import common_networks
from ascendboot.facts.query import Answered
from tests.unit.checks.well import TWO, cluster, facts, interfaces, judged, node, second


def test_no_interface_has_the_cluster_address() -> None:
    assert second(interfaces=interfaces("10.0.0.5")) == [
        (
            "address-missing error lab-2: no interface carries the cluster address 198.18.0.2; "
            "the node has eth0 10.0.0.5. Correct `cluster_address`."
        )
    ]
    assert second(interfaces=Answered(())) == [
        (
            "address-missing error lab-2: no interface carries the cluster address 198.18.0.2; "
            "the node has no address. Correct `cluster_address`."
        )
    ]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"is_up": False}, "error lab-2: {}, is down. ip link set eth0 up."),
        (
            {"has_carrier": False},
            "warning lab-2: {}, has no link. Look at its cable and switch port.",
        ),
    ],
)
def test_an_interface_of_the_cluster_address_that_is_down(state: dict[str, Any], said: str) -> None:
    lo, eth0 = interfaces("198.18.0.2").value
    text = said.format("eth0, which carries the cluster address 198.18.0.2")
    assert second(interfaces=Answered((lo, replace(eth0, **state)))) == [f"interface-down {text}"]
    assert second(interfaces=Answered((replace(lo, **state), eth0))) == []


def test_another_interface_than_the_inventory_states() -> None:
    wish = cluster(node(1), node(2, interface="eth9"))
    assert judged(wish, facts(1), facts(2)) == [
        (
            "interface-differs error lab-2: the inventory states interface eth9, but eth0 "
            "carries the cluster address 198.18.0.2. Correct `interface` or `cluster_address`."
        )
    ]


def test_the_interface_that_the_inventory_states() -> None:
    assert judged(cluster(node(1), node(2, interface="eth0")), facts(1), facts(2)) == []


def test_nodes_in_different_networks() -> None:
    wish = cluster(node(1), node(2), node(3, cluster_address="10.0.0.3"))
    seen = [facts(1), facts(2), facts(3, interfaces=interfaces("10.0.0.3", 24))]
    assert judged(wish, *seen) == [
        (
            "networks-differ info lab-3: 2 nodes have the cluster address in 198.18.0.0/16, "
            "lab-3 has 10.0.0.0/24. Make sure that they route to each other."
        )
    ]
    assert common_networks(wish, {found.node: found for found in seen}) == (
        "198.18.0.0/16",
        "10.0.0.0/24",
    )


def test_a_node_whose_network_is_not_known_is_left_out() -> None:
    unknown = facts(2, interfaces=interfaces("10.0.0.5"))
    assert common_networks(TWO, {"lab-1": facts(1), "lab-2": unknown}) == ("198.18.0.0/16",)
