"""Rules about where the chips of A3 are in their super pods, which decides the rank table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.facts.api import Unanswered, value_of
from ascendboot.judge.devices import device_ids
from ascendboot.judge.finding import Finding, devices, judged_nodes, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.parse.spod_info import SuperPodPlace

_LOOK = "npu-smi info -t spod-info"


def places_of(seen: NodeFacts) -> dict[int, SuperPodPlace]:
    """Where the chips of a node are, by physical id; without those in no super pod."""
    answers = value_of(seen.super_pods) or {}
    places = ((device_id, value_of(answer)) for device_id, answer in answers.items())
    return {device_id: place for device_id, place in places if place is not None}


def pods_of(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> dict[str, set[int]]:
    """The super pods in which the devices of each node are."""
    return {
        node.name: {
            place.super_pod_id
            for device_id, place in places_of(seen).items()
            if device_id in device_ids(node, seen)
        }
        for node, seen in judged_nodes(cluster, facts)
    }


def super_pod_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """What keeps a table of version 1.2 from being made; of a cluster of A3."""
    anybody = any(pods_of(cluster, facts).values())
    for node, seen in judged_nodes(cluster, facts):
        yield from _unknown(node, seen)
        yield from _split(node, seen)
        if anybody:
            yield from _outside(node, seen)


def _unknown(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    yield from unanswered("super-pod-unknown", node, seen.super_pods)
    reasons: dict[str, list[int]] = {}
    used = device_ids(node, seen)
    for device_id, answer in (value_of(seen.super_pods) or {}).items():
        if isinstance(answer, Unanswered) and device_id in used:
            reasons.setdefault(answer.why, []).append(device_id)
    for reason, ids in reasons.items():
        yield Finding(
            id="super-pod-unknown",
            level="error",
            nodes=(node.name,),
            text=f"could not tell the super pod of {devices(ids)}: {reason}",
            remedy="Without it the rank table cannot be made; `resources: {file: …}` takes one of "
            "yours",
        )


def _split(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    pods: dict[int, list[int]] = {}
    places = places_of(seen)
    for device_id in device_ids(node, seen):
        if device_id in places:
            pods.setdefault(places[device_id].super_pod_id, []).append(device_id)
    if len(pods) > 1:
        where = ", ".join(f"{devices(sorted(ids))} in {pod}" for pod, ids in pods.items())
        yield Finding(
            id="super-pods-several",
            level="error",
            nodes=(node.name,),
            text=f"the devices of one server are in several super pods: {where} ({_LOOK})",
            remedy="Ask who set up the super pods",
        )


def _outside(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """Some devices of the cluster are in a super pod; all must be."""
    answers = value_of(seen.super_pods) or {}
    told = places_of(seen)
    outside = [
        device_id
        for device_id in device_ids(node, seen)
        if device_id not in told and not isinstance(answers.get(device_id), Unanswered)
    ]
    if outside and value_of(seen.super_pods) is not None:
        yield Finding(
            id="super-pods-mixed",
            level="error",
            nodes=(node.name,),
            text=f"{devices(sorted(outside))} {'is' if len(outside) == 1 else 'are'} in no super "
            f"pod, other devices of the cluster are ({_LOOK})",
            remedy="Make the super pods whole, or leave the node out; `resources: {file: …}` takes "
            "a rank table of yours",
        )
