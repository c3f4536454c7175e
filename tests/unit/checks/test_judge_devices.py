"""The judge on which devices the nodes have: one test per rule, over the whole message."""

from __future__ import annotations

import pytest

from ascendboot.facts.derive import devices_of
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.hccn_tool import DeviceAddress
from ascendboot.facts.parsers.npu_smi import NpuList, NpuMap
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Device
from tests.unit.checks.well import (
    cluster,
    facts,
    judged,
    network,
    networks,
    node,
    npu,
    npus,
    second,
)

WITHOUT_5 = {
    **npus(0, 1, 2, 3, 4, 6, 7),
    "device_networks": Answered(tuple(network(2, i) for i in range(8) if i != 5)),
}


def test_fewer_devices_than_the_inventory_states() -> None:
    wish = cluster(node(1, device_count=8), node(2, device_count=8))
    assert judged(wish, facts(1), facts(2, **WITHOUT_5)) == [
        (
            "device-count error lab-2: 7 of 8 devices answer; device 5 is missing from "
            "npu-smi info -m. The inventory states 8. "
            "Look at npu-smi info and dmesg, or correct `devices`."
        )
    ]


def test_several_devices_fewer_in_a_cluster_where_no_node_is_complete() -> None:
    wish = cluster(node(2, device_count=8))
    assert judged(wish, facts(2, **npus(0, 1, 2, 3))) == [
        (
            "device-count error lab-2: 4 of 8 devices answer; devices 4-7 are missing from "
            "npu-smi info -m. The inventory states 8. "
            "Look at npu-smi info and dmesg, or correct `devices`."
        )
    ]


def test_more_devices_than_the_inventory_states() -> None:
    wish = cluster(node(1), node(2, device_count=4))
    assert judged(wish, facts(1), facts(2)) == [
        (
            "device-count error lab-2: 8 devices answer (0-7). The inventory states 4. "
            "State the ids to use as `devices`, or correct their number."
        )
    ]


def test_a_device_that_the_inventory_names_is_absent() -> None:
    named = (Device(4), Device(5))
    wish = cluster(node(1, devices=named), node(2, devices=named))
    assert judged(wish, facts(1), facts(2, **WITHOUT_5)) == [
        (
            "device-missing error lab-2: device 5 is missing from npu-smi info -m, which lists "
            "0-4,6-7. The inventory names 4-5. "
            "Look at npu-smi info and dmesg, or correct `devices`."
        )
    ]


def test_no_npu_at_all() -> None:
    assert second(**npus(), device_networks=Answered(())) == [
        (
            "npus-none error lab-2: npu-smi info -m lists no NPU. "
            "Is the Ascend driver installed on the host side?"
        )
    ]


@pytest.mark.parametrize(("unusable", "words"), [(1, "1 NPU"), (2, "2 NPUs")])
def test_unusable_npus(unusable: int, words: str) -> None:
    seen = NpuMap(tuple(npu(i) for i in range(8)), unusable=unusable)
    assert second(npus=Answered(seen)) == [
        (
            f"npu-unusable error lab-2: npu-smi info -m lists {words} as not usable (NPU ID -1). "
            "Look at npu-smi info and dmesg; reset or replace it."
        )
    ]


def test_nodes_with_different_devices() -> None:
    wish = cluster(node(1), node(2), node(3))
    assert judged(wish, facts(1), facts(2, **WITHOUT_5), facts(3)) == [
        (
            "devices-differ error lab-2: 2 nodes have devices 0-7, lab-2 has 0-4,6-7. "
            "State `devices` so that every node uses the same ids in the same order."
        )
    ]


def test_devices_in_another_order_are_a_warning_where_the_inventory_says_so() -> None:
    zero, one = Device(0), Device(1)
    wish = cluster(node(1, devices=(zero, one)), node(2, devices=(one, zero)))
    assert judged(wish, facts(1), facts(2)) == [
        (
            "devices-differ warning lab-[1-2]: lab-1 has devices 0-1, lab-2 has 1,0. "
            "State `devices` so that every node uses the same ids in the same order."
        )
    ]


