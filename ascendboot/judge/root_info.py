"""Rules about the file in which a server of 950 tells where its devices are in the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.facts.api import NOT_ASKED, Answered, value_of
from ascendboot.facts.npus import ROOT_INFO
from ascendboot.judge.devices import device_ids
from ascendboot.judge.finding import Finding, devices, judged_nodes, unanswered
from ascendboot.ranktable.rootinfo import device_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.facts.npus import RootInfo
    from ascendboot.model.cluster import Cluster, Node

_MAKE = (
    "Make it there (mindcluster-tools rootinfo --output FILE, then install -m 0644 FILE "
    f"{ROOT_INFO}), or name a rank table of yours as `resources: {{file: …}}`"
)


def root_info_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """What keeps a table of version 2.0 from being made; of a cluster of 950."""
    for node, seen in judged_nodes(cluster, facts):
        yield from unanswered("root-info-missing", node, seen.root_info, _MAKE)
        info = value_of(seen.root_info)
        if info is not None:
            yield from _understood(node, seen, info)
            yield from _topology(node, info)
        elif isinstance(seen.root_info, Answered) or seen.root_info == NOT_ASKED:
            yield Finding(
                id="root-info-missing",
                level="error",
                nodes=(node.name,),
                text=f"{ROOT_INFO} was not read: npu-smi calls no chip Ascend950",
                remedy="Correct `product`, or name a rank table of yours as `resources: {file: …}`",
            )


def _understood(node: Node, seen: NodeFacts, info: RootInfo) -> Iterator[Finding]:
    try:
        places = device_places(info.text, ROOT_INFO)
    except RankTableError as error:
        yield Finding(
            id="root-info-unfit", level="error", nodes=(node.name,), text=str(error), remedy=_MAKE
        )
        return
    lacking = [i for i in device_ids(node, seen) if i not in places]
    if lacking:
        yield Finding(
            id="root-info-unfit",
            level="error",
            nodes=(node.name,),
            text=f"{ROOT_INFO} says nothing of {devices(sorted(lacking))}",
            remedy=_MAKE,
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
