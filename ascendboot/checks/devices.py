"""Checks of NPUs: number, product, health, super pods, root info."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.checks.finding import (
    Finding,
    Level,
    devices,
    differences,
    error,
    numbers,
    unanswered,
    warning,
)
from ascendboot.errors import RankTableError
from ascendboot.facts.derive import (
    answered_nodes,
    device_ids,
    places_of,
    pods_of,
    present_ids,
    product_of,
)
from ascendboot.facts.npus import ROOT_INFO, RootInfo
from ascendboot.facts.query import NOT_ASKED, Answered, Unanswered, value_of
from ascendboot.ranktable.read import device_places

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ascendboot.facts.node_facts import NodeFacts
    from ascendboot.model.cluster import Cluster, Node


def product_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """Findings where the stated product differs from the chips' names; the stated one counts."""
    for node, node_facts in answered_nodes(cluster, facts):
        shown, stated = product_of(node_facts), cluster.product
        if stated != "auto" and shown not in (None, stated):
            yield warning(
                "product-contradicts",
                (node.name,),
                f"the inventory states product {stated}, and the chips are called as those of"
                f" {shown}: rank table and HCCL's variables are checked for {stated}",
                "Correct `product`, or leave it out",
            )


_WELL = "OK"
_LEVELS: Mapping[str, Level] = {
    "Critical": "error",
    "Alarm": "error",
    "Warning": "warning",
    "UNKNOWN": "warning",
}
"""UNKNOWN: the device is not there, or not started."""


def health_findings(
    id_: str, node: str, used: Collection[int], health: Mapping[int, str], remedy: str
) -> Iterator[Finding]:
    """Used devices of a node that are not healthy, one finding per health word."""
    for word, level in _LEVELS.items():
        ill = sorted(device_id for device_id in used if health.get(device_id) == word)
        if ill:
            yield Finding(
                id=id_,
                level=level,
                nodes=(node,),
                text=f"npu-smi info calls {devices(ill)} {word}, not OK",
                remedy=remedy,
            )


def not_understood(
    id_: str, node: str, used: Collection[int], health: Mapping[int, str], remedy: str
) -> Iterator[Finding]:
    """Used devices of a node with a health word that is not known."""
    known = (_WELL, *_LEVELS)
    words = {i: health[i] for i in sorted(used) if health.get(i, _WELL) not in known}
    if words:
        said = " and ".join(f'"{word}"' for word in dict.fromkeys(words.values()))
        yield warning(
            id_,
            (node,),
            f"could not see how {devices(tuple(words))} {'is' if len(words) == 1 else 'are'}: "
            f"npu-smi info says {said}, none of {', '.join(known)}",
            remedy,
        )


DRIVER = "Is the Ascend driver installed on the host side?"
_OR_STATE = "Mend the tool; or state `devices` with their addresses, and `facts: stated`"
_MOST_LINES = 4
_LOOK_AT_DEVICES = "Look at npu-smi info -t health"
_ILL = (
    "Look at the error codes of npu-smi info -t health; reset or replace the NPU, or state the "
    "other devices under `devices`"
)


def device_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    complete: dict[str, tuple[int, ...]] = {}
    usual = _usual_ids(facts)
    for node, node_facts in answered_nodes(cluster, facts):
        yield from _tools(node, node_facts)
        if value_of(node_facts.npus) is None:
            continue
        found = [*_unusable(node, node_facts), *_stated(node, node_facts, usual)]
        yield from found or _counted(node, node_facts)
        yield from unanswered("device-health-unknown", node, node_facts.health, level="warning")
        health = value_of(node_facts.health) or {}
        used = device_ids(node, node_facts)
        yield from health_findings("device-health", node.name, used, health, _ILL)
        yield from not_understood(
            "device-health-unknown", node.name, used, health, _LOOK_AT_DEVICES
        )
        if not found:
            complete[node.name] = device_ids(node, node_facts)
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
            for node, node_facts in answered_nodes(cluster, facts)
            if (npus := value_of(node_facts.npus)) and npus.npus and not node_facts.stated
        },
        has="",
        level="warning",
        remedy="Use NPUs of one kind in a cluster",
    )
    for node, node_facts in answered_nodes(cluster, facts):
        yield from _mixed(node, node_facts)


