"""A table against the devices that are there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ascendboot.checks.rank_table import made_table
from ascendboot.cli.ranktable import servers_seen
from ascendboot.ranktable.check import DeviceState, ServerState, against
from tests.unit.checks import well
from tests.unit.ranktable.examples import DROP, changed, groups, v10, v12

DEVICE = "server_list/0/device/0"


def seen(document: dict[str, Any]) -> dict[str, ServerState]:
    """Nodes that are as the table says."""
    return {
        server["server_id"]: ServerState(
            f"n{index}",
            {
                int(device["device_id"]): DeviceState(
                    device_ip=device["device_ip"],
                    in_conf=device["device_ip"],
                    super_device_id=int(device["super_device_id"])
                    if "super_device_id" in device
                    else None,
                )
                for device in server["device"]
            },
        )
        for index, server in enumerate(document["server_list"])
    }


def found(document: dict[str, Any], servers: dict[str, ServerState]) -> list[tuple[str, str, str]]:
    return [(p.id, p.where, p.text) for p in against(document, servers)]


@pytest.mark.parametrize("document", [v10(), v12()])
def test_a_table_that_is_true_is_not_stale(document: dict[str, Any]) -> None:
    assert found(document, seen(document)) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            f"{DEVICE}/device_ip",
            "192.0.2.9",
            [
                (
                    "device-ip-stale",
                    "server_list[0].device[0].device_ip",
                    "the table has 192.0.2.9, n0 device 0 has 198.51.100.0 (hccn_tool -i 0 -ip -g)",
                ),
                (
                    "hccn-conf-stale",
                    "server_list[0].device[0].device_ip",
                    "the table has 192.0.2.9, /etc/hccn.conf of n0 device 0 has 198.51.100.0",
                ),
            ],
        ),
        (
            f"{DEVICE}/device_id",
            "7",
            [
                (
                    "device-gone",
                    "server_list[0].device[0].device_id",
                    "n0 has no device 7; it has 0, 1",
                )
            ],
        ),
        (
            "server_list/0/server_id",
            "other",
            [
                (
                    "server-unknown",
                    "server_list[0].server_id",
                    'server_id "other" is no node of the cluster; its nodes have node_0, node_1',
                )
            ],
        ),
        (f"{DEVICE}/device_ip", DROP, []),
        (f"{DEVICE}/device_id", "x", []),
        (
            f"{DEVICE}/device_ip",
            "198.51.100.0,198.51.100.99",
            [
                (
                    "device-ip-stale",
                    "server_list[0].device[0].device_ip",
                    (
                        "the table has 198.51.100.0,198.51.100.99, n0 device 0 has 198.51.100.0 "
                        "(hccn_tool -i 0 -ip -g)"
                    ),
                )
            ],
        ),
        ("server_list", 7, []),
    ],
)
def test_what_is_stale_is_named_with_its_device(
    path: str, value: object, said: list[tuple[str, str, str]]
) -> None:
    assert found(changed(v10(), path, value), seen(v10())) == said


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


def test_super_device_ids_are_compared_where_the_device_tells_its_own() -> None:
    document = changed(v12(), f"{DEVICE}/super_device_id", "99")
    assert found(document, seen(v12())) == [
        (
            "super-device-stale",
            "server_list[0].device[0].super_device_id",
            "the table has 99, n0 device 0 has 0 (npu-smi info -t spod-info)",
        )
    ]


def test_instances_of_a_group_list_are_servers_too() -> None:
    servers = {"node_0": ServerState("n0", {0: DeviceState(device_ip="198.51.100.0")})}
    assert [(id_, where) for id_, where, _ in found(groups(), servers)] == [
        ("server-unknown", "group_list[0].instance_list[1].server_id")
    ]


# --------------------------------------------------------------------------------- version 2.0


def of_950() -> tuple[dict[str, Any], dict[str, ServerState]]:
    facts = {f"lab-{n}": well.a5(n) for n in (1, 2)}
    table: dict[str, Any] = json.loads(made_table(well.TWO, facts).to_json())
    return table, servers_seen(well.TWO, facts)


EID = f"{'020000dfdf00df':0>32}"
ADDRESS = "rank_list/2/level_list/1/rank_addr_list/0"


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
        (
            f"{ADDRESS}/ports",
            ["1/7"],
            (
                f"the table has {EID} on 1/7 in layer 1 of sp_0, lab-2 device 0 has {EID} on 1/0 "
                "in layer 1 of sp_0 (/etc/hccl_rootinfo.json)"
            ),
        ),
        (
            ADDRESS,
            DROP,
            (
                f"the table has less, lab-2 device 0 has {EID} on 1/0 "
                "in layer 1 of sp_0 (/etc/hccl_rootinfo.json)"
            ),
        ),
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
    assert found(moved, servers) == [
        (
            "server-unknown",
            "rank_list[3]",
            (
                'no node has device 1 in net instance "sp_0_srv_9"; the nodes have sp_0_srv_1, '
                "sp_0_srv_2"
            ),
        )
    ]
    nothing_told = {name: replace(server, places={}) for name, server in servers.items()}
    assert found(moved, nothing_told) == []
