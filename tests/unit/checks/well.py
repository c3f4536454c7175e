"""Nodes on which all is well, for tests that change one thing about them."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.npus import DeviceNetwork, RootInfo
from ascendboot.facts.parsers.hccn_tool import DeviceAddress
from ascendboot.facts.parsers.npu_smi import Npu, NpuMap, SuperPodPlace
from ascendboot.facts.parsers.software import Program, Sshd
from ascendboot.facts.parsers.system import FileSystem, Interface, InterfaceAddress, System
from ascendboot.facts.query import Answer, Answered, Clock
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.names import fold
from ascendboot.setup.survey import cluster_findings
from ascendboot.value import replace
from tests.unit.transport import builders

T = TypeVar("T")
FULL = FileSystem(mount_point="/", free_bytes=10**10, free_inodes=10**6)


def value(answer: Answer[T]) -> T:
    """The value of an answer; an error of the test if there is none."""
    assert isinstance(answer, Answered), answer
    return answer.value


def node(number: int, **changes: Any) -> Node:
    address = f"198.18.0.{number}"
    return replace(builders.node(f"lab-{number}", address), **{"server_id": address, **changes})


def cluster(*nodes: Node, **changes: Any) -> Cluster:
    plain = Cluster(name="lab", nodes=nodes, primary_name=nodes[0].name, source="lab.yaml")
    return replace(plain, **changes)


TWO = cluster(node(1), node(2))


def npu(device_id: int, chip_name: str = "Ascend 910B3") -> Npu:
    return Npu(
        npu_id=device_id, chip_id=0, device_id=device_id, logic_id=device_id, chip_name=chip_name
    )


def npus(*device_ids: int) -> dict[str, Any]:
    return {"npus": Answered(NpuMap(tuple(map(npu, device_ids))))}


def network(number: int, device_id: int, **changes: Any) -> DeviceNetwork:
    plain = DeviceNetwork(
        device_id=device_id,
        addresses=Answered((DeviceAddress(f"198.19.{number}.{device_id}", "255.255.0.0"),)),
        link_up=Answered(value=True),
        tls_enabled=Answered(value=False),
    )
    return replace(plain, **changes)


def networks(number: int, *changed: DeviceNetwork) -> dict[str, Any]:
    """Those of eight devices, some of them as given."""
    by_id = {device.device_id: device for device in changed}
    eight = tuple(by_id.get(i, network(number, i)) for i in range(8))
    return {"device_networks": Answered(eight)}


def system(number: int, **changes: Any) -> System:
    name = f"lab-{number}"
    plain = System(hostname=name, arch="aarch64", user="root", uid=0, home="/root")
    return replace(plain, **changes)


def interfaces(address: str, prefix_length: int = 16) -> Answered[tuple[Interface, ...]]:
    loopback = InterfaceAddress("127.0.0.1", 8, "host")
    lo = Interface(name="lo", is_up=True, has_carrier=True, addresses=(loopback,))
    eth0 = replace(lo, name="eth0", addresses=(InterfaceAddress(address, prefix_length),))
    return Answered((lo, eth0))


def facts(number: int, **changes: Any) -> NodeFacts:
    """A node on which all is well."""
    plain = NodeFacts(
        node=f"lab-{number}",
        system=Answered(system(number)),
        machine=Answered(f"boot-{number} net:[{number}]"),
        clock=Answered(Clock(offset_s=0.1, uncertainty_s=0.05)),
        interfaces=interfaces(f"198.18.0.{number}"),
        hccn_conf=Answered({i: f"198.19.{number}.{i}" for i in range(8)}),
        listeners=Answered(()),
        sshd=Answered(Sshd("/usr/sbin/sshd", "9.2p1")),
        openmpi=Answered(Program("/usr/bin/mpirun", "4.1.5")),
        python=Answered(Program("/usr/bin/python3", "3.10.4")),
        disk=Answered((FULL, FULL)),
        **npus(*range(8)),
        **networks(number),
    )
    return replace(plain, **changes)


def chips(number: int, name: str, count: int) -> dict[str, Any]:
    """So many chips, two on each card where they are of A3."""
    per_card = 2 if name == "Ascend910" else 1
    found = tuple(
        replace(npu(i, name), npu_id=i // per_card, chip_id=i % per_card) for i in range(count)
    )
    return {
        "npus": Answered(NpuMap(found)),
        "device_networks": Answered(tuple(network(number, i) for i in range(count))),
    }


def place(number: int, device_id: int, pod: int) -> SuperPodPlace:
    card, die = divmod(device_id, 2)
    return SuperPodPlace(
        super_device_id=number << 22 | card << 18 | die << 16 | device_id, super_pod_id=pod
    )


def a3(number: int, pod: int | None = 0, count: int = 4, **changes: Any) -> NodeFacts:
    """A node of A3 on which all is well, in a super pod or in none."""
    places = {i: Answered(None if pod is None else place(number, i, pod)) for i in range(count)}
    return facts(
        number, **chips(number, "Ascend910", count) | {"super_pods": Answered(places), **changes}
    )


def root_info(number: int, count: int = 2) -> dict[str, Any]:
    """The root info of a server of 950 (hcomm `rank_info_types.c`)."""
    return {
        "version": "2.0",
        "topo_file_path": "/usr/local/Ascend/driver/topo/950/atlas_850_1.json",
        "rank_count": count,
        "rank_list": [
            {
                "device_id": i,
                "local_id": i,
                "level_list": [
                    level(
                        0, f"sp_0_srv_{number}", "TOPO_FILE_DESC", f"{number:02}{i:02}00dfdf008b"
                    ),
                    level(1, "sp_0", "CLOS", f"{number:02}{i:02}00dfdf00df"),
                ],
            }
            for i in range(count)
        ],
    }


def level(layer: int, instance: str, kind: str, eid: str) -> dict[str, Any]:
    address = {"addr_type": "EID", "addr": f"{eid:0>32}", "plane_id": "plane_0", "ports": ["1/0"]}
    return {
        "net_layer": layer,
        "net_instance_id": instance,
        "net_type": kind,
        "net_attr": "",
        "rank_addr_list": [address],
    }


def a5(number: int, count: int = 2, **changes: Any) -> NodeFacts:
    """A node of 950 on which all is well: its devices' addresses are in its root info alone."""
    info = Answered(RootInfo(json.dumps(root_info(number, count))))
    return facts(
        number,
        **chips(number, "Ascend950PR", count)
        | {"device_networks": Answered(()), "root_info": info, **changes},
    )


def messages(cluster: Cluster, *facts: NodeFacts) -> list[str]:
    """Id, level and message of each finding."""
    findings = cluster_findings(cluster, {each.node: each for each in facts})
    return [f"{finding.id} {finding.level} {finding.message}" for finding in findings]


def found(cluster: Cluster, *facts: NodeFacts) -> str:
    """A line per finding: id, level, nodes and text, without the remedy."""
    findings = cluster_findings(cluster, {each.node: each for each in facts})
    return "\n".join(f"{f.id} {f.level} {fold(f.nodes)}: {f.text}" for f in findings)


def second(**changes: Any) -> str:
    """What is found when the second of two nodes differs."""
    return found(TWO, facts(1), facts(2, **changes))


def alike(found: str, pattern: str) -> bool:
    """Whether a text is like a pattern, in which `…` stands for any text in a line."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), found) is not None


def only(messages: list[str]) -> str:
    """The only message."""
    (message,) = messages
    return message
