"""TCP ports of Open MPI, and those that `firewall` closes to machines outside of the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from ascendboot.model.cluster import CHIEF_PORTS, Cluster

OPENMPI_PORTS: Final[Mapping[str, str]] = {
    "oob_tcp_dynamic_ipv4_ports": "62000-62003",
    "oob_tcp_dynamic_ipv6_ports": "62004-62007",
    "btl_tcp_port_min_v4": "62100",
    "btl_tcp_port_range_v4": "900",
    "btl_tcp_port_min_v6": "62100",
    "btl_tcp_port_range_v6": "900",
}
"""Parameters of Open MPI 4.1 with their values where `firewall` is set and they are not stated.

Linux gives none of these ports to outgoing connections by default. The ranges of oob are short:
mpirun and its daemons (4.1.4) listen on all ports of them that are free.
"""
_STATIC = ("oob_tcp_static_ipv4_ports", "oob_tcp_static_ipv6_ports")
_RANGES = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")
_NUMBER = re.compile(r"[0-9]{1,5}")
_MOST = 65535


def with_port_ranges(mpi_args: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
    """The words for mpirun, with ports for each kind of listener for which none are stated."""
    lacking = [
        ("--mca", name, value)
        for name, value in OPENMPI_PORTS.items()
        if name not in mpi_args and f"OMPI_MCA_{name}" not in env
    ]
    return (*mpi_args, *(word for words in lacking for word in words))


def openmpi_value(cluster: Cluster, name: str, env: Mapping[str, str]) -> str:
    """The value of a parameter, from words for mpirun or a variable; empty: it is not stated."""
    following = (word for before, word in pairwise(cluster.mpi_args) if before == name)
    return next(following, "") or env.get(f"OMPI_MCA_{name}", "")


def closed_ports(cluster: Cluster) -> frozenset[int]:
    """The ports that `firewall` closes; ValueError if one is invalid, or a login port of a node."""
    ports = {*range(cluster.chief_port, min(cluster.chief_port + CHIEF_PORTS, _MOST + 1))}
    # A variable of a single node replaces what its ranks get from mpirun.
    for of_node in ({}, *(node.env for node in cluster.nodes)):
        stated = {
            name: of_node.get(f"OMPI_MCA_{name}") or openmpi_value(cluster, name, cluster.env)
            for name in (*OPENMPI_PORTS, *_STATIC)
        }
        ports.update(_openmpi_ports({n: v for n, v in stated.items() if v or n not in _STATIC}))
    if not 0 < min(ports) <= max(ports) <= _MOST:
        raise ValueError(f"ports end at {_MOST}, and those to close at {max(ports)}; state others")
    for node in cluster.nodes:
        if node.ssh.port in ports:
            text = f"it would close port {node.ssh.port}, where {node.name} takes logins"
            raise ValueError(f"{text}; state other ports for Open MPI or resources.chief_port")
    return frozenset(ports)


def _openmpi_ports(stated: Mapping[str, str]) -> Iterator[int]:
    """The ports in these parameters; ValueError if one has none."""
    for name, value in stated.items():
        is_list = name.startswith("oob_")
        if not (_RANGES if is_list else _NUMBER).fullmatch(value):
            example = OPENMPI_PORTS.get(name, "62000-62003")
            raise ValueError(f'{name} is "{value}", which is no port; state for example {example}')
        for part in value.split(",") if is_list else ():
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)
    for version in ("v4", "v6"):
        lowest = int(stated[f"btl_tcp_port_min_{version}"])
        yield from range(lowest, lowest + int(stated[f"btl_tcp_port_range_{version}"]))
