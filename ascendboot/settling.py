"""Making one node as setup wishes: check, change in one execution per side, check again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.asking import own_fact
from ascendboot.outcomes import checked, failed, settled
from ascendboot.steps.api import Blocked, Change
from ascendboot.steps.made import note_made
from ascendboot.transport.api import Command, Effect, write_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.context import Context
    from ascendboot.errors import NodeError
    from ascendboot.facts.own import Own
    from ascendboot.model.cluster import Node
    from ascendboot.model.report import StepResult
    from ascendboot.phases import Phase
    from ascendboot.steps.api import Step
    from ascendboot.transport.api import Result, Sides, Transport


@dataclass(frozen=True)
class Half:
    """One side's part of a round: what is there, and what is wished for."""

    transport: Transport
    own: Own
    wishes: list[tuple[Phase, Step]]
    serves_alone: bool = False
    """It is the side where our sshd runs, and ranks run on the other."""


@dataclass(frozen=True)
class Settled:
    """One node's part of a round: what is on it now, and how each step ended."""

    own: Own
    served: Own | None
    results: list[StepResult]


def halves(context: Context, phases: Sequence[Phase], node: Node, sides: Sides) -> list[Half]:
    """The wishes of some phases, side by side; one half where our sshd is beside the ranks."""
    seen = context.seen
    served = [(phase, step) for phase in phases for step in phase.served(context, node)]
    wished = [(phase, step) for phase in phases for step in phase.wishes(context, node)]
    own = seen.own[node.name]
    if node.name in seen.served:
        there = Half(sides.host, seen.served[node.name], served, serves_alone=True)
        return [there, Half(sides.work, own, wished)]
    both = sorted((*served, *wished), key=lambda wish: phases.index(wish[0]))
    return [Half(sides.work, own, both)]


def settle(context: Context, phases: Sequence[Phase], node: Node, sides: Sides) -> Settled:
    """One node's part of a round.

    Raises:
        NodeError: a side could not be asked or told; some of the changes may have been made.
    """
    own, served = context.seen.own[node.name], context.seen.served.get(node.name)
    results: list[StepResult] = []
    for half in halves(context, phases, node, sides):
        found, ends = _settle_half(context, half, node)
        results += ends
        if half.serves_alone:
            served = found
        else:
            own = found
    return Settled(own, served, results)


def of_phase(phase: Phase, outcomes: Mapping[str, Settled | NodeError]) -> list[StepResult]:
    """What became of one phase on all nodes."""
    results: list[StepResult] = []
    for outcome in outcomes.values():
        if isinstance(outcome, Settled):
            results += [result for result in outcome.results if result.phase == phase.name]
        else:
            results.append(failed(phase.name, "change", outcome))
    return results


def current_texts(
    context: Context, phases: Sequence[Phase], node: Node, sides: Sides
) -> dict[str, str]:
    """The text of every file that the plan would change and that exists, by absolute path."""
    texts: dict[str, str] = {}
    for half in halves(context, phases, node, sides):
        paths = [
            file.path
            for verdict in (step.check(half.own) for _, step in half.wishes)
            if isinstance(verdict, Change)
            for file in verdict.files
            if not file.secret and str(file.path.relative_to(half.own.base)) in half.own.files
        ]
        results = half.transport.run_all([_read(str(path)) for path in paths])
        texts |= {str(p): r.checked().text for p, r in zip(paths, results, strict=True)}
    return texts


def _settle_half(context: Context, half: Half, node: Node) -> tuple[Own, list[StepResult]]:
    """What is on the side then, and how each of its steps ended."""
    own, wishes = half.own, half.wishes
    before = [step.check(own) for _, step in wishes]
    changes = [verdict for verdict in before if isinstance(verdict, Change)]
    if not changes or any(isinstance(verdict, Blocked) for verdict in before):
        return own, [checked(*_at(w, node), v) for w, v in zip(wishes, before, strict=True)]
    began = time.monotonic()
    question = own_fact(context.cluster)
    commands = _commands(own, changes)
    *done, last = half.transport.run_all([*commands, question.command])
    own = question.parse(last)
    took = time.monotonic() - began
    complaints = [_complaint(result) for result in done if not result.as_expected]
    return own, [
        settled(
            *_at(wish, node),
            before=verdict,
            after=wish[1].check(own),
            complaints=complaints,
            duration_s=took,
        )
        for wish, verdict in zip(wishes, before, strict=True)
    ]


def _commands(own: Own, changes: Sequence[Change]) -> list[Command]:
    """Their commands in order; the note of what is made comes before the first file.

    Not sooner: it is one itself, and the folder may have to be closed to others first.
    """
    first = next((n for n, change in enumerate(changes) if change.files), 0)
    works = [
        [command for change in part for command in _work(change)]
        for part in (changes[:first], changes[first:])
    ]
    return [*works[0], *note_made(own.base, changes), *works[1]]


def _at(wish: tuple[Phase, Step], node: Node) -> tuple[Phase, Node, Step]:
    phase, step = wish
    return phase, node, step


def _work(change: Change) -> list[Command]:
    """Files first, then commands: what makes the change."""
    names = ", ".join(file.path.name for file in change.files)
    writes = [write_files(change.files, purpose=f"write {names}")] if change.files else []
    return [*writes, *change.commands]


def _read(path: str) -> Command:
    return Command(argv=("cat", "--", path), purpose=f"read {path}", effect=Effect.READ)


def _complaint(result: Result) -> str:
    return f"could not {result.command.purpose}: {result.said()}"
