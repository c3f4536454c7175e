"""The text of a rank table, byte for byte: no number of 1.0 stands without quotes."""

from __future__ import annotations

import json

import pytest

from ascendboot.ranktable.formats.parts import understood
from ascendboot.ranktable.formats.servers import RankTable


def device(device_id: int, rank_id: int, **members: object) -> dict[str, object]:
    return {"device_id": device_id, "rank_id": rank_id, **members}


@pytest.mark.parametrize(
    ("devices", "written"),
    [
        (
            [device(0, 0, device_ip="192.0.2.8"), device(1, 1, device_ip="192.0.2.9")],
            [
                {"device_id": "0", "device_ip": "192.0.2.8", "rank_id": "0"},
                {"device_id": "1", "device_ip": "192.0.2.9", "rank_id": "1"},
            ],
        ),
        # one server needs no address, and none is written
        ([device(0, 0, device_ip="")], [{"device_id": "0", "rank_id": "0"}]),
        # by rank; unknown members before it
        (
            [device(5, 1, zone="字", device_port="1"), device(4, 0, super_device_id=7)],
            [
                {"device_id": "4", "super_device_id": "7", "rank_id": "0"},
                {"device_id": "5", "device_port": "1", "zone": "字", "rank_id": "1"},
            ],
        ),
    ],
)
def test_every_number_is_written_as_a_string(
    devices: list[dict[str, object]], written: list[dict[str, str]]
) -> None:
    server = {"server_id": "node_0", "zone": [1], "device": devices}
    table = understood(RankTable, {"status": "old", "server_list": [server], "other": None}, "t")
    assert table.world_size == len(devices)
    document = {
        "status": "completed",
        "version": "1.0",
        "server_count": "1",
        "server_list": [{"server_id": "node_0", "zone": [1], "device": written}],
        "other": None,
    }
    assert table.to_json() == json.dumps(document, indent=2) + "\n"
