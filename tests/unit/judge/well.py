"""Nodes on which all is well, for tests that change one thing about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ascendboot.facts.api import Answered, Clock
from ascendboot.facts.node import Disk, NodeFacts
from ascendboot.facts.npus import DeviceNetwork
from ascendboot.judge.whole import judge
from ascendboot.model.cluster import Cluster, Node, SshAccess
from ascendboot.parse.disk import FileSystem
from ascendboot.parse.hccn_conf import HccnConf
from ascendboot.parse.hccn_tool import DeviceAddress
from ascendboot.parse.ip import Interface, InterfaceAddress
from ascendboot.parse.npu_smi import Npu, NpuList, NpuMap
from ascendboot.parse.openmpi import OpenMpi
from ascendboot.parse.python import Python
from ascendboot.parse.sshd import Sshd
from ascendboot.parse.system import Kernel, OsRelease, System

FULL = FileSystem(mount_point="/", free_bytes=10**10, free_inodes=10**6)


def node(number: int, **changes: Any) -> Node:
    plain = Node(
        name=f"lab-{number}",
        address=f"198.18.0.{number}",
        cluster_address=f"198.18.0.{number}",
        server_id=f"198.18.0.{number}",
        ssh=SshAccess(user="root"),
    )
    return replace(plain, **changes)


def cluster(*nodes: Node, **changes: Any) -> Cluster:
    plain = Cluster(name="lab", nodes=nodes, primary_name=nodes[0].name, source="lab.yaml")
    return replace(plain, **changes)


TWO = cluster(node(1), node(2))


def npu(device_id: int, chip_name: str = "Ascend 910B3") -> Npu:
    return Npu(
        npu_id=device_id,
        chip_id=0,
        device_id=device_id,
        device_id_assumed=True,
        logic_id=device_id,
        chip_name=chip_name,
    )


def npus(*device_ids: int) -> dict[str, Any]:
    return {
        "npus": Answered(NpuMap(tuple(map(npu, device_ids)))),
        "npu_list": Answered(NpuList(device_ids, len(device_ids))),
    }


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
    plain = System(
        hostname=f"lab-{number}",
        os=OsRelease("debian", "12", "Debian GNU/Linux 12"),
        kernel=Kernel("6.1.0", "aarch64"),
        user="root",
        uid=0,
        home="/root",
    )
    return replace(plain, **changes)


def interfaces(address: str, prefix_length: int = 16) -> Answered[tuple[Interface, ...]]:
    return Answered(
        tuple(
            Interface(name=name, is_up=True, has_carrier=True, addresses=(address,))
            for name, address in (
                ("lo", InterfaceAddress("127.0.0.1", 8, "host")),
                ("eth0", InterfaceAddress(address, prefix_length)),
            )
        )
    )


def facts(number: int, **changes: Any) -> NodeFacts:
    """A node on which all is well."""
    plain = NodeFacts(
        node=f"lab-{number}",
        system=Answered(system(number)),
        machine=Answered(f"boot-{number} net:[{number}]"),
        clock=Answered(Clock(epoch_s=1e9, offset_s=0.1, uncertainty_s=0.05)),
        interfaces=interfaces(f"198.18.0.{number}"),
        hccn_conf=Answered(HccnConf({i: f"198.19.{number}.{i}" for i in range(8)})),
        listeners=Answered(()),
        sshd=Answered(Sshd("/usr/sbin/sshd", "9.2p1")),
        openmpi=Answered(OpenMpi("/usr/bin/mpirun", "4.1.5")),
        python=Answered(Python("/usr/bin/python3", "3.10.4")),
        disk=Answered(Disk(base=FULL, tmp=FULL)),
        **npus(*range(8)),
        **networks(number),
    )
    return replace(plain, **changes)


def judged(wish: Cluster, *seen: NodeFacts) -> list[str]:
    """Id, level and message of each finding."""
    return [
        f"{finding.id} {finding.level} {finding.message}"
        for finding in judge(wish, {found.node: found for found in seen})
    ]


def second(**changes: Any) -> list[str]:
    """What is found when the second of two nodes differs."""
    return judged(TWO, facts(1), facts(2, **changes))
