"""What holds for every table: written, read, equal, without a word; and broken, named."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendboot.ranktable.convert import convert, in_order
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.formats.parts import Table
from ascendboot.ranktable.formats.servers import RankTable
from ascendboot.ranktable.rules import Product
from ascendboot.ranktable.show import differences
from ascendboot.ranktable.text import from_text, lines_of
from ascendboot.ranktable.validate import validate_table
from tests.unit.ranktable.examples import DROP
from tests.unit.ranktable.generated import TABLES, server_tables

SOME = settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))


AGAIN = object()
"""What the neighbour of a server, or of a device, has."""

BROKEN: list[tuple[str, str, str, object]] = [
    ("status", "table", "status", "initializing"),
    ("missing", "table", "status", DROP),
    ("version-unknown", "table", "version", "1.4"),
    ("count", "table", "server_count", "77"),
    ("not-a-string", "table", "server_count", 1),
    ("empty", "server", "device", []),
    ("wrong-type", "server", "device", {}),
    ("missing", "server", "server_id", DROP),
    ("placeholder", "server", "server_id", "{host_1_ip}"),
    ("too-long", "server", "server_id", "字" * 22),
    ("server-twice", "server", "server_id", AGAIN),
    ("address", "server", "host_ip", "192.0.2.256"),
    ("not-a-string", "device", "device_id", 0),
    ("not-digits", "device", "device_id", "-1"),
    ("device-id", "device", "device_id", "16"),
    ("device-twice", "device", "device_id", AGAIN),
    ("device-ip-missing", "device", "device_ip", ""),
    ("address", "device", "device_ip", "198.51.100"),
    ("address-twice", "device", "device_ip", AGAIN),
    ("not-a-string", "device", "rank_id", 0),
    ("rank-ids", "device", "rank_id", "4000000000"),
    ("rank-ids", "device", "rank_id", AGAIN),
    ("port", "device", "device_port", "70000"),
]


@SOME
@given(TABLES)
def test_what_is_written_is_read_as_the_same_and_is_without_a_word(table: Table) -> None:
    text = table.to_json()
    source = from_text("t.json", text)
    read = table_of(source)
    assert read == table
    assert read.to_json() == text
    product: Product | None = "a2" if json.loads(text).get("version") == "1.0" else None
    assert validate_table(source, product=product, job="torch") == ()
    assert differences(read, table) == ()


@SOME
@given(TABLES, st.integers(0, 4))
def test_spaces_and_the_order_of_members_mean_nothing(table: Table, indent: int) -> None:
    document = json.loads(table.to_json())
    text = json.dumps(document, indent=indent, sort_keys=True, ensure_ascii=False)
    assert differences(table_of(from_text("t.json", text)), table) == ()


@SOME
@given(
    table=st.one_of(server_tables(), server_tables(with_pods=True)),
    at=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    broken=st.sampled_from(BROKEN),
)
def test_one_broken_member_is_named_by_its_rule(
    table: RankTable, at: tuple[int, int], broken: tuple[str, str, str, object]
) -> None:
    rule, where, name, value = broken
    document = json.loads(table.to_json())
    servers = document["server_list"]
    server = servers[at[0] % len(servers)]
    parts: dict[str, dict[str, Any]] = {
        "table": document,
        "server": server,
        "device": server["device"][at[1] % len(server["device"])],
        "other server": servers[(at[0] + 1) % len(servers)],
        "other device": server["device"][(at[1] + 1) % len(server["device"])],
    }
    before = copy.deepcopy(document)
    if value is DROP:
        del parts[where][name]
    else:
        parts[where][name] = parts[f"other {where}"][name] if value is AGAIN else value
    is_a_change = document != before
    only_between_pods = rule == "device-ip-missing" and (
        len(servers) == 1 or (table.version == "1.2" and len(table.super_pods) == 1)
    )
    text = json.dumps(document)
    problems = validate_table(from_text("t.json", text), product="a3" if table.super_pods else "a2")
    named = {problem.id for problem in problems}
    assert (rule in named) == (is_a_change and not only_between_pods)
    lines = lines_of(text, [problem.path for problem in problems])
    assert set(lines.values()) <= {1}


@SOME
@given(server_tables(with_pods=True))
def test_conversions_keep_every_rank_where_it_is(table: RankTable) -> None:
    plain = convert(table, "1.0").table
    places = [(row.rank, row.server, row.device_id, row.addresses) for row in table.rows]
    assert [(r.rank, r.server, r.device_id, r.addresses) for r in plain.rows] == places
    sorted_by_text = in_order(plain, "server-id")
    problems = validate_table(from_text("t.json", sorted_by_text.to_json()), job="mindspore")
    assert "mindspore-order" not in {problem.id for problem in problems}


@pytest.mark.parametrize("depth", [1, 50])
@SOME
@given(value=st.recursive(st.integers(), lambda inner: st.lists(inner) | st.just({})))
def test_any_json_is_judged_or_refused_and_nothing_breaks(depth: int, value: object) -> None:
    inner = value
    for _ in range(depth):
        inner = [inner]
    for name in ("server_list", "rank_list", "group_list", "super_pod_list"):
        for version in ("1.0", "1.2", "2.0"):
            for held in (inner, value, [{"device": value, "instance_list": inner}]):
                document = {"server_list": [], name: held, "version": version}
                assert validate_table(from_text("t.json", json.dumps(document)))
