"""What the judge says about jobs without a rank table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ascendboot.facts.derive import product_of
from ascendboot.facts.parsers.npu_smi import Npu, NpuList, NpuMap
from ascendboot.facts.parsers.system import KernelPorts, Listener
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import Device
from tests.unit.checks import well

WITHOUT = replace(well.TWO, resource_mode="no-rank-table")
LINUX = Answered(KernelPorts(32768, 60999, ((60000, 60031),)))


def first(wish: Any = WITHOUT, **changes: Any) -> list[str]:
    """What is found when the primary differs."""
    return well.judged(wish, well.facts(1, kernel_ports=LINUX, **changes), well.facts(2))


def listener(port: int) -> Answered[tuple[Listener, ...]]:
    return Answered((Listener(address="0.0.0.0", port=port, program="redis", pid=7),))  # noqa: S104


def test_all_is_well_with_the_defaults() -> None:
    assert first() == []
    assert first(listeners=listener(61001)) == []


def test_a_chief_port_that_is_taken() -> None:
    taken = listener(61000)
    assert first(listeners=taken) == [
        (
            "chief-port-taken error lab-1: port 61000, where the ranks are to meet, is taken by "
            "redis (pid 7). State another `resources.chief_port`."
        )
    ]
    assert first(well.TWO, listeners=taken) == []
    assert (
        well.judged(WITHOUT, well.facts(1, kernel_ports=LINUX), well.facts(2, listeners=taken))
        == []
    )


def test_a_chief_port_that_outgoing_connections_may_take() -> None:
    wish = replace(WITHOUT, chief_port=50000)
    reserved = Answered(KernelPorts(32768, 60999, ((50000, 50003), (60000, 60031))))
    assert first(wish) == [
        (
            "chief-port-ephemeral warning lab-1: any outgoing connection may take port 50000: "
            "Linux gives 32768-60999 to them. State a `resources.chief_port` outside, such as "
            "61000, or add it to net.ipv4.ip_local_reserved_ports."
        )
    ]
    facts = well.facts(1, kernel_ports=reserved)
    assert well.judged(wish, facts, well.facts(2)) == []
    silent = Unanswered("failed", "could not read the kernel's ports: no")
    assert well.judged(wish, well.facts(1, kernel_ports=silent), well.facts(2)) == [
        "kernel-ports-unknown warning lab-1: could not read the kernel's ports: no."
    ]


def test_a_chief_device_that_no_rank_has() -> None:
    assert first(replace(WITHOUT, chief_device=8)) == [
        (
            "chief-device-missing error lab-1: no device of the job has the logic id 8 that "
            "`resources.chief_device` states; they have 0-7. State one of these."
        )
    ]


def chips(name: str, *chip_ids: int) -> dict[str, Any]:
    npus = tuple(
        Npu(
            npu_id=0,
            chip_id=chip_id,
            device_id=chip_id,
            device_id_assumed=False,
            logic_id=chip_id,
            chip_name=name,
        )
        for chip_id in chip_ids
    )
    return {
        "npus": Answered(NpuMap(npus)),
        "npu_list": Answered(NpuList((0,), len(npus))),
        "device_networks": Answered(tuple(well.network(1, i) for i in chip_ids)),
    }


@pytest.mark.parametrize(
    ("name", "chip_ids", "product"),
    [
        ("Ascend910", (0, 1), "A3"),
        ("Ascend910_9392", (0,), "A3"),
        ("Ascend950PR", (0,), "950"),
        ("Ascend 910B3", (0, 1), None),
        ("Ascend 910A", (0,), None),
        ("Ascend910", (0,), None),
    ],
)
def test_it_does_not_exist_on_every_product(
    name: str, chip_ids: tuple[int, ...], product: str | None
) -> None:
    wish = well.cluster(well.node(1), resource_mode="no-rank-table")
    found = well.judged(wish, well.facts(1, kernel_ports=LINUX, **chips(name, *chip_ids)))
    told = (
        f"no-rank-table-unsupported error lab-1: the NPUs are of the {product}, and HCCL reads CM_ "
        "variables on 910 and A2 only. State `resources: {mode: rank-table}`."
    )
    assert [line for line in found if line.startswith("no-rank")] == ([told] if product else [])


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
    npus = tuple(
        Npu(npu_id=i, chip_id=0, device_id=i, device_id_assumed=False, logic_id=i, chip_name=name)
        for i, name in enumerate(names)
    )
    assert product_of(well.facts(1, npus=Answered(NpuMap(npus)))) == product


def test_where_torch_ranks_meet_a_port_that_is_taken() -> None:
    for wish in (
        replace(well.TWO, resource_mode="root-info"),
        replace(well.TWO, launcher="torchrun"),
    ):
        (found,) = first(wish, listeners=listener(61000))
        assert found.startswith("chief-port-taken error lab-1: port 61000")


def test_devices_that_torch_would_take_in_another_order() -> None:
    wish = replace(well.TWO, resource_mode="root-info")
    node = replace(wish.nodes[0], devices=(Device(3), Device(1)))
    stated = replace(wish, nodes=(node, wish.nodes[1]))
    assert [found for found in first(stated) if found.startswith("device-order")] == [
        (
            "device-order error lab-1: PyTorch takes devices in the order of their logic ids, but "
            "those of devices 3,1 are 3,1. State `devices` in that order."
        )
    ]


@pytest.mark.parametrize(
    ("profile", "devices", "said"),
    [("rec-sdk-tf", 512, 0), ("rec-sdk-tf", 513, 1), ("none", 513, 0)],
)
def test_a_job_without_a_rank_table_has_a_largest_size(
    profile: Any, devices: int, said: int
) -> None:
    npus = {"npus": Answered(NpuMap(tuple(map(well.npu, range(devices)))))}
    wish = replace(well.cluster(well.node(1)), resource_mode="no-rank-table", profile=profile)
    found = well.judged(wish, well.facts(1, kernel_ports=LINUX, **npus))
    assert len([text for text in found if text.startswith("worker-size error lab-1")]) == said
