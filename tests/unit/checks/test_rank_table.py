"""What the judge says about the rank table that ranks would get."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.checks.rank_table import made_table, products, rank_table_words
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.npus import RootInfo
from ascendboot.facts.parsers.npu_smi import NpuList, NpuMap
from ascendboot.facts.query import Answered, Unanswered, value_of
from ascendboot.model.cluster import Cluster, Device, OwnTable
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.text import from_text
from ascendboot.ranktable.validate import validate_table
from ascendboot.setup.cluster_plan import place
from tests.unit.checks import well

ONE = well.cluster(well.node(1))


def chips(name: str, *ids: int, chip_id: int = 0) -> dict[str, Any]:
    found = tuple(replace(well.npu(i, name), chip_id=chip_id and i % 2) for i in ids)
    return {
        "npus": Answered(NpuMap(found)),
        "npu_list": Answered(NpuList(ids, len(ids))),
        "device_networks": Answered(tuple(well.network(1, i) for i in ids)),
    }


def told(wish: Cluster, **changes: Any) -> list[str]:
    found = well.judged(wish, well.facts(1, hccn_conf=Answered({}), **changes))
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
        ("Ascend950PR", (0, 1), []),
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
    facts = well.facts(1, **chips("Ascend950PR", 0))
    (text,) = [t for t in well.judged(own("1.0"), facts) if t.startswith("rank-table")]
    assert text == (
        "rank-table-generation error lab-1: the NPUs are of 950, whose HCCL reads rank tables of "
        "2.0, and this one is of 1.0. Leave `resources.file` out, or make another: "
        "ranktable.write."
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


def of_table(wish: Cluster, *facts: NodeFacts) -> list[str]:
    names = ("rank-table", "super-pod", "root-info", "topology", "products", "device-ip-m", "net-i")
    return [text for text in well.judged(wish, *facts) if text.startswith(names)]


def test_a3_in_one_super_pod_in_two_or_in_none_is_well() -> None:
    for pods in ((0, 0), (0, 1), (None, None)):
        assert of_table(well.TWO, *(well.a3(n, pod) for n, pod in enumerate(pods, 1))) == []


SILENT = Unanswered(
    "failed", "could not read the super pod of device 1: npu-smi info -t spod-info: no answer"
)
WHOLE = (
    "other devices of the cluster are (npu-smi info -t spod-info). Make the super pods whole, or "
    "leave the node out; `resources: {file: …}` takes a rank table of yours."
)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param(
            {2: Answered(None), 3: Answered(None)},
            f"super-pods-mixed error lab-2: devices 2-3 are in no super pod, {WHOLE}",
        ),
        pytest.param(
            dict.fromkeys(range(4), Answered(None)),
            f"super-pods-mixed error lab-2: devices 0-3 are in no super pod, {WHOLE}",
        ),
        pytest.param(
            {1: SILENT},
            f"super-pod-unknown error lab-2: {SILENT.message}. Without it the rank table cannot be "
            "made; `resources: {file: …}` takes one of yours.",
        ),
        pytest.param(
            {3: Answered(well.place(2, 3, 7))},
            "super-pods-several error lab-2: the devices of one server are in several super pods: "
            "devices 0-2 in 0, device 3 in 7 (npu-smi info -t spod-info). Ask who set up the super "
            "pods.",
        ),
    ],
)
def test_devices_that_are_not_all_in_one_known_super_pod(
    changed: dict[int, Any], message: str
) -> None:
    seen = well.a3(2)
    places = Answered({**(value_of(seen.super_pods) or {}), **changed})
    assert of_table(well.TWO, well.a3(1), replace(seen, super_pods=places)) == [message]


def test_ids_in_a_super_pod_are_each_device_s_own() -> None:
    twin = replace(well.a3(2), super_pods=well.a3(1).super_pods)
    found = of_table(well.TWO, well.a3(1), twin)
    assert [text.partition(" lab-2: ")[0] for text in found] == ["rank-table-refused error"] * 4
    assert "super_device_id 4194304 is there twice in its super pod" in found[0]


def test_super_pods_that_are_torn_apart_by_the_order_of_nodes() -> None:
    wish = well.cluster(*(well.node(n) for n in (1, 2, 3)))
    assert well.only(of_table(wish, well.a3(1, 0), well.a3(2, 1), well.a3(3, 0))) == (
        "super-pods-apart warning lab-1: the ranks of super pod 0 are not one after the other. "
        "Name the nodes of a super pod one after the other in the inventory."
    )


def test_inside_one_super_pod_devices_need_no_address_unless_told_to_take_roce() -> None:
    none = tuple(well.network(2, i, addresses=Answered(())) for i in range(4))
    seen = replace(well.a3(2), device_networks=Answered(none))
    missing = (
        "device-ip-missing {} lab-2: devices 0-3 have no IP address. Set it: hccn_tool -i 0 -ip -s "
        "address ADDRESS netmask MASK."
    )
    assert of_table(well.TWO, well.a3(1), seen) == [missing.format("warning")]
    assert of_table(well.TWO, well.a3(1, 5), seen) == [missing.format("error")]
    roce = replace(well.TWO, env={"HCCL_INTRA_ROCE_ENABLE": "1"})
    assert of_table(roce, well.a3(1), seen) == [missing.format("error")]


def test_an_own_table_without_the_super_pods_that_are_there() -> None:
    table = OwnTable(text=made_table(well.TWO, FACTS_A3).to_json(), generation="1.0", places=())
    assert well.only(of_table(replace(well.TWO, own_table=table), *FACTS_A3.values())) == (
        "rank-table-without-pods warning lab-[1-2]: the NPUs are in a super pod, and the rank "
        "table says nothing of it. Leave `resources.file` out, or make another: "
        "ranktable.write."
    )


FACTS_A3 = {f"lab-{n}": well.a3(n) for n in (1, 2)}
MAKE = (
    "Make it there (mindcluster-tools rootinfo --output FILE, then install -m 0644 FILE "
    "/etc/hccl_rootinfo.json), or name a rank table of yours as `resources: {file: …}`."
)


def test_950_with_root_info_is_well_and_without_it_is_not() -> None:
    assert of_table(well.TWO, well.a5(1), well.a5(2)) == []
    absent = Unanswered("missing", "could not read /etc/hccl_rootinfo.json: it does not exist")
    assert of_table(well.TWO, well.a5(1), well.a5(2, root_info=absent)) == [
        f"root-info-missing error lab-2: {absent.message}. {MAKE}"
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "1.0"}, 'version is "1.0", and HCCL of 950 reads "2.0" alone'),
        ({"version": 2}, 'version is not stated as text, and HCCL of 950 reads "2.0" alone'),
        ({"topo_file_path": None}, "topo_file_path is missing, which HCCL of 950 wants"),
        ({"rank_count": 3}, "rank_count is 3, and rank_list has 2"),
        ({"rank_list": {}}, "could not be understood: rank_list is no list"),
        ({"rank_list": [3]}, "could not be understood: rank_list[0] is no object"),
        (
            {"rank_count": 1, "rank_list": [well.root_info(2)["rank_list"][1]]},
            "says nothing of device 0",
        ),
        ({"rank_list": [well.root_info(2)["rank_list"][1]] * 2}, "a device_id is there twice"),
    ],
)
def test_root_info_that_hccl_would_not_take(change: dict[str, Any], said: str) -> None:
    info = RootInfo(json.dumps(well.root_info(2) | change))
    (found,) = of_table(well.TWO, well.a5(1), well.a5(2, root_info=Answered(info)))
    assert found.startswith("root-info-unfit error lab-2: /etc/hccl_rootinfo.json")
    assert f"{said}. {MAKE}" in found


def test_root_info_that_is_no_json() -> None:
    info = Answered(RootInfo("[" * 10_000_000))
    (found,) = of_table(ONE, well.a5(1, root_info=info))
    assert found == (
        "root-info-unfit error lab-1: /etc/hccl_rootinfo.json: could not be read as JSON: line 1, "
        f"column 1: lists or objects are nested too deeply. {MAKE}"
    )


def test_servers_that_call_their_networks_alike_and_topologies_that_are_not_there() -> None:
    twin = json.loads(json.dumps(well.root_info(2)).replace("sp_0_srv_2", "sp_0_srv_1"))
    found = of_table(
        well.TWO, well.a5(1), well.a5(2, root_info=Answered(RootInfo(json.dumps(twin))))
    )
    assert well.only(found) == (
        'net-instances-alike warning lab-2: local_id 0 is there twice in net instance "sp_0_s'
        'rv_1". Give each server a net_instance_id of its own in /etc/hccl_rootinfo.json.'
    )
    nowhere = RootInfo(json.dumps(well.root_info(1)), missing_topology="/opt/topo.json")
    assert well.only(of_table(ONE, well.a5(1, root_info=Answered(nowhere)))) == (
        "topology-missing error lab-1: /etc/hccl_rootinfo.json names /opt/topo.json as "
        "topology, which is not there. Correct topo_file_path; the driver has its topologies "
        "in /usr/local/Ascend/driver/topo."
    )


def test_no_table_is_for_950_and_others() -> None:
    assert well.only(of_table(well.TWO, well.a5(1), well.a3(2))) == (
        "products-differ error lab-[1-2]: the NPUs are of A3 and 950, and no rank table is for "
        "all of them. Use nodes of one product in a cluster."
    )


def test_ranks_of_the_table_are_the_slots_of_the_placement() -> None:
    wish = replace(well.TWO, primary_name="lab-2")
    for facts in (
        {f"lab-{n}": well.facts(n) for n in (1, 2)},
        FACTS_A3,
        {f"lab-{n}": well.a5(n) for n in (1, 2)},
    ):
        placed = place(wish, facts)
        rows = made_table(wish, facts).rows
        assert [(row.rank, row.device_id) for row in rows] == [
            (rank, slot.device_id) for rank, slot in enumerate(placed.slots)
        ]
        servers = [row.server.removeprefix("sp_0_srv_") for row in rows]
        names = {"2": "lab-2", "1": "lab-1"} | {n.server_id: n.name for n in wish.nodes}
        assert [names[server] for server in servers] == [slot.node.name for slot in placed.slots]


PODS = st.lists(st.integers(0, 2), min_size=1, max_size=4)


@settings(deadline=None, max_examples=30)
@given(
    pods=st.one_of(PODS, st.lists(st.none(), min_size=1, max_size=4)),
    cards=st.integers(1, 4),
    maker=st.sampled_from(["a2", "a3", "a5"]),
)
def test_the_table_of_any_cluster_is_read_as_it_was_made_and_taken(
    pods: list[int | None], cards: int, maker: str
) -> None:
    count = 2 * cards
    make: dict[str, Callable[[int, int | None], NodeFacts]] = {
        "a2": lambda n, _: well.facts(n, **well.chips(n, "Ascend 910B3", count)),
        "a3": lambda n, pod: well.a3(n, pod, count),
        "a5": lambda n, _: well.a5(n, count),
    }
    wish = well.cluster(*(well.node(n) for n, _ in enumerate(pods, 1)))
    facts = {f"lab-{n}": make[maker](n, pod) for n, pod in enumerate(pods, 1)}
    assert [f for f in of_table(wish, *facts.values()) if " error " in f] == []
    made = made_table(wish, facts)
    source = from_text("made", made.to_json())
    assert table_of(source) == made
    (product,) = set(products(wish, facts).values())
    assert {p.id for p in validate_table(source, product=product)} <= {"pod-order"}
    assert len(made.rows) == place(wish, facts).world_size


def test_each_product_gets_its_generation() -> None:
    made = made_table(well.TWO, FACTS_A3)
    assert made.generation == "1.2"
    document = json.loads(made.to_json())
    assert document["server_list"][1]["device"][3]["super_device_id"] == str(
        2 << 22 | 1 << 18 | 1 << 16 | 3
    )
    assert document["super_pod_list"] == [
        {
            "super_pod_id": "0",
            "server_list": [{"server_id": "198.18.0.1"}, {"server_id": "198.18.0.2"}],
        }
    ]
    alone = {f"lab-{n}": well.a3(n, None) for n in (1, 2)}
    assert made_table(well.TWO, alone).generation == "1.0"
    levels = made_table(well.TWO, {f"lab-{n}": well.a5(n) for n in (1, 2)})
    expected = [
        {"rank_id": 2 * (n - 1) + i, **entry}
        for n in (1, 2)
        for i, entry in enumerate(well.root_info(n)["rank_list"])
    ]
    assert json.loads(levels.to_json()) == {
        "status": "completed",
        "version": "2.0",
        "rank_count": 4,
        "rank_list": expected,
    }
    assert validate_table(from_text("made", levels.to_json()), product="a5") == ()


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (well.facts, "version 1.0, for A2"),
        (well.a3, "version 1.2, for A3"),
        (lambda number: well.a3(number, None), "version 1.0, for A3"),
        (well.a5, "version 2.0, for 950"),
    ],
)
def test_reports_say_which_generation_is_written(
    seen: Callable[[int], NodeFacts], words: str
) -> None:
    facts = {f"lab-{n}": seen(n) for n in (1, 2)}
    text = made_table(well.TWO, facts).to_json()
    assert rank_table_words(well.TWO, facts, text) == f"rank table: {words}"
    owning = replace(well.TWO, own_table=OwnTable(text=text, generation="", places=()))
    said = f"rank table: {words}, the inventory's own"
    assert rank_table_words(owning, facts, text) == said
