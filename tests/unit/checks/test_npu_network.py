"""What keeps the network ports of NPUs from being set, and what of a port is wrong."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from ascendboot.checks.npu_network import npu_network_rules
from ascendboot.facts.installed import Installed
from ascendboot.facts.npu_ports import NpuPorts, PortState, PortUser
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import NpuPort
from ascendboot.value import replace
from tests.unit.checks import well

MASK = "255.255.0.0"
WANTED = NpuPort(0, (("ip", ("10.20.0.1", MASK)), ("gateway", ("10.20.0.9",)), ("mtu", ("4200",))))
CONF = {"address": "10.20.0.1", "netmask": MASK, "gateway": "10.20.0.9"}
AS_STATED = PortState(values=dict(WANTED.settings), conf=CONF)
UNSET = PortState(values={}, conf={})
BUSY = Unanswered("busy", "could not read the ip of device 0: hccn_tool is busy")


@pytest.mark.parametrize(
    ("state", "wrong"),
    [
        (AS_STATED, []),
        (replace(AS_STATED, conf={**CONF, "mtu": "4200"}), []),
        (UNSET, ["ip", "gateway", "mtu"]),
        # A new address can remove the gateway.
        (
            replace(AS_STATED, values={**AS_STATED.values, "ip": ("10.20.0.2", MASK)}),
            ["ip", "gateway"],
        ),
        (replace(AS_STATED, values={**AS_STATED.values, "mtu": ("1500",)}), ["mtu"]),
        (replace(AS_STATED, conf={**CONF, "mtu": "1500"}), ["mtu"]),
        (replace(AS_STATED, conf={**CONF, "gateway": "10.20.0.8"}), ["gateway"]),
        (replace(AS_STATED, conf={"gateway": "10.20.0.9"}), ["ip", "gateway"]),
    ],
)
def test_a_port_is_compared_now_and_for_the_next_boot(state: PortState, wrong: list[str]) -> None:
    assert list(state.wrong(WANTED)) == wrong


def found(ports: object, *wanted: NpuPort, **facts: Any) -> list[tuple[str, str]]:
    """The findings about lab-1."""
    node = well.node(1, npu_ports=wanted or (WANTED,))
    host = Installed(PurePosixPath("/b"), ports=ports)  # type: ignore[arg-type]
    there = {"lab-1": well.facts(1, **facts)}
    rules = npu_network_rules(well.cluster(node), there, {"lab-1": host})
    return [(each.id.removeprefix("npu-network-"), each.text) for each in rules]


def ports(state: object, users: object = Answered(()), *, is_root: bool = True) -> object:
    answer = Answered(state) if isinstance(state, PortState) else state
    return Answered(NpuPorts({0: answer}, users, is_root))  # type: ignore[dict-item, arg-type]


USER = Answered((PortUser(0, 77, "", "python3 a.py"), PortUser(1, 78, "j-1", "b")))


@pytest.mark.parametrize(
    ("given", "facts", "expected"),
    [
        (ports(UNSET), {}, []),
        (ports(AS_STATED, USER, is_root=False), {}, []),  # nothing is to be set
        (ports(UNSET, is_root=False), {}, [("root", "root is not root, and only")]),
        (ports(UNSET, USER), {}, [("in-use", "device 0 is used by pid 77 (python3 a.py), and")]),
        (ports(replace(UNSET, is_used=True)), {}, [("in-use", "device 0 is in use: device hccp")]),
        (ports(BUSY), {}, [("busy", "the port of device 0: could not read the ip")]),
        (ports(UNSET, Unanswered("failed", "no table")), {}, [("unknown", "no table")]),
        (Unanswered("missing", "no hccn_tool"), {}, [("unknown", "no hccn_tool")]),
        (
            ports(replace(UNSET, conf={"udhcpc_enable": "1"})),
            {},
            [("dhcp", "device 0: DHCP sets the address")],
        ),
        (ports(UNSET), well.npus(1, 2), [("devices", "`npu_network` states an address for dev")]),
        (ports(UNSET), well.chips(1, "Ascend950PR", 1), [("unsupported", "hccn_tool of a 950")]),
        (ports(UNSET), well.chips(1, "Ascend 910A", 1), [("unsupported", "the devices of a 910")]),
    ],
)
def test_what_keeps_ports_from_being_set(
    given: object, facts: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    seen = found(given, **facts)
    assert [id_ for id_, _ in seen] == [id_ for id_, _ in expected]
    assert all(text.startswith(words) for (_, text), (_, words) in zip(seen, expected, strict=True))


def test_an_address_that_another_device_has_is_refused() -> None:
    taken = NpuPort(0, (("ip", ("198.19.1.5", MASK)),))
    [(id_, text)] = found(ports(UNSET), taken)
    assert (id_, text) == (
        "taken",
        "device 5 has 198.19.1.5, which `npu_network` states for lab-1 device 0",
    )
