"""Nodes that another control folder set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.judge.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ascendboot.facts.own import Own
    from ascendboot.model.cluster import Node


def set_up_elsewhere(owns: Mapping[str, Own], known: Collection[str]) -> dict[str, str]:
    """By node that is not under one of the keys in `known`: who set it up.

    The record on the node counts, and without one the CA that signed its certificates.
    """
    found = {}
    for node, own in owns.items():
        signers = {certificate.claims.ca for certificate in own.certificates.values()}
        if own.owner is not None:
            if own.owner.key not in known:
                found[node] = own.owner.words
        elif signers and not signers & {*known}:
            found[node] = f"one with CA {', '.join(sorted(signers))}; the node has no other record"
    return found


def elsewhere_findings(
    elsewhere: Mapping[str, str], *, here: str, take_over: bool
) -> Iterable[Finding]:
    """One finding per control folder; `here` describes this one."""
    for words in dict.fromkeys(elsewhere.values()):
        nodes = tuple(node for node, other in elsewhere.items() if other == words)
        seen = f"another control folder set up the cluster here: {words}; this is {here}"
        if take_over:
            yield Finding(
                id="set-up-elsewhere",
                level="warning",
                nodes=nodes,
                text=f"{seen}. --take-over replaces its keys",
                remedy="Copy this folder's clusters/CLUSTER there if both are to be used",
            )
        else:
            yield Finding(
                id="set-up-elsewhere",
                level="error",
                nodes=nodes,
                text=seen,
                remedy="Copy clusters/CLUSTER from that folder into this one and run setup again; "
                "only if that folder is not to be used any more, run setup --take-over",
            )


def left_findings(left: Iterable[Node]) -> Iterable[Finding]:
    """Nodes that were set up from here and are not in the inventory any more."""
    for node in left:
        yield Finding(
            id="node-left",
            level="warning",
            nodes=(node.name,),
            text=f"this node ({node.address}) left the inventory, but the cluster's sshd, its keys "
            "and its login are still there, and the other nodes trust its keys",
            remedy=f"Run reset --node {node.name}; if the server is gone for good, with --forget",
        )


def job_findings(jobs: Mapping[str, Collection[str]], why: str) -> Iterable[Finding]:
    """Jobs, with the nodes where they run, that do not survive new keys."""
    for job_id, nodes in jobs.items():
        yield Finding(
            id="job-needs-keys",
            level="error",
            nodes=tuple(nodes),
            text=f"job {job_id} runs, and {why}",
            remedy=f"Wait for its end, or end it where it was started: stop --job {job_id}",
        )
