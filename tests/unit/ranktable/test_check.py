"""Real tables, good and bad, with the result that HCCL gives; and tables that are out of date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ascendboot.checks.rank_table import made_table
from ascendboot.cli.ranktable import servers_seen
from ascendboot.ranktable.check import DeviceState, ServerState, against, check_file
from ascendboot.ranktable.rules import Job, Product
from ascendboot.value import replace
from tests.unit.checks import well
from tests.unit.ranktable.examples import DROP, changed, groups, v10, v12

TABLES = Path(__file__).parent.parent.parent / "data/ranktables"

RESULTS = yaml.safe_load((TABLES / "results.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "product"), RESULTS["valid"])
def test_good_tables_are_valid(name: str, product: Product) -> None:
    for asked in (product, None):
        result = check_file(str(TABLES / f"{name}.json"), product=asked)
        assert (result.state, result.problems, result.exit_code) == ("valid", (), 0)


@pytest.mark.parametrize(("name", "product", "job", "rules"), RESULTS["refused"])
def test_bad_tables_are_refused_by_the_right_rule(
    name: str, product: Product | None, job: Job | None, rules: list[str]
) -> None:
    result = check_file(str(TABLES / f"{name}.json"), product=product, job=job)
    errors = {problem.id for problem in result.problems if problem.level == "error"}
    assert (result.state, errors, result.exit_code) == ("refused", set(rules), 1)


@pytest.mark.parametrize(("name", "what"), RESULTS["no_table"].items())
def test_what_is_no_rank_table_is_named(name: str, what: str) -> None:
    path = str(TABLES / f"{name}.json")
    result = check_file(path)
    assert (result.state, result.exit_code) == ("unreadable", 2)
    assert result.message == f"{path}: not a rank table, but {what}"


def test_every_placeholder_of_the_manual_is_named() -> None:
    result = check_file(str(TABLES / "recsdk-doc_hccl_json_16p_2_host.PLACEHOLDERS.json"))
    named = {problem.text.rpartition(" ")[2] for problem in result.problems}
    devices = {f'"{{device_{n}_ip}}"' for n in range(16)}
    assert named == devices | {'"{host_1_ip}"', '"{host_2_ip}"'}


def test_every_file_has_a_result_here() -> None:
    checked = {row[0] for row in (*RESULTS["valid"], *RESULTS["refused"])}
    checked |= RESULTS["no_table"].keys()
    assert checked == {path.stem for path in TABLES.glob("*.json")}


def test_the_lines_of_a_result_are_those_of_the_file() -> None:
    path = str(TABLES / "NEG_duplicate_rank_id.json")
    assert list(check_file(path).report_lines()) == [
        (
            f"{path}:27: error rank-ids: server_list[1].device[0].rank_id: rank_id 1 is there "
            'twice: 4 ranks are numbered 0 to 3; missing: 2. HCCL: "rankList[2] rankId[1] error". '
            "Number the ranks from 0, each number once."
        ),
        f"{path}: refused: version 1.0, checked for 910, A2, A3 or 300I Duo, 1 error",
    ]


def test_many_problems_of_a_rule_are_counted_on_the_screen_and_all_in_the_json() -> None:
    result = check_file(str(TABLES / "recsdk-doc_hccl_json_16p_2_host.PLACEHOLDERS.json"))
    told = list(result.report_lines())
    assert len(told) == 10
    assert told[8].endswith(": 10 more of placeholder; --json shows all")
    document = result.to_json()
    assert isinstance(document["problems"], list)
    assert len(document["problems"]) == 18
    assert document["problems"][1] == {
        "id": "placeholder",
        "level": "error",
        "path": "server_list[0].device[0].device_ip",
        "line": 8,
        "text": 'device_ip is still the placeholder "{device_0_ip}"',
        "hccl": "",
        "remedy": "Write the real value",
    }


DEVICE = "server_list/0/device/0"


def seen(document: dict[str, Any]) -> dict[str, ServerState]:
    """Nodes that are as the table says."""
    servers = {}
    for index, server in enumerate(document["server_list"]):
        devices = {}
        for device in server["device"]:
            address, place = device["device_ip"], device.get("super_device_id")
            devices[int(device["device_id"])] = DeviceState(
                device_ip=address,
                in_conf=address,
                super_device_id=None if place is None else int(place),
            )
        servers[server["server_id"]] = ServerState(f"n{index}", devices)
    return servers


def found(document: dict[str, Any], servers: dict[str, ServerState]) -> list[tuple[str, str, str]]:
    return [(p.id, p.where, p.text) for p in against(document, servers)]


TWO_IPS = "198.51.100.0,198.51.100.99"
OWN = "has 198.51.100.0"
OF_TOOL = f"{OWN} (hccn_tool -i 0 -ip -g)"
SUPER = "the table has 99, n0 device 0 has 0 (npu-smi info -t spod-info)"
UNKNOWN = 'server_id "other" is no node of the cluster; its nodes have node_0, node_1'


@pytest.mark.parametrize(
    ("document", "path", "value", "said"),
    [
        (v10(), "note", "", {}),
        (v12(), "note", "", {}),
        (
            v10(),
            f"{DEVICE}/device_ip",
            "192.0.2.9",
            {
                "device-ip-stale": f"the table has 192.0.2.9, n0 device 0 {OF_TOOL}",
                "hccn-conf-stale": f"the table has 192.0.2.9, /etc/hccn.conf of n0 device 0 {OWN}",
            },
        ),
        (
            *(v10(), f"{DEVICE}/device_ip", TWO_IPS),
            {"device-ip-stale": f"the table has {TWO_IPS}, n0 device 0 {OF_TOOL}"},
        ),
        (v10(), f"{DEVICE}/device_id", "7", {"device-gone": "n0 has no device 7; it has 0, 1"}),
        (v12(), f"{DEVICE}/super_device_id", "99", {"super-device-stale": SUPER}),
        (v10(), "server_list/0/server_id", "other", {"server-unknown": UNKNOWN}),
        (v10(), f"{DEVICE}/device_ip", DROP, {}),
        (v10(), f"{DEVICE}/device_id", "x", {}),
        (v10(), "server_list", 7, {}),
    ],
)
def test_what_is_stale_is_named_with_its_device(
    document: dict[str, Any], path: str, value: object, said: dict[str, str]
) -> None:
    document = changed({**document, "note": ""}, path, value)
    where = path.replace("/0", "[0]").replace("/", ".")
    told = found(document, seen(v12() if "super_pod_list" in document else v10()))
    assert told == [(rule, where, text) for rule, text in said.items()]


def test_addresses_are_compared_by_meaning_and_a_missing_one_is_stale() -> None:
    document = changed(v10(), f"{DEVICE}/device_ip", "2001:db8:0::1")
    servers = seen(v10())
    servers["node_0"] = ServerState(
        "n0",
        {
            0: DeviceState(device_ip="2001:db8::1"),
            1: DeviceState(device_ip=None, in_conf="198.51.100.7"),
        },
    )
    assert [(p.id, p.level) for p in against(document, servers)] == [
        ("device-ip-stale", "error"),
        ("hccn-conf-stale", "warning"),
    ]


def test_instances_of_a_group_list_are_servers_too() -> None:
    servers = {"node_0": ServerState("n0", {0: DeviceState(device_ip="198.51.100.0")})}
    assert [(id_, where) for id_, where, _ in found(groups(), servers)] == [
        ("server-unknown", "group_list[0].instance_list[1].server_id")
    ]


def of_950() -> tuple[dict[str, Any], dict[str, ServerState]]:
    facts = {f"lab-{n}": well.a5(n) for n in (1, 2)}
    table: dict[str, Any] = json.loads(made_table(well.TWO, facts).to_json())
    return table, servers_seen(well.TWO, facts)


EID = f"{'020000dfdf00df':0>32}"
ADDRESS = "rank_list/2/level_list/1/rank_addr_list/0"
IN_LAYER = "in layer 1 of sp_0"
OF_950 = f"lab-2 device 0 has {EID} on 1/0 {IN_LAYER} (/etc/hccl_rootinfo.json)"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("rank_list/2/rank_id", 7, []),
        ("rank_list/2/level_list", 7, []),
        ("rank_list/2/level_list", [], []),
        (
            "rank_list/2/local_id",
            5,
            "the table has local_id 5, lab-2 device 0 has local_id 0 (/etc/hccl_rootinfo.json)",
        ),
        (f"{ADDRESS}/ports", ["1/7"], f"the table has {EID} on 1/7 {IN_LAYER}, {OF_950}"),
        (ADDRESS, DROP, f"the table has less, {OF_950}"),
    ],
)
def test_a_table_of_950_is_held_against_the_root_infos(
    path: str, value: object, said: str | list[str]
) -> None:
    table, servers = of_950()
    assert found(table, servers) == []
    stale = [("level-stale", "rank_list[2]", said)] if said else []
    assert found(changed(table, path, value), servers) == stale


def test_a_server_of_950_that_is_no_node() -> None:
    table, servers = of_950()
    moved = changed(table, "rank_list/3/level_list/0/net_instance_id", "sp_0_srv_9")
    words = 'no node has device 1 in net instance "sp_0_srv_9"; the nodes have sp_0_srv_1, '
    unknown = ("server-unknown", "rank_list[3]", f"{words}sp_0_srv_2")
    assert found(moved, servers) == [unknown]
    nothing_told = {name: replace(server, places={}) for name, server in servers.items()}
    assert found(moved, nothing_told) == []
