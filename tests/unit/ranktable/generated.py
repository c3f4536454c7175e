"""Tables of all generations as hypothesis makes them up."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ascendboot.ranktable.formats.groups import GroupTable
from ascendboot.ranktable.formats.levels import LevelTable
from ascendboot.ranktable.formats.parts import understood
from ascendboot.ranktable.formats.servers import RankTable

NAMES = st.text("abcxyz019-._é字", min_size=1, max_size=12).filter(
    lambda name: "..." not in name and "xx" not in name and "x.x" not in name
)
EXTRA = st.dictionaries(
    st.sampled_from(("container_ip", "hardware_type", "note", "zone")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=4,
    ),
    max_size=2,
)


def address(number: int, *, v6: bool) -> str:
    return f"2001:db8::{number:x}" if v6 else f"198.51.{number >> 8}.{number & 255}"


@st.composite
def server_tables(draw: st.DrawFn, *, with_pods: bool = False) -> RankTable:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    devices = draw(st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True))
    v6, ports = draw(st.booleans()), draw(st.sampled_from((1, 2)))

    def one(at: int, index: int, device: int) -> dict[str, Any]:
        rank = at * len(devices) + index
        found = {
            "device_id": device,
            "device_ip": ",".join(address(rank * ports + port, v6=v6) for port in range(ports)),
            "rank_id": rank,
        }
        if draw(st.booleans()):
            found["device_port"] = str(draw(st.integers(1, 65535)))
        place = at << 22 | device // 2 << 18 | device % 2 << 16 | device
        return found | ({"super_device_id": place} if with_pods else {})

    servers = [
        draw(EXTRA) | {"server_id": name, "device": [one(at, *pair) for pair in enumerate(devices)]}
        for at, name in enumerate(names)
    ]
    cut = draw(st.integers(1, len(names)))
    pods = [
        draw(EXTRA)
        | {"super_pod_id": f"pod{i}", "server_list": [{"server_id": name} for name in part]}
        for i, part in enumerate((names[:cut], names[cut:]))
        if part
    ]
    of_pods = {"version": "1.2", "super_pod_list": pods} if with_pods else {}
    return understood(RankTable, draw(EXTRA) | {"server_list": servers} | of_pods, "table.json")


@st.composite
def level_tables(draw: st.DrawFn) -> LevelTable:
    layers = sorted(draw(st.sets(st.integers(0, 7), min_size=1, max_size=3)))
    counts = {layer: draw(st.integers(0, 3)) for layer in layers}
    kind = draw(st.sampled_from(("IPV4", "IPV6", "EID")))
    ports = st.lists(st.sampled_from(("0/0", "1/7", "d2h")), min_size=1, max_size=3)
    numbers = iter(range(10_000))

    def one() -> dict[str, Any]:
        number = next(numbers)
        text = f"{number:032x}" if kind == "EID" else address(number, v6=kind == "IPV6")
        return {"addr_type": kind, "addr": text, "ports": draw(ports), "plane_id": "p0"}

    def level(layer: int) -> dict[str, Any]:
        net = {"net_layer": layer, "net_instance_id": "all", "net_attr": "", "net_type": "CLOS"}
        return net | {"rank_addr_list": [one() for _ in range(counts[layer])]}

    ranks = [
        {**dict.fromkeys(("rank_id", "local_id", "device_id"), rank), "device_port": 16666 + rank}
        | {"level_list": [level(layer) for layer in layers]}
        for rank in range(draw(st.integers(1, 6)))
    ]
    return understood(LevelTable, draw(EXTRA) | {"rank_list": ranks}, "table.json")


@st.composite
def group_tables(draw: st.DrawFn) -> GroupTable:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    devices = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True))
    instances = [
        {
            "pod_name": f"pod-{i}",
            "server_id": name,
            "devices": [
                draw(EXTRA) | {"device_id": d, "device_ip": address(i * 8 + d, v6=False)}
                for d in devices
            ],
        }
        for i, name in enumerate(names)
    ]
    group = draw(EXTRA) | {"group_name": "world", "instance_list": instances}
    return understood(GroupTable, draw(EXTRA) | {"group_list": [group]}, "table.json")


TABLES: st.SearchStrategy[Any] = st.one_of(
    server_tables(), server_tables(with_pods=True), level_tables(), group_tables()
)
