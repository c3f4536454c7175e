"""Applies the phases of setup to all nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError
from ascendboot.facts.query import value_of
from ascendboot.model.files import CodeTree
from ascendboot.setup.phases import CODE, QUERY, SETUP, Phase, rounds
from ascendboot.setup.results import Progress, Stopped, applied, checked, failed, planned
from ascendboot.setup.steps import Blocked, Change, Step, write_command
from ascendboot.setup.survey import Connect, Survey, installed_fact
from ascendboot.setup.verify import verify_cluster
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result, Sides, Transport, write_files
from ascendboot.transport.pool import for_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.facts.installed import Installed
    from ascendboot.model.cluster import Node
    from ascendboot.model.report import StepResult
    from ascendboot.setup.cluster_plan import ClusterFacts
    from ascendboot.setup.context import Context
    from ascendboot.setup.sync import CodeSender


@dataclass(frozen=True)
class SideSteps:
    """The steps of a round for one side of a node, and what is installed there."""

    transport: Transport
    installed: Installed
    steps: list[tuple[Phase, Step]]
    is_sshd_side: bool = False
    """The cluster's sshd runs there and ranks do not."""


@dataclass(frozen=True)
class AppliedNode:
    """What is installed on a node after a round, and how each step ended."""

    installed: Installed
    sshd_side: Installed | None
    results: list[StepResult]


def sides_of(
    context: Context, phases: Sequence[Phase], node: Node, sides: Sides
) -> list[SideSteps]:
    """The steps of some phases by side; one side where the cluster's sshd runs beside the ranks."""
    facts = context.facts
    of_sshd = [(phase, step) for phase in phases for step in phase.sshd_steps(context, node)]
    steps = [(phase, step) for phase in phases for step in phase.steps(context, node)]
    work = facts.installed[node.name]
    if node.name in facts.sshd_sides:
        host = SideSteps(sides.host, facts.sshd_sides[node.name], of_sshd, is_sshd_side=True)
        return [host, SideSteps(sides.work, work, steps)]
    both = sorted((*of_sshd, *steps), key=lambda item: phases.index(item[0]))
    return [SideSteps(sides.work, work, both)]


def apply_to_node(
    context: Context, phases: Sequence[Phase], node: Node, sides: Sides
) -> AppliedNode:
    """Apply a round to one node.

    Raises:
        NodeError: a side could not be reached; some of the changes may have been made.
    """
    facts = context.facts
    work, host = facts.installed[node.name], facts.sshd_sides.get(node.name)
    results: list[StepResult] = []
    for side in sides_of(context, phases, node, sides):
        installed, of_side = _apply_side(context, side, node)
        results += of_side
        if side.is_sshd_side:
            host = installed
        else:
            work = installed
    return AppliedNode(work, host, results)


def of_phase(phase: Phase, outcomes: Mapping[str, AppliedNode | NodeError]) -> list[StepResult]:
    """The results of one phase on all nodes."""
    results: list[StepResult] = []
    for outcome in outcomes.values():
        if isinstance(outcome, AppliedNode):
            results += [result for result in outcome.results if result.phase == phase.name]
        else:
            results.append(failed(phase.name, "change", outcome))
    return results


def current_texts(
    context: Context, phases: Sequence[Phase], node: Node, sides: Sides
) -> dict[str, str]:
    """The text of every file that the plan would change and that exists, by absolute path."""
    texts: dict[str, str] = {}
    for side in sides_of(context, phases, node, sides):
        paths = [
            file.path
            for state in (step.check(side.installed) for _, step in side.steps)
            if isinstance(state, Change)
            for file in state.files
            if not file.secret
            and str(file.path.relative_to(side.installed.base)) in side.installed.files
        ]
        results = side.transport.run_all([_read(str(path)) for path in paths])
        texts |= {str(p): r.checked().text for p, r in zip(paths, results, strict=True)}
    return texts


def _apply_side(
    context: Context, side: SideSteps, node: Node
) -> tuple[Installed, list[StepResult]]:
    """What is on the side then, and how each of its steps ended."""
    installed, steps = side.installed, side.steps
    before = [step.check(installed) for _, step in steps]
    changes = [state for state in before if isinstance(state, Change)]
    if not changes or any(isinstance(state, Blocked) for state in before):
        return installed, [
            checked(phase, node, step, state)
            for (phase, step), state in zip(steps, before, strict=True)
        ]
    began = time.monotonic()
    question = installed_fact(context.cluster)
    commands = _commands(installed, changes)
    *done, last = side.transport.run_all([*commands, question.command])
    installed = question.parse(last)
    took = time.monotonic() - began
    complaints = [_complaint(result) for result in done if not result.as_expected]
    return installed, [
        applied(
            phase,
            node,
            step,
            before=state,
            after=step.check(installed),
            complaints=complaints,
            duration_s=took,
        )
        for (phase, step), state in zip(steps, before, strict=True)
    ]


