"""The training code in a walk: what of it would be sent, and the sending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import NodeError
from ascendboot.facts.api import value_of
from ascendboot.model.code import CodeTree
from ascendboot.outcomes import failed
from ascendboot.phases import CODE
from ascendboot.transport.pool import for_each

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.code.send import Sending
    from ascendboot.context import Context
    from ascendboot.decide import Seen
    from ascendboot.engine.progress import Progress
    from ascendboot.model.cluster import Node
    from ascendboot.model.report import StepResult
    from ascendboot.transport.api import Sides

_SENDERS = 8
"""To so many nodes code is sent at once: each has some megabytes of it in memory."""


def code_planned(sending: Sending, seen: Seen) -> list[StepResult]:
    """What of the code would be sent; nothing is known of it before the primary answered."""
    trees = _trees(seen)
    if sending.cluster.primary_name not in trees:
        return []
    sending = sending.after(trees)
    return [sending.planned(name, tree) for name, tree in trees.items()]


def send_code(
    progress: Progress, sending: Sending, context: Context, sides: Mapping[str, Sides]
) -> None:
    """Send every node what it lacks.

    Raises:
        Stopped: it could not be sent somewhere, or the operator interrupted.
    """
    trees = _trees(context.seen)
    wish = sending.after(trees)
    primary = sides[context.cluster.primary_name].work
    progress.begin(CODE)

    def send(node: Node) -> StepResult:
        work, base = sides[node.name].work, context.decisions.base
        return wish.settle(work, trees[node.name], base, primary)

    sent = for_each(context.cluster.nodes, send, forks=min(progress.forks, _SENDERS))
    results = (failed("code", "files", r) if isinstance(r, NodeError) else r for r in sent.values())
    progress.end(CODE, list(results))
    progress.stop_if_bad()


def _trees(seen: Seen) -> dict[str, CodeTree]:
    return {
        name: value_of(facts.code_tree) or CodeTree(exists=False)
        for name, facts in seen.facts.items()
    }
