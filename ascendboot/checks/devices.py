"""Checks of NPUs: number, product, health, super pods, root info."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ascendboot.checks import finding
from ascendboot.errors import RankTableError
from ascendboot.facts import derive
from ascendboot.facts.node_facts import FactsByNode, NodeFacts
from ascendboot.facts.npus import ROOT_INFO, RootInfo
from ascendboot.facts.parsers.npu_smi import SPOD_TOOL, SuperPodPlace
from ascendboot.facts.query import NOT_QUERIED, Answer, Answered, Unanswered, value_of
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.names import counted
from ascendboot.ranktable.formats.levels import device_places
from ascendboot.value import replace

DRIVER = "Is the Ascend driver installed on the host side?"
_MOST_LINES = 4
_OWN_TABLE = "`resources: {file: …}` takes your own rank table"
_LOOK = "Look at npu-smi info and dmesg"
_HEALTH_LEVELS: Mapping[str, finding.Level] = {
    "Critical": "error",
    "Alarm": "error",
    "Warning": "warning",
    "UNKNOWN": "warning",  # the device is not there, or not started
}


def health_findings(node: str, used: Iterable[int], health: Mapping[int, str]) -> finding.Findings:
    """Used devices of a node that are not healthy, and those with a word that is not known."""
    words = finding.grouped((health[i], i) for i in sorted(used) if health.get(i, "OK") != "OK")
    for word, level in _HEALTH_LEVELS.items():
        if word in words:
            text = f"npu-smi info reports {finding.devices(words[word])} as {word}, not OK"
            remedy = "Look at the error codes of npu-smi info -t health; reset or replace the NPU, "
            remedy += "or state the other devices under `devices`"
            yield finding.Finding("device-health", level, (node,), text, remedy)
    if unknown := [word for word in words if word not in _HEALTH_LEVELS]:
        affected = sorted(device_id for word in unknown for device_id in words[word])
        printed = " and ".join(f'"{word}"' for word in unknown)
        text = f"could not see how {finding.devices_are(affected)}: "
        text += f"npu-smi info reports {printed}, none of {', '.join(('OK', *_HEALTH_LEVELS))}"
        remedy = "Look at npu-smi info -t health"
        yield finding.warning("device-health-unknown", (node,), text, remedy)


def product_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """The stated product differs from the chips' names; the stated one counts."""
    for node, node_facts in derive.answered_nodes(cluster, facts):
        shown, stated = derive.product_of(node_facts), cluster.product
        if stated != "auto" and shown not in (None, stated):
            text = f"the inventory states product {stated}, and the chips are called as those of"
            text += f" {shown}: rank table and HCCL's variables are checked for {stated}"
            remedy = "Correct `product`, or leave it out"
            yield finding.warning("product-contradicts", (node.name,), text, remedy)


def device_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """The devices that are there, against the inventory, the other nodes and their health."""
    complete: dict[str, str] = {}
    present = [derive.present_ids(node_facts) for node_facts in facts.values()]
    usual = max(present, key=len, default=())
    for node, node_facts in derive.answered_nodes(cluster, facts):
        yield from _tools(node, node_facts)
        if value_of(node_facts.npus) is None:
            continue
        found = [*_missing(node, node_facts, usual)]
        yield from found
        yield from finding.unanswered(
            "device-health-unknown", node, node_facts.health, level="warning"
        )
        used = derive.device_ids(node, node_facts)
        yield from health_findings(node.name, used, value_of(node_facts.health) or {})
        if not found:
            complete[node.name] = finding.numbers(used)
    all_stated = all(n.devices or n.device_count for n in cluster.nodes if n.name in complete)
    yield from finding.differences(
        "devices-differ",
        complete,
        has="devices ",
        # mx_rec takes the device ids of the first node for those of all
        level="warning" if all_stated and cluster.profile != "rec-sdk-tf" else "error",
        remedy="State `devices` so that every node uses the same ids in the same order",
    )
    yield from _chips(cluster, facts)


