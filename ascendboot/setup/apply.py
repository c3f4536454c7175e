"""Applies the phases of setup to all nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError
from ascendboot.facts.query import value_of
from ascendboot.model.files import CodeTree
from ascendboot.setup.phases import ASK, CODE, SETUP, rounds
from ascendboot.setup.results import Stopped, applied, checked, failed, planned
from ascendboot.setup.steps import Blocked, Change, note_made
from ascendboot.setup.survey import installed_fact
from ascendboot.setup.verify import verify_cluster
from ascendboot.transport.api import Command, Effect, write_files
from ascendboot.transport.pool import for_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.facts.installed import Installed
    from ascendboot.model.cluster import Node
    from ascendboot.model.report import StepResult
    from ascendboot.setup.context import Context
    from ascendboot.setup.phases import Phase
    from ascendboot.setup.plan import ClusterFacts
    from ascendboot.setup.results import Progress
    from ascendboot.setup.steps import Step
    from ascendboot.setup.survey import Connect, Survey
    from ascendboot.setup.sync import CodeSender
    from ascendboot.transport.api import Result, Sides, Transport


@dataclass(frozen=True)
class Half:
    """One side's part of a round: what is there, and what is wished for."""

    transport: Transport
    own: Installed
    wishes: list[tuple[Phase, Step]]
    serves_alone: bool = False
    """It is the side where our sshd runs, and ranks run on the other."""


@dataclass(frozen=True)
class AppliedHalf:
    """One node's part of a round: what is on it now, and how each step ended."""

    own: Installed
    served: Installed | None
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


def apply_to_node(
    context: Context, phases: Sequence[Phase], node: Node, sides: Sides
) -> AppliedHalf:
    """One node's part of a round.

    Raises:
        NodeError: a side could not be asked or told; some of the changes may have been made.
    """
    own, served = context.seen.own[node.name], context.seen.served.get(node.name)
    results: list[StepResult] = []
    for half in halves(context, phases, node, sides):
        found, ends = _apply_half(context, half, node)
        results += ends
        if half.serves_alone:
            served = found
        else:
            own = found
    return AppliedHalf(own, served, results)


def of_phase(phase: Phase, outcomes: Mapping[str, AppliedHalf | NodeError]) -> list[StepResult]:
    """What became of one phase on all nodes."""
    results: list[StepResult] = []
    for outcome in outcomes.values():
        if isinstance(outcome, AppliedHalf):
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


def _apply_half(context: Context, half: Half, node: Node) -> tuple[Installed, list[StepResult]]:
    """What is on the side then, and how each of its steps ended."""
    own, wishes = half.own, half.wishes
    before = [step.check(own) for _, step in wishes]
    changes = [verdict for verdict in before if isinstance(verdict, Change)]
    if not changes or any(isinstance(verdict, Blocked) for verdict in before):
        return own, [checked(*_at(w, node), v) for w, v in zip(wishes, before, strict=True)]
    began = time.monotonic()
    question = installed_fact(context.cluster)
    commands = _commands(own, changes)
    *done, last = half.transport.run_all([*commands, question.command])
    own = question.parse(last)
    took = time.monotonic() - began
    complaints = [_complaint(result) for result in done if not result.as_expected]
    return own, [
        applied(
            *_at(wish, node),
            before=verdict,
            after=wish[1].check(own),
            complaints=complaints,
            duration_s=took,
        )
        for wish, verdict in zip(wishes, before, strict=True)
    ]


def _commands(own: Installed, changes: Sequence[Change]) -> list[Command]:
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
    return f"could not {result.command.purpose}: {result.outcome()}"


_SENDERS = 8
"""To so many nodes code is sent at once: each has some megabytes of it in memory."""


def code_planned(sending: CodeSender, seen: ClusterFacts) -> list[StepResult]:
    """What of the code would be sent; nothing is known of it before the primary answered."""
    trees = _trees(seen)
    if sending.cluster.primary_name not in trees:
        return []
    sending = sending.after(trees)
    return [sending.planned(name, tree) for name, tree in trees.items()]


def send_code(
    progress: Progress, sending: CodeSender, context: Context, sides: Mapping[str, Sides]
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
        return wish.sync(work, trees[node.name], base, primary)

    sent = for_each(context.cluster.nodes, send, forks=min(progress.forks, _SENDERS))
    results = (failed("code", "files", r) if isinstance(r, NodeError) else r for r in sent.values())
    progress.end(CODE, list(results))
    progress.stop_if_bad()


def _trees(seen: ClusterFacts) -> dict[str, CodeTree]:
    return {
        name: value_of(facts.code_tree) or CodeTree(exists=False)
        for name, facts in seen.facts.items()
    }


def plan_changes(
    progress: Progress, context: Context, sides: Mapping[str, Sides], sending: CodeSender | None
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


def apply_changes(
    progress: Progress, context: Context, sides: Mapping[str, Sides], sending: CodeSender | None
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
    def work(node: Node) -> AppliedHalf:
        return apply_to_node(context, phases, node, sides[node.name])

    progress.begin(phases[0].title)
    outcomes = progress.for_each(sides, work)
    for phase in phases:
        progress.end(phase.title, of_phase(phase, outcomes))
    progress.stop_if_bad()
    settled = {name: s for name, s in outcomes.items() if isinstance(s, AppliedHalf)}
    own = {name: s.own for name, s in settled.items()}
    served = {name: s.served for name, s in settled.items() if s.served is not None}
    return replace(context, seen=replace(context.seen, own=own, served=served))


def plan_setup(survey: Survey, connect: Connect) -> None:
    """What setup would change; `connect` gives transports that refuse to write.

    Raises:
        Stopped: something stands in the way, or the operator interrupted; the results say what.
    """
    context, sides = _ground(survey, connect)
    plan_changes(survey.progress, context, sides, survey.sending)


def apply_setup(survey: Survey, connect: Connect) -> Context:
    """Make all nodes as they should be, and prove it; what is there then.

    Raises:
        Stopped: something stands in the way or went wrong, or the operator interrupted; the
            results say what.
    """
    context, sides = _ground(survey, connect)
    if survey.before_writing is not None:
        authority, control = survey.before_writing(context.seen)
        context = replace(context, authority=authority, control=control)
    context = apply_changes(survey.progress, context, sides, survey.sending)
    verify_cluster(survey.progress, context, sides)
    return context


def _ground(survey: Survey, connect: Connect) -> tuple[Context, Mapping[str, Sides]]:
    """What wishes are made from, and where they are made true; nothing stands in their way."""
    found = survey.look(connect)
    survey.progress.stop_if_bad()
    if found.context is None:
        raise Stopped
    return found.context, found.sides
