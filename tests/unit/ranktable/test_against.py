"""A table against the devices that are there."""

from __future__ import annotations

from typing import Any

import pytest

from ascendboot.ranktable.against import DeviceSeen, ServerSeen, against
from tests.unit.ranktable.examples import DROP, changed, groups, v10, v12

DEVICE = "server_list/0/device/0"


def seen(document: dict[str, Any]) -> dict[str, ServerSeen]:
    """Nodes that are as the table says."""
    return {
        server["server_id"]: ServerSeen(
            f"n{index}",
            {
                int(device["device_id"]): DeviceSeen(
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


def found(document: dict[str, Any], servers: dict[str, ServerSeen]) -> list[tuple[str, str, str]]:
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
    servers["node_0"] = ServerSeen(
        "n0",
        {
            0: DeviceSeen(device_ip="2001:db8::1"),
            1: DeviceSeen(device_ip=None, in_conf="198.51.100.7"),
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
    servers = {"node_0": ServerSeen("n0", {0: DeviceSeen(device_ip="198.51.100.0")})}
    assert [(id_, where) for id_, where, _ in found(groups(), servers)] == [
        ("server-unknown", "group_list[0].instance_list[1].server_id")
    ]
