"""What the judge says about the rank table that ranks would get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ascendboot.facts.api import Answered
from ascendboot.model.cluster import Cluster, Device, OwnTable
from ascendboot.parse.hccn_conf import HccnConf
from ascendboot.parse.npu_smi import NpuList, NpuMap
from tests.unit.judge import well

ONE = well.cluster(well.node(1))


def chips(name: str, *ids: int, chip_id: int = 0) -> dict[str, Any]:
    found = tuple(replace(well.npu(i, name), chip_id=chip_id and i % 2) for i in ids)
    return {
        "npus": Answered(NpuMap(found)),
        "npu_list": Answered(NpuList(ids, len(ids))),
        "device_networks": Answered(tuple(well.network(1, i) for i in ids)),
    }


def told(wish: Cluster, **changes: Any) -> list[str]:
    found = well.judged(wish, well.facts(1, hccn_conf=Answered(HccnConf({})), **changes))
    return [text.partition(" lab-1: ")[0] for text in found if text.startswith("rank-table")]


def own(generation: str) -> Cluster:
    table = OwnTable(text='{"rank_list": []}', generation=generation, places=())
    return replace(ONE, own_table=table)


@pytest.mark.parametrize(
    ("name", "ids", "said"),
    [
        ("Ascend 910A", (0, 1, 2, 3), []),
        ("Ascend 910A", (3, 4), ["rank-table-refused error"]),
        ("Ascend 910A", (0, 1, 2), ["rank-table-refused error"]),
        ("Ascend 910A", (8,), ["rank-table-refused error"]),
        ("Ascend 910B3", (0, 1, 2, 9), []),
        ("Ascend 910B3", (16,), ["rank-table-refused error"]),
        ("Ascend950PR", (0, 1), ["rank-table-generation error"]),
        ("Ascend something", (30,), []),
    ],
)
def test_the_product_decides_what_table_is_taken(
    name: str, ids: tuple[int, ...], said: list[str]
) -> None:
    assert told(ONE, **chips(name, *ids)) == said
    with_cm = replace(ONE, resource_mode="no-rank-table")
    assert told(with_cm, **chips(name, *ids)) == []


def test_the_message_says_which_generation_is_read() -> None:
    (text,) = [
        t
        for t in well.judged(ONE, well.facts(1, **chips("Ascend950PR", 0)))
        if t.startswith("rank-table")
    ]
    assert text == (
        "rank-table-generation error lab-1: the NPUs are of 950, whose HCCL reads rank tables of "
        "2.0, and this one is of 1.0. Merge the servers' own tables with ranktable.convert and "
        "name the result as `resources: {file: …}`."
    )


@pytest.mark.parametrize(
    ("generation", "chip", "said"),
    [
        ("2.0", "Ascend950PR", []),
        ("2.0", "Ascend 910B3", ["rank-table-generation error"]),
        ("1.2", "Ascend 910B3", ["rank-table-generation error"]),
        ("1.2", "Ascend910_9392", []),
        ("group list", "Ascend 910A", []),
    ],
)
def test_an_own_table_must_be_of_the_npus_generation(
    generation: str, chip: str, said: list[str]
) -> None:
    assert told(own(generation), **chips(chip, 0)) == said


def test_an_own_table_is_judged_for_the_product_that_is_there() -> None:
    text = (
        '{"status": "completed", "version": "1.0", "server_list": [{"server_id": "198.18.0.1", '
        '"device": [{"device_id": "9", "rank_id": "0"}]}]}'
    )
    table = OwnTable(text=text, generation="1.0", places=(("198.18.0.1", 9, None),))
    wish = well.cluster(well.node(1, devices=(Device(9),)), own_table=table)
    assert told(wish, **chips("Ascend 910A", 9)) == ["rank-table-refused error"]
    assert told(wish, **chips("Ascend 910B3", 9)) == []


def test_super_pods_are_missing_on_a3_with_several_nodes() -> None:
    facts = [
        replace(
            well.facts(number, **chips("Ascend910", 0, 1, chip_id=1)),
            device_networks=Answered(tuple(well.network(number, i) for i in (0, 1))),
        )
        for number in (1, 2)
    ]
    found = [text for text in well.judged(well.TWO, *facts) if text.startswith("rank-table")]
    assert found == [
        (
            "rank-table-without-pods info lab-[1-2]: the rank table says nothing of super pods. "
            "Where the nodes are in one: ranktable.write --output FILE, and `resources: {file: "
            "FILE}`."
        )
    ]
