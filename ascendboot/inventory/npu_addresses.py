"""The network ports of NPUs from `npu_network` in an inventory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Interface, NetmaskValueError, ip_address

from ascendboot.inventory.nodes import Entry
from ascendboot.inventory.schema import NpuNetworkKeys
from ascendboot.inventory.yaml import Mark, Sheet
from ascendboot.model.cluster import Node
from ascendboot.model.names import expand, fold
from ascendboot.value import replace


def with_ports(sheet: Sheet, entries: Sequence[Entry], nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes with the ports that `npu_network` states; reports the first problem of each."""
    by_name = {node.name: node for node in nodes}
    stated: dict[int, tuple[NpuNetworkKeys, Mark, list[Node]]] = {}
    for entry in entries:
        network = entry.value("npu_network")
        if network is not None:
            place = (network, entry.mark_of("npu_network"), list[Node]())
            stated.setdefault(id(network), place)[2].extend(by_name[n] for n in entry.names)
    first: dict[int, Mapping[str, str]] = {}
    ports: dict[str, dict[int, Mapping[str, str]]] = {}
    for network, mark, of_place in stated.values():
        for name, device_id, port in _ports(sheet, network, mark, of_place):
            key, problem = _problem(port, first.get(device_id, port))
            if problem:
                sheet.report(mark.at(key), f"{name} device {device_id}: {problem}")
                break
            first.setdefault(device_id, port)
            ports.setdefault(name, {})[device_id] = port
    for name, of_node in ports.items():
        count = by_name[name].device_count if by_name[name].devices else len(of_node)
        by_name[name] = replace(by_name[name], npu_ports=of_node, device_count=count)
    return tuple(by_name.values())


def _ports(
    sheet: Sheet, network: NpuNetworkKeys, mark: Mark, nodes: Sequence[Node]
) -> Iterator[tuple[str, int, Mapping[str, str]]]:
    """Node, device id and port of each device of the nodes that share one `npu_network`."""
    stated = network.model_dump(exclude_none=True)
    plain = ("mtu", "tls")
    others: dict[str, str] = {key: str(int(stated.pop(key))) for key in plain if key in stated}
    netmask, found = stated.pop("netmask"), {key: expand(stated[key]) for key in stated}
    each = max(1, len(found["address"]) // len(nodes))
    ids = [[d.device_id for d in n.devices] or range(n.device_count or each) for n in nodes]
    places = [(row, device_id) for row, of_node in enumerate(ids) for device_id in of_node]
    for key, single in found.items():
        fitting = (len(places),) if key == "address" else (len(places), len(nodes), 1)
        if len(single) not in fitting:
            text = f'"{stated[key]}" stands for {len(single)}, but {fold([n.name for n in nodes])} '
            text += f"for {len(places)} devices; state one address for every device of every node"
            sheet.report(mark.at(key), text)
            return
    for number, (row, device_id) in enumerate(places):
        at = {1: 0, len(nodes): row, len(places): number}
        port = {key: single[at[len(single)]] for key, single in found.items()}
        ip = f"{port.pop('address')}/{netmask}"
        yield nodes[row].name, device_id, {"ip": ip, **port, **others}


def _problem(port: Mapping[str, str], first: Mapping[str, str]) -> tuple[str, str]:
    """The key of what is wrong with a port, and why; HCCL connects it with `first`."""
    unfit = ("address", f"{port['ip']} is not the IPv4 address of one machine; correct it")
    try:
        own, other = IPv4Interface(port["ip"]), IPv4Interface(first["ip"])
    except NetmaskValueError:
        return "netmask", f"{port['ip'].partition('/')[2]} is not a netmask; correct it"
    except ValueError:
        return unfit
    ends = (own.network.network_address, own.network.broadcast_address)
    if own.ip in ends or own.with_netmask != port["ip"]:
        return unfit
    gateway = port.get("gateway")
    if gateway is not None and ip_address(gateway) not in own.network:
        text = f"the gateway {gateway} is not another machine in {own.network}"
        return "gateway", f"{text}, the network of {own.ip}; state one"
    if own.network != other.network and not (gateway and "gateway" in first):
        text = f"{own.ip} is in another network ({own.network}) than {other.ip} of the same device"
        return "address", f"{text} id, and not both have a gateway; state it"
    return "address", ""
