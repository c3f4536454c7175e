"""Rules about which NPUs the nodes have, against the inventory and against each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.judge.device_health import health_findings, not_understood
from ascendboot.judge.finding import (
    Finding,
    devices,
    differences,
    judged_nodes,
    numbers,
    unanswered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

DRIVER = "Is the Ascend driver installed on the host side?"
_OR_STATE = "Mend the tool; or state `devices` with their addresses, and `facts: stated`"
_MOST_LINES = 4
_LOOK = "Look at npu-smi info -t health"
_ILL = (
    "Look at the error codes of npu-smi info -t health; reset or replace the NPU, or state the "
    "other devices under `devices`"
)


def devices_of(node: Node, facts: NodeFacts) -> tuple[tuple[int, str | None], ...]:
    """The (device_id, device_ip) that a job uses, in rank order.

    The order is the inventory's where it names devices, else that of the physical ids. The IP is
    the one that the device has, None where it has none or does not tell.
    """
    networks = {n.device_id: n.device_ip for n in value_of(facts.device_networks) or ()}
    return tuple((device_id, networks.get(device_id)) for device_id in device_ids(node, facts))


def device_ids(node: Node, facts: NodeFacts) -> tuple[int, ...]:
    """The physical ids that a job uses, in rank order."""
    if node.devices:
        return tuple(device.device_id for device in node.devices)
    return _present(facts)


def logic_ids(node: Node, seen: NodeFacts) -> tuple[int, ...]:
    """The logic ids of the devices that a job uses, in rank order, as ranks count them."""
    npus = value_of(seen.npus)
    by_device = {npu.device_id: npu.logic_id for npu in npus.npus} if npus else {}
    by_device |= renumbered(node, seen)
    ids = ((i, by_device.get(i)) for i in device_ids(node, seen))
    return tuple(device_id if logic_id is None else logic_id for device_id, logic_id in ids)


def renumbered(node: Node, seen: NodeFacts) -> dict[int, int]:
    """By physical id the logic ids in a container that has some devices of its node only.

    The driver counts those from 0 there: of 3 to 7 it calls device 5 number 2 (vllm-ascend #16256).
    """
    npus, given = value_of(seen.npus), value_of(seen.surroundings)
    if node.container is None or npus is None or given is None:
        return {}
    ordered = sorted(npus.npus, key=lambda npu: (npu.logic_id is None, npu.logic_id, npu.device_id))
    there = [npu.device_id for npu in ordered if npu.device_id in given.device_ids]
    if len(there) == len(ordered):
        return {}
    return {device_id: number for number, device_id in enumerate(there)}


def device_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    complete: dict[str, tuple[int, ...]] = {}
    usual = _usual_ids(facts)
    for node, seen in judged_nodes(cluster, facts):
        yield from _tools(node, seen)
        if value_of(seen.npus) is None:
            continue
        found = [*_unusable(node, seen), *_stated(node, seen, usual)]
        yield from found or _counted(node, seen)
        yield from unanswered("device-health-unknown", node, seen.health, level="warning")
        health = value_of(seen.health) or {}
        used = device_ids(node, seen)
        yield from health_findings("device-health", node.name, used, health, _ILL)
        yield from not_understood("device-health-unknown", node.name, used, health, _LOOK)
        if not found:
            complete[node.name] = device_ids(node, seen)
    yield from differences(
        "devices-differ",
        {name: numbers(ids) for name, ids in complete.items()},
        has="devices ",
        # mx_rec takes the device ids of the first node for those of all
        level="warning"
        if _all_state_devices(cluster, complete) and not cluster.needs_equal_devices
        else "error",
        remedy="State `devices` so that every node uses the same ids in the same order",
    )
    yield from differences(
        "chips-differ",
        {
            node.name: " and ".join(dict.fromkeys(npu.chip_name for npu in npus.npus))
            for node, seen in judged_nodes(cluster, facts)
            if (npus := value_of(seen.npus)) and npus.npus and not seen.stated
        },
        has="",
        level="warning",
        remedy="Use NPUs of one kind in a cluster",
    )
    for node, seen in judged_nodes(cluster, facts):
        yield from _mixed(node, seen)


def _tools(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """How the vendor's tools could be read."""
    for finding in unanswered("npus-unknown", node, seen.npus, DRIVER):
        yield replace(finding, remedy=finding.remedy or _OR_STATE)
    lines = value_of(seen.unknown_lines) or ()
    if lines:
        more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
        yield Finding(
            id="tool-lines-unknown",
            level="warning",
            nodes=(node.name,),
            text=f"vendor tools print more than their answers: {', '.join(lines[:_MOST_LINES])}"
            f"{more}",
            remedy="Read what they warn of",
        )
    if seen.stated:
        yield Finding(
            id="facts-stated",
            level="warning",
            nodes=(node.name,),
            text=f"{devices(device_ids(node, seen))} and their addresses are what the inventory "
            f"states (`facts: stated`), not what the node tells: {'; '.join(seen.stated)}. Health, "
            "links, TLS switches and pings of these devices are not checked",
            remedy="Mend the tool, then remove `facts: stated`",
        )


def _present(facts: NodeFacts) -> tuple[int, ...]:
    npus = value_of(facts.npus)
    return tuple(npu.device_id for npu in npus.npus) if npus else ()


def _usual_ids(facts: Mapping[str, NodeFacts]) -> tuple[int, ...]:
    """The most devices that any node has: what a node with fewer is measured by."""
    return max((_present(seen) for seen in facts.values()), key=len, default=())


def _unusable(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    npus = value_of(seen.npus)
    if npus is not None and npus.unusable:
        count = "1 NPU" if npus.unusable == 1 else f"{npus.unusable} NPUs"
        yield Finding(
            id="npu-unusable",
            level="error",
            nodes=(node.name,),
            text=f"npu-smi info -m lists {count} as not usable (NPU ID -1)",
            remedy="Look at npu-smi info and dmesg; reset or replace it",
        )


def _stated(node: Node, seen: NodeFacts, usual: tuple[int, ...]) -> Iterator[Finding]:
    """The inventory's devices, or their number, against those that are there."""
    present = _present(seen)
    stated = node.device_count if not node.devices else None
    if node.devices:
        missing = [d.device_id for d in node.devices if d.device_id not in present]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            yield Finding(
                id="device-missing",
                level="error",
                nodes=(node.name,),
                text=f"{devices(sorted(missing))} {verb} missing from npu-smi info -m, "
                f"which lists {numbers(present) or 'none'}. "
                f"The inventory names {numbers(device_ids(node, seen))}",
                remedy="Look at npu-smi info and dmesg, or correct `devices`",
            )
    elif not present:
        yield Finding(
            id="npus-none",
            level="error",
            nodes=(node.name,),
            text="npu-smi info -m lists no NPU",
            remedy=DRIVER,
        )
    elif stated is not None and stated != len(present):
        yield _wrong_count(node, present, stated, usual)


def _wrong_count(
    node: Node, present: tuple[int, ...], stated: int, usual: tuple[int, ...]
) -> Finding:
    if len(present) > stated:
        return Finding(
            id="device-count",
            level="error",
            nodes=(node.name,),
            text=f"{len(present)} devices answer ({numbers(present)}). "
            f"The inventory states {stated}",
            remedy="State the ids to use as `devices`, or correct their number",
        )
    expected = usual if len(usual) == stated else tuple(range(stated))
    missing = [device_id for device_id in expected if device_id not in present]
    verb = "is" if len(missing) == 1 else "are"
    return Finding(
        id="device-count",
        level="error",
        nodes=(node.name,),
        text=f"{len(present)} of {stated} devices answer; "
        f"{devices(missing)} {verb} missing from npu-smi info -m. The inventory states {stated}",
        remedy="Look at npu-smi info and dmesg, or correct `devices`",
    )


def _counted(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """`info -l` against `info -m`: eight are eight only if both say so."""
    yield from unanswered("npu-list-unknown", node, seen.npu_list, level="warning")
    npus, listed = value_of(seen.npus), value_of(seen.npu_list)
    if npus is None or listed is None:
        return
    counts = (
        (len(npus.npus), listed.chip_count, "chips")
        if listed.chip_count is not None
        else (len({npu.npu_id for npu in npus.npus}), len(listed.npu_ids), "cards")
    )
    if counts[0] != counts[1]:
        yield Finding(
            id="npu-counts-contradict",
            level="error",
            nodes=(node.name,),
            text=f"npu-smi info -m lists {counts[0]} {counts[2]}, npu-smi info -l {counts[1]}",
            remedy="Look at npu-smi info and dmesg",
        )


def _all_state_devices(cluster: Cluster, names: Mapping[str, object]) -> bool:
    return all(node.devices or node.device_count for node in cluster.nodes if node.name in names)


def _mixed(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    npus = value_of(seen.npus)
    kinds = dict.fromkeys(npu.chip_name for npu in npus.npus) if npus else {}
    if len(kinds) > 1:
        yield Finding(
            id="chips-mixed",
            level="warning",
            nodes=(node.name,),
            text=f"the node has NPUs of {len(kinds)} kinds: {', '.join(kinds)}",
            remedy="Name the devices of one kind as `devices`",
        )
