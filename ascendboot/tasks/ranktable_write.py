"""`ranktable.write`: the rank table of a cluster, from what its devices say now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature

from ascendboot.console import Screen
from ascendboot.errors import AscendbootError, UsageError
from ascendboot.judge.devices import device_ids
from ascendboot.judge.members import member
from ascendboot.judge.whole import judge
from ascendboot.model.names import expand
from ascendboot.ranktable.build import Member, MemberDevice, build, generation_for
from ascendboot.ranktable.convert import ORDERS
from ascendboot.ranktable.rule import JOBS, PRODUCTS
from ascendboot.state import State
from ascendboot.tasks.common import (
    FORKS,
    FORKS_HELP,
    INVENTORY_HELP,
    forks_of,
    reports_errors,
    wanted_cluster,
)
from ascendboot.tasks.deliver import deliver
from ascendboot.tasks.flags import task
from ascendboot.tasks.npus import ask_npus, product_among
from ascendboot.tasks.session import Session, run_to_look
from ascendboot.tasks.words import ANSWER_HELP, GENERATIONS, among

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

_ALLOWED = {"devices-differ", "device-ip-missing"}
"""Errors for `setup`, which the rules of rank tables weigh by product and job."""


@task(
    help={
        "inventory": INVENTORY_HELP,
        "output": "Where to write it; default: standard output",
        "to": f"The generation: {', '.join(GENERATIONS)}; default: the one of the NPUs",
        "order": f"{ORDERS[0]} (the default): primary first, then as in the inventory or in "
        f"--nodes; {ORDERS[1]}: by server_id as text, as MindSpore numbers",
        "nodes": "Only these nodes, in this order: atlas-[01-04],atlas-09",
        "devices": "Only these devices of each node, in this order: 0-3 or 0,2",
        "offline": "Ask nobody: the inventory states every device with its address, as devices:"
        " [{device_id: 0, device_ip: ADDRESS}]",
        "product": f"With --offline, or against what the NPUs say: {', '.join(PRODUCTS)}",
        "job": f"Also what a training stack wants of its table: {', '.join(JOBS)}",
        "force": "Overwrite a file that holds something else",
        "forks": FORKS_HELP,
        "json": ANSWER_HELP,
    }
)
@reports_errors
def write(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    inventory: str | None = None,
    output: str | None = None,
    to: str | None = None,
    order: str = "given",
    nodes: str | None = None,
    devices: str | None = None,
    offline: bool = False,
    product: str | None = None,
    job: str | None = None,
    force: bool = False,
    forks: str = FORKS,
    json: bool = False,
) -> None:
    """Write the rank table of a cluster, from what its devices say now; nodes are only read.

    Product and generation follow from the NPUs: super pods of A3 from npu-smi, the level lists of
    950 from /etc/hccl_rootinfo.json of each server. A table that HCCL would refuse is not written.

    Examples:
      invoke ranktable.write --output hccl_json_16p_2_host.json
      invoke ranktable.write --devices 0-3 --nodes atlas-1 --output hccl_json_4p.json
      invoke ranktable.write --order server-id --job mindspore
      invoke ranktable.write --inventory devices.yaml --offline --product a2

    Exit codes: 0 done, 1 HCCL would refuse it or a node cannot tell, 2 wrong use, or the product
    reads another generation, 4 a node is unreachable.
    """
    wanted_order = among("--order", order, ORDERS) or "given"
    wanted_product = among("--product", product, PRODUCTS)
    wanted_job = among("--job", job, JOBS)
    word = among("--to", to, tuple(GENERATIONS))
    workers = forks_of(forks)
    _, cluster = wanted_cluster(inventory, with_own_table=False)
    chosen = _chosen(cluster, nodes)
    ids = None if devices is None else _ids(devices)
    screen = Screen(json_mode=json)
    if offline:
        members = tuple(_stated(cluster, node, ids) for node in chosen)
        stated = cluster.product if cluster.product != "auto" else None
        of_npus = wanted_product or stated
    else:
        found = _found(cluster, chosen, forks=workers)
        members = tuple(_seen(node, found[node.name], ids) for node in chosen)
        of_npus = product_among(cluster, found) or wanted_product
    if wanted_product is not None and wanted_product != of_npus:
        raise UsageError(f"--product: the NPUs are of {of_npus}, not of {wanted_product}")
    generation = GENERATIONS[word] if word else generation_for(of_npus, members)
    table = build(members, generation, wanted_order, of_npus)
    deliver(table, screen, output=output, product=of_npus, job=wanted_job, force=force)


def _found(cluster: Cluster, nodes: Sequence[Node], *, forks: int) -> Mapping[str, NodeFacts]:
    state = State.here()
    run = run_to_look(state, "ranktable-write")
    with Session.opened(cluster, state, run, accept_new=False, forks=forks) as session:
        found = ask_npus(session, nodes)
    asked = replace(cluster, resource_mode="rank-table")
    findings = [f for f in judge(asked, found) if f.level == "error" and f.id not in _ALLOWED]
    if findings:
        raise AscendbootError("\n".join(finding.message for finding in findings))
    return found


def _chosen(cluster: Cluster, names: str | None) -> tuple[Node, ...]:
    if names is None:
        return cluster.rank_order
    known = {node.name: node for node in cluster.nodes}
    chosen = []
    for pattern in _parts(names):
        try:
            wanted = expand(pattern)
        except ValueError as error:
            raise UsageError(f"--nodes: {error}") from None
        for name in wanted:
            if name not in known:
                raise UsageError(f'--nodes: "{name}" is not in {cluster.source}')
            chosen.append(known[name])
    if len({node.name for node in chosen}) != len(chosen):
        raise UsageError("--nodes: a node is there twice")
    return tuple(chosen)


def _parts(text: str) -> list[str]:
    """The patterns between commas, of which brackets may have some of their own."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _ids(text: str) -> tuple[int, ...]:
    ids: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) < 4 for end in ends):  # noqa: PLR2004
            raise UsageError(f'--devices: "{part}" is not a device id or a range, such as 0-3')
        ids += range(int(ends[0]), int(ends[1]) + 1)
    if len(set(ids)) != len(ids) or not ids:
        raise UsageError(f'--devices: "{text}" names no device, or one twice')
    return tuple(ids)


def _stated(cluster: Cluster, node: Node, ids: tuple[int, ...] | None) -> Member:
    addresses = {device.device_id: device.device_ip for device in node.devices}
    if not addresses:
        raise UsageError(
            f"--offline: {cluster.source} does not name the devices of {node.name}; state them as "
            "`devices: [{device_id: 0, device_ip: ADDRESS}]`"
        )
    wanted = _wanted(node, tuple(addresses), ids)
    return Member(node.server_id, tuple(MemberDevice(i, addresses[i]) for i in wanted))


def _seen(node: Node, facts: NodeFacts, ids: tuple[int, ...] | None) -> Member:
    return member(node, facts, _wanted(node, device_ids(node, facts), ids))


def _wanted(node: Node, there: tuple[int, ...], ids: tuple[int, ...] | None) -> tuple[int, ...]:
    missing = [str(i) for i in ids or () if i not in there]
    if missing:
        known = ",".join(map(str, there)) or "none"
        raise UsageError(f"--devices: {node.name} has no {','.join(missing)}; it has {known}")
    return there if ids is None else ids
