"""Compares the nodes with the desired state, and applies setup to them."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from ascendboot.checks.finding import warning
from ascendboot.checks.launchers import needs_openmpi
from ascendboot.checks.probes import Coverage, probes_of
from ascendboot.errors import NodeError
from ascendboot.facts.installed import Installed
from ascendboot.facts.npus import npu_queries
from ascendboot.facts.query import answer_to, value_of
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.files import CodeTree
from ascendboot.model.names import counted
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup.cluster_plan import ClusterFacts, Context, sshd_ports
from ascendboot.setup.create import planned
from ascendboot.setup.phases import CODE, COMPARE, CONTAINERS, QUERY, SETUP, Phase, rounds
from ascendboot.setup.results import Progress, Stopped, failed, found
from ascendboot.setup.steps import Change, NpuNetwork, Satisfied, Step, StepState
from ascendboot.setup.survey import Connect, Survey, Surveyed, installed_fact
from ascendboot.setup.sync import CodeSender
from ascendboot.setup.trust import without_keys
from ascendboot.setup.verify import Expectation, run_verification, verify_cluster
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Sides, Transport, write_files, write_script
from ascendboot.transport.pool import on_each
from ascendboot.value import Value, replace

_SENDERS = 8
"""Code is sent to so many nodes at once: each has some megabytes of it in memory."""


class SideSteps(Value):
    """The steps of a round for one side of a node, and what is installed there."""

    installed: Installed
    steps: list[tuple[Phase, Step]]
    place: Literal["installed", "sshd_sides", "unused_hosts"] = "installed"
    """The field of ClusterFacts that has what is installed there."""

    def transport(self, sides: Sides) -> Transport:
        """That of this side."""
        return sides.work if self.place == "installed" else sides.host


def _sides_of(context: Context, phases: Sequence[Phase], node: Node) -> list[SideSteps]:
    """The steps of some phases by side; one side where the cluster's sshd runs beside the ranks."""
    facts, name = context.facts, node.name
    of_host = [(phase, step) for phase in phases for step in phase.host_steps(context, node)]
    of_sshd = [(phase, step) for phase in phases for step in phase.sshd_steps(context, node)]
    steps = [(phase, step) for phase in phases for step in phase.steps(context, node)]
    work = facts.installed[name]
    if name in facts.sshd_sides:
        on_host = SideSteps(facts.sshd_sides[name], of_sshd + of_host, "sshd_sides")
        return [on_host, SideSteps(work, steps)]
    both = of_sshd + steps
    hosts = []
    if name not in facts.unused_hosts:
        both += of_host
    elif of_host:
        hosts.append(SideSteps(facts.unused_hosts[name], of_host, "unused_hosts"))
    both.sort(key=lambda item: phases.index(item[0]))
    return [*hosts, SideSteps(work, both)]


def plan_setup(survey: Survey, connect: Connect) -> None:
    """Report what setup would change, with diffs; `connect` gives transports that cannot write.

    Raises:
        Stopped: something blocks setup, or the operator interrupted; the results have the reason.
    """
    context, sides = _ready_to_change(survey, survey.look(connect))
    context = without_keys(context) if survey.rekeys else context
    progress = survey.progress
    chosen = progress.chosen(sides)
    planned = progress.for_each(chosen, lambda node: _planned(context, node, sides[node.name]))
    done = [result for each in planned.values() if isinstance(each, list) for result in each]
    for phase in SETUP:
        if results := [result for result in done if result.phase == phase.name]:
            progress.end(phase.title, results)
    if survey.sender is not None:
        progress.end(CODE, code_planned(survey.sender, context.facts))
    lost = [each for each in planned.values() if isinstance(each, NodeError)]
    if lost:
        progress.end(QUERY, [failed("ask", "current files", error) for error in lost])


def apply_setup(survey: Survey, connect: Connect) -> Context:
    """Apply setup to all nodes and verify it. Returns the context after it.

    Every round takes one execution per node and side, and checks each step again.

    Raises:
        Stopped: something blocks setup or failed, or the operator interrupted; the results have the
            reason, and later phases have not run.
    """
    context, sides = _ready_to_change(survey, survey.look(connect, creates=True))
    if survey.before_writing is not None:
        authority, control = survey.before_writing(context.facts)
        context = replace(context, authority=authority, control=control)
    for phases in rounds(SETUP):
        context = _apply_round(survey, context, sides, phases)
    if survey.sender is not None:
        _send_code(survey.progress, survey.sender, context, sides)
    chosen = survey.progress.chosen(sides)
    part = replace(context.cluster, nodes=tuple(map(context.cluster.node, chosen)))
    reached = {name: sides[name] for name in chosen}
    verify_cluster(survey.progress, replace(context, cluster=part), reached)
    _stop_if_behind(survey.progress, context)
    return context


