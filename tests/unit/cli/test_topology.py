"""`topology.show`: the table of leaf switches as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.calls import called

ALTERNATING = """\
cluster: c
primary: n2
nodes:
  n1: {address: 192.0.2.1, leaf: b}
  n2: {address: 192.0.2.2, leaf: a}
  n3: {address: 192.0.2.3, leaf: b}
  n4: {address: 192.0.2.4, leaf: a}
  n5: {address: 192.0.2.5, leaf: b}
"""
TWO_LEAVES = """\
cluster: c
nodes:
  n1: {address: 192.0.2.1, leaf: {"0,3": a, 1-2: b}}
  n2: {address: 192.0.2.2, leaf: {"0-1": a, 2-3: b}}
  n3: {address: 192.0.2.3}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "alternating.yaml").write_text(ALTERNATING)
    (tmp_path / "two-leaves.yaml").write_text(TWO_LEAVES)
    (tmp_path / "plain.yaml").write_text("cluster: c\nnodes: {n1: {address: 192.0.2.1}}\n")
    return tmp_path


def test_the_table_has_the_nodes_in_rank_order(place: Path) -> None:
    done = called("topology.show --inventory alternating.yaml", place)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "rank order by leaf switches: ring cost 4 before, 2 after (optimal)",
        "",
        "  node rank  before  node  leaf",
        "  0          0       n2    a",
        "  1          3       n4    a",
        "  2          1       n1    b",
        "  3          2       n3    b",
        "  4          4       n5    b",
        "",
        "leaf a: n[2,4]",
        "leaf b: n[1,3,5]",
    ]


def test_devices_with_equal_leaves_share_a_column_and_contradictions_are_named(place: Path) -> None:
    done = called("topology.show --inventory two-leaves.yaml", place)
    table, warnings = done.stdout.split("leaf a:")[0], done.stdout.splitlines()[-4:]
    assert table.splitlines() == [
        "rank order by leaf switches: already optimal, ring cost 10",
        "",
        "  node rank  before  node  devices 0  devices 1  devices 2  devices 3",
        "  0          0       n1    a          b          b          a",
        "  1          1       n2    a          a          b          b",
        "  2          2       n3    ?n3        ?n3        ?n3        ?n3",
        "",
    ]
    assert [line.partition(". ")[0] for line in warnings[1:]] == [
        "warning: n3: no leaf switch is stated for the node, but other leaf switches are stated",
        "warning: n2: the leaf a has devices 0-1 here, but devices 0,3 of n1",
        "warning: n2: the leaf b has devices 2-3 here, but devices 1-2 of n1",
    ]


def test_the_document_has_the_same(place: Path) -> None:
    done = called("topology.show --inventory alternating.yaml --json", place)
    document = json.loads(done.stdout)
    assert document["cost"] == {"before": 4, "after": 2, "bound": 2}
    assert document["nodes"][1] == {"node_rank": 1, "node": "n4", "before": 3, "leaves": ["a"]}
    assert (document["exit_code"], document["warnings"]) == (0, [])


def test_without_leaves_it_says_what_to_state(place: Path) -> None:
    done = called("topology.show --inventory plain.yaml", place)
    assert (done.returncode, done.stdout) == (
        0,
        "no node states a leaf: ranks are in inventory order; state `leaf` to order them\n",
    )
