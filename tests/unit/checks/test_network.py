"""Findings about the networks of nodes and of devices: the whole message of each rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ascendboot.facts.derive import common_networks
from ascendboot.facts.npus import DeviceNetwork
from ascendboot.facts.parsers.hccn_tool import DeviceAddress
from ascendboot.facts.query import NOT_ASKED, Answered, Lack, Unanswered
from ascendboot.model.cluster import Device
from tests.unit.checks.well import (
    TWO,
    a3,
    cluster,
    facts,
    interfaces,
    judged,
    network,
    networks,
    node,
    only,
    second,
)

NO_IP = Answered(())
DOWN = Answered(value=False)
TLS_ON = Answered(value=True)
SET_IP = "hccn_tool -i 3 -ip -s address ADDRESS netmask MASK."
OWN_IP = "Give each device an IP of its own with hccn_tool."
SET_TLS = "Set it alike on all: hccn_tool -i ID -tls -s enable 0."


@pytest.mark.parametrize("has", ["eth0 10.0.0.5", "no address"])
def test_no_interface_has_the_cluster_address(has: str) -> None:
    there = interfaces("10.0.0.5") if has.startswith("eth0") else Answered(())
    assert only(second(interfaces=there)) == (
        "address-missing error lab-2: no interface carries the cluster address 198.18.0.2; "
        f"the node has {has}. Correct `cluster_address`."
    )


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
    wish = cluster(node(1, interface="eth0"), node(2, interface="eth9"))
    assert only(judged(wish, facts(1), facts(2))) == (
        "interface-differs error lab-2: the inventory states interface eth9, but eth0 "
        "carries the cluster address 198.18.0.2. Correct `interface` or `cluster_address`."
    )


def test_nodes_in_different_networks() -> None:
    wish = cluster(node(1), node(2), node(3, cluster_address="10.0.0.3"))
    seen = [facts(1), facts(2), facts(3, interfaces=interfaces("10.0.0.3", 24))]
    assert only(judged(wish, *seen)) == (
        "networks-differ info lab-3: 2 nodes have the cluster address in 198.18.0.0/16, "
        "lab-3 has 10.0.0.0/24. Make sure that they route to each other."
    )
    by_name = {found.node: found for found in seen}
    assert common_networks(wish, by_name) == ("198.18.0.0/16", "10.0.0.0/24")
    unknown = facts(2, interfaces=interfaces("10.0.0.5"))
    assert common_networks(TWO, {"lab-1": facts(1), "lab-2": unknown}) == ("198.18.0.0/16",)


def with_ip(device_id: int, ip: str) -> DeviceNetwork:
    return network(2, device_id, addresses=Answered((DeviceAddress(ip, "255.255.0.0"),)))


def silent(kind: Lack, what: str, device_id: int, said: str) -> Unanswered:
    tool = f"hccn_tool -i {device_id} -x -g"
    return Unanswered(kind, f"could not read the {what} of device {device_id}: {tool}: {said}")


@pytest.mark.parametrize(
    ("changed", "messages"),
    [
        pytest.param(
            [network(2, 3, addresses=NO_IP)],
            f"device-ip-missing error lab-2: device 3 has no IP address. Set it: {SET_IP}",
            id="without IP",
        ),
        pytest.param(
            [with_ip(5, "198.19.1.3")],
            "device-ip-twice error lab-[1-2]: device IP 198.19.1.3 is used twice: "
            f"lab-1 device 3 and lab-2 device 5. {OWN_IP}",
            id="IP of a device",
        ),
        pytest.param(
            [with_ip(i, "198.19.1.3") for i in (5, 6)],
            "device-ip-twice error lab-[1-2]: device IP 198.19.1.3 is used 3 times: "
            f"lab-1 device 3 and lab-2 device 5 and lab-2 device 6. {OWN_IP}",
            id="three times",
        ),
        pytest.param(
            [with_ip(5, "198.18.0.1")],
            "device-ip-twice error lab-[1-2]: device IP 198.18.0.1 is used twice: "
            f"lab-1 and lab-2 device 5. {OWN_IP}",
            id="IP of a node",
        ),
        pytest.param(
            [network(2, 3, link_up=silent("not-understood", "link", 3, "line 1 not understood"))],
            "device-link-unknown error lab-2: could not read the link of device 3: "
            "hccn_tool -i 3 -x -g: line 1 not understood.",
            id="something new",
        ),
        pytest.param(
            [network(2, i, addresses=silent("busy", "IP", i, "busy")) for i in (2, 3, 4)],
            "device-ip-unknown error lab-2: could not read the IP of devices 2-4: "
            "hccn_tool -i 2 -x -g: busy.",
            id="busy devices together",
        ),
        pytest.param(
            [
                network(2, 3, tls_enabled=silent("failed", "TLS switch", 3, "not supported")),
                network(2, 4, tls_enabled=silent("not-understood", "TLS switch", 4, "line 1")),
            ],
            "device-tls-unknown error lab-2: could not read the TLS switch of device 4: "
            "hccn_tool -i 4 -x -g: line 1.\n"
            "device-tls-unknown warning lab-2: could not read the TLS switch of device 3: "
            "hccn_tool -i 3 -x -g: not supported.",
            id="a TLS switch that the tool cannot tell is no obstacle",
        ),
        pytest.param(
            [network(2, i, tls_enabled=TLS_ON) for i in (3, 5)],
            "tls-differs error lab-2: the TLS switch of lab-2 devices 3,5 is on, "
            f"that of the 14 other devices off. {SET_TLS}",
            id="TLS on at few",
        ),
    ],
)
def test_devices_with_a_wrong_address_link_or_switch(
    changed: list[DeviceNetwork], messages: str
) -> None:
    assert second(**networks(2, *changed), hccn_conf=NOT_ASKED) == messages.split("\n")


def test_devices_without_an_ip_do_for_one_node() -> None:
    bare = [network(2, i, addresses=NO_IP) for i in (3, 4)]
    assert judged(cluster(node(2)), facts(2, **networks(2, *bare))) == [
        f"device-ip-missing warning lab-2: devices 3-4 have no IP address. Set it: {SET_IP}"
    ]


def test_a_node_may_be_reached_by_a_host_name() -> None:
    wish = cluster(node(1), node(2, address="lab-2.example"))
    assert judged(wish, facts(1), facts(2)) == []


def test_an_ip_other_than_the_inventory_states() -> None:
    named = tuple(Device(i, "198.19.9.9" if i == 3 else None) for i in range(8))
    wish = cluster(node(1), node(2, devices=named))
    assert only(judged(wish, facts(1), facts(2))) == (
        "device-ip-differs error lab-2: device 3 has the IP 198.19.2.3; the inventory states "
        "198.19.9.9. Correct the inventory, or set the IP of the device with hccn_tool."
    )


def test_item_10_links_that_are_down() -> None:
    down = [network(2, i, link_up=DOWN) for i in (3, 5)]
    words = (
        "lab-2: the link of devices 3,5 is down. "
        "Look at cable and switch port; hccn_tool -i 3 -link_stat -g shows since when; "
        "or state the other devices under `devices`."
    )
    assert second(**networks(2, *down)) == [f"link-down error {words}"]
    of_pods = replace(TWO, product="a3")
    found = judged(of_pods, facts(1), facts(2, **networks(2, *down)))
    assert [text for text in found if "link" in text] == [f"link-down warning {words}"]
    for pod, level in ((0, "warning"), (1, "error")):
        of_a3 = replace(a3(2, pod, 8), **networks(2, *down))
        found = judged(of_pods, a3(1, 0, 8), of_a3)
        assert [text for text in found if "link" in text] == [f"link-down {level} {words}"]
    of_others = cluster(*(node(i, devices=(Device(0), Device(1))) for i in (1, 2)))
    assert judged(of_others, facts(1), facts(2, **networks(2, *down))) == []


def test_a_tls_switch_that_is_off_at_few() -> None:
    on = [network(1, i, tls_enabled=TLS_ON) for i in range(8)]
    most = [network(2, i, tls_enabled=TLS_ON) for i in range(1, 8)]
    assert only(judged(TWO, facts(1, **networks(1, *on)), facts(2, **networks(2, *most)))) == (
        "tls-differs error lab-2: the TLS switch of lab-2 device 0 is off, that of the "
        f"15 other devices on. {SET_TLS}"
    )


def test_hccn_conf_that_differs_from_the_device_and_one_that_leaves_devices_out() -> None:
    stale = {i: f"198.19.2.{i}" for i in range(8)} | {3: "198.19.2.99"}
    assert only(second(hccn_conf=Answered(stale))) == (
        "hccn-conf-differs warning lab-2: /etc/hccn.conf gives device 3 the IP 198.19.2.99, "
        f"but the device has 198.19.2.3. Find out which is right and set it: {SET_IP}"
    )
    assert second(hccn_conf=Answered({})) == []