def _stop_if_behind(progress: Progress, context: Context) -> None:
    """Name the nodes that were left out and are not in the desired state, and stop if any are."""
    behind = {
        node.name: None
        for node in context.cluster.nodes
        if not progress.chosen([node.name])
        for side in _sides_of(context, SETUP, node)
        if any(isinstance(state, Change) for _, state in _checked(side, node))
    }
    if behind:
        text = "not in the desired state: train starts nothing before that"
        left = warning("not-as-setup-wishes", (*behind,), text, "Run setup for these nodes, too")
        progress.end(COMPARE, found("compare", "files", {}, [left]))
        raise Stopped


def _ready_to_change(survey: Survey, surveyed: Surveyed) -> tuple[Context, Mapping[str, Sides]]:
    """The context and the sides of all nodes, if nothing blocks setup."""
    survey.progress.stop_if_bad()
    if surveyed.pending:
        survey.progress.end(CONTAINERS, planned(surveyed.pending))
        chosen = survey.progress.chosen(surveyed.pending)
        text = "its container is missing, and the rank table needs its devices; run setup for it"
        left_out = [
            StepResult(name, "containers", "container", Outcome.BLOCKED, f"{name}: {text}, too")
            for name in surveyed.pending
            if name not in chosen
        ]
        if left_out:
            survey.progress.end(CONTAINERS, left_out)
    if surveyed.context is None:
        raise Stopped
    return surveyed.context, surveyed.sides


def _apply_round(
    survey: Survey, context: Context, sides: Mapping[str, Sides], phases: Sequence[Phase]
) -> Context:
    """Apply the phases of a round to all nodes. Returns what is installed then."""
    progress, diffs = survey.progress, survey.progress.diffs

    def work(node: Node) -> list[tuple[SideSteps, list[StepResult]]]:
        both, parts = sides[node.name], _sides_of(context, phases, node)
        return [
            _apply_side(context, part, node, part.transport(both), shows_diffs=diffs)
            for part in parts
        ]

    progress.begin(phases[0].title)
    outcomes = progress.for_each(progress.chosen(sides), work)
    for phase in phases:
        results: list[StepResult] = []
        for outcome in outcomes.values():
            if isinstance(outcome, NodeError):
                results.append(failed(phase.name, "change", outcome))
            else:
                results += [r for _, done in outcome for r in done if r.phase == phase.name]
        if results:
            progress.end(phase.title, results)
    facts = context.facts
    for name, outcome in outcomes.items():
        for side, _ in () if isinstance(outcome, NodeError) else outcome:
            there: Any = {side.place: {**getattr(facts, side.place), name: side.installed}}
            facts = replace(facts, **there)
    unknown = {name for name, outcome in outcomes.items() if isinstance(outcome, NodeError)}
    survey.keep(facts.part(facts.nodes.keys() - unknown))
    progress.stop_if_bad()
    return replace(context, facts=facts)


def _apply_side(
    context: Context, side: SideSteps, node: Node, transport: Transport, *, shows_diffs: bool
) -> tuple[SideSteps, list[StepResult]]:
    """The side as it is then, and the result of each of its steps."""
    before = _checked(side, node)
    changes = [state for _, state in before if isinstance(state, Change)]
    if not changes:
        return side, [result for result, _ in before]
    if shows_diffs:
        texts = _current_texts(transport, side.installed, changes)
        before = [(_with_diff(result, state, texts), state) for result, state in before]
    began = time.monotonic()
    query = installed_fact(context.cluster)
    sets_ports = any(isinstance(step, NpuNetwork) for _, step in side.steps)
    of_ports = [npu_queries(node)["ports"]] if sets_ports else []
    again = (*(fact.command for fact in of_ports), query.command)
    *done, last = transport.run_all([*_commands(side.installed, changes), *again])
    installed = query.parse(last)
    for fact in of_ports:
        installed = replace(installed, ports=answer_to(fact, done.pop()))
    side = replace(side, installed=installed)
    took = time.monotonic() - began
    failures = [f"could not {r.command.purpose}: {r.outcome()}" for r in done if not r.as_expected]
    return side, [
        _applied(result, state, state_after, failures, took)
        for (result, state), (_, state_after) in zip(before, _checked(side, node), strict=True)
    ]


