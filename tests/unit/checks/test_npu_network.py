"""What keeps the network ports of NPUs from being set, and what of a port is wrong."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from ascendboot.checks.network import npu_network_rules, ports_to_set
from ascendboot.facts.installed import Installed
from ascendboot.facts.node_facts import with_stated
from ascendboot.facts.npus import NpuPort
from ascendboot.facts.parsers.npu_smi import NpuProcess
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.setup.survey import cluster_findings
from tests.unit.checks import well

WANTED = {"ip": "10.20.0.1/255.255.0.0", "gateway": "10.20.0.9", "mtu": "4200"}
WRITTEN = {"ip": WANTED["ip"], "gateway": WANTED["gateway"]}
DONE = Answered({0: NpuPort(WANTED, WRITTEN)})
UNSET = Answered({0: NpuPort({}, {})})


@pytest.mark.parametrize(
    ("now", "at_boot", "wrong"),
    [
        ({}, {}, []),
        # A new address can remove the gateway.
        ({"ip": "10.20.0.2/255.255.0.0"}, {}, ["ip", "gateway"]),
        ({"mtu": "none"}, {}, ["mtu"]),
        ({}, {"mtu": "1500"}, ["mtu"]),
        ({}, {"ip": "10.20.0.1/255.0.0.0"}, ["ip", "gateway"]),
    ],
)
def test_a_port_is_compared_now_and_for_the_next_boot(
    now: dict[str, str], at_boot: dict[str, str], wrong: list[str]
) -> None:
    assert list(NpuPort({**WANTED, **now}, {**WRITTEN, **at_boot}).wrong(WANTED)) == wrong


USERS = Answered((NpuProcess(0, 77), NpuProcess(1, 78)))


@pytest.mark.parametrize(
    ("ports", "processes", "expected"),
    [
        (UNSET, Answered(()), ""),
        (DONE, USERS, ""),
        (UNSET, USERS, "in-use: device 0 is used by pid 77, and the network of the NPUs is not"),
        (UNSET, Unanswered("failed", "no table"), "unknown: no table"),
        (Unanswered("busy", "hccn_tool is busy"), USERS, "unknown: hccn_tool is busy"),
    ],
)
def test_what_keeps_ports_from_being_set(ports: Any, processes: Any, expected: str) -> None:
    cluster = well.cluster(well.node(1, npu_ports={0: WANTED}))
    hosts = {"lab-1": Installed(PurePosixPath("/b"), ports=ports)}
    there = {"lab-1": well.facts(1, npu_processes=processes)}
    rules = npu_network_rules(cluster, there, hosts, ports_to_set(cluster, hosts), {})
    found = "".join(f"{each.id}: {each.text}" for each in rules)
    assert found.startswith(f"npu-network-{expected}") if expected else not found


def test_two_devices_with_one_address_are_refused_whatever_they_have_now() -> None:
    nodes = [well.node(n, npu_ports={n: WANTED}) for n in (1, 2)]
    cluster = well.cluster(*nodes)
    there = {n.name: with_stated(cluster, n, well.facts(i)) for i, n in enumerate(nodes, 1)}
    [found] = [f for f in cluster_findings(cluster, there) if f.level == "error"]
    assert found.id == "device-ip-twice"
    assert found.text == "device IP 10.20.0.1 is used twice: lab-1 device 1 and lab-2 device 2"