def _tools(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """How the vendor's tools could be read."""
    for finding in unanswered("npus-unknown", node, node_facts.npus, DRIVER):
        yield replace(finding, remedy=finding.remedy or _OR_STATE)
    lines = value_of(node_facts.unknown_lines) or ()
    if lines:
        more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
        yield warning(
            "tool-lines-unknown",
            (node.name,),
            f"vendor tools print more than their answers: {', '.join(lines[:_MOST_LINES])}{more}",
            "Read what they warn of",
        )
    if node_facts.stated:
        yield warning(
            "facts-stated",
            (node.name,),
            f"{devices(device_ids(node, node_facts))} and their addresses are what the "
            "inventory states (`facts: stated`), not what the node tells: "
            f"{'; '.join(node_facts.stated)}. Health, links, TLS switches and pings of these "
            "devices are not checked",
            "Mend the tool, then remove `facts: stated`",
        )


def _usual_ids(facts: Mapping[str, NodeFacts]) -> tuple[int, ...]:
    """The most devices that any node has: what a node with fewer is measured by."""
    return max((present_ids(node_facts) for node_facts in facts.values()), key=len, default=())


def _unusable(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    npus = value_of(node_facts.npus)
    if npus is not None and npus.unusable:
        count = "1 NPU" if npus.unusable == 1 else f"{npus.unusable} NPUs"
        yield error(
            "npu-unusable",
            (node.name,),
            f"npu-smi info -m lists {count} as not usable (NPU ID -1)",
            "Look at npu-smi info and dmesg; reset or replace it",
        )


def _stated(node: Node, node_facts: NodeFacts, usual: tuple[int, ...]) -> Iterator[Finding]:
    """The inventory's devices, or their number, against those that are there."""
    present = present_ids(node_facts)
    stated = node.device_count if not node.devices else None
    if node.devices:
        missing = [d.device_id for d in node.devices if d.device_id not in present]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            yield error(
                "device-missing",
                (node.name,),
                f"{devices(sorted(missing))} {verb} missing from npu-smi info -m, "
                f"which lists {numbers(present) or 'none'}. "
                f"The inventory names {numbers(device_ids(node, node_facts))}",
                "Look at npu-smi info and dmesg, or correct `devices`",
            )
    elif not present:
        yield error("npus-none", (node.name,), "npu-smi info -m lists no NPU", DRIVER)
    elif stated is not None and stated != len(present):
        yield _wrong_count(node, present, stated, usual)


def _wrong_count(
    node: Node, present: tuple[int, ...], stated: int, usual: tuple[int, ...]
) -> Finding:
    if len(present) > stated:
        return error(
            "device-count",
            (node.name,),
            f"{len(present)} devices answer ({numbers(present)}). The inventory states {stated}",
            "State the ids to use as `devices`, or correct their number",
        )
    expected = usual if len(usual) == stated else tuple(range(stated))
    missing = [device_id for device_id in expected if device_id not in present]
    verb = "is" if len(missing) == 1 else "are"
    return error(
        "device-count",
        (node.name,),
        f"{len(present)} of {stated} devices answer; "
        f"{devices(missing)} {verb} missing from npu-smi info -m. The inventory states {stated}",
        "Look at npu-smi info and dmesg, or correct `devices`",
    )


def _counted(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """`info -l` against `info -m`: eight are eight only if both say so."""
    yield from unanswered("npu-list-unknown", node, node_facts.npu_list, level="warning")
    npus, listed = value_of(node_facts.npus), value_of(node_facts.npu_list)
    if npus is None or listed is None:
        return
    counts = (
        (len(npus.npus), listed.chip_count, "chips")
        if listed.chip_count is not None
        else (len({npu.npu_id for npu in npus.npus}), len(listed.npu_ids), "cards")
    )
    if counts[0] != counts[1]:
        yield error(
            "npu-counts-contradict",
            (node.name,),
            f"npu-smi info -m lists {counts[0]} {counts[2]}, npu-smi info -l {counts[1]}",
            "Look at npu-smi info and dmesg",
        )


def _all_state_devices(cluster: Cluster, names: Mapping[str, object]) -> bool:
    return all(node.devices or node.device_count for node in cluster.nodes if node.name in names)


def _mixed(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    npus = value_of(node_facts.npus)
    kinds = dict.fromkeys(npu.chip_name for npu in npus.npus) if npus else {}
    if len(kinds) > 1:
        yield warning(
            "chips-mixed",
            (node.name,),
            f"the node has NPUs of {len(kinds)} kinds: {', '.join(kinds)}",
            "Name the devices of one kind as `devices`",
        )


_MAKE = (
    "Make it there (mindcluster-tools rootinfo --output FILE, then install -m 0644 FILE "
    f"{ROOT_INFO}), or name a rank table of yours as `resources: {{file: …}}`"
)


def root_info_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """What keeps a table of version 2.0 from being made; of a cluster of 950."""
    for node, node_facts in answered_nodes(cluster, facts):
        yield from unanswered("root-info-missing", node, node_facts.root_info, _MAKE)
        info = value_of(node_facts.root_info)
        if info is not None:
            yield from _understood(node, node_facts, info)
            yield from _topology(node, info)
        elif isinstance(node_facts.root_info, Answered) or node_facts.root_info == NOT_ASKED:
            yield error(
                "root-info-missing",
                (node.name,),
                f"{ROOT_INFO} was not read: npu-smi calls no chip Ascend950",
                "Correct `product`, or name a rank table of yours as `resources: {file: …}`",
            )


def _understood(node: Node, node_facts: NodeFacts, info: RootInfo) -> Iterator[Finding]:
    try:
        places = device_places(info.text, ROOT_INFO)
    except RankTableError as problem:
        yield error("root-info-unfit", (node.name,), str(problem), _MAKE)
        return
    lacking = [i for i in device_ids(node, node_facts) if i not in places]
    if lacking:
        yield error(
            "root-info-unfit",
            (node.name,),
            f"{ROOT_INFO} says nothing of {devices(sorted(lacking))}",
            _MAKE,
        )


def _topology(node: Node, info: RootInfo) -> Iterator[Finding]:
    if info.missing_topology is not None:
        yield Finding(
            id="topology-missing",
            # a container has files of its own
            level="error" if node.container is None else "warning",
            nodes=(node.name,),
            text=f"{ROOT_INFO} names {info.missing_topology} as topology, which is not there",
            remedy="Correct topo_file_path; the driver has its topologies in "
            "/usr/local/Ascend/driver/topo",
        )


_LOOK = "npu-smi info -t spod-info"


def super_pod_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """What keeps a table of version 1.2 from being made; of a cluster of A3."""
    anybody = any(pods_of(cluster, facts).values())
    for node, node_facts in answered_nodes(cluster, facts):
        yield from _unknown(node, node_facts)
        yield from _split(node, node_facts)
        if anybody:
            yield from _outside(node, node_facts)


def _unknown(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    yield from unanswered("super-pod-unknown", node, node_facts.super_pods)
    reasons: dict[str, list[int]] = {}
    used = device_ids(node, node_facts)
    for device_id, answer in (value_of(node_facts.super_pods) or {}).items():
        if isinstance(answer, Unanswered) and device_id in used:
            reasons.setdefault(answer.why, []).append(device_id)
    for reason, ids in reasons.items():
        yield error(
            "super-pod-unknown",
            (node.name,),
            f"could not tell the super pod of {devices(ids)}: {reason}",
            "Without it the rank table cannot be made; `resources: {file: …}` takes one of yours",
        )


def _split(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    pods: dict[int, list[int]] = {}
    places = places_of(node_facts)
    for device_id in device_ids(node, node_facts):
        if device_id in places:
            pods.setdefault(places[device_id].super_pod_id, []).append(device_id)
    if len(pods) > 1:
        where = ", ".join(f"{devices(sorted(ids))} in {pod}" for pod, ids in pods.items())
        yield error(
            "super-pods-several",
            (node.name,),
            f"the devices of one server are in several super pods: {where} ({_LOOK})",
            "Ask who set up the super pods",
        )


def _outside(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """Some devices of the cluster are in a super pod; all must be."""
    answers = value_of(node_facts.super_pods) or {}
    shown = places_of(node_facts)
    outside = [
        device_id
        for device_id in device_ids(node, node_facts)
        if device_id not in shown and not isinstance(answers.get(device_id), Unanswered)
    ]
    if outside and value_of(node_facts.super_pods) is not None:
        yield error(
            "super-pods-mixed",
            (node.name,),
            f"{devices(sorted(outside))} {'is' if len(outside) == 1 else 'are'} in no super "
            f"pod, other devices of the cluster are ({_LOOK})",
            "Make the super pods whole, or leave the node out; `resources: {file: …}` takes "
            "a rank table of yours",
        )
