"""Inside an allocation of Slurm its nodes are the inventory, or the part of one that is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.cli.allocation import Allocation
from ascendboot.errors import UsageError
from ascendboot.inventory.load import load

INSIDE = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a[2-3],b"}
INVENTORY = """\
cluster: big
primary: b
nodes: {"a[1-4]": {address: "192.0.2.[1-4]"}, b: {address: 192.0.2.9}}
ssh: {standby: [a1, a2]}
"""
SCONTROL = """\
#!/bin/sh
[ "$*" = '--oneliner show node a2,a3,b' ] || exit 1
echo 'NodeName=a2 Arch=x86_64 NodeAddr=192.0.2.2 NodeHostName=a2 Version=22.05.8'
echo 'NodeName=a3 Arch=x86_64 NodeAddr=192.0.2.3 NodeHostName=a3 Version=22.05.8'
"""


@pytest.fixture
def allocation() -> Allocation:
    found = Allocation.current(INSIDE)
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    answers(tmp_path, "NodeName=b NodeAddr=192.0.2.9")


def answers(place: Path, line: str) -> None:
    (place / "scontrol").write_text(f"{SCONTROL}echo '{line}'\n")
    (place / "scontrol").chmod(0o755)


def test_outside_there_is_none() -> None:
    assert Allocation.current({}) is None
    assert Allocation.current({"SLURM_JOB_ID": "7"}) is None


def test_without_an_inventory_the_nodes_are_one(tmp_path: Path, allocation: Allocation) -> None:
    path = allocation.inventory(tmp_path, INSIDE)
    assert path == tmp_path / ".ascendboot/slurm-7.yaml"
    cluster = load(path)
    assert (cluster.name, cluster.launcher) == ("slurm-7", "srun")
    addresses = {"a2": "192.0.2.2", "a3": "192.0.2.3", "b": "192.0.2.9"}
    assert {node.name: node.cluster_address for node in cluster.nodes} == addresses
    assert allocation.part_of(cluster) == cluster


def test_the_inventory_that_was_set_up_last_counts(tmp_path: Path, allocation: Allocation) -> None:
    current = tmp_path / ".ascendboot/current"
    current.parent.mkdir()
    current.write_text("big.yaml\n")
    assert allocation.inventory(tmp_path, INSIDE) is None
    current.write_text(".ascendboot/slurm-6.yaml\n")  # of an earlier allocation
    assert allocation.inventory(tmp_path, INSIDE) is not None
    assert allocation.inventory(tmp_path, {"ASCENDBOOT_INVENTORY": "big"}) is None


def test_a_part_of_an_inventory_is_a_cluster_of_its_own(allocation: Allocation) -> None:
    Path("big.yaml").write_text(INVENTORY)
    part = allocation.part_of(load(Path("big.yaml")))
    assert (part.name, part.primary_name, part.standby) == ("big-slurm-7", "b", ("a2",))
    assert [node.name for node in part.nodes] == ["a2", "a3", "b"]
    other = Allocation("8", ("a3", "a4")).part_of(load(Path("big.yaml")))
    assert (other.name, other.primary_name, other.standby) == ("big-slurm-8", "a3", ())


def test_a_node_that_the_inventory_lacks_is_named(allocation: Allocation) -> None:
    Path("big.yaml").write_text(INVENTORY.replace("[1-4]", "[1-2]"))
    with pytest.raises(UsageError) as caught:
        allocation.part_of(load(Path("big.yaml")))
    assert str(caught.value) == (
        "big.yaml: could not be used in Slurm job 7: a3 of its nodes are not in the inventory; add "
        "them by their names in Slurm, or unset SLURM_JOB_NODELIST to use the nodes of the "
        "inventory"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("NodeName=c NodeAddr=192.0.2.9", "scontrol show node: names other nodes; write an"),
        ("NodeName=b NodeAddr=127.0.1.1", "b: could not find the IPv4 address of 127.0.1.1: 127"),
    ],
)
def test_nodes_without_an_address_are_refused(
    tmp_path: Path, allocation: Allocation, line: str, message: str
) -> None:
    answers(tmp_path, line)
    with pytest.raises(UsageError, match="write an inventory and use --inventory") as caught:
        allocation.inventory(tmp_path, INSIDE)
    assert message in str(caught.value)
