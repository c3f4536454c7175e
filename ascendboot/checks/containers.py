"""Checks of job containers and of the training code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.checks.finding import Finding, error, unanswered, warning
from ascendboot.facts.container import ENGINES, PROGRAMS
from ascendboot.facts.derive import answered_nodes
from ascendboot.facts.query import Answer, value_of
from ascendboot.model.cluster import OWN_ONLY, Cluster, ContainerExec, Node
from ascendboot.model.files import (
    MOST_BYTES,
    MOST_FILES,
    PRIMARY,
    CodeTree,
    differences,
    differences_text,
    why_not_sent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node_facts import NodeFacts
    from ascendboot.facts.parsers.system import Container, Engines

_MOST_NAMED = 6


def container_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, node_facts in answered_nodes(cluster, facts):
        if node.container is not None:
            yield from obstacles(node, node_facts.container)
            if not cluster.serves_from_host(node):
                yield from _capabilities(node, node_facts.container)
            yield from _network(node, node_facts)
            yield from _environment(node, node_facts)


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
            remedy = _sentence(ContainerExec(engine, name).remedy(words))
            yield error(
                "engine-refused", (node.name,), f"{_called(engine)} refused: {words}", remedy
            )
    else:
        yield _absent(node, name, engines.names)


def _unusable(node: Node, name: str, found: Container) -> Iterator[Finding]:
    way, engine = ContainerExec(found.engine, name), _called(found.engine)
    if found.status == "paused":
        text, remedy = f"the container {name} is paused", f"{engine} unpause {name}"
        yield error("container-stopped", (node.name,), text, f"Let it go on: {remedy}")
    elif found.status != "running":
        text, remedy = f"the container {name} is {found.status}", f"{engine} start {name}"
        yield error("container-stopped", (node.name,), text, f"Start it: {remedy}")
    elif found.obstacle:
        text = f"could not run bash in the container {name}: {found.obstacle}"
        remedy = _sentence(way.remedy(found.obstacle))
        yield error("container-without-bash", (node.name,), text, remedy)

    elif found.lacks:
        packages = (p for p, names in PROGRAMS.items() if not {*names}.isdisjoint(found.lacks))
        text = f"the container {name} has no {', '.join(found.lacks)}, which our scripts need"
        remedy = f"Install {', '.join(packages)} in its image"
        yield error("container-without-programs", (node.name,), text, remedy)


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
        yield error("container-capabilities", (node.name,), text, remedy)


def _absent(node: Node, name: str, others: tuple[str, ...]) -> Finding:
    more = len(others) - _MOST_NAMED
    named = ", ".join(others[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    there = f"there are {named}" if others else "there is none at all"
    text = f"there is no container {name}; {there}"
    remedy = "Start it, or correct `container`"
    if node.ssh.user != "root" and node.engine != "docker":
        remedy += f", or log in as the user who started it: {OWN_ONLY}"
    return error("container-absent", (node.name,), text, remedy)


def _network(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """Only on the host's network do ranks have the cluster address and our sshd its port."""
    yield from unanswered("container-network-unknown", node, node_facts.work_machine)
    host, inside = value_of(node_facts.machine), value_of(node_facts.work_machine)
    if host is not None and inside is not None and host != inside:
        text = f"the container {node.container} has a network of its own: the other nodes do "
        text += "not reach its ranks at the cluster address"
        yield error("container-network", (node.name,), text, "Start it anew with --network host")


def _environment(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """Ranks get the image's variables from the first process of the container."""
    remedy = (
        "Ranks may lack it: state what they need under `env` (PATH, LD_LIBRARY_PATH, …), or "
        "start the container so that its first process runs as the user who trains"
    )
    for finding in unanswered(
        "container-environment", node, node_facts.first_process, level="warning"
    ):
        yield replace(finding, remedy=remedy)


def _called(engine: str) -> str:
    return PurePosixPath(engine).name


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


_EQUAL = (
    "Make the folders equal, leave results out with `code.exclude`, or let setup send the code: "
    "`code.source`"
)


def code_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, node_facts in answered_nodes(cluster, facts):
        yield from _there(cluster, node, node_facts)
        yield from unanswered("code-unknown", node, node_facts.code_tree)
    trees = {
        node.name: value_of(node_facts.code_tree)
        for node, node_facts in answered_nodes(cluster, facts)
    }
    if cluster.code_folder is None:
        yield from code_findings(cluster, {name: tree for name, tree in trees.items() if tree})
    if cluster.code_source == PRIMARY:
        yield from _not_sent(cluster, trees.get(cluster.primary_name) or CodeTree())


def code_findings(cluster: Cluster, trees: Mapping[str, CodeTree]) -> Iterator[Finding]:
    """What is found of the nodes' own trees, held against the primary's."""
    for name, tree in trees.items():
        if tree.excess is not None:
            yield _too_much(cluster, name, tree.excess)
    reference = trees.get(cluster.primary_name)
    if reference is None or reference.excess is not None or cluster.code_source is not None:
        return
    for name, tree in trees.items():
        if tree.excess is None and tree.exists and reference.exists:
            yield from _different(cluster.primary_name, name, reference, tree)


def _there(cluster: Cluster, node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    yield from unanswered("code-unknown", node, node_facts.code)
    code = value_of(node_facts.code)
    if code is None or code.readable:
        return
    is_sent = cluster.code_source is not None and (
        cluster.code_source != PRIMARY or node.name != cluster.primary_name
    )
    if is_sent and not code.exists:
        return
    problem = "cannot be read" if code.exists else "does not exist"
    yield error(
        "code-missing",
        (node.name,),
        f"the code path {code.path} {problem}",
        "Put the code there on every node, have setup send it (`code.source`), or leave "
        "`code` out of the inventory",
    )


def _not_sent(cluster: Cluster, tree: CodeTree) -> Iterator[Finding]:
    reasons = {path: why_not_sent(path, entry) for path, entry in tree.entries.items()}
    refused = [f"{ascii(path)[1:-1]} {why}" for path, why in reasons.items() if why]
    if refused:
        more = f"; {len(refused) - 2} more" if len(refused) > 2 else ""  # noqa: PLR2004
        yield error(
            "code-not-sent",
            (cluster.primary_name,),
            f"{', '.join(refused[:2])}{more}",
            "Remove it, or leave it out with `code.exclude`",
        )


def _too_much(cluster: Cluster, name: str, excess: tuple[int, int]) -> Finding:
    files, size = excess
    return Finding(
        id="code-too-much",
        level="error" if cluster.code_source is not None else "warning",
        nodes=(name,),
        text=f"{cluster.code_path} was not compared: it holds more than {MOST_FILES} files or "
        f"{MOST_BYTES // 1024**2} MiB ({files} files and {size // 1024**2} MiB were counted)",
        remedy="Leave data and results out with `code.exclude`",
    )


def _different(primary: str, name: str, reference: CodeTree, tree: CodeTree) -> Iterator[Finding]:
    found = differences(reference, tree)
    code = [difference for difference in found if difference.is_code]
    rest = [difference for difference in found if not difference.is_code]
    if code:
        yield error("code-differs", (name,), differences_text(code, primary), _EQUAL)
    if rest:
        yield warning(
            "code-others-differ",
            (name,),
            differences_text(rest, primary),
            "If jobs read it, make it equal; if a job left it, leave it out with `code.exclude`",
        )
