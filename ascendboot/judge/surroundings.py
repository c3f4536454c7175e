"""Rules about what ranks are given: devices in their container, limits, SELinux and AppArmor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.api import value_of
from ascendboot.facts.surroundings import MANAGERS, MOST_SHOWN, granted_devices
from ascendboot.judge.devices import device_ids
from ascendboot.judge.finding import Finding, devices, judged_nodes, numbers, unanswered
from ascendboot.judge.product import product_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.facts.surroundings import Confinement, Surroundings
    from ascendboot.judge.finding import Level
    from ascendboot.model.cluster import Cluster, Node

LEAST_MEMLOCK_KIB = 8 << 10
"""What Linux gives by itself since 5.16; the 64 KiB of before are too little for RDMA."""
_NOT_ON_950 = frozenset({"devmm_svm"})
_CONFINED_TYPES = ("container_t", "svirt_lxc_net_t")


def surroundings_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, seen in judged_nodes(cluster, facts):
        yield from unanswered("surroundings-unknown", node, seen.surroundings, level="warning")
        given = value_of(seen.surroundings)
        if given is None:
            continue
        yield from _memlock(node, given)
        if node.container is not None:
            product = product_of(seen) if cluster.product == "auto" else cluster.product
            ids = device_ids(node, seen)
            is_950, place = product == "a5", node.container
            yield from device_node_findings(node.name, place, ids, given, is_950=is_950)
            yield from _confined(node, given, value_of(seen.confinement))


def device_node_findings(
    node: str,
    container: str,
    used: Sequence[int],
    given: Surroundings,
    *,
    is_950: bool,
    id_: str = "",
) -> Iterator[Finding]:
    """Devices of the job, and what opens them, that the node's container does not have.

    `id_` is used in place of the ids of `setup` and `check`.
    """
    place = f"the container {container}"
    lacks = [device_id for device_id in sorted(used) if device_id not in given.device_ids]
    granted: Sequence[int] | None = None
    if given.visible is not None:
        try:
            granted = granted_devices(given.visible)
        except NotUnderstoodError:
            shown = given.visible[:MOST_SHOWN]
            text = f'ASCEND_VISIBLE_DEVICES of {place} is "{shown}", which its runtime cannot read'
            remedy = "State ids and ranges, as 0-3,6, and create the container again"
            yield _finding(id_ or "device-not-granted", "warning", node, text, remedy)
    refused = [device_id for device_id in lacks if granted is not None and device_id not in granted]
    if refused:
        verb = "is" if len(refused) == 1 else "are"
        grants = devices(granted) if granted else "no device"
        text = f"{devices(refused)} {verb} not granted to {place}: its ASCEND_VISIBLE_DEVICES"
        text += f"={given.visible[:MOST_SHOWN] if given.visible else ''} grants {grants}"
        remedy = f"Create it again with ASCEND_VISIBLE_DEVICES={numbers(sorted(used))}, or state "
        remedy += "the granted ones under `devices`"
        yield _finding(id_ or "device-not-granted", "error", node, text, remedy)
    absent = [f"davinci{device_id}" for device_id in lacks if device_id not in refused]
    if used and not refused:  # else their reason is the same
        needed = set(MANAGERS) - (_NOT_ON_950 if is_950 else set())
        absent += sorted(needed - given.device_nodes)
    if absent:
        paths = [f"/dev/{name}" for name in absent]
        text = f"{place} has no {', '.join(paths)}"
        remedy = f"Create it again with {' '.join(f'--device={path}' for path in paths)}"
        if granted:
            remedy = "Create it again with --runtime=ascend, which adds what "
            remedy += f"ASCEND_VISIBLE_DEVICES={given.visible} grants"
        yield _finding(id_ or "device-node-missing", "error", node, text, remedy)


def _memlock(node: Node, given: Surroundings) -> Iterator[Finding]:
    if given.memlock_kib is None or given.memlock_kib >= LEAST_MEMLOCK_KIB:
        return
    place = f" in the container {node.container}" if node.container else ""
    remedy = "Set memlock to unlimited in /etc/security/limits.conf or LimitMEMLOCK of the service"
    if node.container:
        remedy = "Create the container again with --ulimit memlock=-1:-1"
    text = f"ranks may lock {given.memlock_kib} KiB of memory{place} (ulimit -l), too little for "
    text += "RDMA and pinned buffers"
    yield _finding("memlock-small", "warning", node.name, text, remedy)


def _confined(node: Node, given: Surroundings, host: Confinement | None) -> Iterator[Finding]:
    """SELinux and AppArmor, by name: else what they refuse looks like wrong modes."""
    kind = given.label.split(":")[2] if given.label.count(":") > 1 else ""
    denials = host.denials if host else ()
    if host is not None and host.enforcing and kind in _CONFINED_TYPES:
        text = f"SELinux is enforcing and confines the container {node.container} ({kind}): it may "
        text += "refuse devices, and folders of the host that were mounted without :z"
        text += _last(denials, f"scontext={given.label}")
        remedy = "Mount with :z, allow devices with setsebool container_use_devices on, or create "
        remedy += "it again with --security-opt label=disable"
        yield _finding("selinux-confines", "warning", node.name, text, remedy)
    profile, _, mode = given.label.partition(" (")
    refused = _last(denials, f'profile="{profile}"') if mode == "enforce)" else ""
    if refused:
        text = f"AppArmor has refused something to the profile {profile}, which the container "
        text += f"{node.container} has{refused}"
        remedy = "If ranks need it, create the container again with --security-opt "
        remedy += "apparmor=unconfined, or permit it in the profile"
        yield _finding("apparmor-denies", "warning", node.name, text, remedy)


def _last(denials: Sequence[str], mark: str) -> str:
    of_it = [line for line in denials if mark in line]
    return f'; its last denial: "{of_it[-1].strip()[:MOST_SHOWN]}"' if of_it else ""


def _finding(id_: str, level: Level, node: str, text: str, remedy: str) -> Finding:
    return Finding(id=id_, level=level, nodes=(node,), text=text, remedy=remedy)