def _chips(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """Nodes with other chips than most: one table may be for several products, or kinds of one."""
    kinds = {
        node.name: " and ".join(dict.fromkeys(npu.chip_name for npu in npus.npus))
        for node, node_facts in derive.answered_nodes(cluster, facts)
        if (npus := value_of(node_facts.npus)) and npus.npus and not node_facts.stated
    }
    remedy = "Use NPUs of one kind in a cluster"
    yield from finding.differences("chips-differ", kinds, has="", level="warning", remedy=remedy)


def _tools(node: Node, node_facts: NodeFacts) -> finding.Findings:
    or_state = "Repair the tool; or state `devices` with their addresses, and `facts: stated`"
    for found in finding.unanswered("npus-unknown", node, node_facts.npus, DRIVER):
        yield replace(found, remedy=found.remedy or or_state)
    lines = value_of(node_facts.unknown_lines) or ()
    if lines:
        more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
        shown = ", ".join(lines[:_MOST_LINES])
        text = f"vendor tools print more than their answers: {shown}{more}"
        yield finding.warning("tool-lines-unknown", (node.name,), text, "Read what they warn of")
    if node_facts.stated:
        text = (
            f"{finding.devices(derive.device_ids(node, node_facts))} and their addresses are what "
            "the inventory states (`facts: stated`), not what the node reports: "
            f"{'; '.join(node_facts.stated)}. Health, links, TLS switches and pings of these "
            "devices are not checked"
        )
        remedy = "Repair the tool, then remove `facts: stated`"
        yield finding.warning("facts-stated", (node.name,), text, remedy)


def _missing(node: Node, node_facts: NodeFacts, usual: Sequence[int]) -> finding.Findings:
    """The devices or their number as stated, against those there; `usual`: the most of any node."""
    npus = value_of(node_facts.npus)
    if npus is not None and npus.unusable:
        text = f"npu-smi info -m lists {counted(npus.unusable, 'NPU')} as not usable (NPU ID -1)"
        yield finding.error("npu-unusable", (node.name,), text, f"{_LOOK}; reset or replace it")
    present, stated = derive.present_ids(node_facts), node.device_count
    ids, listed = derive.device_ids(node, node_facts), finding.numbers(present)
    id_, remedy = "device-count", f"{_LOOK}, or correct `devices`"
    if node.devices:
        missing = sorted(device_id for device_id in ids if device_id not in present)
        if not missing:
            return
        id_ = "device-missing"
        text = f"{finding.devices_are(missing)} missing from npu-smi info -m, which lists "
        text += f"{listed or 'none'}. The inventory names {finding.numbers(ids)}"
    elif not present:
        id_, text, remedy = "npus-none", "npu-smi info -m lists no NPU", DRIVER
    elif stated is None or stated == len(present):
        return
    elif len(present) > stated:
        text = f"{len(present)} devices answer ({listed}). The inventory states {stated}"
        remedy = "State the ids to use as `devices`, or correct their number"
    else:
        expected = usual if len(usual) == stated else range(stated)
        missing = [device_id for device_id in expected if device_id not in present]
        text = f"{len(present)} of {stated} devices answer; {finding.devices_are(missing)} missing "
        text += f"from npu-smi info -m. The inventory states {stated}"
    yield finding.error(id_, (node.name,), text, remedy)


_MAKE = (
    "Make it there (mindcluster-tools rootinfo --output FILE, then install -m 0644 FILE "
    f"{ROOT_INFO}), or state your own rank table as `resources: {{file: …}}`"
)


def root_info_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """What keeps a table of version 2.0 from being made, for a cluster of 950."""
    for node, node_facts in derive.answered_nodes(cluster, facts):
        yield from finding.unanswered("root-info-missing", node, node_facts.root_info, _MAKE)
        info = value_of(node_facts.root_info)
        if info is not None:
            yield from _root_info(node, node_facts, info)
        elif isinstance(node_facts.root_info, Answered) or node_facts.root_info == NOT_QUERIED:
            text = f"{ROOT_INFO} was not read: npu-smi calls no chip Ascend950"
            remedy = "Correct `product`, or state your own rank table as `resources: {file: …}`"
            yield finding.error("root-info-missing", (node.name,), text, remedy)


def _root_info(node: Node, node_facts: NodeFacts, info: RootInfo) -> finding.Findings:
    try:
        places = device_places(info.text, ROOT_INFO)
        lacking = sorted(i for i in derive.device_ids(node, node_facts) if i not in places)
        text = f"{ROOT_INFO} has no entry for {finding.devices(lacking)}" if lacking else ""
    except RankTableError as problem:
        text = str(problem)
    if text:
        yield finding.error("root-info-unfit", (node.name,), text, _MAKE)
    if info.missing_topology is not None:
        # a container has files of its own
        level: finding.Level = "error" if node.container is None else "warning"
        text = f"{ROOT_INFO} names {info.missing_topology} as topology, which is not there"
        remedy = "Correct topo_file_path; the driver has its topologies in "
        remedy += "/usr/local/Ascend/driver/topo"
        yield finding.Finding("topology-missing", level, (node.name,), text, remedy)


def super_pod_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """What keeps a table of version 1.2 from being made, for a cluster of A3."""
    any_in_pod = any(derive.pods_of(cluster, facts).values())
    for node, node_facts in derive.answered_nodes(cluster, facts):
        yield from finding.unanswered("super-pod-unknown", node, node_facts.super_pods)
        answers = value_of(node_facts.super_pods)
        if answers is not None:
            used = derive.device_ids(node, node_facts)
            yield from _super_pods(node, {i: answers.get(i) for i in used}, any_in_pod=any_in_pod)


def _super_pods(
    node: Node, answers: Mapping[int, Answer[SuperPodPlace | None] | None], *, any_in_pod: bool
) -> finding.Findings:
    """The super pods of the devices of one node: known, the same for all, and not missing."""
    silent = {i: answer.why for i, answer in answers.items() if isinstance(answer, Unanswered)}
    for reason, ids in finding.grouped((why, i) for i, why in silent.items()).items():
        text = f"could not read the super pod of {finding.devices(ids)}: {reason}"
        remedy = f"Without it the rank table cannot be made; {_OWN_TABLE}"
        yield finding.error("super-pod-unknown", (node.name,), text, remedy)
    places = {i: value_of(answer) if answer else None for i, answer in answers.items()}
    pods = finding.grouped((place.super_pod_id, i) for i, place in places.items() if place)
    if len(pods) > 1:
        where = ", ".join(f"{finding.devices(sorted(ids))} in {pod}" for pod, ids in pods.items())
        text = f"the devices of one server are in several super pods: {where} ({SPOD_TOOL})"
        remedy = "Ask who set up the super pods"
        yield finding.error("super-pods-several", (node.name,), text, remedy)
    outside = sorted(i for i, place in places.items() if place is None and i not in silent)
    if any_in_pod and outside:
        text = f"{finding.devices_are(outside)} in no super pod, others of the cluster are"
        text += f" ({SPOD_TOOL})"
        remedy = f"Make the super pods whole, or leave the node out; {_OWN_TABLE}"
        yield finding.error("super-pods-mixed", (node.name,), text, remedy)
