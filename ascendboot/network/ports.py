"""At which ports of a node a job's parts on other nodes will knock; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ascendboot.facts.api import value_of
from ascendboot.judge.hccl_ports import ports_of_hccl
from ascendboot.judge.launcher import needs_openmpi

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

_GIVEN_OUT: Final = 40000
"""Inside of what Linux gives to those who ask for any port, unless told otherwise."""
_FIRST_OF_RANKS: Final = "1024"
"""Open MPI 4.1.4: each rank takes the first one that is free from here on."""

_DAEMONS_OF_MPIRUN: Final = 64
"""Open MPI 4.1 (routed radix): so many daemons talk to mpirun alone, further ones through these."""


@dataclass(frozen=True)
class Door:
    """A port of a node that is to be tried."""

    port: int
    use: str
    """Who needs it."""
    is_open: bool = False
    """Whether something of ours listens there now."""


def doors(cluster: Cluster, facts: Mapping[str, NodeFacts], node: Node) -> Iterator[Door]:
    """What a job needs of a node, but for the cluster's sshd; one port of each range."""
    for ports in ports_of_hccl(cluster, node)[:1]:
        yield Door(ports[0], "HCCL")
    if not needs_openmpi(cluster, facts):
        yield Door(_given_out(facts[node.name]), "gloo")
        return
    if node.name == cluster.primary_name or len(cluster.nodes) > _DAEMONS_OF_MPIRUN + 1:
        yield Door(_of_daemons(cluster) or _given_out(facts[node.name]), "Open MPI")
    first = _parameter(cluster.mpi_args, "btl_tcp_port_min_v4") or cluster.env_of(node).get(
        "OMPI_MCA_btl_tcp_port_min_v4", _FIRST_OF_RANKS
    )
    yield Door(_first_number(first) or int(_FIRST_OF_RANKS), "Open MPI's ranks")


def _of_daemons(cluster: Cluster) -> int | None:
    """The first port of those that mpirun tells its daemons; what a node states it never sees."""
    name = "oob_tcp_dynamic_ipv4_ports"
    stated = _parameter(cluster.mpi_args, name) or cluster.env.get(f"OMPI_MCA_{name}", "")
    return _first_number(stated)


def _given_out(facts: NodeFacts) -> int:
    kernel = value_of(facts.kernel_ports)
    if kernel is None or kernel.first <= _GIVEN_OUT <= kernel.last:
        return _GIVEN_OUT
    return kernel.first


def _parameter(words: Sequence[str], name: str) -> str:
    """The value of one of Open MPI's parameters among words for mpirun; empty: not stated."""
    following = (word for before, word in pairwise(words) if before == name)
    return next(following, "")


def _first_number(text: str) -> int | None:
    found = re.match(r"[0-9]{1,5}", text)
    return int(found[0]) if found else None