def test_the_two_lists_of_npu_smi_contradict_each_other() -> None:
    nine = tuple(range(9))
    assert second(npu_list=Answered(NpuList(nine, 9))) == [
        (
            "npu-counts-contradict error lab-2: npu-smi info -m lists 8 chips, "
            "npu-smi info -l 9. Look at npu-smi info and dmesg."
        )
    ]
    assert second(npu_list=Answered(NpuList(nine, None))) == [
        (
            "npu-counts-contradict error lab-2: npu-smi info -m lists 8 cards, "
            "npu-smi info -l 9. Look at npu-smi info and dmesg."
        )
    ]


def test_devices_that_a_job_uses_are_well() -> None:
    health = Answered({0: "UNKNOWN", 1: "OK", 2: "Alarm", 3: "Critical", 5: "Warning", 7: "Alarm"})
    remedy = (
        "Look at the error codes of npu-smi info -t health; reset or replace the NPU, or state the "
        "other devices under `devices`."
    )
    assert second(health=health) == [
        f"device-health error lab-2: npu-smi info calls device 3 Critical, not OK. {remedy}",
        f"device-health error lab-2: npu-smi info calls devices 2,7 Alarm, not OK. {remedy}",
        f"device-health warning lab-2: npu-smi info calls device 5 Warning, not OK. {remedy}",
        f"device-health warning lab-2: npu-smi info calls device 0 UNKNOWN, not OK. {remedy}",
    ]
    well = (Device(1), Device(4))
    wish = cluster(node(1, devices=well), node(2, devices=well))
    assert judged(wish, facts(1), facts(2, health=health)) == []


def test_a_word_for_one_device_that_nobody_knows_hides_no_alarm_of_another() -> None:
    health = Answered({**dict.fromkeys(range(8), "OK"), 1: "NA", 2: "Alarm", 3: "", 4: "NA"})
    told = second(health=health)
    assert [each.split(":")[0] for each in told] == [
        "device-health error lab-2",
        "device-health-unknown warning lab-2",
    ]
    assert told[1] == (
        "device-health-unknown warning lab-2: could not see how devices 1,3-4 are: npu-smi info "
        'says "NA" and "", none of OK, Critical, Alarm, Warning, UNKNOWN. '
        "Look at npu-smi info -t health."
    )
    well = (Device(0), Device(5))
    wish = cluster(node(1, devices=well), node(2, devices=well))
    assert judged(wish, facts(1), facts(2, health=health)) == []


def test_nodes_with_different_chips() -> None:
    older = Answered(NpuMap(tuple(npu(i, "Ascend 910A") for i in range(8))))
    wish = cluster(node(1), node(2), node(3))
    assert judged(wish, facts(1), facts(2, npus=older), facts(3)) == [
        (
            "chips-differ warning lab-2: 2 nodes have Ascend 910B3, lab-2 has Ascend 910A. "
            "Use NPUs of one kind in a cluster."
        )
    ]


def test_a_node_with_mixed_chips() -> None:
    mixed = Answered(NpuMap((*(npu(i) for i in range(7)), npu(7, "Ascend 910A"))))
    assert judged(cluster(node(2)), facts(2, npus=mixed)) == [
        (
            "chips-mixed warning lab-2: the node has NPUs of 2 kinds: Ascend 910B3, Ascend 910A. "
            "Name the devices of one kind as `devices`."
        )
    ]


def test_devices_in_the_order_of_their_ids() -> None:
    assert devices_of(node(1), facts(1)) == tuple((i, f"198.19.1.{i}") for i in range(8))


def test_devices_in_the_order_of_the_inventory_with_the_ip_that_they_have() -> None:
    wish = node(1, devices=(Device(3, "198.19.9.9"), Device(1)))
    assert devices_of(wish, facts(1)) == ((3, "198.19.1.3"), (1, "198.19.1.1"))


def test_devices_with_two_ports_and_with_none() -> None:
    both = tuple(DeviceAddress(ip, "255.255.0.0") for ip in ("198.19.1.0", "198.19.7.0"))
    two = network(1, 0, addresses=Answered(both))
    none = network(1, 1, addresses=Answered(()))
    seen = facts(1, **npus(0, 1), **networks(1, two, none))
    assert devices_of(node(1), seen) == ((0, "198.19.1.0,198.19.7.0"), (1, None))


def test_no_devices_without_answers() -> None:
    assert devices_of(node(1), NodeFacts(node="lab-1")) == ()