def _commands(installed: Installed, changes: Sequence[Change]) -> list[Command]:
    """The commands of changes; the files that setup makes are recorded before the first is written.

    Not earlier: the record is a file itself, and the folder may have to be closed to others first.
    """
    base, commands = installed.base, list[Command]()
    paths = [str(file.path.relative_to(base)) for change in changes for file in change.files]
    note, purpose = script("setup-note.sh"), "note what is made here"
    first = [write_script(note, str(base), *paths, purpose=purpose)]
    for change in changes:
        if change.files:
            names = ", ".join(file.path.name for file in change.files)
            commands += [*first, write_files(change.files, purpose=f"write {names}")]
            first = []
        commands += change.commands
    return commands


def _checked(side: SideSteps, node: Node) -> list[tuple[StepResult, StepState]]:
    """Check the steps of a side, and change nothing."""
    checked = []
    for phase, step in side.steps:
        state = step.check(side.installed)
        if isinstance(state, Satisfied):
            outcome, detail, action = Outcome.OK, state.because, ""
        else:
            outcome, detail, action = Outcome.WOULD_CHANGE, state.summary, state.action
        result = StepResult(node.name, phase.name, step.name, outcome, detail, action=action)
        checked.append((result, state))
    return checked


def _applied(
    result: StepResult,
    before: StepState,
    after: StepState,
    failures: Sequence[str],
    duration_s: float,
) -> StepResult:
    """The result of an applied step; `failures` are the failed commands of its side."""
    if not isinstance(before, Change) and not isinstance(after, Change):
        return result
    if not isinstance(before, Change):
        problem = f"{result.step} was changed by another program during setup; run setup again"
    elif isinstance(after, Satisfied):
        return replace(result, outcome=Outcome.CHANGED, duration_s=duration_s)
    else:
        why = "; ".join(failures) or "all commands succeeded, but the same check fails again"
        problem = f"{result.step} did not converge: {why.rstrip('.')}; fix that and run setup again"
    detail = f"{result.node}: {problem}"
    return replace(result, outcome=Outcome.FAILED, detail=detail, duration_s=duration_s)


def _planned(context: Context, node: Node, sides: Sides) -> list[StepResult]:
    """The result of each step; a change has the diff of its files."""
    results = []
    for side in _sides_of(context, SETUP, node):
        checked = _checked(side, node)
        changes = [state for _, state in checked if isinstance(state, Change)]
        texts = _current_texts(side.transport(sides), side.installed, changes)
        results += [_with_diff(result, state, texts) for result, state in checked]
    return results


def _current_texts(
    transport: Transport, installed: Installed, changes: Sequence[Change]
) -> dict[str, str]:
    """The text of every file that the changes would write and that exists, by absolute path."""
    base, there = installed.base, installed.files
    files = [file for change in changes for file in change.files if not file.secret]
    paths = [str(f.path) for f in files if str(f.path.relative_to(base)) in there]
    reads = [
        Command(argv=("cat", "--", path), purpose=f"read {path}", effect=Effect.READ)
        for path in paths
    ]
    results = transport.run_all(reads)
    return {p: r.checked().text for p, r in zip(paths, results, strict=True)}


def _with_diff(result: StepResult, change: StepState, current: Mapping[str, str]) -> StepResult:
    """The result with the diff of its change, whose size its action states."""
    if not isinstance(change, Change):
        return result
    lines = [f"+ {call}" for call in change.shown]
    for file in change.files:
        if not file.secret:
            path, new = str(file.path), file.content.decode().splitlines()
            old, name = current.get(path, "").splitlines(), path if path in current else "/dev/null"
            lines += difflib.unified_diff(old, new, name, path, lineterm="", n=1)
    changed = [line for line in lines if not line.startswith(("--- ", "+++ "))]
    removed, added = (sum(line.startswith(sign) for line in changed) for sign in "-+")
    how = f" (+{added} -{removed})" if any(str(f.path) in current for f in change.files) else ""
    if not how and change.files and lines:
        how = f" ({counted(added, 'line')})"
    return replace(result, diff="\n".join(lines), action=f"{change.action}{how}")


def code_planned(sender: CodeSender, facts: ClusterFacts) -> list[StepResult]:
    """The results of sending the code in a plan; none before the primary answered."""
    trees = _trees(facts)
    if sender.cluster.primary_name not in trees:
        return []
    sender = sender.after(trees)
    return [sender.planned(name, tree) for name, tree in trees.items()]


