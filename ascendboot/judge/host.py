"""Rules about the operating system and the software of the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.judge.finding import (
    Finding,
    differences,
    judged_nodes,
    known,
    too_old,
    unanswered,
)
from ascendboot.judge.launcher import needs_openmpi
from ascendboot.judge.limits import LEAST_FREE_BYTES, LEAST_FREE_INODES, SSHD_OPTIONS
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.api import Clock
    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

CLOCK_TOLERANCE_S = 30.0
FIRST_UNSUPPORTED_OPEN_MPI = 5


def host_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, seen in judged_nodes(cluster, facts):
        yield from unanswered("system-unknown", node, seen.system)
        yield from unanswered("machine-unknown", node, seen.machine, level="warning")
        if_missing, if_old = _sshd_remedies(cluster, node)
        yield from unanswered("sshd-missing", node, seen.sshd, if_missing)
        yield from too_old("sshd-old", node, value_of(seen.sshd), SSHD_OPTIONS, if_old)
        yield from _account(cluster, node, seen)
        if needs_openmpi(cluster, facts):
            yield from _openmpi(node, seen)
        yield from unanswered(
            "python-missing", node, seen.python, "Install it, or state another `code.python`"
        )
        yield from _disk(node, seen)
        yield from unanswered("clock-unknown", node, seen.clock, level="warning")
        yield from unanswered("listeners-unknown", node, seen.listeners, level="warning")
    yield from _one_machine(cluster, facts)
    yield from _versions(cluster, facts)
    yield from _names(cluster, facts)
    yield from _clocks(cluster, facts)


def _sshd_remedies(cluster: Cluster, node: Node) -> tuple[str, str]:
    """What to do where there is no sshd, and where it is too old."""
    if node.container is None or cluster.serves_from_host(node):
        place = "on the host side"
        return f"Install openssh-server {place}", f"Install OpenSSH 7.4 or later {place}"
    image = f"{node.container}, or state `ssh: {{via: engine}}`"
    return (
        f"Install openssh-server in the image of {image}",
        f"Install OpenSSH 7.4 or later in the image of {image}",
    )


def _account(cluster: Cluster, node: Node, seen: NodeFacts) -> Iterator[Finding]:
    server = value_of(seen.sshd)
    if server is None or server.lets_us_in:
        return
    from_host = cluster.serves_from_host(node)
    in_container = node.container is not None and not from_host
    system = value_of(seen.host if from_host else seen.system)
    user, place = system.user if system else "root", ""
    remedy = f"Forbid passwords without locking it: usermod -p '*' {user}"
    if in_container:
        place = f" in the container {node.container}"
        remedy += ", in the image; or state `ssh: {via: engine}`"
    yield Finding(
        id="account-locked",
        level="error",
        nodes=(node.name,),
        text=f"the account {user}{place} is locked (its password in /etc/shadow begins with !): "
        "the cluster's sshd would let nobody in",
        remedy=remedy,
    )


def _openmpi(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    remedy = "Install Open MPI 4.1 (package openmpi-bin), or put it in /usr/local/openmpi"
    yield from unanswered("openmpi-missing", node, seen.openmpi, remedy)
    openmpi = value_of(seen.openmpi)
    if openmpi is not None and openmpi.major >= FIRST_UNSUPPORTED_OPEN_MPI:
        yield Finding(
            id="openmpi-unsupported",
            level="error",
            nodes=(node.name,),
            text=f"Open MPI {openmpi.version} is not supported yet by this version",
            remedy="Install Open MPI 4.1",
        )


def _disk(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    yield from unanswered("place-read-only", node, seen.place)
    yield from unanswered("disk-unknown", node, seen.disk)
    disk = value_of(seen.disk)
    for system in dict.fromkeys((disk.base, disk.tmp) if disk else ()):
        lacks = []
        if system.free_bytes < LEAST_FREE_BYTES:
            lacks.append(f"{max(system.free_bytes, 0) // 1000**2} MB")
        if system.free_inodes is not None and system.free_inodes < LEAST_FREE_INODES:
            lacks.append(f"{system.free_inodes} inodes")
        if lacks:
            yield Finding(
                id="disk-full",
                level="error",
                nodes=(node.name,),
                text=f"only {' and '.join(lacks)} are free on {system.mount_point}",
                remedy=f"Free {LEAST_FREE_BYTES // 1000**2} MB and {LEAST_FREE_INODES} inodes",
            )


def _one_machine(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    for names in same_machines(cluster, facts):
        yield Finding(
            id="same-machine",
            level="error",
            nodes=names,
            text=f"{fold(names)} are one and the same machine",
            remedy="Correct the addresses in the inventory",
        )


def same_machines(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[tuple[str, ...], ...]:
    """The sets of nodes that are one machine under several names."""
    machines = known({node.name: seen.machine for node, seen in judged_nodes(cluster, facts)})
    return _equal(machines)


def _versions(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    nodes = tuple(judged_nodes(cluster, facts))
    openmpi = known({node.name: seen.openmpi for node, seen in nodes})
    if not needs_openmpi(cluster, facts):
        openmpi = {}
    python = known({node.name: seen.python for node, seen in nodes})
    system = known({node.name: seen.system for node, seen in nodes})
    for id_, has, versions in (
        ("openmpi-differs", "Open MPI ", {name: found.version for name, found in openmpi.items()}),
        ("python-differs", "Python ", {name: found.version for name, found in python.items()}),
    ):
        series = {version.rpartition(".")[0] for version in versions.values()}
        yield from differences(
            id_,
            versions,
            has=has,
            level="error" if len(series) > 1 else "warning",
            remedy="Install the same version on all nodes",
        )
    yield from differences(
        "openmpi-path-differs",
        {name: found.path for name, found in openmpi.items()},
        has="mpirun at ",
        level="warning",
        remedy="Install Open MPI at the same place on all nodes",
    )
    yield from differences(
        "arch-differs",
        {name: found.arch for name, found in system.items()},
        has="the architecture ",
        level="warning",
        remedy="Use nodes of one architecture, or a `code.python` that is right on each",
    )


def _names(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    systems = known({node.name: seen.system for node, seen in judged_nodes(cluster, facts)})
    one_machine = same_machines(cluster, facts)
    for names in _equal({name: found.hostname for name, found in systems.items()}):
        if any(set(names) <= set(same) for same in one_machine):
            continue
        yield Finding(
            id="hostname-twice",
            level="warning",
            nodes=names,
            text=f'{len(names)} nodes have the same hostname "{systems[names[0]].hostname}"',
            remedy="Give each its own: hostnamectl set-hostname NAME",
        )


def _clocks(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    clocks = known({node.name: seen.clock for node, seen in judged_nodes(cluster, facts)})
    if not clocks:
        return
    usual = _usual_offset(clocks)
    for name, clock in clocks.items():
        away = clock.offset_s - usual
        if abs(away) - clock.uncertainty_s > CLOCK_TOLERANCE_S:
            yield Finding(
                id="clock-off",
                level="warning",
                nodes=(name,),
                text=f"the clock is {abs(away):.0f} s {'ahead of' if away > 0 else 'behind'} "
                "the other nodes",
                remedy="Set the time on all nodes from one source (chrony, ntpd)",
            )


def _usual_offset(clocks: Mapping[str, Clock]) -> float:
    """The median; of the two in the middle of an even number, the one closer to our own clock."""
    offsets = sorted(clock.offset_s for clock in clocks.values())
    middle = offsets[(len(offsets) - 1) // 2 : len(offsets) // 2 + 1]
    return min(middle, key=abs)


def _equal(values: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)
