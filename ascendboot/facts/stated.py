"""`facts: stated`: the inventory's devices and addresses, where the vendor's tools tell none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.facts.api import NOT_ASKED, Answered, Unanswered, value_of
from ascendboot.facts.npus import DeviceNetwork
from ascendboot.parse.hccn_tool import DeviceAddress
from ascendboot.parse.npu_smi import Npu, NpuMap

if TYPE_CHECKING:
    from ascendboot.facts.api import Answer
    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Device, Node

_UNKNOWN_MASK = ""


def with_stated(cluster: Cluster, node: Node, seen: NodeFacts) -> NodeFacts:
    """The facts, in which what the inventory states stands for what the tools do not tell.

    What a tool does tell counts: it is compared with the inventory as ever.
    """
    if cluster.facts != "stated" or not node.devices:
        return seen
    reasons: list[str] = []
    npus = seen.npus
    if isinstance(npus, Unanswered):
        reasons.append(npus.message)
        npus = Answered(NpuMap(tuple(_npu(device) for device in node.devices)))
    known = {network.device_id: network for network in value_of(seen.device_networks) or ()}
    if isinstance(seen.device_networks, Unanswered):
        reasons.append(seen.device_networks.message)
    networks = [_network(device, known.get(device.device_id), reasons) for device in node.devices]
    others = [n for i, n in known.items() if i not in {device.device_id for device in node.devices}]
    if not reasons:
        return seen
    return replace(
        seen,
        npus=npus,
        npu_list=seen.npu_list if npus is seen.npus else NOT_ASKED,
        device_networks=Answered((*networks, *others)),
        stated=tuple(dict.fromkeys(reasons)),
    )


def _npu(device: Device) -> Npu:
    return Npu(
        npu_id=device.device_id,
        chip_id=0,
        device_id=device.device_id,
        device_id_assumed=False,
        logic_id=None,
        chip_name="",
    )


def _network(device: Device, seen: DeviceNetwork | None, reasons: list[str]) -> DeviceNetwork:
    stated = tuple(
        DeviceAddress(ip, _UNKNOWN_MASK) for ip in (device.device_ip or "").split(",") if ip
    )
    if seen is None:
        return DeviceNetwork(
            device_id=device.device_id,
            addresses=Answered(stated),
            link_up=NOT_ASKED,
            tls_enabled=NOT_ASKED,
        )
    if not isinstance(seen.addresses, Unanswered) or not stated:
        return seen
    reasons.append(seen.addresses.message)
    link: Answer[bool] = NOT_ASKED if isinstance(seen.link_up, Unanswered) else seen.link_up
    tls: Answer[bool] = NOT_ASKED if isinstance(seen.tls_enabled, Unanswered) else seen.tls_enabled
    return replace(seen, addresses=Answered(stated), link_up=link, tls_enabled=tls)