def _send_code(
    progress: Progress, sender: CodeSender, context: Context, sides: Mapping[str, Sides]
) -> None:
    """Send every node what it lacks."""
    trees = _trees(context.facts)
    sender = sender.after(trees)
    primary = sides[context.cluster.primary_name].work

    def send(node: Node) -> StepResult:
        return sender.sync(sides[node.name].work, trees[node.name], context.plan.base, primary)

    progress.begin(CODE)
    forks, watch = min(progress.forks, _SENDERS), progress.display.progress
    nodes = [node for node in context.cluster.nodes if progress.chosen([node.name])]
    sent = on_each(nodes, send, forks=forks, watch=watch)
    results = (failed("code", "files", r) if isinstance(r, NodeError) else r for r in sent.values())
    progress.end(CODE, list(results))
    progress.stop_if_bad()


def _trees(facts: ClusterFacts) -> dict[str, CodeTree]:
    return {
        name: value_of(answers.code_tree) or CodeTree(state="absent")
        for name, answers in facts.nodes.items()
    }


def check_cluster(survey: Survey, connect: Connect, coverage: Coverage) -> None:
    """Check everything that the nodes' answers allow, also after errors.

    `connect` gives transports that refuse to write.

    Raises:
        Stopped: the operator interrupted.
    """
    surveyed = survey.look(connect)
    facts = surveyed.facts
    if not facts.nodes:
        return
    chosen = survey.progress.chosen(facts.nodes)
    known = tuple(node for node in survey.cluster.nodes if node.name in chosen)
    cluster = replace(survey.cluster, nodes=known)
    compared = _compared(cluster, surveyed, has_others=bool(survey.progress.only))
    of_code = code_planned(survey.sender, facts) if survey.sender else []
    what = "the code is not that of the source: setup"
    survey.progress.end(COMPARE, compared + [_difference(each, what) for each in of_code])
    ports = {node.name: port for node in known for port in sshd_ports(node, facts)[:1]}
    probes = probes_of(cluster, facts.nodes, coverage, ssh_ports=ports)
    logins = None if surveyed.pending else _logins(cluster, facts, surveyed.context)
    reached = {name: surveyed.sides[name] for name in survey.progress.chosen(surveyed.sides)}
    run_verification(survey.progress, logins, probes, reached)


def _compared(cluster: Cluster, surveyed: Surveyed, *, has_others: bool) -> list[StepResult]:
    """What setup would change; one result where nothing is set up, or steps are not known."""
    installed = [surveyed.facts.installed[node.name] for node in cluster.nodes]
    names = tuple(node.name for node in cluster.nodes)
    if surveyed.pending:
        return [_difference(result) for result in planned(surveyed.pending)]
    if not any(there.files or there.daemon for there in installed):
        nothing = warning("not-set-up", names, "nothing is set up yet", "Run setup")
        return found("compare", "files", {}, [nothing])
    if surveyed.context is None:
        where = "above, or of nodes that --nodes leaves out," if has_others else "above"
        text = f"not compared with the desired state: fix the errors {where} first"
        return [StepResult(name, "compare", "files", Outcome.NOT_RUN, text) for name in names]
    return [
        _difference(result)
        for node in cluster.nodes
        for side in _sides_of(surveyed.context, SETUP, node)
        for result, _ in _checked(side, node)
    ]


def _difference(result: StepResult, what: str = "not in the desired state:") -> StepResult:
    """A result that would be a change, as a warning; others as they are."""
    if result.outcome is not Outcome.WOULD_CHANGE:
        return result
    cause = warning("not-as-setup-wishes", (result.node,), f"{what} {result.detail}", "Run setup")
    [warned] = found(result.phase, result.step, {}, [cause])
    return replace(warned, step=result.step)


def _logins(cluster: Cluster, facts: ClusterFacts, context: Context | None) -> Expectation | None:
    """What the primary's logins must find; None while it has nothing to log in with."""
    installed = facts.installed.get(cluster.primary_name)
    if not (installed and installed.cluster_key and "trust/ssh_config" in installed.files):
        return None

    def is_everywhere(path: str, digest: str = "") -> bool:
        files = [each.files.get(path) for each in facts.installed.values()]
        return all(file is not None and digest in ("", file.sha256) for file in files)

    # Another finding reports files that differ or are missing.
    texts = context.resources if context else {}
    files = {p: t for p, t in texts.items() if is_everywhere(p, sha256(t.encode()).hexdigest())}
    openmpi = value_of(facts.nodes[cluster.primary_name].openmpi)
    return Expectation(
        cluster=cluster,
        base=installed.base,
        mpirun=openmpi.path if openmpi and needs_openmpi(cluster, facts.nodes) else "",
        has_wrapper=is_everywhere("env/rank-exec"),
        files=files,
    )
