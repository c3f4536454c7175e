"""Rules about the ports that HCCL listens on at every node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.judge.finding import Finding, judged_nodes, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

_DEFAULT_BASE = 60000
_COUNT = 32
_HIGHEST = 65535
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")


def hccl_ports(cluster: Cluster) -> range:
    """The host's ports that HCCL takes: 60000-60031 unless the job's environment moves them.

    Empty where the environment leaves the choice to HCCL or holds what we do not understand.
    """
    stated = cluster.env.get("HCCL_HOST_SOCKET_PORT_RANGE")
    if stated is not None:
        match = _RANGE.match(stated)
        return range(int(match[1]), int(match[2]) + 1) if match else range(0)
    base = cluster.env.get("HCCL_IF_BASE_PORT", str(_DEFAULT_BASE))
    first = int(base) if base.isdecimal() and int(base) <= _HIGHEST else 0
    return range(first, first + _COUNT) if first else range(0)


def hccl_port_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module; between the devices of one server HCCL needs no port."""
    ports = hccl_ports(cluster)
    if len(cluster.nodes) == 1 or not ports:
        return
    for node, seen in judged_nodes(cluster, facts):
        yield from _taken(ports, node, seen)
        yield from _given_away(ports, node, seen)


def _taken(ports: range, node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """A warning only: a job that is running holds them rightly."""
    holders: dict[str, set[int]] = {}
    for listener in value_of(seen.listeners) or ():
        if listener.port in ports:
            pid = f" (pid {listener.pid})" if listener.pid else ""
            holder = f"{listener.program or 'a program of another user'}{pid}"
            holders.setdefault(holder, set()).add(listener.port)
    for holder, taken in holders.items():
        many = "ports" if len(taken) > 1 else "port"
        yield Finding(
            id="hccl-port-taken",
            level="warning",
            nodes=(node.name,),
            text=f"{many} {numbers(sorted(taken))} of HCCL's {ports[0]}-{ports[-1]} "
            f"{'are' if len(taken) > 1 else 'is'} taken by {holder}",
            remedy="Unless that is a job which runs now, end it, or move HCCL: "
            "HCCL_IF_BASE_PORT under `env`",
        )


def _given_away(ports: range, node: Node, seen: NodeFacts) -> Iterator[Finding]:
    kernel = value_of(seen.kernel_ports)
    if kernel is not None and any(kernel.may_take(port) for port in ports):
        yield Finding(
            id="hccl-ports-ephemeral",
            level="warning",
            nodes=(node.name,),
            text=f"any outgoing connection may take a port of HCCL's {ports[0]}-{ports[-1]}: "
            f"Linux gives {kernel.first}-{kernel.last} to them",
            remedy="Add the range to net.ipv4.ip_local_reserved_ports, behind what is there",
        )
