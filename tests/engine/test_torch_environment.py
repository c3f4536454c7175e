"""The environment that setup writes for ranks of PyTorch and Open MPI."""

from __future__ import annotations

import re

import pytest

from ascendboot.facts.node_facts import NodeEnvironment
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Device
from ascendboot.value import replace
from tests.engine.simulated import Simulation


def exports(cluster: Simulation, number: int) -> list[str]:
    """What node.env of one node exports for PyTorch, and its NIC."""
    text = cluster.nodes[number].text("env/node.env")
    names = ("GLOO", "TP_", "HCCL_", "ASCEND_RT")
    lines = [line.removeprefix("export ") for line in text.splitlines()]
    return [line for line in lines if line.startswith(names)]


def of_nic(name: str, number: int) -> list[str]:
    """What a node exports that uses this NIC."""
    settings = ("GLOO_SOCKET_IFNAME=", "TP_SOCKET_IFNAME=", "HCCL_SOCKET_IFNAME==")
    return [*(f"{setting}{name}" for setting in settings), f"HCCL_IF_IP=198.18.0.{number}"]


@pytest.mark.parametrize("wish", [{"launcher": "torchrun"}, {"resource_mode": "root-info"}])
def test_each_node_gets_its_own_nic_and_address(wish: dict[str, str]) -> None:
    cluster = Simulation.of(2, **wish)
    seen = cluster.facts["lab-2"].interfaces
    assert isinstance(seen, Answered)
    loopback, nic = seen.value
    cluster.change("lab-2", interfaces=Answered((loopback, replace(nic, name="roce7"))))
    assert cluster.walk().exit_code == 0
    assert exports(cluster, 0) == of_nic("eth0", 1)
    assert exports(cluster, 1) == of_nic("roce7", 2)


def test_with_torchrun_no_login_looks_for_open_mpi() -> None:
    cluster = Simulation.of(2)
    checked = []
    for launcher in ("mpirun", "torchrun"):
        cluster.cluster = replace(cluster.cluster, launcher=launcher)
        assert cluster.walk().exit_code == 0
        assert bool(exports(cluster, 0)) is (launcher == "torchrun")  # variables of PyTorch
        ran = cluster.nodes[0].transport.commands
        [script] = [c.argv[2] for c in ran if c.purpose == "log in from the primary"]
        checked.append(["orted" in script, "env/rank-exec" in script])
    assert checked == [[True, True], [False, True]]


def test_selected_devices_and_stated_variables() -> None:
    cluster = Simulation.of(1)
    (node,) = cluster.cluster.nodes
    cluster.cluster = replace(
        cluster.cluster,
        nodes=(replace(node, devices=(Device(4), Device(6))),),
        launcher="torchrun",
        env={"HCCL_SOCKET_IFNAME": "eth"},
    )
    assert cluster.walk().exit_code == 0
    assert exports(cluster, 0) == [
        "GLOO_SOCKET_IFNAME=eth0",
        "TP_SOCKET_IFNAME=eth0",
        "ASCEND_RT_VISIBLE_DEVICES=4,6",
        "HCCL_SOCKET_IFNAME=eth",
    ]


def test_the_variables_of_a_node_apply_to_it_alone() -> None:
    cluster = Simulation.of(2)
    first, second = cluster.cluster.nodes
    own = {"HCCL_SOCKET_IFNAME": "eth9", "GLOO_SOCKET_IFNAME": "eth8"}
    cluster.cluster = replace(
        cluster.cluster, nodes=(first, replace(second, env=own)), launcher="torchrun"
    )
    assert cluster.walk().exit_code == 0
    assert exports(cluster, 0) == of_nic("eth0", 1)
    stated = ["GLOO_SOCKET_IFNAME=eth8", "HCCL_SOCKET_IFNAME=eth9"]
    assert exports(cluster, 1) == ["TP_SOCKET_IFNAME=eth0", *stated]


SINGLE_COPY = "OMPI_MCA_btl_vader_single_copy_mechanism"


@pytest.mark.parametrize(
    ("wish", "refused", "exported"),
    [
        ({}, "Operation not permitted", ["none"]),
        ({}, "", []),
        ({"env": {SINGLE_COPY: "emulated"}}, "Operation not permitted", ["emulated"]),
        (
            {"mpi_args": ("--mca", "btl_vader_single_copy_mechanism", "cma")},
            "Operation not permitted",
            [],
        ),
        ({"launcher": "torchrun"}, "Operation not permitted", []),
    ],
)
def test_open_mpi_makes_no_single_copy_where_the_kernel_refuses_it(
    wish: dict[str, object], refused: str, exported: list[str]
) -> None:
    cluster = Simulation.of(2, **wish)
    cluster.change("lab-2", surroundings=Answered(NodeEnvironment(single_copy=refused)))
    assert cluster.walk().exit_code == 0
    texts = [node.text("env/node.env") for node in cluster.nodes]
    found = [re.findall(rf"^export {SINGLE_COPY}=(\S+)$", text, re.MULTILINE) for text in texts]
    assert found == [exported if "env" in wish else [], exported]
