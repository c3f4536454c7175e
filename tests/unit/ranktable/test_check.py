"""Real tables, good and bad: the result that HCCL gives on each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ascendboot.ranktable.check import check_file

if TYPE_CHECKING:
    from ascendboot.ranktable.rules import Job, Product

TABLES = Path(__file__).parent.parent.parent / "data/ranktables"

VALID: list[tuple[str, Product | None]] = [
    ("hccl-doc_910_template1_v1.0", "910"),
    ("hccl-doc_A2_v1.0", "a2"),
    ("hccl-doc_300IDuo_v1.0", "310p"),
    ("hccl-doc_910_template2_group_list", "910"),
    ("hccl-doc_A3_v1.2_superpod", "a3"),
    ("hccl-doc_A5_v2.0_4ranks_ipv4", "a5"),
    ("hccl-doc_Atlas350_v2.0_EID_d2h", "a5"),
    ("hcomm-example_rank_table_v2.0", "a5"),
    ("hcomm-test_v2.0_1d_2p_mesh", "a5"),
    ("hcomm-test_hcom_comm_testranktable", "a5"),
    ("recsdk_tf_v2_and_estimator_hccl_json_1p_v2.0", "a5"),
]

REFUSED: list[tuple[str, Product | None, Job | None, set[str]]] = [
    ("hcomm-test_v2.0_LEGACY_op_base_ranktablep", "a5", None, {"legacy-draft", "not-an-integer"}),
    ("hcomm-test_v2.0_LEGACY_rank_graph", "a5", None, {"legacy-draft", "not-an-integer"}),
    ("hcomm-test_v2.0_LEGACY_rank_graph_2p", "a5", None, {"legacy-draft", "not-an-integer"}),
    ("hcomm-test_v2.0_LEGACY_rank_graph_4p_2x2", "a5", None, {"legacy-draft", "not-an-integer"}),
    ("modelarts_group_list_instance_name", None, None, {"instance-name", "count"}),
    ("recsdk-doc_hccl_json_16p_2_host.PLACEHOLDERS", None, None, {"placeholder"}),
    ("NEG_device_id_8_on_910A", "910", None, {"device-id", "device-set"}),
    ("NEG_duplicate_rank_id", None, None, {"rank-ids"}),
    ("NEG_int_device_id", None, None, {"not-a-string"}),
    ("NEG_version_unknown", None, None, {"version-unknown"}),
    ("NEG_empty_device_ip_multi_server", None, None, {"device-ip-missing"}),
    ("NEG_status_initializing", None, None, {"status"}),
    ("NEG_unequal_devices_per_server_910A", "910", None, {"device-count"}),
    ("NEG_unequal_devices_per_server_910A", None, "rec-sdk-tf", {"rec-sdk-devices"}),
]

ALLOWED: list[tuple[str, Product | None, set[str]]] = [
    ("NEG_device_id_8_on_910A", "a2", {"rec-sdk-devices"}),
    ("NEG_device_id_8_on_910A", "a3", {"rec-sdk-devices"}),
    ("NEG_device_id_8_on_910A", None, {"device-id", "rec-sdk-devices"}),
    ("NEG_unequal_devices_per_server_910A", "a2", {"device-count", "rec-sdk-devices"}),
    ("NEG_unequal_devices_per_server_910A", "a3", {"device-count", "rec-sdk-devices"}),
]

NO_TABLE = {
    "hccl-doc_A5_v2.0_TOPOFILE": "a topology file of 950 (HCCL_TOPO_FILE_PATH): it has peer_list",
    "hcomm-test_v2.0_1d_2p_mesh.TOPO": "a topology file of 950 (HCCL_TOPO_FILE_PATH): it has "
    "peer_list",
    "omni-infer_global_server_group_list": "a table of an inference system with groups of "
    "servers: it has server_group_list",
    "vllm-ascend_disagg_prefill_decode_A3_v1.2": "a table of an inference system with prefill and "
    "decode servers: it has prefill_device_list",
}


@pytest.mark.parametrize(("name", "product"), VALID)
def test_good_tables_are_valid(name: str, product: Product) -> None:
    for asked in (product, None):
        result = check_file(str(TABLES / f"{name}.json"), product=asked)
        assert (result.state, result.problems, result.exit_code) == ("valid", (), 0)


@pytest.mark.parametrize(("name", "product", "job", "rules"), REFUSED)
def test_bad_tables_are_refused_by_the_right_rule(
    name: str, product: Product | None, job: Job | None, rules: set[str]
) -> None:
    result = check_file(str(TABLES / f"{name}.json"), product=product, job=job)
    errors = {problem.id for problem in result.problems if problem.level == "error"}
    assert (result.state, errors, result.exit_code) == ("refused", rules, 1)


@pytest.mark.parametrize(("name", "product", "rules"), ALLOWED)
def test_what_only_another_product_refuses_is_a_warning(
    name: str, product: Product | None, rules: set[str]
) -> None:
    result = check_file(str(TABLES / f"{name}.json"), product=product)
    assert result.state == "valid"
    assert {problem.id for problem in result.problems} == rules


@pytest.mark.parametrize(("name", "what"), NO_TABLE.items())
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
    checked = {row[0] for rows in (VALID, REFUSED, ALLOWED) for row in rows} | set(NO_TABLE)
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
