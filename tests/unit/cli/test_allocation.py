"""Inside an allocation of Slurm its nodes are the inventory, or the part of one that is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.cli.allocation import Allocation
from ascendboot.errors import UsageError
from ascendboot.inventory.load import load

INSIDE = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a[2-3],b"}
HERE = Allocation("7", ("a2", "a3", "b"))
INVENTORY = """\
cluster: big
primary: b
nodes: {"a[1-4]": {address: "192.0.2.[1-4]"}, b: {address: 192.0.2.9}}
ssh: {standby: [a1, a2]}
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    Path("big.yaml").write_text(INVENTORY)
    answers("NodeName=b NodeAddr=192.0.2.9 NodeHostName=b")


def answers(line: str) -> None:
    first = "NodeName=a2 Arch=x NodeAddr=192.0.2.2 Version=22\nNodeName=a3 NodeAddr=192.0.2.3"
    Path("scontrol").write_text(f"#!/bin/sh\necho '{first}\n{line}'\n")
    Path("scontrol").chmod(0o755)


def test_outside_there_is_none() -> None:
    assert Allocation.current(INSIDE) == HERE
    assert Allocation.current({}) is None
    assert Allocation.current({"SLURM_JOB_ID": "7"}) is None
    with pytest.raises(UsageError, match=r'NODELIST: "a\[1-": its brackets do not pair up'):
        Allocation.current({**INSIDE, "SLURM_JOB_NODELIST": "a[1-"})


def test_without_an_inventory_the_nodes_are_one(tmp_path: Path) -> None:
    path = HERE.inventory(tmp_path / ".ascendboot", INSIDE)
    assert path == tmp_path / ".ascendboot/slurm-7.yaml"
    cluster = load(path)
    assert (cluster.name, cluster.launcher) == ("slurm-7", "srun")
    addresses = {"a2": "192.0.2.2", "a3": "192.0.2.3", "b": "192.0.2.9"}
    assert {node.name: node.cluster_address for node in cluster.nodes} == addresses
    assert HERE.part_of(cluster) == cluster


def test_the_inventory_that_was_set_up_last_counts(tmp_path: Path) -> None:
    (tmp_path / ".ascendboot").mkdir()
    current = tmp_path / ".ascendboot/current"
    current.write_text("big.yaml\n")
    assert HERE.inventory(tmp_path / ".ascendboot", INSIDE) is None
    current.write_text(".ascendboot/slurm-6.yaml\n")  # of an earlier allocation
    assert HERE.inventory(tmp_path / ".ascendboot", INSIDE) is not None
    assert HERE.inventory(tmp_path / ".ascendboot", {"ASCENDBOOT_INVENTORY": "big"}) is None


def test_a_part_of_an_inventory_is_a_cluster_of_its_own() -> None:
    whole = load(Path("big.yaml"))
    for allocation, expected in (
        (HERE, ("big-slurm-7", "b", ("a2",), ["a2", "a3", "b"])),
        (Allocation("8", ("a3", "a4")), ("big-slurm-8", "a3", (), ["a3", "a4"])),
    ):
        part = allocation.part_of(whole)
        names = [node.name for node in part.nodes]
        assert (part.name, part.primary_name, part.standby, names) == expected


def test_a_node_that_the_inventory_lacks_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        Allocation("7", ("a2", "c")).part_of(load(Path("big.yaml")))
    assert str(caught.value).startswith(
        "big.yaml: could not be used in Slurm job 7: the inventory has no node c; add"
    )


def test_nodes_without_an_address_are_refused(tmp_path: Path) -> None:
    for line, message in (
        ("NodeName=c NodeAddr=192.0.2.9", "scontrol show node: names other nodes; write an"),
        ("NodeName=b NodeAddr=127.0.1.1", "b: could not find the IPv4 address of 127.0.1.1: it is"),
    ):
        answers(line)
        with pytest.raises(UsageError, match="write an inventory and use --inventory") as caught:
            HERE.inventory(tmp_path / ".ascendboot", INSIDE)
        assert message in str(caught.value)
