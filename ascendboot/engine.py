"""Walks the phases of `setup` over all nodes: ask, judge, change what differs, prove."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ascendboot.context import Context
from ascendboot.decide import Decisions, Seen, decide
from ascendboot.errors import NodeError
from ascendboot.facts.api import Answered, Fact, Unanswered, ask
from ascendboot.facts.node import NodeFacts, questions
from ascendboot.facts.own import Own, own_question, parse_own
from ascendboot.judge import judge
from ascendboot.model.report import Outcome, Report
from ascendboot.network import attempts
from ascendboot.outcomes import checked, failed, judged, ok, planned, settled
from ascendboot.phases import ASK, JUDGE, NETWORK, PROVE, REACH, Phase
from ascendboot.proofs import Proofs
from ascendboot.prove import Expectation
from ascendboot.steps.api import Blocked, Change
from ascendboot.steps.lock import Lock
from ascendboot.steps.made import note_made
from ascendboot.transport.api import Command, Effect, write_files
from ascendboot.transport.pool import for_each

if TYPE_CHECKING:
    from ascendboot.facts.api import Answer
    from ascendboot.judge import Finding
    from ascendboot.model.certificate import Authority
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.report import StepResult
    from ascendboot.render import Templates
    from ascendboot.steps.api import Step
    from ascendboot.transport.api import Result, Transport

Connect = Callable[[Sequence["Node"]], tuple[Mapping[str, "Transport"], Mapping[str, NodeError]]]


Asker = Callable[["Transport", Mapping[str, Fact[Any]]], Mapping[str, "Answer[Any]"]]


class Listener(Protocol):
    """Hears of every phase."""

    def phase_begins(self, title: str) -> None:
        """This is what is going on now."""
        ...

    def phase_done(self, title: str, results: Sequence[StepResult]) -> None:
        """All results of one phase, in inventory order."""
        ...


@dataclass(frozen=True)
class Settled:
    """One node's part of a round: what is on it now, and how each step ended."""

    own: Own
    results: list[StepResult]


class Stopped(Exception):  # noqa: N818 - not an error: it ends the walk early
    """The walk ends here; the results so far say why."""


