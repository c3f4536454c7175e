"""Findings about the networks of nodes and of devices, and what is wrong of a port."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import pytest

from ascendboot.checks.network import npu_network_rules, ports_to_set
from ascendboot.facts.derive import common_networks, leaves_by_lldp
from ascendboot.facts.installed import Installed
from ascendboot.facts.node_facts import with_stated
from ascendboot.facts.npus import DeviceNetwork, NpuPort
from ascendboot.facts.parsers.hccn_tool import DeviceAddress, LldpNeighbour
from ascendboot.facts.parsers.npu_smi import NpuProcess
from ascendboot.facts.query import NOT_QUERIED, Answer, Answered, Lack, Unanswered
from ascendboot.model.cluster import Cluster, Device
from ascendboot.setup.survey import cluster_findings
from ascendboot.value import replace
from tests.unit.checks import well
from tests.unit.checks.well import (
    TWO,
    a3,
    alike,
    cluster,
    facts,
    found,
    interfaces,
    network,
    networks,
    node,
    second,
)

NO_IP = Answered(())
DOWN = Answered(value=False)
TLS_ON = Answered(value=True)
LO, ETH0 = interfaces("198.18.0.2").value
ABSENT = "address-missing error lab-2: no interface carries the cluster address 198.18.0.2;"
CARRIER = "lab-2: eth0, which carries the cluster address 198.18.0.2"


@pytest.mark.parametrize(
    ("there", "text"),
    [
        (interfaces("10.0.0.5").value, f"{ABSENT} the node has eth0 10.0.0.5"),
        ((), f"{ABSENT} the node has no address"),
        ((LO, replace(ETH0, is_up=False)), f"interface-down error {CARRIER}, is down"),
        ((LO, replace(ETH0, has_carrier=False)), f"interface-down warning {CARRIER}, has no link"),
        ((replace(LO, is_up=False, has_carrier=False), ETH0), ""),
    ],
)
def test_the_interface_of_the_cluster_address(there: Any, text: str) -> None:
    assert second(interfaces=Answered(there)) == text


def test_another_interface_than_the_inventory_states() -> None:
    lab = cluster(node(1, interface="eth0"), node(2, interface="eth9"))
    assert found(lab, facts(1), facts(2)) == (
        "interface-differs error lab-2: the inventory states interface eth9, but eth0 "
        "carries the cluster address 198.18.0.2"
    )


def test_nodes_in_different_networks() -> None:
    lab = cluster(node(1), node(2), node(3, cluster_address="10.0.0.3"))
    seen = [facts(1), facts(2), facts(3, interfaces=interfaces("10.0.0.3", 24))]
    assert found(lab, *seen) == (
        "networks-differ info lab-3: 2 nodes have the cluster address in 198.18.0.0/16, "
        "lab-3 has 10.0.0.0/24"
    )
    by_name = {each.node: each for each in seen}
    assert common_networks(lab, by_name) == ("198.18.0.0/16", "10.0.0.0/24")
    unknown = facts(2, interfaces=interfaces("10.0.0.5"))
    assert common_networks(TWO, {"lab-1": facts(1), "lab-2": unknown}) == ("198.18.0.0/16",)


def with_ip(device_id: int, ip: str) -> DeviceNetwork:
    return network(2, device_id, addresses=Answered((DeviceAddress(ip, "255.255.0.0"),)))


def silent(kind: Lack, what: str, device_id: int, why: str) -> Unanswered:
    tool = f"hccn_tool -i {device_id} -x -g"
    return Unanswered(kind, f"could not read the {what} of device {device_id}: {tool}: {why}")


TLS, TWICE = "TLS switch", "device-ip-twice error lab-[1-2]: device IP"


@pytest.mark.parametrize(
    ("changed", "pattern"),
    [
        ([network(2, 3, addresses=NO_IP)], "device-ip-missing error lab-2: device 3 has no IP…"),
        ([with_ip(5, "198.19.1.3")], f"{TWICE} … is used twice: lab-1 device 3 and lab-2 device 5"),
        (
            [with_ip(i, "198.19.1.3") for i in (5, 6)],
            f"{TWICE} 198.19.1.3 is used 3 times: lab-1 device 3 and lab-2 device 5 and …",
        ),
        ([with_ip(5, "198.18.0.1")], f"{TWICE} … is used twice: lab-1 and lab-2 device 5"),
        (
            [network(2, 3, link_up=silent("not-understood", "link", 3, "line 1 not understood"))],
            "device-link-unknown error lab-2: … -i 3 -x -g: line 1 not understood",
        ),
        (
            [network(2, i, addresses=silent("busy", "IP", i, "busy")) for i in (2, 3, 4)],
            "device-ip-unknown error lab-2: could not read the IP of devices 2-4: … -i 2 …: busy",
        ),
        (  # a tool without a TLS switch is no obstacle
            [network(2, 3, tls_enabled=silent("failed", TLS, 3, "not supported"))],
            "device-tls-unknown warning lab-2: … device 3: …: not supported",
        ),
        (
            [network(2, 4, tls_enabled=silent("not-understood", TLS, 4, "line 1"))],
            "device-tls-unknown error lab-2: … device 4: …: line 1",
        ),
        (
            [network(2, i, tls_enabled=TLS_ON) for i in (3, 5)],
            "tls-differs error lab-2: … lab-2 devices 3,5 is on, … 14 other devices off",
        ),
    ],
)
def test_devices_with_a_wrong_address_link_or_switch(
    changed: list[DeviceNetwork], pattern: str
) -> None:
    assert alike(second(**networks(2, *changed), hccn_conf=NOT_QUERIED), pattern)


def test_one_node_may_have_devices_without_an_ip() -> None:
    bare = [network(2, i, addresses=NO_IP) for i in (3, 4)]
    assert found(cluster(node(2)), facts(2, **networks(2, *bare))) == (
        "device-ip-missing warning lab-2: devices 3-4 have no IP address"
    )


def test_a_node_may_have_a_host_name_as_its_address() -> None:
    assert found(cluster(node(1), node(2, address="lab-2.example")), facts(1), facts(2)) == ""


def test_an_ip_other_than_the_inventory_states() -> None:
    named = tuple(Device(i, "198.19.9.9" if i == 3 else None) for i in range(8))
    assert found(cluster(node(1), node(2, devices=named)), facts(1), facts(2)) == (
        "device-ip-differs error lab-2: device 3 has the IP 198.19.2.3; the inventory states "
        "198.19.9.9"
    )


A3 = replace(TWO, product="a3")
OVER_ROCE = replace(A3, env={"HCCL_INTER_HCCS_DISABLE": "TRUE"})
UNUSED = cluster(*(node(i, devices=(Device(0), Device(1))) for i in (1, 2)))


@pytest.mark.parametrize(
    ("lab", "pods", "level"),
    [
        (TWO, None, "error"),
        (A3, None, "warning"),
        (A3, (0, 0), "warning"),
        (A3, (0, 1), "error"),
        (OVER_ROCE, (0, 0), "error"),
        (UNUSED, None, ""),
    ],
    ids=["A2", "A3", "one super pod", "two super pods", "forced", "devices that no job uses"],
)
def test_item_10_links_that_are_down(
    lab: Cluster, pods: tuple[int, int] | None, level: str
) -> None:
    one, two = (a3(n, pod, 8) for n, pod in enumerate(pods, 1)) if pods else (facts(1), facts(2))
    down = networks(2, *(network(2, i, link_up=DOWN) for i in (3, 5)))
    lines = found(lab, one, replace(two, **down)).split("\n")
    text = f"link-down {level} lab-2: the link of devices 3,5 is down"
    assert [line for line in lines if "link" in line] == ([text] if level else [])


@pytest.mark.parametrize(("pods", "level"), [((0, 0), "warning"), ((0, 1), "error")])
def test_item_10_tls_switches_of_a3_that_differ(pods: tuple[int, int], level: str) -> None:
    one, two = (a3(n, pod, 8) for n, pod in enumerate(pods, 1))
    on = networks(2, network(2, 3, tls_enabled=TLS_ON))
    lines = found(A3, one, replace(two, **on)).split("\n")
    assert [line.split(": ")[0] for line in lines] == [f"tls-differs {level} lab-2"]


def test_a_tls_switch_that_is_off_at_few() -> None:
    on = networks(1, *(network(1, i, tls_enabled=TLS_ON) for i in range(8)))
    most = networks(2, *(network(2, i, tls_enabled=TLS_ON) for i in range(1, 8)))
    pattern = "tls-differs error lab-2: … lab-2 device 0 is off, that of the 15 other devices on"
    assert alike(found(TWO, facts(1, **on), facts(2, **most)), pattern)


@pytest.mark.parametrize(
    ("env", "level"), [({}, "warning"), ({"HCCL_INTRA_ROCE_ENABLE": "1"}, "error")]
)
def test_unequal_tls_switches_of_one_node_are_an_error_where_its_devices_use_roce(
    env: dict[str, str], level: str
) -> None:
    uneven = networks(1, *(network(1, i, tls_enabled=TLS_ON) for i in (2, 3)))
    lines = found(cluster(node(1), env=env), facts(1, **uneven)).split("\n")
    assert [line.split(": ")[0] for line in lines] == [f"tls-differs {level} lab-1"]


def test_hccn_conf_that_differs_from_the_device_and_one_that_leaves_devices_out() -> None:
    stale = {i: f"198.19.2.{i}" for i in range(8)} | {3: "198.19.2.99"}
    assert second(hccn_conf=Answered(stale)) == (
        "hccn-conf-differs warning lab-2: /etc/hccn.conf gives device 3 the IP 198.19.2.99, "
        "but the device has 198.19.2.3"
    )
    assert second(hccn_conf=Answered({})) == ""


BY_DEVICE = ((0, "a"), (1, "b"))
DIFFERS = "leaf-devices-differ warning lab-2:"
UNKNOWN = "leaf-unknown warning lab-2: no leaf switch is stated for"


@pytest.mark.parametrize(
    ("leaves", "text"),
    [
        ((None, None), ""),
        (("a", "b"), ""),
        (("a", None), f"{UNKNOWN} the node, but other leaf switches are stated"),
        ((BY_DEVICE, BY_DEVICE[:1]), f"{UNKNOWN} device 1, but other leaf switches are stated"),
        (
            (BY_DEVICE, ((0, "a"), (1, "a"))),
            f"{DIFFERS} the leaf a has devices 0-1 here, but device 0 of lab-1",
        ),
    ],
    ids=["none", "all", "node", "device", "contradiction"],
)
def test_leaf_switches_that_are_missing_or_contradict_each_other(
    leaves: tuple[Any, Any], text: str
) -> None:
    used = (Device(0), Device(1))
    nodes = [node(i, leaf=leaf, devices=used) for i, leaf in enumerate(leaves, start=1)]
    assert found(cluster(*nodes), facts(1), facts(2)) == text


def by_lldp(*leaves: str) -> Answer[Mapping[int, Answer[LldpNeighbour]]]:
    """The answers of devices from 0 on; `-`: none."""
    failed = Unanswered("failed", "could not read the LLDP neighbour: no TLV")
    seen = (failed if leaf == "-" else Answered(LldpNeighbour(leaf, "1")) for leaf in leaves)
    return Answered(dict(enumerate(seen)))


NO_LLDP = "is unknown: could not read the LLDP neighbour: no TLV"
NO_TOOL = Unanswered("missing", "no tool")


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ((by_lldp("a", "b"), by_lldp("a", "b")), ""),
        (
            (by_lldp("a", "b"), by_lldp("a", "-")),
            f"leaf-unknown warning lab-2: the leaf switch of device 1 {NO_LLDP}",
        ),
        (
            (by_lldp("-", "-"), by_lldp("-", "-")),
            f"leaf-unknown warning lab-[1-2]: the leaf switch of the node {NO_LLDP}",
        ),
        (
            (by_lldp("a", "b"), NO_TOOL),
            "leaf-unknown warning lab-2: the leaf switch of the node is unknown: no tool",
        ),
    ],
    ids=["all", "one device", "no switch sends LLDP", "no tool"],
)
def test_devices_without_an_lldp_answer_are_named_with_the_reason(
    answers: tuple[Any, Any], text: str
) -> None:
    used = (Device(0), Device(1))
    lab = cluster(*(node(i, devices=used) for i in (1, 2)), reads_leaves=True)
    both = {f"lab-{i}": facts(i, neighbours=seen) for i, seen in enumerate(answers, 1)}
    assert found(lab.with_leaves(leaves_by_lldp(lab, both)), *both.values()) == text


def test_a_group_of_leaf_switches_to_which_no_node_is_connected_is_named() -> None:
    lab = cluster(node(1), cores=(("a", "x"), ("b", "y")), reads_leaves=True)
    seen = lab.with_leaves({"lab-1": tuple((i, "a") for i in range(8))})
    assert found(seen, facts(1)) == (
        "leaf-unknown warning lab-1: topology.cores names b, but no node is connected to it"
    )


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
