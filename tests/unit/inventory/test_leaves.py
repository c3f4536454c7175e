"""Leaf switches from files of MindCluster, Huawei Cloud's Volcano and Slurm."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from tests.unit.inventory.written import loaded, refused

INVENTORY = """\
cluster: c
nodes:
  n1: {address: 192.0.2.1}
  n2: {address: 192.0.2.2, server_id: two}
  n3: {address: 192.0.2.3, leaf: mine}
topology: {leaves: leaves.txt}
"""
TORS = {
    "version": "1.0",
    "tor_count": 2,
    "server_list": [
        {
            "tor_id": 0,
            "tor_ip": "198.51.100.1",
            "server": [{"server_ip": "192.0.2.1", "npu_count": 8, "slice_id": 3}],
        },
        {"tor_id": 1, "tor_ip": "", "server": [{"server_ip": "192.0.2.2"}]},
    ],
}
RANKS = {
    "status": "completed",
    "version": "1.0",
    "server_count": "1",
    "server_list": [
        {
            "pod_name": "job-0",
            "server_id": "two",
            "device": [
                {"device_id": "1", "device_ip": "", "rank_id": "1", "tor_ip": "b", "tor_port": "1"},
                {"device_id": "0", "device_ip": "", "rank_id": "0", "tor_ip": "a", "tor_port": "2"},
            ],
        }
    ],
}
SLURM = """\
# a tree of two levels
SwitchName=leaf1 Nodes=n[1,3] LinkSpeed=400
switchname = leaf2 \\
  nodes=n2  # the other rack
SwitchName=spine Switches=leaf[1-2]
"""
PACKED = base64.encodebytes(gzip.compress(json.dumps(RANKS).encode(), mtime=0)).decode()
BY_DEVICE = ((0, "a"), (1, "b"))


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        (json.dumps(TORS), [("198.51.100.1", 3), ("tor-1", 0), ("mine", 0)]),
        (json.dumps(RANKS), [(None, 0), (BY_DEVICE, 0), ("mine", 0)]),
        (PACKED, [(None, 0), (BY_DEVICE, 0), ("mine", 0)]),
        (SLURM, [("leaf1", 0), ("leaf2", 0), ("mine", 0)]),
    ],
    ids=["basic-tor-node-cm", "ranktable_tor", "packed", "slurm"],
)
def test_nodes_get_leaves_from_a_file_and_a_stated_leaf_counts_first(
    text: str, leaves: list[object]
) -> None:
    """Slices come with them from MindCluster alone."""
    Path("leaves.txt").write_text(text)
    assert [(node.leaf, node.slice_id) for node in loaded(INVENTORY).nodes] == leaves


def test_leaves_that_setup_reads_by_lldp_are_no_file_and_any_group_may_name_them() -> None:
    text = INVENTORY.replace("leaves.txt", "lldp, cores: {b: pod}")
    assert [node.leaf for node in loaded(text).nodes] == [None, None, "mine"]
    assert loaded(text).reads_leaves
    assert not loaded(INVENTORY.partition("topology")[0]).reads_leaves


FORMS = "basic-tor-node-cm, ranktable_tor.json or Slurm's topology.conf"
SWITCH = "expected SwitchName=NAME with Nodes=NAMES or Switches=NAMES"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", f"not {FORMS}; JSON may be packed by gzip and base64"),
        (PACKED[:40], f"not {FORMS}; JSON may be packed by gzip and base64"),
        ("{}", f"server_list: not as in {FORMS}; name such a file"),
        (
            json.dumps({**RANKS, "status": "initializing"}),
            'its status is "initializing", not completed; copy it again',
        ),
        (SLURM + "SwitchName=leaf3 Nodes=n1", '"n1" is on two leaf switches; correct the file'),
        ("SwitchName=a Nodes=m[1-2]", "names none of the nodes, but m1, m2; name another file"),
        ("SwitchName=a Nodse=n1", f'"SwitchName=a Nodse=n1" is not understood; {SWITCH}'),
        ("SwitchName=a\nNodes=n1", f'"Nodes=n1" names no switch; {SWITCH}'),
    ],
)
def test_a_file_of_another_form_is_refused(text: str, problem: str) -> None:
    Path("leaves.txt").write_text(text)
    assert refused(INVENTORY) == [f"i.yaml:6: topology.leaves: leaves.txt: {problem}"]


def test_a_file_that_is_missing_is_named() -> None:
    assert refused(INVENTORY) == [
        "i.yaml:6: topology.leaves: leaves.txt: could not be read: No such file or directory"
    ]
