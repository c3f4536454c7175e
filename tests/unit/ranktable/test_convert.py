"""One generation from another, and several tables as one; what is missing is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ascendboot.errors import RankTableError
from ascendboot.ranktable.convert import Host, convert, from_hostfile, in_order, merge, subset
from ascendboot.ranktable.formats import Generation, table_of
from ascendboot.ranktable.formats.servers import RankTable
from ascendboot.ranktable.validate import validate_table
from tests.unit.ranktable.examples import ALL, DROP, changed, groups, source_of, v10, v12, v20


def table(document: dict[str, Any]) -> Any:
    return table_of(source_of(document))


@pytest.mark.parametrize(
    ("document", "generation", "missing"),
    [
        (v10(), "1.2", "super_device_id of 4 devices and super_pod_list: which super pod each of"),
        (v10(), "2.0", "local_id and, for each net_layer, net_instance_id and rank_addr_list"),
        (v20(), "1.0", "server_id and device_ip of each device"),
        (v20(), "group list", "server_id and device_ip of each device"),
        (groups(), "1.2", "super_device_id of 2 devices and super_pod_list"),
        (groups(), "2.0", "local_id and, for each net_layer"),
    ],
)
def test_what_is_missing_is_named(
    document: dict[str, Any], generation: Generation, missing: str
) -> None:
    with pytest.raises(RankTableError, match="what is missing is") as caught:
        convert(table(document), generation)
    assert missing in str(caught.value)


def test_a_group_list_becomes_the_ranks_that_hccl_would_give() -> None:
    document = changed(groups(), "group_list/0/instance_list/0/server_id", "node_9")
    made = convert(table(document), "1.0").table
    assert [(row.rank, row.server) for row in made.rows] == [(0, "node_1"), (1, "node_9")]
    assert convert(made, "group list").table.world_size == 2


def test_a_group_list_that_would_move_ranks_is_not_made() -> None:
    document = changed(v10(), "server_list/0/server_id", "node_9")
    with pytest.raises(RankTableError, match="would give rank 0, now node_9 device 0, to node_1"):
        convert(table(document), "group list")
    ordered = in_order(table(document), "server-id")
    assert convert(ordered, "group list").left_out == ()


def test_a_table_with_super_pods_under_another_version_becomes_1_2() -> None:
    mislabelled = changed(v12(), "version", "1.0")
    made = convert(table(mislabelled), "1.2").table
    assert validate_table(source_of(json.loads(made.to_json()))) == ()


def test_tables_of_single_servers_become_one_with_ranks_as_strings() -> None:
    parts = []
    for number in (0, 1):
        part = v10(1, 2)
        server = part["server_list"][0]
        server["server_id"] = f"198.51.100.{10 - number}"
        for rank, device in enumerate(server["device"]):
            device |= {"rank_id": rank, "device_ip": f"192.0.2.{10 * number + rank}"}
        parts.append(table(part))
    merged = merge(parts)
    rows = [(row.server, row.device_id, row.addresses[0]) for row in merged.rows]
    assert rows == [
        *(("198.51.100.10", 0, "192.0.2.0"), ("198.51.100.10", 1, "192.0.2.1")),
        *(("198.51.100.9", 0, "192.0.2.10"), ("198.51.100.9", 1, "192.0.2.11")),
    ]
    assert validate_table(source_of(json.loads(merged.to_json())), job="mindspore") == ()


def test_super_pods_of_parts_are_joined() -> None:
    parts = []
    for number in (0, 1):
        document = v12(2, 2)
        for server in document["server_list"]:
            server["server_id"] += f"_{number}"
        for pod, server in zip(document["super_pod_list"], document["server_list"], strict=True):
            pod["server_list"] = [{"server_id": server["server_id"]}]
        parts.append(table(document))
    merged = merge(parts)
    assert isinstance(merged, RankTable)
    assert [(pod.super_pod_id, pod.server_ids) for pod in merged.super_pods] == [
        ("0", ("node_0_0", "node_0_1")),
        ("1", ("node_1_0", "node_1_1")),
    ]


def test_what_some_tables_do_not_allow_is_refused() -> None:
    with pytest.raises(RankTableError, match=r"the tables are 1\.0 and 2\.0"):
        merge([table(v10()), table(v20())])
    with pytest.raises(RankTableError, match="the tables are group list; convert"):
        merge([table(groups()), table(groups())])
    with pytest.raises(RankTableError, match="group list states no order"):
        in_order(table(groups()), "server-id")
    with pytest.raises(RankTableError, match="it has no rank 99"):
        subset(table(v10()), [0, 99])


def test_tables_of_single_servers_of_950_become_one() -> None:
    parts = [v20(2), v20(2)]
    for rank in parts[1]["rank_list"]:
        for level in rank["level_list"]:
            level["net_instance_id"] += "b"
            level["rank_addr_list"][0]["addr"] = (
                f"192.0.2.{10 * level['net_layer'] + rank['rank_id']}"
            )
    merged = merge([table(part) for part in parts])
    rows = [(row.server, row.local_id) for row in merged.rows]
    assert rows == [(f"az0-rack0{end}", local) for end in ("", "b") for local in (0, 1)]
    assert validate_table(source_of(json.loads(merged.to_json()))) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n1 slots=3", "h:1: n1 has 2 devices, and slots is 3"),
        ("\n\nn9 slots=1", "h:3: the devices of n9 are not known; known are those of n1"),
        ("=", 'h:1: "=" is not understood; expected HOST slots=N'),
    ],
)
def test_a_line_of_a_hostfile_that_cannot_be_is_named(text: str, problem: str) -> None:
    with pytest.raises(RankTableError) as caught:
        from_hostfile(text, "h", {"n1": Host("n1", {0: "192.0.2.1", 3: None})})
    assert str(caught.value).startswith(problem)


def test_a_host_gets_its_first_devices() -> None:
    made = from_hostfile(
        "n1 slots=1 max_slots=8  # here", "h", {"n1": Host("n1", {5: None, 3: "192.0.2.1"})}
    )
    assert isinstance(made, RankTable)
    assert [(row.device_id, row.addresses) for row in made.rows] == [(3, ("192.0.2.1",))]


@pytest.mark.parametrize("generation", ALL)
@pytest.mark.parametrize("value", [DROP, 7.5, {"a": 1}])
def test_what_cannot_be_understood_is_named_by_its_place(generation: str, value: object) -> None:
    place = {
        "1.0": "server_list/1/server_id",
        "1.2": "super_pod_list/1/super_pod_id",
        "2.0": "rank_list/1/rank_id",
        "group list": "group_list/0/instance_list/1/server_id",
    }[generation]
    with pytest.raises(RankTableError, match=r"table\.json: could not be understood: ") as caught:
        table(changed(ALL[generation], place, value))
    *way, last = place.split("/")
    shown = ".".join(way).replace(".0", "[0]").replace(".1", "[1]") + "." + last
    assert f": {shown} is " in str(caught.value)


@pytest.mark.parametrize("document", [v10(), v12(), v20(), groups()])
def test_some_ranks_of_a_table_are_a_valid_table(document: dict[str, Any]) -> None:
    whole = table(document)
    kept = [row.rank for row in whole.rows if row.server == whole.rows[-1].server]
    reduced = subset(whole, kept)
    assert [row.rank for row in reduced.rows] == list(range(len(kept)))
    assert [row.device_id for row in reduced.rows] == [whole.rows[r].device_id for r in kept]
    assert {row.server for row in reduced.rows} == {whole.rows[-1].server}
    found = validate_table(source_of(json.loads(reduced.to_json())))
    assert [problem for problem in found if problem.level == "error"] == []
