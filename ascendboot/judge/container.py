"""Rules about the containers in which ranks run: there, running, usable, on the host's network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.facts.container import ENGINES, PROGRAMS
from ascendboot.judge.finding import Finding, judged_nodes, unanswered
from ascendboot.model.container import OWN_ONLY, Inside

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.api import Answer
    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.parse.container import Container, Engines

_MOST_NAMED = 6


def container_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, seen in judged_nodes(cluster, facts):
        if node.container is not None:
            yield from obstacles(node, seen.container)
            if not cluster.serves_from_host(node):
                yield from _capabilities(node, seen.container)
            yield from _network(node, seen)
            yield from _environment(node, seen)


def obstacles(node: Node, answer: Answer[Engines]) -> Iterator[Finding]:
    """Why nothing can be run in the node's container; nothing when it can."""
    engines, name = value_of(answer), node.container or ""
    if engines is None:
        wanted = " or ".join(ENGINES[node.engine])
        remedy = f"Install {wanted}, or remove `container`: ranks then run on the host itself"
        yield from unanswered("engine-missing", node, answer, remedy)
    elif engines.container is not None:
        yield from _unusable(node, name, engines.container)
    elif engines.refused:
        for engine, words in engines.refused.items():
            remedy = _sentence(Inside(engine, name).remedy(words))
            yield _error("engine-refused", node, f"{_called(engine)} refused: {words}", remedy)
    else:
        yield _absent(node, name, engines.names)


def _unusable(node: Node, name: str, found: Container) -> Iterator[Finding]:
    way, engine = Inside(found.engine, name), _called(found.engine)
    if found.status == "paused":
        text, remedy = f"the container {name} is paused", f"{engine} unpause {name}"
        yield _error("container-stopped", node, text, f"Let it go on: {remedy}")
    elif found.status != "running":
        text, remedy = f"the container {name} is {found.status}", f"{engine} start {name}"
        yield _error("container-stopped", node, text, f"Start it: {remedy}")
    elif found.obstacle:
        text = f"could not run bash in the container {name}: {found.obstacle}"
        remedy = _sentence(way.remedy(found.obstacle))
        yield _error("container-without-bash", node, text, remedy)

    elif found.lacks:
        packages = (p for p, names in PROGRAMS.items() if not {*names}.isdisjoint(found.lacks))
        text = f"the container {name} has no {', '.join(found.lacks)}, which our scripts need"
        remedy = f"Install {', '.join(packages)} in its image"
        yield _error("container-without-programs", node, text, remedy)


def _capabilities(node: Node, answer: Answer[Engines]) -> Iterator[Finding]:
    engines = value_of(answer)
    if engines and engines.container and engines.container.lacks_capabilities:
        text = (
            f"root in the container {node.container} lacks one of the capabilities SETUID, SETGID "
            "and SYS_CHROOT: the cluster's sshd would let nobody in"
        )
        remedy = (
            "Start it anew with --cap-add SETUID,SETGID,SYS_CHROOT, or state `ssh: {via: engine}`"
        )
        yield _error("container-capabilities", node, text, remedy)


def _absent(node: Node, name: str, others: tuple[str, ...]) -> Finding:
    more = len(others) - _MOST_NAMED
    named = ", ".join(others[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    there = f"there are {named}" if others else "there is none at all"
    text = f"there is no container {name}; {there}"
    remedy = "Start it, or correct `container`"
    if node.ssh.user != "root" and node.engine != "docker":
        remedy += f", or log in as the user who started it: {OWN_ONLY}"
    return _error("container-absent", node, text, remedy)


def _network(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """Only on the host's network do ranks have the cluster address and our sshd its port."""
    yield from unanswered("container-network-unknown", node, seen.work_machine)
    host, inside = value_of(seen.machine), value_of(seen.work_machine)
    if host is not None and inside is not None and host != inside:
        text = f"the container {node.container} has a network of its own: the other nodes do "
        text += "not reach its ranks at the cluster address"
        yield _error("container-network", node, text, "Start it anew with --network host")


def _environment(node: Node, seen: NodeFacts) -> Iterator[Finding]:
    """Ranks get the image's variables from the first process of the container."""
    remedy = (
        "Ranks may lack it: state what they need under `env` (PATH, LD_LIBRARY_PATH, …), or "
        "start the container so that its first process runs as the user who trains"
    )
    for finding in unanswered("container-environment", node, seen.first_process, level="warning"):
        yield replace(finding, remedy=remedy)


def _error(id_: str, node: Node, text: str, remedy: str) -> Finding:
    return Finding(id=id_, level="error", nodes=(node.name,), text=text, remedy=remedy)


def _called(engine: str) -> str:
    return PurePosixPath(engine).name


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
