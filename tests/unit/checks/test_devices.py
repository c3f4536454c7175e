"""Findings about the devices of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ascendboot.facts.derive import devices_of, product_of
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.hccn_tool import DeviceAddress
from ascendboot.facts.parsers.npu_smi import NpuMap
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Cluster, Device, Product
from ascendboot.value import replace
from tests.unit.checks import well

WITHOUT_5 = {
    **well.npus(0, 1, 2, 3, 4, 6, 7),
    "device_networks": Answered(tuple(well.network(2, i) for i in range(8) if i != 5)),
}


def mapped(*names: str, unusable: int = 0) -> Answered[NpuMap]:
    return Answered(NpuMap(tuple(well.npu(i, n) for i, n in enumerate(names)), unusable=unusable))


def using(*ids: int) -> Cluster:
    return well.cluster(*(well.node(i, devices=tuple(map(Device, ids))) for i in (1, 2)))


THREE = well.cluster(well.node(1), well.node(2), well.node(3))
STATED = well.cluster(well.node(1, device_count=8), well.node(2, device_count=8))
SWAPPED = replace(well.TWO, nodes=(using(0, 1).nodes[0], using(1, 0).nodes[1]))
B3 = ["Ascend 910B3"] * 8


@pytest.mark.parametrize(
    ("lab", "changes", "pattern"),
    [
        (
            STATED,
            WITHOUT_5,
            "device-count error lab-2: 7 of 8 devices answer; device 5 is missing…",
        ),
        (
            well.cluster(well.node(2, device_count=8)),
            well.npus(0, 1, 2, 3),
            "device-count error lab-2: 4 of 8 devices answer; devices 4-7 are missing …states 8",
        ),
        (
            well.cluster(well.node(1), well.node(2, device_count=4)),
            {},
            "device-count error lab-2: 8 devices answer (0-7). The inventory states 4",
        ),
        (
            using(4, 5),
            WITHOUT_5,
            "device-missing error lab-2: device 5 is missing … lists 0-4,6-7. … names 4-5",
        ),
        (THREE, WITHOUT_5, "devices-differ error lab-2: 2 nodes have …0-7, lab-2 has 0-4,6-7"),
        (SWAPPED, {}, "devices-differ warning lab-[1-2]: lab-1 has devices 0-1, lab-2 has 1,0"),
        (
            THREE,
            {"npus": mapped(*["Ascend 910A"] * 8)},
            "chips-differ warning lab-2: 2 nodes have Ascend 910B3, lab-2 has Ascend 910A",
        ),
        (
            THREE,
            {"npus": mapped(*B3[1:], "Ascend 910A")},
            "chips-differ warning lab-2: … lab-2 has Ascend 910B3 and Ascend 910A",
        ),
        (well.TWO, well.npus() | {"device_networks": Answered(())}, "npus-none error lab-2: …"),
        (well.TWO, {"npus": mapped(*B3, unusable=1)}, "npu-unusable error lab-2: … 1 NPU as not …"),
        (well.TWO, {"npus": mapped(*B3, unusable=2)}, "npu-unusable error lab-2: … 2 NPUs as …"),
    ],
)
def test_devices_of_the_second_node(lab: Cluster, changes: dict[str, Any], pattern: str) -> None:
    numbers = [int(each.name[-1]) for each in lab.nodes]
    assert well.alike(
        well.found(lab, *(well.facts(n, **changes if n == 2 else {}) for n in numbers)), pattern
    )


def test_only_devices_of_the_job_must_be_healthy() -> None:
    health = Answered({0: "UNKNOWN", 1: "OK", 2: "Alarm", 3: "Critical", 5: "Warning", 7: "Alarm"})
    assert well.second(health=health) == (
        "device-health error lab-2: npu-smi info reports device 3 as Critical, not OK\n"
        "device-health error lab-2: npu-smi info reports devices 2,7 as Alarm, not OK\n"
        "device-health warning lab-2: npu-smi info reports device 5 as Warning, not OK\n"
        "device-health warning lab-2: npu-smi info reports device 0 as UNKNOWN, not OK"
    )
    assert well.found(using(1, 4), well.facts(1), well.facts(2, health=health)) == ""


def test_an_unknown_health_of_one_device_hides_no_alarm_of_another() -> None:
    health = Answered({**dict.fromkeys(range(8), "OK"), 1: "NA", 2: "Alarm", 3: "", 4: "NA"})
    assert well.second(health=health) == (
        "device-health error lab-2: npu-smi info reports device 2 as Alarm, not OK\n"
        "device-health-unknown warning lab-2: could not see how devices 1,3-4 are: npu-smi info "
        'reports "NA" and "", none of OK, Critical, Alarm, Warning, UNKNOWN'
    )
    assert well.found(using(0, 5), well.facts(1), well.facts(2, health=health)) == ""


@pytest.mark.parametrize(
    ("stated", "actual", "seen"),
    [
        ("auto", well.facts, None),
        ("a2", well.facts, None),
        ("a3", well.a3, None),
        ("a3", well.facts, "a2"),
        ("910", well.a3, "a3"),
        ("910", lambda n: well.facts(n, **well.chips(n, "Ascend910B", 8)), None),
    ],
)
def test_a_stated_product_against_the_names_of_the_chips(
    stated: Product, actual: Callable[[int], NodeFacts], seen: str | None
) -> None:
    text = (
        f"product-contradicts warning lab-1: the inventory states product {stated}, and the chips "
        f"are called as those of {seen}: "
    )
    lines = well.found(well.cluster(well.node(1), product=stated), actual(1))
    assert [line[: len(text)] for line in lines.split("\n") if "product" in line] == (
        [text] if seen else []
    )


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
def test_the_product_by_the_names_of_the_chips(names: list[str], product: str | None) -> None:
    assert product_of(well.facts(1, npus=mapped(*names))) == product


def test_devices_of_a_job_in_their_order_with_the_ip_that_they_have() -> None:
    assert devices_of(well.node(1), well.facts(1)) == tuple((i, f"198.19.1.{i}") for i in range(8))
    wish = well.node(1, devices=(Device(3, "198.19.9.9"), Device(1)))
    assert devices_of(wish, well.facts(1)) == ((3, "198.19.1.3"), (1, "198.19.1.1"))
    both = tuple(DeviceAddress(ip, "255.255.0.0") for ip in ("198.19.1.0", "198.19.7.0"))
    two = well.network(1, 0, addresses=Answered(both))
    none = well.network(1, 1, addresses=Answered(()))
    seen = well.facts(1, **well.npus(0, 1), **well.networks(1, two, none))
    assert devices_of(well.node(1), seen) == ((0, "198.19.1.0,198.19.7.0"), (1, None))
    assert devices_of(well.node(1), NodeFacts(node="lab-1")) == ()
