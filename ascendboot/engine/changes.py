"""The changes of a walk: what each phase would change, or the changing, node by node at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.engine.code import code_planned, send_code
from ascendboot.errors import NodeError
from ascendboot.outcomes import failed, planned
from ascendboot.phases import ASK, CODE, SETUP, rounds
from ascendboot.settling import Settled, current_texts, halves, of_phase, settle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.code.send import Sending
    from ascendboot.context import Context
    from ascendboot.engine.progress import Progress
    from ascendboot.model.cluster import Node
    from ascendboot.phases import Phase
    from ascendboot.transport.api import Sides


def plan(
    progress: Progress, context: Context, sides: Mapping[str, Sides], sending: Sending | None
) -> None:
    """What each phase would change, with diffs; nothing is written."""
    texts = progress.for_each(
        sides, lambda node: current_texts(context, SETUP, node, sides[node.name])
    )
    current = {name: t for name, t in texts.items() if not isinstance(t, NodeError)}
    nodes = [node for node in context.cluster.nodes if node.name in current]
    for phase in SETUP:
        progress.end(
            phase.title,
            [
                planned(phase, node, step, half.own, current[node.name])
                for node in nodes
                for half in halves(context, [phase], node, sides[node.name])
                for _, step in half.wishes
            ],
        )
    if sending is not None:
        progress.end(CODE, code_planned(sending, context.seen))
    lost = [failed("ask", "current files", t) for t in texts.values() if isinstance(t, NodeError)]
    if lost:
        progress.end(ASK, lost)


def apply(
    progress: Progress, context: Context, sides: Mapping[str, Sides], sending: Sending | None
) -> Context:
    """Make every wish true, with one execution per node and barrier, and check again.

    Returns what is there now.

    Raises:
        Stopped: a step failed, or the operator interrupted; later phases have not run.
    """
    for phases in rounds(SETUP):
        context = _apply_round(progress, context, sides, phases)
    if sending is not None:
        send_code(progress, sending, context, sides)
    return context


def _apply_round(
    progress: Progress, context: Context, sides: Mapping[str, Sides], phases: Sequence[Phase]
) -> Context:
    def work(node: Node) -> Settled:
        return settle(context, phases, node, sides[node.name])

    progress.begin(phases[0].title)
    outcomes = progress.for_each(sides, work)
    for phase in phases:
        progress.end(phase.title, of_phase(phase, outcomes))
    progress.stop_if_bad()
    settled = {name: s for name, s in outcomes.items() if isinstance(s, Settled)}
    own = {name: s.own for name, s in settled.items()}
    served = {name: s.served for name, s in settled.items() if s.served is not None}
    return replace(context, seen=replace(context.seen, own=own, served=served))