@dataclass
class Walk:
    """One walk over the phases; its results grow as it goes."""

    cluster: Cluster
    phases: tuple[Phase, ...]
    templates: Templates
    listener: Listener
    interrupted: threading.Event
    forks: int = 32
    lock: Fact[Lock] | None = None
    """Taken on the primary before anything is asked; None where nothing will be written."""
    asker: Asker = ask
    authority: Authority | None = None
    """Who signs certificates; None where trust needs none, or its keys are not made yet."""
    results: list[StepResult] = field(default_factory=list)
    transports: Mapping[str, Transport] = field(default_factory=dict)
    decisions: Decisions | None = None
    own: dict[str, Own] = field(default_factory=dict)
    _outdated: threading.Event = field(default_factory=threading.Event)
    """Somebody else held the lock while the nodes were asked."""

    def look(self, connect: Connect) -> Context:
        """Reach, ask and judge; the context for wishes when nothing stands in the way.

        Raises:
            Stopped: a node is unreachable or a finding is an error; the results say which.
        """
        _, context = self.survey(connect)
        self._stop_if_bad()
        if context is None:
            raise Stopped
        return context

    def survey(self, connect: Connect) -> tuple[Seen, Context | None]:
        """Reach, ask and judge; no context where something stands in the way of wishes."""
        self._reach(connect)
        seen = self._ask()
        return seen, self._judge(seen)

    def plan(self, context: Context) -> None:
        """What each phase would change, with diffs; nothing is written."""
        texts = self._for_each(lambda node: self._current_texts(context, node))
        current = {name: t for name, t in texts.items() if not isinstance(t, NodeError)}
        for phase in self.phases:
            self.end_phase(
                phase.title,
                [
                    planned(phase, node, step, context.seen.own[node.name], current[node.name])
                    for node in self.cluster.nodes
                    if node.name in current
                    for step in phase.wishes(context, node)
                ],
            )
        lost = [
            failed("ask", "current files", t) for t in texts.values() if isinstance(t, NodeError)
        ]
        if lost:
            self.end_phase(ASK, lost)

    def apply(self, context: Context) -> Context:
        """Make every wish true, with one execution per node and barrier, and check again.

        Raises:
            Stopped: a step failed, or the operator interrupted; later phases have not run.
        """
        for phases in rounds(self.phases):
            self._stop_if_interrupted()
            self.listener.phase_begins(phases[0].title)
            work = partial(self._settle, context, phases)
            outcomes: dict[str, Settled | NodeError] = self._for_each(work)
            for phase in phases:
                self.end_phase(phase.title, _of_phase(phase, outcomes))
            self._stop_if_bad()
            own = {name: s.own for name, s in outcomes.items() if isinstance(s, Settled)}
            context = replace(context, seen=replace(context.seen, own=own))
        return context

    def prove(self, context: Context) -> None:
        """Log in from the primary to every node and look around there; try the network.

        Each NPU pings at least one of another node; `check` tries more.

        Raises:
            Stopped: a node is not as it should be, or the operator interrupted.
        """
        ports = dict.fromkeys(context.seen.facts, context.decisions.port)
        wanted = attempts(self.cluster, context.seen.facts, "once", ssh_ports=ports)
        self.run_proofs(Proofs(self.cluster.primary_name, expectation(context), wanted))
        self._stop_if_bad()

    def run_proofs(self, proofs: Proofs) -> None:
        """All live proofs, in one execution per node that has a part."""
        self._stop_if_interrupted()
        self.listener.phase_begins(PROVE)
        parts = self._for_each(lambda node: proofs.run(node, self.transports[node.name]))
        if logins := proofs.login_results(parts):
            self.end_phase(PROVE, logins)
        if tried := proofs.network_results(parts):
            self.end_phase(NETWORK, tried)

    def report(self, run_id: str) -> Report:
        """Everything that happened."""
        interrupted = self.interrupted.is_set()
        return Report(
            run_id=run_id,
            cluster=self.cluster.name,
            results=tuple(self.results),
            interrupted=interrupted,
        )

    def _reach(self, connect: Connect) -> None:
        self.listener.phase_begins(REACH)
        began = time.monotonic()
        self.transports, errors = connect(self.cluster.nodes)
        took = time.monotonic() - began
        self.end_phase(
            REACH,
            [
                failed("reach", "connect", errors[node.name], took)
                if node.name in errors
                else ok(node.name, "reach", "connect", "connected", took)
                for node in self.cluster.nodes
            ],
        )

    def _ask(self) -> Seen:
        """Ask every node that was reached; what one node cannot say does not silence the others."""
        self._stop_if_interrupted()
        self.listener.phase_begins(ASK)
        began = time.monotonic()
        answers = self._for_each(self._ask_node)
        if self._outdated.is_set():
            answers |= self._for_each(self._ask_node, but=self.cluster.primary)
        took = time.monotonic() - began
        facts: dict[str, NodeFacts] = {}
        results: list[StepResult] = []
        for node in self.cluster.nodes:
            answer = answers.get(node.name)
            if isinstance(answer, NodeError):
                results.append(failed("ask", "questions", answer, took))
            elif answer is not None:
                facts[node.name], self.own[node.name] = answer
                results.append(ok(node.name, "ask", "questions", "answered", took))
        self.end_phase(ASK, results)
        return Seen(facts, self.own)

    def _ask_node(self, node: Node) -> tuple[NodeFacts, Own]:
        asked: dict[str, Fact[Any]] = {}
        if self.lock is not None and node == self.cluster.primary:
            asked["lock"] = self.lock
        asked |= questions(self.cluster, node)
        asked["own"] = own_fact(self.cluster)
        answers = self.asker(self.transports[node.name], asked)
        match answers.get("lock"):
            case Answered(Lock(holder=holder)) if holder:
                raise NodeError(
                    node.name,
                    f"could not lock the cluster: another setup holds it: "
                    f"{holder}; wait until it has ended",
                )
            case Answered(Lock(was_waited_for=True)):
                self._outdated.set()
            case Unanswered(message=message):
                raise NodeError(node.name, message)
            case _:
                pass
        own = answers["own"]
        if isinstance(own, Unanswered):
            raise NodeError(node.name, own.message)
        return NodeFacts.from_answers(node.name, answers), own.value

    def _judge(self, seen: Seen) -> Context | None:
        known = [node for node in self.cluster.nodes if node.name in seen.facts]
        findings = judge(replace(self.cluster, nodes=tuple(known)), seen.facts) if known else ()
        decisions = None
        if len(known) == len(self.cluster.nodes) and not _errors(findings):
            decided = decide(self.cluster, seen)
            if isinstance(decided, Decisions):
                decisions = decided
            else:
                findings = (*decided, *findings)
        results = judged([node.name for node in known], findings)
        if decisions is not None:
            why = decisions.launcher.words
            results.append(ok(self.cluster.primary_name, "judge", "launcher", why))
        self.end_phase(JUDGE, results)
        if decisions is None:
            return None
        self.decisions = decisions
        return Context(
            cluster=self.cluster,
            decisions=decisions,
            seen=seen,
            templates=self.templates,
            authority=self.authority,
        )

    def _settle(self, context: Context, phases: Sequence[Phase], node: Node) -> Settled:
        """Check, change in one execution, check again: one node's part of a round."""
        own = context.seen.own[node.name]
        wishes = [(phase, step) for phase in phases for step in phase.wishes(context, node)]
        before = [step.check(own) for _, step in wishes]
        changes = [verdict for verdict in before if isinstance(verdict, Change)]
        if not changes or any(isinstance(verdict, Blocked) for verdict in before):
            return Settled(
                own, [checked(*_at(w, node), v) for w, v in zip(wishes, before, strict=True)]
            )
        began = time.monotonic()
        question = own_fact(self.cluster)
        commands = note_made(own.base, changes)
        commands += [command for change in changes for command in _work(change)]
        *done, last = self.transports[node.name].run_all([*commands, question.command])
        own = question.parse(last)
        took = time.monotonic() - began
        complaints = [_complaint(result) for result in done if not result.as_expected]
        return Settled(
            own,
            [
                settled(
                    *_at(wish, node),
                    before=verdict,
                    after=wish[1].check(own),
                    complaints=complaints,
                    duration_s=took,
                )
                for wish, verdict in zip(wishes, before, strict=True)
            ],
        )

    def _current_texts(self, context: Context, node: Node) -> dict[str, str]:
        """The text of every file that the plan would change and that exists, by absolute path."""
        own = context.seen.own[node.name]
        verdicts = [s.check(own) for phase in self.phases for s in phase.wishes(context, node)]
        paths = [
            file.path
            for verdict in verdicts
            if isinstance(verdict, Change)
            for file in verdict.files
            if str(file.path.relative_to(own.base)) in own.files
        ]
        if not paths:
            return {}
        results = self.transports[node.name].run_all([_read(str(path)) for path in paths])
        return {str(path): r.checked().text for path, r in zip(paths, results, strict=True)}

    def _for_each(self, work: Callable[..., Any], *, but: Node | None = None) -> dict[str, Any]:
        """The primary is begun first: others are asked while or after it gets the lock."""
        nodes = [n for n in self.cluster.rank_order if n.name in self.transports and n != but]
        done = for_each(nodes, work, forks=self.forks)
        return {node.name: done[node.name] for node in self.cluster.nodes if node.name in done}

    def end_phase(self, title: str, results: Sequence[StepResult]) -> None:
        """Keep the results of a phase, and show them."""
        self.results.extend(results)
        self.listener.phase_done(title, results)

    def _stop_if_bad(self) -> None:
        bad = {Outcome.FAILED, Outcome.BLOCKED, Outcome.UNREACHABLE}
        if any(result.outcome in bad for result in self.results):
            raise Stopped

    def _stop_if_interrupted(self) -> None:
        if self.interrupted.is_set():
            raise Stopped


def rounds(phases: Sequence[Phase]) -> list[list[Phase]]:
    """The phases grouped into rounds: a new one begins where all nodes must have settled."""
    grouped: list[list[Phase]] = []
    for phase in phases:
        if phase.after_all or not grouped:
            grouped.append([])
        grouped[-1].append(phase)
    return grouped


def own_fact(cluster: Cluster) -> Fact[Own]:
    """The question what of ours is on a node."""
    return Fact("own", own_question(cluster.name), parse_own)


def expectation(context: Context) -> Expectation:
    """What the proof must find on every node."""
    return Expectation(
        cluster=context.cluster,
        base=context.decisions.base,
        mpirun=context.decisions.mpirun,
        files={f"resources/{name}": text for name, text in context.resources.items()},
    )


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


def _errors(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]


def _of_phase(phase: Phase, outcomes: Mapping[str, Settled | NodeError]) -> list[StepResult]:
    results: list[StepResult] = []
    for outcome in outcomes.values():
        if isinstance(outcome, Settled):
            results += [result for result in outcome.results if result.phase == phase.name]
        else:
            results.append(failed(phase.name, "change", outcome))
    return results
