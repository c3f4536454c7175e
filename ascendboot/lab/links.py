"""The network of a practice cluster: namespaces, bridges, delays."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ascendboot.lab import host
from ascendboot.lab.records import Record
from ascendboot.lab.shape import LabNode, Shape

NAMESPACES = Path("/run/netns")
_BRIDGE = (
    "link add br0 type bridge mcast_snooping 0",
    "link set br0 addrgenmode none",
    "link set br0 up",
)
_BATCH = ("ip", "-batch", "-")
_LINK_TIMEOUT_S = 10.0
_POLL_S = 0.05


def build(shape: Shape, *, beside: int = 0) -> None:
    """Make both networks: every namespace, bridge, cable and address.

    With `beside`, only those of later nodes: the switches and that many nodes exist. LabError: the
    kernel refused a part; what was made so far stays.
    """
    management = [*_BRIDGE, *_cable_lines("operator", shape.prefix, str(os.getpid()))]
    # The NPU switch has an address of its own, which answers netdetect.
    npu = [*_BRIDGE, f"addr add {shape.gateway}/{shape.npu.prefixlen} brd + dev br0"]
    if beside:
        management, npu = [], []
    ends: dict[str, list[str]] = {}
    for node in shape.nodes[beside:]:
        management += _cable_lines(_node_port(node), "eth0", node.namespace)
        ends[node.namespace] = _end_lines("eth0", f"{node.address}/{shape.management.prefixlen}")
        for device in node.devices:
            namespace, end = shape.device_namespace(node, device), f"eth{device.device_id}"
            npu += _cable_lines(f"{_node_port(node)}d{device.device_id}", end, namespace)
            ends[namespace] = _end_lines(end, f"{device.device_ip}/{shape.npu.prefixlen}")
    inside = {shape.management_switch: management, shape.npu_switch: npu, **ends}
    add = [f"netns add {namespace}" for namespace in (ends if beside else inside)]
    host.run(_BATCH, purpose="make network namespaces", text=_lines(add))
    for namespace, lines in inside.items():
        _inside(namespace, ["link set lo up", *lines])
    if beside:
        return
    ours = _end_lines(shape.prefix, f"{shape.operator_address}/{shape.management.prefixlen}")
    host.run(_BATCH, purpose="join the management network", text=_lines(ours))


def set_node_power(shape: Shape, node: LabNode, *, on: bool, links_down: Iterable[int]) -> None:
    """Set a node's cables as with or without power; NPUs in `links_down` stay down."""
    state = "up" if on else "down"
    _inside(shape.management_switch, [f"link set {_node_port(node)} {state}"])
    if not on:
        # Otherwise the control machine sends for half a minute before it reports "no route".
        forget = ["ip", "neigh", "flush", "to", str(node.address), "dev", shape.prefix]
        host.run(forget, purpose=f"forget where {node.name} was")
    stay_down = set(links_down)
    for device in node.devices:
        if device.device_id not in stay_down:
            set_link(shape, node, device.device_id, up=on)


def set_link(shape: Shape, node: LabNode, device_id: int, *, up: bool) -> None:
    """Set the network interface of one NPU up or down."""
    device = node.devices[device_id]
    state = "up" if up else "down"
    _inside(shape.device_namespace(node, device), [f"link set eth{device_id} {state}"])


def wait_for_links(shape: Shape, node: LabNode, *, links_down: Iterable[int] = ()) -> None:
    """Wait until all links of the node but `links_down` work, on both ends of the cable.

    The kernel takes up to a second to report a cable to its bridge. LabError: it took too long.
    """
    wanted = {device.device_id for device in node.devices} - set(links_down)
    deadline = time.monotonic() + _LINK_TIMEOUT_S
    while time.monotonic() < deadline:
        switch, up = _inside(shape.npu_switch, ["link show"]), links_up(shape, node)
        if all(up[id_] and _is_up(f"{_node_port(node)}d{id_}", switch) for id_ in wanted):
            return
        time.sleep(_POLL_S)
    why = f"no carrier within {_LINK_TIMEOUT_S:g} s; try lab.down, then lab.up"
    raise host.LabError(f"{node.name}: could not bring up its NPU links: {why}")


def links_up(shape: Shape, node: LabNode) -> dict[int, bool]:
    """The real state of the node's NPU links, by device; a missing one counts as down."""
    found = {}
    for device in node.devices:
        namespace = shape.device_namespace(node, device)
        exists = (NAMESPACES / namespace).exists()
        interface = f"eth{device.device_id}"
        found[device.device_id] = exists and _is_up(interface, _inside(namespace, ["link show"]))
    return found


