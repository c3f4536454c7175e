"""Rules about the code: on the nodes, equal on all of them, and not too much to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.judge.finding import Finding, judged_nodes, unanswered
from ascendboot.model.code import (
    MOST_BYTES,
    MOST_FILES,
    PRIMARY,
    CodeTree,
    differences,
    told,
    why_not_sent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster, Node

_EQUAL = (
    "Make the folders equal, leave results out with `code.exclude`, or let setup send the code: "
    "`code.source`"
)


def code_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, seen in judged_nodes(cluster, facts):
        yield from _there(cluster, node, seen)
        yield from unanswered("code-unknown", node, seen.code_tree)
    trees = {node.name: value_of(seen.code_tree) for node, seen in judged_nodes(cluster, facts)}
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


def _there(cluster: Cluster, node: Node, seen: NodeFacts) -> Iterator[Finding]:
    yield from unanswered("code-unknown", node, seen.code)
    code = value_of(seen.code)
    if code is None or code.readable:
        return
    is_sent = cluster.code_source is not None and (
        cluster.code_source != PRIMARY or node.name != cluster.primary_name
    )
    if is_sent and not code.exists:
        return
    problem = "cannot be read" if code.exists else "does not exist"
    yield Finding(
        id="code-missing",
        level="error",
        nodes=(node.name,),
        text=f"the code path {code.path} {problem}",
        remedy="Put the code there on every node, have setup send it (`code.source`), or leave "
        "`code` out of the inventory",
    )


def _not_sent(cluster: Cluster, tree: CodeTree) -> Iterator[Finding]:
    reasons = {path: why_not_sent(path, entry) for path, entry in tree.entries.items()}
    refused = [f"{ascii(path)[1:-1]} {why}" for path, why in reasons.items() if why]
    if refused:
        more = f"; {len(refused) - 2} more" if len(refused) > 2 else ""  # noqa: PLR2004
        yield Finding(
            id="code-not-sent",
            level="error",
            nodes=(cluster.primary_name,),
            text=f"{', '.join(refused[:2])}{more}",
            remedy="Remove it, or leave it out with `code.exclude`",
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
        yield Finding(
            id="code-differs",
            level="error",
            nodes=(name,),
            text=told(code, primary),
            remedy=_EQUAL,
        )
    if rest:
        yield Finding(
            id="code-others-differ",
            level="warning",
            nodes=(name,),
            text=told(rest, primary),
            remedy="If jobs read it, make it equal; if a job left it, leave it out with "
            "`code.exclude`",
        )
