"""The text of a rank table, byte for byte: no number of 1.0 stands without quotes."""

from __future__ import annotations

import json

from ascendboot.ranktable.formats.parts import understood
from ascendboot.ranktable.formats.servers import RankTable


def test_numbers_are_strings_and_unknown_members_stand_before_the_last() -> None:
    devices = [
        {"device_id": 5, "rank_id": 1, "zone": "字", "device_port": "1", "device_ip": "192.0.2.9"},
        # one server needs no address, and none is written
        {"device_id": 4, "rank_id": 0, "super_device_id": 7, "device_ip": ""},
    ]
    server = {"server_id": "node_0", "zone": [1], "device": devices}
    table = understood(RankTable, {"status": "old", "server_list": [server], "other": None}, "t")
    first = {"device_id": "4", "super_device_id": "7", "rank_id": "0"}
    second = {"device_id": "5", "device_ip": "192.0.2.9", "device_port": "1", "zone": "字"}
    written = [first, {**second, "rank_id": "1"}]
    document = {
        "status": "completed",
        "version": "1.0",
        "server_count": "1",
        "server_list": [{"server_id": "node_0", "zone": [1], "device": written}],
        "other": None,
    }
    assert table.to_json() == json.dumps(document, indent=2) + "\n"
