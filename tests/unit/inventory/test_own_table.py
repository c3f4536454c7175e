"""A rank table of the operator's own in the inventory: judged, and used as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ascendboot.checks.rank_table import rank_table_text
from ascendboot.errors import InventoryError
from ascendboot.inventory.load import load
from tests.unit.ranktable.examples import changed, v10, v20

INVENTORY = """\
cluster: two
nodes:
  n1: {address: 192.0.2.1, server_id: node_0}
  n2: {address: 192.0.2.2, server_id: node_1}
defaults: {user: root}
resources: {file: tables/own.json}
"""  # from the folder in which ascendboot is called


@pytest.fixture(name="here")
def _here(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    return tmp_path


def put(here: Path, table: dict[str, Any], inventory: str = INVENTORY) -> Path:
    (here / "tables/own.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
    (here / "i.yaml").write_text(inventory, encoding="utf-8")
    return here / "i.yaml"


def problems(here: Path, table: dict[str, Any], inventory: str = INVENTORY) -> list[str]:
    with pytest.raises(InventoryError) as caught:
        load(put(here, table, inventory))
    where = "i.yaml:6: resources.file: "
    assert all(problem.startswith(where) for problem in caught.value.problems)
    return [problem.removeprefix(where) for problem in caught.value.problems]


def test_the_table_decides_devices_and_order_and_is_used_byte_by_byte(here: Path) -> None:
    table = changed(v10(), "server_list/0/device/0/device_id", "5")
    table["server_list"].reverse()
    table["note"] = "kept as it is"
    cluster = load(put(here, table))
    ids = {node.name: [d.device_id for d in node.devices] for node in cluster.rank_order}
    assert ids == {"n1": [5, 1], "n2": [0, 1]}
    assert list(ids) == ["n1", "n2"]
    assert cluster.node("n1").devices[0].device_ip == "198.51.100.0"
    text = (here / "tables/own.json").read_text(encoding="utf-8")
    assert rank_table_text(cluster, {}) == text


def test_the_nodes_come_in_the_table_s_order(here: Path) -> None:
    table = v10()
    table["server_list"][0]["server_id"] = "node_1"
    table["server_list"][1]["server_id"] = "node_0"
    cluster = load(put(here, table, INVENTORY + "primary: n2\n"))
    assert [node.name for node in cluster.rank_order] == ["n2", "n1"]
    assert problems(here, table) == [
        "tables/own.json: rank 0 is on n2, and the primary is n1; write `primary: n2`"
    ]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("version", "3.0", [':3: version-unknown: version: version is "3.0", the fields are']),
        (
            "server_list/1/server_id",
            "node_7",
            [
                ': n2, whose server_id is "node_1", is not in the table',
                ': server_id "node_7" is no node\'s; they have node_0, node_1',
            ],
        ),
        ("server_list/0", 7, [":6: wrong-type: server_list[0]"]),
    ],
)
def test_what_is_wrong_with_the_table_is_said_by_the_inventory_s_line(
    here: Path, path: str, value: object, said: list[str]
) -> None:
    found = problems(here, changed(v10(), path, value))
    assert len(found) == len(said)
    for problem, expected in zip(found, said, strict=True):
        assert problem.startswith(f"tables/own.json{expected}")


def test_ranks_of_a_server_stay_together(here: Path) -> None:
    table = changed(v10(), "server_list/0/device/1/rank_id", "2")
    table = changed(table, "server_list/1/device/0/rank_id", "1")
    assert problems(here, table) == [
        'tables/own.json: the ranks of "node_0" are not one after the other',
        'tables/own.json: the ranks of "node_1" are not one after the other',
    ]


def test_the_product_and_the_profile_of_the_inventory_judge_too(here: Path) -> None:
    table = changed(v10(), "server_list/0/device/0/device_id", "9")
    assert "device-id: " in problems(here, table, INVENTORY + "product: '910'\n")[0]
    assert "rec-sdk-devices" in problems(here, table, INVENTORY + "profile: rec-sdk-tf\n")[0]


def test_devices_stated_twice_must_agree(here: Path) -> None:
    inventory = INVENTORY.replace("user: root", "user: root, devices: [1, 0]")
    assert problems(here, v10(), inventory)[0].endswith(
        "n1 has the devices [0, 1] there and [1, 0] in the inventory; leave `devices` out, or "
        "state the same"
    )


def test_a_table_of_950_goes_by_the_devices_that_the_inventory_states(here: Path) -> None:
    assert "names no servers; state the `devices` of every node" in problems(here, v20())[0]
    one_each = INVENTORY.replace("node_1}", "node_1, devices: [1]}").replace(
        "node_0}", "node_0, devices: [0]}"
    )
    cluster = load(put(here, v20(), one_each))
    assert cluster.own_table is not None
    assert cluster.own_table.generation == "2.0"
    assert cluster.own_table.places == (("node_0", 0, None), ("node_1", 1, None))
    assert [node.name for node in cluster.rank_order] == ["n1", "n2"]
    swapped = one_each.replace("devices: [1]", "devices: [3]")
    assert (
        "the device ids are [0, 1] in rank order, and [0, 3] in"
        in problems(here, v20(), swapped)[0]
    )
    assert "n1, which must be the primary" in problems(here, v20(), one_each + "primary: n2\n")[0]


def test_files_that_are_none_are_refused(here: Path) -> None:
    path = put(here, v10())
    (here / "tables/own.json").unlink()
    with pytest.raises(InventoryError, match=r"own\.json: could not be read: No such file"):
        load(path)


def test_without_a_rank_table_there_is_no_file(here: Path) -> None:
    inventory = INVENTORY.replace("{file", "{mode: no-rank-table, file")
    with pytest.raises(InventoryError, match="no-rank-table has no use for a rank table"):
        load(put(here, v10(), inventory))
