"""The variables of HCCL: allowed values, contradictions, and the schema for editors."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from ascendboot.hccl.variables import (
    conflicts,
    elastic_memory_mb,
    hccl_ports,
    near_miss,
    variables,
    why_not,
    why_not_read,
)
from tests.reference_pages import editor_schema

ROOT = Path(__file__).parents[3]
DOCUMENTED = json.loads((ROOT / "tests/data/hccl/env_vars.json").read_text())["vars"]
OURS = ("RANK_", "CM_", "DEVICE_ID/", "ASCEND_VISIBLE_DEVICES")
"""ascendboot sets these for each rank, or they are not for ranks."""
PRODUCTS = {"910": "910", "A2": "a2", "A3": "a3", "950": "a5"}


def test_all_documented_variables_of_ranks_are_known() -> None:
    assert set(variables()) == {name for name in DOCUMENTED if not name.startswith(OURS)}


@pytest.mark.parametrize("name", [name for name in variables() if "range" in DOCUMENTED[name]])
def test_the_documented_range_is_allowed_and_no_more(name: str) -> None:
    least, most = DOCUMENTED[name]["range"]
    step = 4 if "multiple of 4" in DOCUMENTED[name]["type"] else 1
    taken = [why_not(name, str(value)) for value in (least, most - most % step)]
    refused = [why_not(name, str(value)) for value in (least - 1, most + 1)]
    assert (taken, None in refused) == ([None, None], False)


@pytest.mark.parametrize("name", variables())
def test_defaults_and_products_are_as_documented(name: str) -> None:
    documented, variable = DOCUMENTED[name], variables()[name]
    if "default" in documented:
        assert variable.default == str(documented["default"])
    products = documented.get("products", list(PRODUCTS))
    if set(products) <= set(PRODUCTS):  # else single machines are meant
        known = [PRODUCTS[product] for product in products]
        assert list(variable.products or PRODUCTS.values()) == known


def test_defaults_and_examples_are_allowed() -> None:
    for variable in variables().values():
        for value in filter(None, (variable.default, variable.example)):
            products = variable.products or ("auto", "910", "a2", "a3", "a5")
            assert {why_not(variable.name, value, product) for product in products} == {None}


VALUES = yaml.safe_load((ROOT / "tests/data/hccl/values.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", VALUES)
def test_documented_values_are_allowed_and_no_others(name: str) -> None:
    good, bad = VALUES[name]["good"], VALUES[name]["bad"]
    assert {value: why_not(name, value) for value in good} == dict.fromkeys(good)
    assert [value for value in bad if why_not(name, value) is None] == []


BYTES = "is not a whole number from 1 to 65536, in MB; write 200"
ON_ALL = "is not on 910 a whole number from 5 to 24; on A2, A3 a whole number from 5 to 20"


@pytest.mark.parametrize(
    ("name", "value", "product", "reason"),
    [
        ("BUFFSIZE", "209715200", "auto", BYTES),
        ("BUFFSIZE", "9" * 5000, "auto", "is not a whole number from 1 to 65536, in MB"),
        ("CONNECT_TIMEOUT", "60", "auto", "is not a whole number from 120 to 7200, in seconds"),
        ("EXEC_TIMEOUT", "0", "910", "is not a whole number from 1 to 17340, in seconds on 910"),
        ("RDMA_TIMEOUT", "25", "auto", ON_ALL),
        ("RDMA_TIMEOUT", "24", "a2", "is not a whole number from 5 to 20 on A2"),
        ("RDMA_TC", "133", "a2", "is not a multiple of 4 from 0 to 255"),
    ],
)
def test_the_reason_states_the_documented_limits(
    name: str, value: str, product: str, reason: str
) -> None:
    assert why_not(f"HCCL_{name}", value, product) == f'"{value}" {reason}'


def test_duplicate_ports_and_unordered_ids_are_refused() -> None:
    assert why_not("HCCL_HOST_SOCKET_PORT_RANGE", "5-7,7") == '"5-7,7": port 7 is listed twice'
    assert why_not("ASCEND_RT_VISIBLE_DEVICES", "1,0") == '"1,0" is not in ascending order'


@pytest.mark.parametrize(
    ("key", "value", "products"),
    [
        ("connection_fault_detection_time", "30", "auto a2 a3"),
        ("stuck_detection", "on", "auto a2 a3"),
        ("cluster_heartbeat", "on", "auto a2 a3 a5"),
        ("inconsistent_check", "first", "auto a2 a3 a5"),
        ("task_exception", "on", "auto a5"),
        ("task_monitor_interval", "0", "auto a3"),
    ],
)
def test_a_key_that_the_product_ignores_is_refused(key: str, value: str, products: str) -> None:
    asked = ("auto", "a2", "a3", "a5")
    found = {product: why_not("HCCL_DFS_CONFIG", f"{key}:{value}", product) for product in asked}
    assert [product for product in asked if found[product] is None] == products.split()
    reasons = {f"{key} is not read on {p}" for p in ("A2", "A3", "950")}
    assert set(found.values()) <= {None, *reasons}


def test_the_reason_names_the_item_that_is_wrong() -> None:
    heartbeat = why_not("HCCL_DFS_CONFIG", "stuck_detection:on, cluster_heartbeat:yes")
    assert heartbeat == 'cluster_heartbeat: "yes" is not one of on, off'
    algorithm = why_not("HCCL_ALGO", "reduce=level1:NB/scatter=level0:NA; level1:NHR; level1:NB")
    assert algorithm == "scatter: level1 is stated twice"
    assert why_not("HCCL_DFS_CONFIG", "stuck_detection:on, cluster_heartbeat:on") is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HCCL_BUFSIZE", "HCCL_BUFFSIZE"),
        ("HCCL_CONNECT_TIME_OUT", "HCCL_CONNECT_TIMEOUT"),
        ("hccl_buffsize", "HCCL_BUFFSIZE"),
        ("ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"),
        *((name, None) for name in variables()),
        ("HCOMM_DEBUG_CONFIG", None),
        ("HCCL_OP_RETRY_PARAMS", None),
        ("HCCL_DIAGNOSE_ENABLE", None),
        ("HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT", None),
        ("ASCEND_MODULE_LOG_LEVEL", None),
        ("ASCEND_HOME_PATH", None),
        ("SLURM_JOB_ID", None),
        ("PATH", None),
    ],
)
def test_a_misspelt_name_is_recognised_and_other_variables_are_not(
    name: str, meant: str | None
) -> None:
    assert near_miss(name) == meant


def test_a_variable_that_the_product_does_not_read() -> None:
    name = "HCCL_HOST_SOCKET_PORT_RANGE"
    assert why_not_read(name, "910") == "is read on A2, A3, 950 only, not on 910; remove it"
    assert [why_not_read(name, product) for product in ("auto", "a2", "")] == [None] * 3
    assert why_not_read("HCCL_BUFFSIZE", "910") is None
    assert why_not_read("PATH", "910") is None


WAIT, STEP, MODE = "CONNECT_TIMEOUT", "EXEC_TIMEOUT", "OP_EXPANSION_MODE"
ROCE, PCIE = "INTRA_ROCE_ENABLE", "INTRA_PCIE_ENABLE"
LISTED, FILE = "WHITELIST_DISABLE", "WHITELIST_FILE"
BASE, RANGE = "IF_BASE_PORT", "HOST_SOCKET_PORT_RANGE"


@pytest.mark.parametrize(
    ("env", "names"),
    [
        ({}, ()),
        ({WAIT: "1836"}, (STEP, WAIT)),
        ({WAIT: "1836", STEP: "1837"}, ()),
        ({WAIT: "7200", STEP: "0"}, ()),
        ({WAIT: "wrong", STEP: "200"}, ()),
        ({STEP: "1092", MODE: "AIV"}, (STEP, MODE)),
        ({MODE: "AIV"}, ()),
        ({MODE: "AIV", WAIT: "1090"}, ()),
        ({MODE: "AIV", WAIT: "1200"}, (WAIT, STEP, MODE)),
        ({MODE: "AIV", WAIT: "1091", STEP: "0"}, (WAIT, STEP, MODE)),
        ({MODE: "CCU_SCHED", STEP: "65536"}, (STEP, MODE)),
        ({MODE: "CCU_MS", STEP: "65535"}, ()),
        ({MODE: "CCU_MS", STEP: "0", WAIT: "7200"}, ()),
        ({LISTED: "0"}, (LISTED,)),
        ({LISTED: "0", FILE: "/w"}, ()),
        ({ROCE: "1", PCIE: "1"}, (ROCE, PCIE)),
        ({PCIE: "0"}, (PCIE,)),
        ({ROCE: "0"}, (ROCE,)),
        ({ROCE: "0", PCIE: "0"}, ()),
        ({ROCE: "1", PCIE: "0"}, ()),
        ({BASE: "60000", RANGE: "auto"}, (BASE, RANGE)),
    ],
)
def test_contradictions(env: dict[str, str], names: tuple[str, ...]) -> None:
    found = [problem.names for problem in conflicts({f"HCCL_{n}": v for n, v in env.items()})]
    assert found == ([tuple(f"HCCL_{name}" for name in names)] if names else [])


def test_the_ports_of_the_host() -> None:
    assert hccl_ports({}) == [range(60000, 60032)]
    assert hccl_ports({"HCCL_IF_BASE_PORT": "29500"}) == [range(29500, 29532)]
    assert hccl_ports({"HCCL_IF_BASE_PORT": "x"}) == []
    assert hccl_ports({"HCCL_HOST_SOCKET_PORT_RANGE": "auto", "HCCL_IF_BASE_PORT": "1"}) == []
    assert hccl_ports({"HCCL_HOST_SOCKET_PORT_RANGE": "1-2,9"}) == [range(1, 3), range(9, 10)]


@pytest.mark.parametrize(
    ("settings", "is_right"),
    [
        ({"HCCL_CONNECT_TIMEOUT": 1200, "HCCL_WHITELIST_DISABLE": 1, "HCCL_RDMA_TC": 132}, True),
        ({"HCCL_SOCKET_IFNAME": "=eth0", "HCCL_NPU_SOCKET_PORT_RANGE": 16666}, True),
        ({"HCCL_BUFFSIZE": 209715200}, False),
        ({"HCCL_BUFSIZE": 200}, False),
        ({"HCCL_SOCKET_FAMILY": "IPv4"}, False),
    ],
)
def test_editors_check_it_too(settings: dict[str, object], is_right: bool) -> None:  # noqa: FBT001
    document = {"cluster": "c", "nodes": {"n1": {"address": "192.0.2.1"}}, "hccl": settings}
    assert jsonschema.Draft202012Validator(editor_schema()).is_valid(document) is is_right


def test_elastic_training_takes_nine_pairs_of_buffers() -> None:
    ways = {"HIGH_AVAILABILITY": "recover,elastic-training"}
    sizes = [elastic_memory_mb({**ways, "HCCL_BUFFSIZE": size}) for size in ("200", "400", "2M")]
    assert [elastic_memory_mb(ways), *sizes] == [3600, 3600, 7200, None]
    assert elastic_memory_mb({"HIGH_AVAILABILITY": "recover"}) is None
