"""Findings about the devices of nodes: the whole message of each rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ascendboot.facts.derive import devices_of, product_of
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.hccn_tool import DeviceAddress
from ascendboot.facts.parsers.npu_smi import NpuList, NpuMap
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Cluster, Device, Product
from tests.unit.checks import well
from tests.unit.checks.well import cluster, facts, judged, network, networks, node, npus, second

WITHOUT_5 = {
    **npus(0, 1, 2, 3, 4, 6, 7),
    "device_networks": Answered(tuple(network(2, i) for i in range(8) if i != 5)),
}
LOOK = "Look at npu-smi info and dmesg"
SAME_ORDER = "State `devices` so that every node uses the same ids in the same order."
NINE = tuple(range(9))


def mapped(*names: str, unusable: int = 0) -> Answered[NpuMap]:
    return Answered(NpuMap(tuple(well.npu(i, n) for i, n in enumerate(names)), unusable=unusable))


@pytest.mark.parametrize(
    ("wish", "seen", "message"),
    [
        pytest.param(
            cluster(node(1, device_count=8), node(2, device_count=8)),
            (facts(1), facts(2, **WITHOUT_5)),
            "device-count error lab-2: 7 of 8 devices answer; device 5 is missing from "
            f"npu-smi info -m. The inventory states 8. {LOOK}, or correct `devices`.",
            id="fewer than stated",
        ),
        pytest.param(
            cluster(node(2, device_count=8)),
            (facts(2, **npus(0, 1, 2, 3)),),
            "device-count error lab-2: 4 of 8 devices answer; devices 4-7 are missing from "
            f"npu-smi info -m. The inventory states 8. {LOOK}, or correct `devices`.",
            id="fewer than stated, and no node is complete",
        ),
        pytest.param(
            cluster(node(1), node(2, device_count=4)),
            (facts(1), facts(2)),
            "device-count error lab-2: 8 devices answer (0-7). The inventory states 4. "
            "State the ids to use as `devices`, or correct their number.",
            id="more than stated",
        ),
        pytest.param(
            cluster(*(node(i, devices=(Device(4), Device(5))) for i in (1, 2))),
            (facts(1), facts(2, **WITHOUT_5)),
            "device-missing error lab-2: device 5 is missing from npu-smi info -m, which lists "
            f"0-4,6-7. The inventory names 4-5. {LOOK}, or correct `devices`.",
            id="a named one is absent",
        ),
        pytest.param(
            cluster(node(1), node(2), node(3)),
            (facts(1), facts(2, **WITHOUT_5), facts(3)),
            "devices-differ error lab-2: 2 nodes have devices 0-7, lab-2 has 0-4,6-7. "
            f"{SAME_ORDER}",
            id="nodes differ",
        ),
        pytest.param(
            cluster(
                node(1, devices=(Device(0), Device(1))), node(2, devices=(Device(1), Device(0)))
            ),
            (facts(1), facts(2)),
            f"devices-differ warning lab-[1-2]: lab-1 has devices 0-1, lab-2 has 1,0. {SAME_ORDER}",
            id="another order that the inventory states",
        ),
        pytest.param(
            cluster(node(1), node(2), node(3)),
            (facts(1), facts(2, npus=mapped(*["Ascend 910A"] * 8)), facts(3)),
            "chips-differ warning lab-2: 2 nodes have Ascend 910B3, lab-2 has Ascend 910A. "
            "Use NPUs of one kind in a cluster.",
            id="other chips",
        ),
        pytest.param(
            cluster(node(2)),
            (facts(2, npus=mapped(*["Ascend 910B3"] * 7, "Ascend 910A")),),
            "chips-mixed warning lab-2: the node has NPUs of 2 kinds: Ascend 910B3, Ascend 910A. "
            "Name the devices of one kind as `devices`.",
            id="mixed chips",
        ),
        pytest.param(
            well.TWO,
            (facts(1), facts(2, **npus(), device_networks=Answered(()))),
            "npus-none error lab-2: npu-smi info -m lists no NPU. "
            "Is the Ascend driver installed on the host side?",
            id="no NPU",
        ),
        *(
            pytest.param(
                well.TWO,
                (facts(1), facts(2, npus=mapped(*["Ascend 910B3"] * 8, unusable=number))),
                f"npu-unusable error lab-2: npu-smi info -m lists {words} as not usable "
                f"(NPU ID -1). {LOOK}; reset or replace it.",
                id=f"{words} unusable",
            )
            for number, words in ((1, "1 NPU"), (2, "2 NPUs"))
        ),
        *(
            pytest.param(
                well.TWO,
                (facts(1), facts(2, npu_list=Answered(NpuList(NINE, count)))),
                f"npu-counts-contradict error lab-2: npu-smi info -m lists 8 {words}, "
                f"npu-smi info -l 9. {LOOK}.",
                id=f"two lists of {words}",
            )
            for count, words in ((9, "chips"), (None, "cards"))
        ),
    ],
)
def test_devices_that_are_not_as_they_should_be(
    wish: Cluster, seen: tuple[NodeFacts, ...], message: str
) -> None:
    assert judged(wish, *seen) == [message]


def using(*ids: int) -> Cluster:
    return cluster(*(node(i, devices=tuple(map(Device, ids))) for i in (1, 2)))


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
    assert judged(using(1, 4), facts(1), facts(2, health=health)) == []


def test_a_word_for_one_device_that_nobody_knows_hides_no_alarm_of_another() -> None:
    health = Answered({**dict.fromkeys(range(8), "OK"), 1: "NA", 2: "Alarm", 3: "", 4: "NA"})
    alarm, unknown = second(health=health)
    assert alarm.startswith("device-health error lab-2: ")
    assert unknown == (
        "device-health-unknown warning lab-2: could not see how devices 1,3-4 are: npu-smi info "
        'says "NA" and "", none of OK, Critical, Alarm, Warning, UNKNOWN. '
        "Look at npu-smi info -t health."
    )
    assert judged(using(0, 5), facts(1), facts(2, health=health)) == []


@pytest.mark.parametrize(
    ("stated", "seen", "told"),
    [
        ("auto", well.facts, None),
        ("a2", well.facts, None),
        ("a3", well.a3, None),
        ("a3", well.facts, "a2"),
        ("910", well.a3, "a3"),
        ("910", lambda n: well.facts(n, **well.chips(n, "Ascend910B", 8)), None),
    ],
)
def test_a_product_that_is_not_what_the_chips_are_called(
    stated: Product, seen: Callable[[int], NodeFacts], told: str | None
) -> None:
    wish = replace(cluster(node(1)), product=stated)
    found = judged(wish, seen(1))
    expected = (
        f"product-contradicts warning lab-1: the inventory states product {stated}, and the chips "
        f"are called as those of {told}: rank table and HCCL's variables are checked for {stated}. "
        "Correct `product`, or leave it out."
    )
    assert [text for text in found if "product" in text] == ([expected] if told else [])


@pytest.mark.parametrize(
    ("names", "product"),
    [
        (["Ascend 910A"], "910"),
        (["Ascend 910ProB"], "910"),
        (["Ascend 910B3", "Ascend 910B3"], "a2"),
        (["Ascend910_9392"], "a3"),
        (["Ascend950PR"], "a5"),
        (["Ascend 910B"], None),
        (["Ascend 910B3", "Ascend910A"], None),
        ([], None),
    ],
)
def test_the_names_of_the_chips_tell_the_product(names: list[str], product: str | None) -> None:
    assert product_of(facts(1, npus=mapped(*names))) == product


def test_devices_of_a_job_in_their_order_with_the_ip_that_they_have() -> None:
    assert devices_of(node(1), facts(1)) == tuple((i, f"198.19.1.{i}") for i in range(8))
    wish = node(1, devices=(Device(3, "198.19.9.9"), Device(1)))
    assert devices_of(wish, facts(1)) == ((3, "198.19.1.3"), (1, "198.19.1.1"))
    both = tuple(DeviceAddress(ip, "255.255.0.0") for ip in ("198.19.1.0", "198.19.7.0"))
    two = network(1, 0, addresses=Answered(both))
    none = network(1, 1, addresses=Answered(()))
    seen = facts(1, **npus(0, 1), **networks(1, two, none))
    assert devices_of(node(1), seen) == ((0, "198.19.1.0,198.19.7.0"), (1, None))
    assert devices_of(node(1), NodeFacts(node="lab-1")) == ()
