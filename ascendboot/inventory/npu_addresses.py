"""The network ports of NPUs from `npu_network` in an inventory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Interface
from typing import NamedTuple

from ascendboot.inventory import values
from ascendboot.inventory.nodes import Entry
from ascendboot.inventory.schema import InventoryKeys, NpuNetworkKeys
from ascendboot.inventory.yaml import Mark, Sheet
from ascendboot.model.cluster import Node, NpuPort
from ascendboot.model.names import fold
from ascendboot.value import replace


class _Port(NamedTuple):
    """A port, and where it is stated."""

    node: Node
    port: NpuPort
    mark: Mark

    @property
    def holder(self) -> str:
        """`node02 device 3`."""
        return f"{self.node.name} device {self.port.device_id}"

    @property
    def interface(self) -> IPv4Interface:
        return IPv4Interface("/".join(dict(self.port.settings)["ip"]))

    @property
    def gateway(self) -> IPv4Address | None:
        stated = dict(self.port.settings).get("gateway")
        return IPv4Address(stated[0]) if stated else None


def with_ports(
    sheet: Sheet, keys: InventoryKeys, entries: Sequence[Entry], nodes: tuple[Node, ...]
) -> tuple[Node, ...]:
    """The nodes with the ports that `npu_network` states; reports its problems."""
    stated: dict[tuple[int, object], tuple[NpuNetworkKeys, Mark, list[Node]]] = {}
    by_name = {node.name: node for node in nodes}
    for entry in entries:
        network, mark = entry.value("npu_network"), entry.mark_of("npu_network")
        if network is not None:
            where = stated.setdefault((mark.line, mark.path), (network, mark, []))
            where[2].extend(by_name[name] for name in entry.names)
    ports = [port for each in stated.values() for port in _ports(sheet, *each)]
    _report_conflicts(sheet, nodes, ports)
    if stated and keys.product == "a5":
        mark = next(iter(stated.values()))[1]
        sheet.report(mark, "hccn_tool of a 950 sets no addresses; remove this")
    of_node: dict[str, list[NpuPort]] = {}
    for each in ports:
        of_node.setdefault(each.node.name, []).append(each.port)
    return tuple(
        replace(node, npu_ports=tuple(of_node[node.name])) if node.name in of_node else node
        for node in nodes
    )


def _ports(
    sheet: Sheet, network: NpuNetworkKeys, mark: Mark, nodes: Sequence[Node]
) -> Iterator[_Port]:
    """The ports of nodes that share one `npu_network`."""
    addresses = values.expand(network.address)
    rest = [node for node in nodes if not (node.devices or node.device_count)]
    known = sum(node.device_count or len(node.devices) for node in nodes)
    each, left = divmod(len(addresses) - known, len(rest)) if rest else (0, len(addresses) - known)
    if left or (rest and each < 1):
        has = f"{known} devices" if not rest else f"{len(nodes)} nodes"
        text = (
            f'"{network.address}" stands for {len(addresses)}, but {fold([n.name for n in nodes])}'
        )
        text += f" for {has}; state one address for every device of every node"
        sheet.report(mark.at("address"), text)
        return
    ids = {n.name: [d.device_id for d in n.devices] or range(n.device_count or each) for n in nodes}
    both = {
        key: _shared(sheet, mark.at(key), getattr(network, key), [len(i) for i in ids.values()])
        for key in ("gateway", "netdetect")
    }
    tls = None if network.tls is None else str(int(network.tls))
    mtu = None if network.mtu is None else str(network.mtu)
    places = [(node, device_id) for node in nodes for device_id in ids[node.name]]
    for number, (node, device_id) in enumerate(places):
        one = {key: texts[number] for key, texts in both.items() if texts}
        settings: dict[str, tuple[str, ...]] = {"ip": (addresses[number], network.netmask)}
        settings |= {k: (v,) for k, v in {**one, "mtu": mtu, "tls": tls}.items() if v is not None}
        yield _Port(node, NpuPort(device_id, tuple(settings.items())), mark)


def _shared(sheet: Sheet, mark: Mark, text: str | None, counts: Sequence[int]) -> Sequence[str]:
    """The value for every device from one value, one for every node, or one for every device."""
    single = values.expand(text) if text else ()
    if len(single) == 1:
        return single * sum(counts)
    if len(single) == len(counts):
        return [one for one, count in zip(single, counts, strict=True) for _ in range(count)]
    if text and len(single) != sum(counts):
        words = f'"{text}" stands for {len(single)}, but there are {len(counts)} nodes with '
        sheet.report(mark, f"{words}{sum(counts)} devices; state one for all, each node or device")
        return ()
    return single


def _report_conflicts(sheet: Sheet, nodes: Sequence[Node], ports: Sequence[_Port]) -> None:
    """Report addresses that cannot be set beside each other: the first of each kind and place."""
    seen: set[tuple[object, str]] = set()
    holders: dict[str, str] = {}
    for node in nodes:
        holders[node.address] = holders[node.cluster_address] = node.name
    first: dict[int, _Port] = {}
    for each in ports:
        address = str(each.interface.ip)
        kinds = {
            "twice": f"{address} is also the address of {holders[address]}; give each its own"
            if address in holders
            else "",
            **_alone(each),
            "other": _apart(first.setdefault(each.port.device_id, each), each),
        }
        holders.setdefault(address, each.holder)
        for kind, text in kinds.items():
            if text and (each.mark.path, kind) not in seen:
                seen.add((each.mark.path, kind))
                at = each.mark.at("gateway" if kind == "gateway" else "address")
                sheet.report(at, f"{each.holder}: {text}")


def _alone(each: _Port) -> dict[str, str]:
    """What is wrong with a port by itself, by kind; empty texts where nothing is."""
    network, ip, gateway = each.interface.network, each.interface.ip, each.gateway
    stated = {device.device_id: device.device_ip for device in each.node.devices}
    wanted = stated.get(each.port.device_id) or str(ip)
    found = {"end": "", "gateway": "", "differs": ""}
    if ip in (network.network_address, network.broadcast_address):
        found["end"] = f"{ip} is not the address of one machine in {network}; choose another"
    if gateway is not None and (gateway not in network or gateway == ip):
        words = f"the gateway {gateway} is not another machine in {network}, the network of {ip}"
        found["gateway"] = f"{words}; state one"
    if wanted != str(ip):
        words = f"`devices` states {wanted}, npu_network {ip}"
        found["differs"] = f"{words}; state the same, or leave it out of `devices`"
    return found


def _apart(first: _Port, each: _Port) -> str:
    """Two devices of one number that have no way to each other: HCCL connects them first."""
    networks = first.interface.network, each.interface.network
    if networks[0] == networks[1] or (first.gateway and each.gateway):
        return ""
    words = f"{each.interface.ip} is in another network ({networks[1]}) than {first.interface.ip} "
    return f"{words}of {first.holder} ({networks[0]}), and not both have a gateway; state it"
