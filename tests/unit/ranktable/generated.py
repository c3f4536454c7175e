"""Tables of all generations as hypothesis makes them up."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ascendboot.ranktable.formats import (
    Address,
    Group,
    GroupDevice,
    GroupTable,
    Instance,
    LevelRank,
    LevelTable,
    NetLevel,
    RankedDevice,
    RankTable,
    Server,
    SuperPod,
)

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
).map(lambda members: tuple(sorted(members.items())))


def address(number: int, *, v6: bool) -> str:
    return f"2001:db8::{number:x}" if v6 else f"198.51.{number >> 8}.{number & 255}"


@st.composite
def server_tables(draw: st.DrawFn, *, with_pods: bool = False) -> RankTable:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    devices = draw(st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True))
    v6, ports = draw(st.booleans()), draw(st.sampled_from((1, 2)))
    servers = []
    for at, name in enumerate(names):
        ranked = []
        for index, device in enumerate(devices):
            rank = at * len(devices) + index
            ips = ",".join(address(rank * ports + port, v6=v6) for port in range(ports))
            place = at << 22 | device // 2 << 18 | device % 2 << 16 | device
            port = (("device_port", str(draw(st.integers(1, 65535)))),)
            ranked.append(
                RankedDevice(
                    device,
                    ips,
                    rank,
                    place if with_pods else None,
                    draw(st.sampled_from(((), port))),
                )
            )
        servers.append(Server(name, tuple(ranked), draw(EXTRA)))
    cut = draw(st.integers(1, len(names)))
    parts = [part for part in (names[:cut], names[cut:]) if part]
    pods = tuple(SuperPod(f"pod{i}", tuple(part), draw(EXTRA)) for i, part in enumerate(parts))
    extra = draw(EXTRA)
    if with_pods:
        return RankTable(tuple(servers), "1.2", pods, extra)
    return RankTable(tuple(servers), "1.0", (), extra)


@st.composite
def level_tables(draw: st.DrawFn) -> LevelTable:
    size = draw(st.integers(1, 6))
    layers = sorted(draw(st.sets(st.integers(0, 7), min_size=1, max_size=3)))
    counts = {layer: draw(st.integers(0, 3)) for layer in layers}
    kind = draw(st.sampled_from(("IPV4", "IPV6", "EID")))
    ports = st.lists(st.sampled_from(("0/0", "1/7", "d2h")), min_size=1, max_size=3)
    numbers = iter(range(10_000))

    def one() -> Address:
        number = next(numbers)
        text = f"{number:032x}" if kind == "EID" else address(number, v6=kind == "IPV6")
        return Address(kind, text, tuple(draw(ports)), (("plane_id", "p0"),))

    def level(layer: int) -> NetLevel:
        net = (("net_attr", ""), ("net_type", "CLOS"))
        return NetLevel(layer, "all", tuple(one() for _ in range(counts[layer])), net)

    return LevelTable(
        tuple(
            LevelRank(rank, rank, rank, tuple(map(level, layers)), (("device_port", 16666 + rank),))
            for rank in range(size)
        ),
        draw(EXTRA),
    )


@st.composite
def group_tables(draw: st.DrawFn) -> GroupTable:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    devices = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True))
    instances = tuple(
        Instance(
            f"pod-{i}",
            name,
            tuple(
                GroupDevice(device, address(i * 8 + device, v6=False), draw(EXTRA))
                for device in devices
            ),
        )
        for i, name in enumerate(names)
    )
    return GroupTable((Group("world", instances, draw(EXTRA)),), draw(EXTRA))


TABLES: st.SearchStrategy[Any] = st.one_of(
    server_tables(), server_tables(with_pods=True), level_tables(), group_tables()
)
