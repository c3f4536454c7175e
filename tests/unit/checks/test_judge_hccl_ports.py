"""The ports that HCCL needs on every node."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ascendboot.checks.launchers import ports_of_hccl
from ascendboot.checks.rank_table import rank_table_text
from ascendboot.facts.parsers.npu_smi import NpuMap
from ascendboot.facts.parsers.system import KernelPorts, Listener
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Device, OwnTable
from tests.unit.checks import well

MOVE = "Unless that is a job which runs now, end it, or move HCCL: HCCL_IF_BASE_PORT under `env`."


@pytest.mark.parametrize(
    ("env", "ports"),
    [
        ({}, (range(60000, 60032),)),
        ({"HCCL_IF_BASE_PORT": "50000"}, (range(50000, 50032),)),
        ({"HCCL_IF_BASE_PORT": "much"}, ()),
        (
            {"HCCL_HOST_SOCKET_PORT_RANGE": "60000-60050,61000"},
            (range(60000, 60051), range(61000, 61001)),
        ),
        ({"HCCL_HOST_SOCKET_PORT_RANGE": "auto", "HCCL_IF_BASE_PORT": "1"}, ()),
    ],
)
def test_the_environment_of_the_job_moves_them(
    env: dict[str, str], ports: tuple[range, ...]
) -> None:
    cluster = well.cluster(well.node(1), env=env)
    assert ports_of_hccl(cluster, cluster.primary) == ports


def test_a_node_may_have_ports_of_its_own() -> None:
    first, second = well.TWO.nodes
    env = {"HCCL_IF_BASE_PORT": "50000"}
    wish = replace(well.TWO, nodes=(first, replace(second, env=env)))
    taken = listeners((50007, "nfsd", 7), (60000, "x", 8))
    found = well.judged(wish, well.facts(1, listeners=taken), well.facts(2, listeners=taken))
    assert [text.partition(" is ")[0] for text in found] == [
        "hccl-port-taken warning lab-1: port 60000 of HCCL's 60000-60031",
        "hccl-port-taken warning lab-2: port 50007 of HCCL's 50000-50031",
    ]


def test_every_range_is_looked_at() -> None:
    wish = replace(well.TWO, env={"HCCL_HOST_SOCKET_PORT_RANGE": "50000-50050,61000"})
    taken = listeners((50007, "nfsd", 7), (60000, "x", 8), (61000, "nfsd", 7))
    found = well.judged(wish, well.facts(1), well.facts(2, listeners=taken))
    assert [text.partition(" are ")[0].partition(" is ")[0] for text in found] == [
        "hccl-port-taken warning lab-2: port 50007 of HCCL's 50000-50050",
        "hccl-port-taken warning lab-2: port 61000 of HCCL's 61000",
    ]


def listeners(*listening: tuple[int, str | None, int | None]) -> Answered[tuple[Listener, ...]]:
    return Answered(
        tuple(Listener(address="*", port=n, program=who, pid=pid) for n, who, pid in listening)
    )


def test_ports_that_are_taken_are_told_with_their_holders() -> None:
    taken = listeners(
        (60000, "python3", 7), (60001, "python3", 7), (60031, None, None), (60032, "x", 8)
    )
    assert well.second(listeners=taken) == [
        (
            "hccl-port-taken warning lab-2: ports 60000-60001 of HCCL's 60000-60031 are taken by "
            f"python3 (pid 7). {MOVE}"
        ),
        (
            "hccl-port-taken warning lab-2: port 60031 of HCCL's 60000-60031 is taken by a "
            f"program of another user. {MOVE}"
        ),
    ]


def test_ports_that_any_connection_may_take_are_told() -> None:
    assert well.second(kernel_ports=Answered(KernelPorts(32768, 60999, ((60000, 60015),)))) == [
        (
            "hccl-ports-ephemeral warning lab-2: any outgoing connection may take a port of HCCL's "
            "60000-60031: Linux gives 32768-60999 to them. Add the range to "
            "net.ipv4.ip_local_reserved_ports, behind what is there."
        )
    ]


@pytest.mark.parametrize(
    "ports", [KernelPorts(32768, 60999, ((60000, 60031),)), KernelPorts(32768, 59999)]
)
def test_ports_that_are_kept_are_well(ports: KernelPorts) -> None:
    assert well.second(kernel_ports=Answered(ports)) == []


def test_one_node_alone_needs_none() -> None:
    alone = well.cluster(well.node(1))
    seen = well.facts(1, kernel_ports=Answered(KernelPorts(32768, 60999)))
    assert well.judged(alone, seen) == []


@pytest.mark.parametrize(
    ("shown", "used", "said"),
    [
        ("0,1", (), "0-1, and the ranks of this node have the devices with the logic ids 0-7"),
        ("2,3", (1, 2), "2-3, and the ranks of this node have the devices with the logic ids 1-2"),
        ("0,1,2,3,4,5,6,7", (), ""),
        ("1,2,5", (1, 2), ""),
    ],
)
def test_devices_that_a_rank_would_not_see(shown: str, used: tuple[int, ...], said: str) -> None:
    devices = tuple(map(Device, used))
    wish = well.cluster(
        well.node(1, devices=devices), env={"ASCEND_RT_VISIBLE_DEVICES": shown}, product="a2"
    )
    text = f"hccl-setting error lab-1: ASCEND_RT_VISIBLE_DEVICES shows {said}. "
    remedy = "Leave it out, and state the ones to use as `devices`."
    assert well.judged(wish, well.facts(1)) == ([text + remedy] if said else [])


@pytest.mark.parametrize(
    ("hosts", "retry", "is_told"),
    [
        (None, "L0:0, L1:1", True),
        (None, "L0:0, L1:0", False),
        ((), "L1:1", True),
        ((1,), "L1:1", True),
        ((1, 2), "L1:1", False),
    ],
)
def test_steps_are_repeated_only_where_the_table_has_the_hosts(
    hosts: tuple[int, ...] | None,
    retry: str,
    is_told: bool,  # noqa: FBT001
) -> None:
    seen = (well.a3(1), well.a3(2))
    wish = replace(well.TWO, env={"HCCL_OP_RETRY_ENABLE": retry})
    if hosts is not None:
        made = json.loads(rank_table_text(wish, {found.node: found for found in seen}))
        for number in hosts:
            made["server_list"][number - 1]["host_ip"] = f"198.18.0.{number}"
        table = OwnTable(text=json.dumps(made), generation="1.2", places=())
        wish = replace(wish, own_table=table)
    found = [line for line in well.judged(wish, *seen) if line.startswith("hccl-setting")]
    text = (
        "hccl-setting warning lab-[1-2]: HCCL_OP_RETRY_ENABLE: nothing is repeated, because the "
        "rank table does not state a host_ip for every server. Give a table that does as "
        "`resources.file`, or switch it off."
    )
    assert found == ([text] if is_told else [])
    not_a3 = replace(wish, own_table=None)
    two = [well.facts(1), well.facts(2)]
    assert "nothing is repeated" not in "".join(well.judged(not_a3, *two))


def test_values_that_are_wrong_for_the_product_the_nodes_report() -> None:
    wish = replace(well.TWO, env={"HCCL_EXEC_TIMEOUT": "0", "HCCL_INTER_HCCS_DISABLE": "TRUE"})
    first = well.facts(1, npus=Answered(NpuMap((well.npu(0, "Ascend 910A"),))))
    found = [f for f in well.judged(wish, first, well.facts(2)) if f.startswith("hccl-setting")]
    where = "HCCL_INTER_HCCS_DISABLE: is read on A3 only, not on"
    assert found == [
        (
            'hccl-setting error lab-1: HCCL_EXEC_TIMEOUT: "0" is not a whole number from 1 to '
            "17340, in seconds on 910. Correct it in the inventory."
        ),
        f"hccl-setting warning lab-1: {where} 910; remove it. Correct it in the inventory.",
        f"hccl-setting warning lab-2: {where} A2; remove it. Correct it in the inventory.",
    ]
