"""Rules about the ports that HCCL listens on at every node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.hccl import hccl_ports
from ascendboot.judge.finding import Finding, judged_nodes, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node


def ports_of_hccl(cluster: Cluster, node: Node) -> tuple[range, ...]:
    """The node's ports that HCCL takes: 60000-60031 unless the job's environment moves them.

    Empty where the environment leaves the choice to HCCL or holds what we do not understand.
    """
    return tuple(hccl_ports(cluster.env_of(node)))


def hccl_port_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module; between the devices of one server HCCL needs no port."""
    if len(cluster.nodes) == 1:
        return
    for node, seen in judged_nodes(cluster, facts):
        for ports in ports_of_hccl(cluster, node):
            yield from _taken(ports, node, seen)
            yield from _given_away(ports, node, seen)


def _taken(ports: range, node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """A warning only: a job that is running holds them rightly."""
    holders: dict[str, set[int]] = {}
    for listener in value_of(seen.listeners) or ():
        if listener.port in ports:
            holders.setdefault(listener.holder, set()).add(listener.port)
    for holder, taken in holders.items():
        many = "ports" if len(taken) > 1 else "port"
        yield Finding(
            id="hccl-port-taken",
            level="warning",
            nodes=(node.name,),
            text=f"{many} {numbers(sorted(taken))} of HCCL's {numbers(ports)} "
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
            text=f"any outgoing connection may take a port of HCCL's {numbers(ports)}: "
            f"Linux gives {kernel.first}-{kernel.last} to them",
            remedy="Add the range to net.ipv4.ip_local_reserved_ports, behind what is there",
        )
