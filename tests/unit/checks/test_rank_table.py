"""Findings about the rank table that ranks would get."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.checks.rank_table import made_table, products, rank_table_words
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.npus import RootInfo
from ascendboot.facts.parsers.npu_smi import NpuMap
from ascendboot.facts.query import Answered, Unanswered, value_of
from ascendboot.model.cluster import Cluster, Device, OwnTable
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.text import from_text
from ascendboot.ranktable.validate import validate_table
from ascendboot.setup.cluster_plan import devices_in_order
from ascendboot.value import replace
from tests.unit.checks import well

ONE = well.cluster(well.node(1))


def chips(name: str, *ids: int) -> dict[str, Any]:
    return {
        "npus": Answered(NpuMap(tuple(well.npu(i, name) for i in ids))),
        "device_networks": Answered(tuple(well.network(1, i) for i in ids)),
    }


def of_table(lab: Cluster, *facts: NodeFacts) -> str:
    """The findings about the rank table."""
    ids = ("rank-table", "super-pod", "root-info", "topology", "products", "device-ip-m", "net-i")
    lines = well.found(lab, *facts).split("\n")
    return "\n".join(line for line in lines if line.startswith(ids))


def own(generation: str, text: str = '{"rank_list": []}') -> Cluster:
    return replace(ONE, own_table=OwnTable(text=text, generation=generation, places=()))


REFUSED = "rank-table-refused error lab-1: …"


@pytest.mark.parametrize(
    ("name", "ids", "pattern"),
    [
        ("Ascend 910A", (0, 1, 2, 3), ""),
        ("Ascend 910A", (3, 4), REFUSED),
        ("Ascend 910A", (0, 1, 2), REFUSED),
        ("Ascend 910A", (8,), REFUSED),
        ("Ascend 910B3", (0, 1, 2, 9), ""),
        ("Ascend 910B3", (16,), REFUSED),
        ("Ascend something", (30,), ""),
    ],
)
def test_the_product_decides_on_the_table(name: str, ids: tuple[int, ...], pattern: str) -> None:
    facts = well.facts(1, **chips(name, *ids))
    assert well.alike(of_table(ONE, facts), pattern)
    assert of_table(replace(ONE, resource_mode="no-rank-table"), facts) == ""


@pytest.mark.parametrize(
    ("generation", "chip", "pattern"),
    [
        ("2.0", "Ascend 910B3", "rank-table-generation error lab-1: …"),
        ("1.2", "Ascend 910B3", "rank-table-generation error lab-1: …"),
        ("1.2", "Ascend910_9392", ""),
        ("group list", "Ascend 910A", ""),
        ("1.0", "Ascend950PR", "rank-table-generation … of 950, … of 2.0, and this one is of 1.0"),
    ],
)
def test_an_own_table_must_fit_the_npus(generation: str, chip: str, pattern: str) -> None:
    lines = of_table(own(generation), well.facts(1, **chips(chip, 0))).split("\n")
    assert well.alike("\n".join(n for n in lines if n.startswith("rank-table")), pattern)


@pytest.mark.parametrize(("chip", "pattern"), [("Ascend 910A", REFUSED), ("Ascend 910B3", "")])
def test_an_own_table_is_checked_for_the_product_of_the_nodes(chip: str, pattern: str) -> None:
    devices = [{"device_id": "9", "rank_id": "0"}]
    server = {"server_id": "198.18.0.1", "device": devices}
    table = {"status": "completed", "version": "1.0", "server_list": [server]}
    lab = replace(own("1.0", json.dumps(table)), nodes=(well.node(1, devices=(Device(9),)),))
    assert well.alike(of_table(lab, well.facts(1, **chips(chip, 9))), pattern)


def test_a3_in_one_super_pod_in_two_or_in_none_is_well() -> None:
    for pods in ((0, 0), (0, 1), (None, None)):
        assert of_table(well.TWO, *(well.a3(n, pod) for n, pod in enumerate(pods, 1))) == ""


SILENT = Unanswered(
    "failed", "could not read the super pod of device 1: npu-smi info -t spod-info: no answer"
)
NONE, OTHER = Answered(None), Answered(well.place(2, 3, 7))


@pytest.mark.parametrize(
    ("changed", "pattern"),
    [
        ({2: NONE, 3: NONE}, "super-pods-mixed error lab-2: devices 2-3 are in no super pod, …"),
        (dict.fromkeys(range(4), NONE), "super-pods-mixed error lab-2: devices 0-3 are in no …"),
        ({1: SILENT}, f"super-pod-unknown error lab-2: {SILENT.message}"),
        ({3: OTHER}, "super-pods-several error lab-2: … devices 0-2 in 0, device 3 in 7 …"),
    ],
)
def test_devices_not_all_in_one_known_super_pod(changed: dict[int, Any], pattern: str) -> None:
    seen = well.a3(2)
    places = Answered({**(value_of(seen.super_pods) or {}), **changed})
    assert well.alike(of_table(well.TWO, well.a3(1), replace(seen, super_pods=places)), pattern)


def test_ids_in_a_super_pod_are_each_device_s_own() -> None:
    twin = replace(well.a3(2), super_pods=well.a3(1).super_pods)
    lines = of_table(well.TWO, well.a3(1), twin).split("\n")
    assert [line.partition(" lab-2: ")[0] for line in lines] == ["rank-table-refused error"] * 4
    assert "super_device_id 4194304 is there twice in its super pod" in lines[0]


def test_super_pods_that_are_torn_apart_by_the_order_of_nodes() -> None:
    lab = well.cluster(*(well.node(n) for n in (1, 2, 3)))
    assert of_table(lab, well.a3(1, 0), well.a3(2, 1), well.a3(3, 0)) == (
        "super-pods-apart warning lab-1: the ranks of super pod 0 are not one after the other"
    )


ROCE = replace(well.TWO, env={"HCCL_INTRA_ROCE_ENABLE": "1"})


@pytest.mark.parametrize(
    ("lab", "pod", "level"), [(well.TWO, 0, "warning"), (well.TWO, 5, "error"), (ROCE, 0, "error")]
)
def test_inside_one_super_pod_devices_need_no_address_unless_told_to_take_roce(
    lab: Cluster, pod: int, level: str
) -> None:
    none = tuple(well.network(2, i, addresses=Answered(())) for i in range(4))
    text = of_table(lab, well.a3(1, pod), replace(well.a3(2), device_networks=Answered(none)))
    assert text == f"device-ip-missing {level} lab-2: devices 0-3 have no IP address"


def test_an_own_table_without_the_super_pods_that_are_there() -> None:
    table = OwnTable(text=made_table(well.TWO, FACTS_A3).to_json(), generation="1.0", places=())
    text = of_table(replace(well.TWO, own_table=table), *FACTS_A3.values())
    assert well.alike(text, "rank-table-without-pods warning lab-[1-2]: …")


FACTS_A3 = {f"lab-{n}": well.a3(n) for n in (1, 2)}
ONE_DEVICE = [well.root_info(2)["rank_list"][1]]


def with_info(number: int, text: str, **more: str) -> NodeFacts:
    return well.a5(number, root_info=Answered(RootInfo(text, **more)))


def test_950_with_root_info_is_well_and_without_it_is_not() -> None:
    assert of_table(well.TWO, well.a5(1), well.a5(2)) == ""
    absent = Unanswered("missing", "could not read /etc/hccl_rootinfo.json: it does not exist")
    assert of_table(well.TWO, well.a5(1), well.a5(2, root_info=absent)) == (
        f"root-info-missing error lab-2: {absent.message}"
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": "1.0"}, 'version is "1.0", and HCCL of 950 reads "2.0" alone'),
        ({"version": 2}, 'version is not stated as text, and HCCL of 950 reads "2.0" alone'),
        ({"topo_file_path": None}, "topo_file_path is missing, which HCCL of 950 wants"),
        ({"rank_count": 3}, "rank_count is 3, and rank_list has 2"),
        ({"rank_list": {}}, "could not be understood: rank_list is no list"),
        ({"rank_list": [3]}, "could not be understood: rank_list[0] is no object"),
        ({"rank_count": 1, "rank_list": ONE_DEVICE}, "has no entry for device 0"),
        ({"rank_list": ONE_DEVICE * 2}, "a device_id is there twice"),
    ],
)
def test_root_info_that_hccl_would_not_take(change: dict[str, Any], text: str) -> None:
    lines = of_table(well.TWO, well.a5(1), with_info(2, json.dumps(well.root_info(2) | change)))
    assert well.alike(lines, f"root-info-unfit error lab-2: /etc/hccl_rootinfo.json…{text}")


def test_root_info_that_is_no_json() -> None:
    lines = of_table(ONE, with_info(1, "[" * 10_000_000))
    assert well.alike(lines, "root-info-unfit error lab-1: … as JSON: … are nested too deeply")


def test_servers_that_call_their_networks_alike_and_topologies_that_are_not_there() -> None:
    twin = json.dumps(well.root_info(2)).replace("sp_0_srv_2", "sp_0_srv_1")
    assert of_table(well.TWO, well.a5(1), with_info(2, twin)) == (
        'net-instances-alike warning lab-2: local_id 0 is there twice in net instance "sp_0_srv_1"'
    )
    nowhere = with_info(1, json.dumps(well.root_info(1)), missing_topology="/opt/topo.json")
    assert well.alike(of_table(ONE, nowhere), "topology-missing error lab-1: … /opt/topo.json …")


def test_no_table_is_for_950_and_others() -> None:
    pattern = "products-differ error lab-[1-2]: the NPUs are of A3 and 950, …"
    assert well.alike(of_table(well.TWO, well.a5(1), well.a3(2)), pattern)


def test_ranks_of_the_table_are_the_slots_of_the_placement() -> None:
    lab = replace(well.TWO, primary_name="lab-2")
    makers: tuple[Callable[[int], NodeFacts], ...] = (well.facts, well.a3, well.a5)
    for facts in ({f"lab-{n}": make(n) for n in (1, 2)} for make in makers):
        devices = devices_in_order(lab, facts)
        rows = made_table(lab, facts).rows
        assert [(row.rank, row.device_id) for row in rows] == [
            (rank, device_id) for rank, (_, device_id, _) in enumerate(devices)
        ]
        servers = [row.server.removeprefix("sp_0_srv_") for row in rows]
        names = {"2": "lab-2", "1": "lab-1"} | {n.server_id: n.name for n in lab.nodes}
        assert [names[server] for server in servers] == [name for name, *_ in devices]


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
    lab = well.cluster(*(well.node(n) for n, _ in enumerate(pods, 1)))
    facts = {f"lab-{n}": make[maker](n, pod) for n, pod in enumerate(pods, 1)}
    assert " error " not in of_table(lab, *facts.values())
    made = made_table(lab, facts)
    source = from_text("made", made.to_json())
    assert table_of(source) == made
    (product,) = set(products(lab, facts).values())
    assert {p.id for p in validate_table(source, product=product)} <= {"pod-order"}
    assert len(made.rows) == len(devices_in_order(lab, facts))


def test_the_table_of_950_has_the_devices_of_the_root_infos() -> None:
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


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (well.facts, "version 1.0, for A2"),
        (well.a3, "version 1.2, for A3"),
        (lambda number: well.a3(number, None), "version 1.0, for A3"),
        (well.a5, "version 2.0, for 950"),
    ],
)
def test_reports_name_the_written_generation(seen: Callable[[int], NodeFacts], words: str) -> None:
    facts = {f"lab-{n}": seen(n) for n in (1, 2)}
    text = made_table(well.TWO, facts).to_json()
    assert rank_table_words(well.TWO, facts, text) == f"rank table: {words}"
    owning = replace(well.TWO, own_table=OwnTable(text=text, generation="", places=()))
    with_own = f"rank table: {words}, the inventory's own"
    assert rank_table_words(owning, facts, text) == with_own
