"""Rules about how ranks learn of each other: what a job needs where they meet at a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.hccl import WITHOUT_CM
from ascendboot.judge.devices import device_ids, logic_ids
from ascendboot.judge.finding import Finding, devices, judged_nodes, numbers, unanswered
from ascendboot.judge.product import product_of
from ascendboot.model.cluster import CHIEF_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

MOST_RANKS, MOST_RANKS_OF_REC_SDK = 32768, 512


def resource_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    by_chief = cluster.resource_mode == "no-rank-table"
    for node, seen in judged_nodes(cluster, facts):
        if by_chief:
            yield from _product(node, seen)
        if cluster.is_for_torch:
            yield from _order(node, seen)
    primary = facts.get(cluster.primary_name)
    if primary is None or not cluster.has_meeting_port:
        return
    yield from _taken(cluster, primary)
    yield from _ephemeral(cluster, primary)
    if by_chief:
        yield from _chief_device(cluster, primary)
        yield from _size(cluster, facts)


def _size(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """CM_WORKER_SIZE, which counts all ranks, has a limit of HCCL and a smaller one of Rec SDK."""
    size = sum(len(device_ids(node, seen)) for node, seen in judged_nodes(cluster, facts))
    rec_sdk = cluster.profile == "rec-sdk-tf"
    most = MOST_RANKS_OF_REC_SDK if rec_sdk else MOST_RANKS
    if size > most:
        yield Finding(
            id="worker-size",
            level="error",
            nodes=(cluster.primary_name,),
            text=f"the job has {size} ranks, and {'Rec SDK' if rec_sdk else 'HCCL'} takes {most} "
            "without a rank table (CM_WORKER_SIZE)",
            remedy="State `resources: {mode: rank-table}`, or use fewer devices",
        )


def _order(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """PyTorch's local rank N takes the Nth device that it can see, and it sees them ascending."""
    ids = logic_ids(node, seen)
    if list(ids) != sorted(ids):
        yield Finding(
            id="device-order",
            level="error",
            nodes=(node.name,),
            text=f"PyTorch takes devices in the order of their logic ids, but those of "
            f"{devices(device_ids(node, seen))} are {numbers(ids)}",
            remedy="State `devices` in that order",
        )


def _product(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    product = product_of(seen)
    if product in WITHOUT_CM:
        yield Finding(
            id="no-rank-table-unsupported",
            level="error",
            nodes=(node.name,),
            text=f"the NPUs are of the {WITHOUT_CM[product]}, and HCCL reads CM_ variables on 910 "
            "and A2 only",
            remedy="State `resources: {mode: rank-table}`",
        )


def _taken(cluster: Cluster, seen: NodeFacts) -> Iterator[Finding]:
    for listener in value_of(seen.listeners) or ():
        if listener.port == cluster.chief_port:
            yield Finding(
                id="chief-port-taken",
                level="error",
                nodes=(cluster.primary_name,),
                text=f"port {cluster.chief_port}, where the ranks are to meet, is taken by "
                f"{listener.holder}",
                remedy="State another `resources.chief_port`",
            )
            return


def _ephemeral(cluster: Cluster, seen: NodeFacts) -> Iterator[Finding]:
    yield from unanswered(
        "kernel-ports-unknown", cluster.primary, seen.kernel_ports, level="warning"
    )
    ports = value_of(seen.kernel_ports)
    if ports is not None and ports.may_take(cluster.chief_port):
        yield Finding(
            id="chief-port-ephemeral",
            level="warning",
            nodes=(cluster.primary_name,),
            text=f"any outgoing connection may take port {cluster.chief_port}: Linux gives "
            f"{ports.first}-{ports.last} to them",
            remedy=f"State a `resources.chief_port` outside, such as {CHIEF_PORT}, or add it to "
            "net.ipv4.ip_local_reserved_ports",
        )


def _chief_device(cluster: Cluster, seen: NodeFacts) -> Iterator[Finding]:
    npus = value_of(seen.npus)
    if npus is None or not npus.npus:
        return
    ids = sorted(logic_ids(cluster.primary, seen))
    if cluster.chief_device not in ids:
        yield Finding(
            id="chief-device-missing",
            level="error",
            nodes=(cluster.primary_name,),
            text=f"no device of the job has the logic id {cluster.chief_device} that "
            f"`resources.chief_device` states; they have {numbers(ids) or 'none'}",
            remedy="State one of these",
        )
