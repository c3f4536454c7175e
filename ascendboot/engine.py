"""Walks the phases of `setup` over all nodes: ask, judge, change what differs, prove."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from ascendboot.asking import ask_node, left_behind
from ascendboot.context import Context
from ascendboot.decide import Decisions, Seen, decide
from ascendboot.errors import NodeError
from ascendboot.facts.api import ask, value_of
from ascendboot.judge.whole import judge
from ascendboot.model.code import CodeTree
from ascendboot.model.report import Outcome, Report
from ascendboot.network import attempts
from ascendboot.outcomes import failed, judged, ok, planned
from ascendboot.phases import ASK, CODE, JUDGE, NETWORK, PROVE, REACH, Phase, rounds
from ascendboot.proofs import Proofs
from ascendboot.prove import Expectation
from ascendboot.settling import Settled, current_texts, halves, of_phase, settle
from ascendboot.transport.api import Sides
from ascendboot.transport.pool import FORKS, for_each

if TYPE_CHECKING:
    from ascendboot.asking import Asked, Asker
    from ascendboot.code.send import Sending
    from ascendboot.judge.finding import Finding
    from ascendboot.model.certificate import Authority
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.report import StepResult
    from ascendboot.render import Templates
    from ascendboot.settling import Half
    from ascendboot.steps.lock import Locks
    from ascendboot.transport.api import HostSide

T = TypeVar("T")

_SENDERS = 8
"""To so many nodes code is sent at once: each has some megabytes of it in memory."""

Connect = Callable[[Sequence["Node"]], tuple[Mapping[str, "HostSide"], Mapping[str, NodeError]]]


class Listener(Protocol):
    """Hears of every phase."""

    def phase_begins(self, title: str) -> None:
        """This is what is going on now."""
        ...

    def phase_done(self, title: str, results: Sequence[StepResult]) -> None:
        """All results of one phase, in inventory order."""
        ...


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
    forks: int = FORKS
    locks: Locks | None = None
    """Taken on the primary before anything is asked; None where nothing will be written."""
    asker: Asker = ask
    authority: Authority | None = None
    """Who signs certificates; None where trust needs none, or its keys are not made yet."""
    sending: Sending | None = None
    """The code that goes from this side to the nodes; None where it is there already."""
    former: Mapping[str, Node] = field(default_factory=dict)
    """Nodes that had another container at the last setup, as they were then."""
    results: list[StepResult] = field(default_factory=list)
    transports: Mapping[str, HostSide] = field(default_factory=dict)
    """The host sides of all nodes that were reached."""
    sides: dict[str, Sides] = field(default_factory=dict)
    """Both sides of all nodes that were reached; the host's alone where no way in is known."""
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
        texts = self._for_each(
            lambda node: current_texts(context, self.phases, node, self.sides[node.name])
        )
        current = {name: t for name, t in texts.items() if not isinstance(t, NodeError)}
        nodes = [node for node in self.cluster.nodes if node.name in current]
        for phase in self.phases:
            self.end_phase(
                phase.title,
                [
                    planned(phase, node, step, half.own, current[node.name])
                    for node in nodes
                    for half in self.halves(context, [phase], node)
                    for _, step in half.wishes
                ],
            )
        if self.sending is not None:
            self.end_phase(CODE, self.code_planned(context.seen))
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
            outcomes = self._for_each(work)
            for phase in phases:
                self.end_phase(phase.title, of_phase(phase, outcomes))
            self._stop_if_bad()
            settled = {name: s for name, s in outcomes.items() if isinstance(s, Settled)}
            own = {name: s.own for name, s in settled.items()}
            served = {name: s.served for name, s in settled.items() if s.served is not None}
            context = replace(context, seen=replace(context.seen, own=own, served=served))
        self._send_code(context)
        return context

    def code_planned(self, seen: Seen) -> list[StepResult]:
        """What of the code would be sent."""
        if self.sending is None or self.cluster.primary_name not in seen.facts:
            return []
        sending = self.sending.after({name: _tree(seen, name) for name in seen.facts})
        return [sending.planned(name, _tree(seen, name)) for name in seen.facts]

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
        parts = self._for_each(lambda node: proofs.run(node, self.sides[node.name]))
        if logins := proofs.login_results(parts):
            self.end_phase(PROVE, logins)
        if tried := proofs.network_results(parts):
            self.end_phase(NETWORK, tried)

    def halves(self, context: Context, phases: Sequence[Phase], node: Node) -> list[Half]:
        """The wishes of some phases about one node, by the side that they are about."""
        return halves(context, phases, node, self.sides[node.name])

    def end_phase(self, title: str, results: Sequence[StepResult]) -> None:
        """Keep the results of a phase, and show them."""
        self.results.extend(results)
        self.listener.phase_done(title, results)

    def report(self, run_id: str) -> Report:
        """Everything that happened."""
        return Report(
            run_id=run_id,
            cluster=self.cluster.name,
            results=tuple(self.results),
            interrupted=self.interrupted.is_set(),
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
        asked: dict[str, Asked] = {}
        results: list[StepResult] = []
        for node in self.cluster.nodes:
            answer = answers.get(node.name)
            if isinstance(answer, NodeError):
                results.append(failed("ask", "questions", answer, took))
            elif answer is not None:
                asked[node.name] = answer
                results.append(ok(node.name, "ask", "questions", "answered", took))
        self.end_phase(ASK, results)
        self.sides = {name: Sides(host, host) for name, host in self.transports.items()}
        self.sides |= {name: answer.sides for name, answer in asked.items()}
        return Seen(
            facts={name: answer.facts for name, answer in asked.items()},
            own={name: answer.own for name, answer in asked.items()},
            served={name: a.served for name, a in asked.items() if a.served is not None},
            idle={name: a.idle for name, a in asked.items() if a.idle is not None},
            left_in={name: a.left_in for name, a in asked.items() if a.left_in},
        )

    def _ask_node(self, node: Node) -> Asked:
        of_code = self.sending.questions() if self.sending else {}
        host = self.transports[node.name]
        asked = ask_node(
            self.cluster,
            node,
            host,
            locks=self.locks if node == self.cluster.primary else None,
            asker=self.asker,
            of_code=of_code,
        )
        if asked.was_locked:
            self._outdated.set()
        if node.name in self.former:
            return replace(asked, left_in=left_behind(self.cluster, self.former[node.name], host))
        return asked

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
            primary = self.cluster.primary_name
            results += [ok(primary, "judge", *told) for told in decisions.words.items()]
        self.end_phase(JUDGE, results)
        if decisions is None:
            return None
        return Context(
            cluster=self.cluster,
            decisions=decisions,
            seen=seen,
            templates=self.templates,
            authority=self.authority,
        )

    def _settle(self, context: Context, phases: Sequence[Phase], node: Node) -> Settled:
        return settle(context, phases, node, self.sides[node.name])

    def _send_code(self, context: Context) -> None:
        if self.sending is None:
            return
        trees = {name: _tree(context.seen, name) for name in context.seen.facts}
        sending = self.sending.after(trees)
        primary = self.sides[self.cluster.primary_name].work
        self._stop_if_interrupted()
        self.listener.phase_begins(CODE)

        def send(node: Node) -> StepResult:
            work, base = self.sides[node.name].work, context.decisions.base
            return sending.settle(work, trees[node.name], base, primary)

        sent = for_each(self.cluster.nodes, send, forks=min(self.forks, _SENDERS))
        results = (
            failed("code", "files", r) if isinstance(r, NodeError) else r for r in sent.values()
        )
        self.end_phase(CODE, list(results))
        self._stop_if_bad()

    def _for_each(
        self, work: Callable[[Node], T], *, but: Node | None = None
    ) -> dict[str, T | NodeError]:
        """The primary is begun first: others are asked while or after it gets the lock."""
        nodes = [n for n in self.cluster.rank_order if n.name in self.transports and n != but]
        done = for_each(nodes, work, forks=self.forks)
        return {node.name: done[node.name] for node in self.cluster.nodes if node.name in done}

    def _stop_if_bad(self) -> None:
        bad = {Outcome.FAILED, Outcome.BLOCKED, Outcome.UNREACHABLE}
        if any(result.outcome in bad for result in self.results):
            raise Stopped

    def _stop_if_interrupted(self) -> None:
        if self.interrupted.is_set():
            raise Stopped


def expectation(context: Context) -> Expectation:
    """What the proof must find on every node."""
    return Expectation(
        cluster=context.cluster,
        base=context.decisions.base,
        mpirun=context.decisions.mpirun,
        files={f"resources/{name}": text for name, text in context.resources.items()},
    )


def _tree(seen: Seen, name: str) -> CodeTree:
    return value_of(seen.facts[name].code_tree) or CodeTree(exists=False)


def _errors(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]