def take_down(prefix: str) -> None:
    """Remove the control machine's cable and all namespaces of the lab with this prefix."""
    names = existing(prefix)
    if prefix in names:
        host.run(["ip", "link", "del", prefix], purpose=f"remove the interface {prefix}")
    remove(names)


def remove(namespaces: Iterable[str]) -> None:
    """Remove those of the namespaces that exist."""
    names = [name for name in namespaces if (NAMESPACES / name).exists()]
    if names:
        delete = [f"netns del {name}" for name in names]
        host.run(["ip", "-force", "-batch", "-"], purpose="remove namespaces", text=_lines(delete))


def existing(prefix: str) -> list[str]:
    """The interface of the control machine and the namespaces that exist of a lab."""
    # Not /sys/class/net: it may be mounted for another network namespace.
    names = [prefix] if prefix in (name for _, name in socket.if_nameindex()) else []
    if NAMESPACES.is_dir():
        found = (path.name for path in NAMESPACES.iterdir())
        names += sorted(name for name in found if name.startswith(f"{prefix}-"))
    return names


def _node_port(node: LabNode) -> str:
    """The port of the management switch for a node's cable; `dN` follows for that of its NPU N."""
    return f"n{node.number}"


def _cable_lines(port: str, far_end: str, namespace: str) -> list[str]:
    return [
        f"link add {port} type veth peer name {far_end} netns {namespace}",
        f"link set {port} addrgenmode none master br0 up",
    ]


def _end_lines(interface: str, address: str) -> list[str]:
    return [
        f"link set {interface} addrgenmode none",
        f"addr add {address} brd + dev {interface}",
        f"link set {interface} up",
    ]


def _inside(namespace: str, lines: Sequence[str]) -> str:
    # Not `ip -n`: that also copies the machine's whole mount table, once per call.
    argv = ["nsenter", f"--net={NAMESPACES / namespace}", "ip", "-batch", "-"]
    return host.run(argv, purpose=f"wire {namespace}", text=_lines(lines))


def _is_up(interface: str, listing: str) -> bool:
    lines = (line for line in listing.splitlines() if f" {interface}@" in line)
    return any(" state UP " in line for line in lines)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


_START_TIMEOUT_S = 20.0


def delay(record: Record, node: LabNode, milliseconds: int) -> None:
    """Delay the link (0: not at all) with a relay in its cable; LabError without TUN/TAP."""
    note, switch = _note(record, node), record.shape.management_switch
    port, bridge = _node_port(node), f"{_node_port(node)}w"
    if note.exists():
        _inside(switch, [f"link set {port} master br0", f"link del {bridge}"])
        end_wire(record, node)
        note.unlink()
    if milliseconds:
        near, far = f"{port}a", f"{port}b"
        process = _start_wire(record, node, near, far, milliseconds)
        note.write_text(f"{process.pid} {process.started}")
        lines = [
            f"link add {bridge} type bridge mcast_snooping 0",
            f"link set {bridge} addrgenmode none up",
            f"link set {near} addrgenmode none master {bridge} up",
            f"link set {far} addrgenmode none master br0 up",
            f"link set {port} master {bridge}",
        ]
        _inside(switch, lines)


def end_wire(record: Record, node: LabNode) -> None:
    """End the process of the node's wire, if any: it keeps a namespace alive."""
    note = _note(record, node)
    process = host.ProcessId.parsed(note.read_text()) if note.exists() else None
    host.kill_all([process] if process else [])


def _start_wire(
    record: Record, node: LabNode, near: str, far: str, milliseconds: int
) -> host.ProcessId:
    """Start the relay, which makes the two ends of the wire."""
    argv = [
        *("setsid", "--fork"),
        *("nsenter", f"--net={NAMESPACES / record.shape.management_switch}"),
        *(sys.executable, "-B", "-m", "ascendboot.lab.relay", near, far, str(milliseconds)),
    ]
    # It closes its output once it runs; then this call returns.
    done = host.call(argv, stdin=b"", timeout_s=_START_TIMEOUT_S)
    process = host.ProcessId.parsed(done.stdout.decode())
    if process is None:
        why = f"{host.last_line(done.stderr)}; the kernel needs TUN/TAP (modprobe tun)"
        raise host.LabError(f"{node.name}: could not delay its link: {why}")
    return process


def _note(record: Record, node: LabNode) -> Path:
    return record.folder / f"{node.name}.delay"