def _commands(installed: Installed, changes: Sequence[Change]) -> list[Command]:
    """Their commands in order; the note of what is made comes before the first file.

    Not sooner: it is one itself, and the folder may have to be closed to others first.
    """
    first = next((n for n, change in enumerate(changes) if change.files), 0)
    works = [
        [command for change in part for command in _work(change)]
        for part in (changes[:first], changes[first:])
    ]
    base = installed.base
    paths = [str(file.path.relative_to(base)) for change in changes for file in change.files]
    note = ("bash", "-c", script("setup-note.sh"), "note", str(base), *paths)
    notes = [write_command(*note, purpose="note what is made here")] if paths else []
    return [*works[0], *notes, *works[1]]


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


def code_planned(sender: CodeSender, facts: ClusterFacts) -> list[StepResult]:
    """The results of sending the code in a plan; none before the primary answered."""
    trees = _trees(facts)
    if sender.cluster.primary_name not in trees:
        return []
    sender = sender.after(trees)
    return [sender.planned(name, tree) for name, tree in trees.items()]


def send_code(
    progress: Progress, sender: CodeSender, context: Context, sides: Mapping[str, Sides]
) -> None:
    """Send every node what it lacks.

    Raises:
        Stopped: it could not be sent somewhere, or the operator interrupted.
    """
    trees = _trees(context.facts)
    step = sender.after(trees)
    primary = sides[context.cluster.primary_name].work
    progress.begin(CODE)

    def send(node: Node) -> StepResult:
        work, base = sides[node.name].work, context.plan.base
        return step.sync(work, trees[node.name], base, primary)

    sent = for_each(context.cluster.nodes, send, forks=min(progress.forks, _SENDERS))
    results = (failed("code", "files", r) if isinstance(r, NodeError) else r for r in sent.values())
    progress.end(CODE, list(results))
    progress.stop_if_bad()


def _trees(facts: ClusterFacts) -> dict[str, CodeTree]:
    return {
        name: value_of(facts.code_tree) or CodeTree(exists=False)
        for name, facts in facts.nodes.items()
    }


def plan_changes(
    progress: Progress, context: Context, sides: Mapping[str, Sides], sender: CodeSender | None
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
                planned(phase, node, step, side.installed, current[node.name])
                for node in nodes
                for side in sides_of(context, [phase], node, sides[node.name])
                for _, step in side.steps
            ],
        )
    if sender is not None:
        progress.end(CODE, code_planned(sender, context.facts))
    lost = [failed("ask", "current files", t) for t in texts.values() if isinstance(t, NodeError)]
    if lost:
        progress.end(QUERY, lost)


def apply_changes(
    progress: Progress, context: Context, sides: Mapping[str, Sides], sender: CodeSender | None
) -> Context:
    """Apply all steps, with one execution per node and round, and check them again.

    Returns what is there now.

    Raises:
        Stopped: a step failed, or the operator interrupted; later phases have not run.
    """
    for phases in rounds(SETUP):
        context = _apply_round(progress, context, sides, phases)
    if sender is not None:
        send_code(progress, sender, context, sides)
    return context


def _apply_round(
    progress: Progress, context: Context, sides: Mapping[str, Sides], phases: Sequence[Phase]
) -> Context:
    def work(node: Node) -> AppliedNode:
        return apply_to_node(context, phases, node, sides[node.name])

    progress.begin(phases[0].title)
    outcomes = progress.for_each(sides, work)
    for phase in phases:
        progress.end(phase.title, of_phase(phase, outcomes))
    progress.stop_if_bad()
    applied_nodes = {name: o for name, o in outcomes.items() if isinstance(o, AppliedNode)}
    installed = {name: s.installed for name, s in applied_nodes.items()}
    hosts = {name: s.sshd_side for name, s in applied_nodes.items() if s.sshd_side is not None}
    return replace(context, facts=replace(context.facts, installed=installed, sshd_sides=hosts))


def plan_setup(survey: Survey, connect: Connect) -> None:
    """What setup would change; `connect` gives transports that refuse to write.

    Raises:
        Stopped: something stands in the way, or the operator interrupted; the results say what.
    """
    context, sides = _ground(survey, connect)
    plan_changes(survey.progress, context, sides, survey.sender)


def apply_setup(survey: Survey, connect: Connect) -> Context:
    """Apply setup to all nodes and verify it. Returns the context after it.

    Raises:
        Stopped: something stands in the way or went wrong, or the operator interrupted; the
            results say what.
    """
    context, sides = _ground(survey, connect)
    if survey.before_writing is not None:
        authority, control = survey.before_writing(context.facts)
        context = replace(context, authority=authority, control=control)
    context = apply_changes(survey.progress, context, sides, survey.sender)
    verify_cluster(survey.progress, context, sides)
    return context


def _ground(survey: Survey, connect: Connect) -> tuple[Context, Mapping[str, Sides]]:
    """The context and the sides of all nodes, if nothing blocks setup."""
    found = survey.look(connect)
    survey.progress.stop_if_bad()
    if found.context is None:
        raise Stopped
    return found.context, found.sides
