"""The rank table: what is written, and what is refused."""

from __future__ import annotations

import json

from ascendboot.ranktable.formats import RankedDevice, RankTable, Server


def table(*servers: tuple[str, list[tuple[int, str | None, int]]]) -> RankTable:
    return RankTable(
        tuple(Server(i, tuple(RankedDevice(*device) for device in ds)) for i, ds in servers)
    )


GOOD = table(
    ("node_0", [(0, "192.0.2.8", 0), (1, "192.0.2.9", 1)]),
    ("node_1", [(0, "192.0.2.18", 2), (1, "192.0.2.19", 3)]),
)


def test_a_table_counts_its_ranks() -> None:
    assert GOOD.world_size == 4


def test_every_number_is_written_as_a_string() -> None:
    assert json.loads(GOOD.to_json()) == {
        "status": "completed",
        "version": "1.0",
        "server_count": "2",
        "server_list": [
            {
                "server_id": "node_0",
                "device": [
                    {"device_id": "0", "device_ip": "192.0.2.8", "rank_id": "0"},
                    {"device_id": "1", "device_ip": "192.0.2.9", "rank_id": "1"},
                ],
            },
            {
                "server_id": "node_1",
                "device": [
                    {"device_id": "0", "device_ip": "192.0.2.18", "rank_id": "2"},
                    {"device_id": "1", "device_ip": "192.0.2.19", "rank_id": "3"},
                ],
            },
        ],
    }


def test_one_server_needs_no_device_ip_and_none_is_written() -> None:
    alone = table(("node_0", [(0, None, 0)]))
    assert json.loads(alone.to_json())["server_list"][0]["device"] == [
        {"device_id": "0", "rank_id": "0"}
    ]
