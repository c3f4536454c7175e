"""The survey that every walk begins with: reach the nodes, ask them, judge what they say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ascendboot.asking import ask_node, left_behind
from ascendboot.context import Context
from ascendboot.decide import Decisions, Seen, decide
from ascendboot.errors import NodeError
from ascendboot.facts.api import ask
from ascendboot.facts.own import base_script
from ascendboot.facts.stated import with_stated
from ascendboot.judge.control import (
    elsewhere_findings,
    job_findings,
    left_findings,
    set_up_elsewhere,
)
from ascendboot.judge.whole import judge
from ascendboot.launch.look import living, look_below, looked
from ascendboot.model.certificate import fingerprint
from ascendboot.outcomes import failed, judged, ok
from ascendboot.phases import ASK, JUDGE, REACH
from ascendboot.transport.api import Sides

if TYPE_CHECKING:
    from ascendboot.asking import Asked, Asker
    from ascendboot.code.send import Sending
    from ascendboot.engine.progress import Progress
    from ascendboot.judge.finding import Finding
    from ascendboot.model.certificate import Authority
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.owner import Control
    from ascendboot.model.report import StepResult
    from ascendboot.render import Templates
    from ascendboot.steps.lock import Locks
    from ascendboot.transport.api import HostSide

Connect = Callable[[Sequence["Node"]], tuple[Mapping[str, "HostSide"], Mapping[str, NodeError]]]


@dataclass(frozen=True)
class Surveyed:
    """What was found, and the ways to where it was."""

    seen: Seen
    sides: Mapping[str, Sides]
    """Both sides of all nodes that were reached; the host's alone where no way in is known."""
    context: Context | None
    """For wishes; None where something stands in their way."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """How the nodes are reached, asked and judged."""

    progress: Progress
    templates: Templates
    locks: Locks | None = None
    """Taken on the primary before anything is asked; None where nothing will be written."""
    asker: Asker = ask
    authority: Authority | None = None
    """Who signs certificates; None where trust needs none, or its keys are not made yet."""
    sending: Sending | None = None
    """The code that goes from this side to the nodes; None where it is there already."""
    before_writing: Callable[[Seen], tuple[Authority | None, Control]] | None = None
    """Makes the keys that are not there yet, once nothing stands in the way of a change."""
    control: Control | None = None
    """This control folder; None: who set up the nodes before does not matter."""
    take_over: bool = False
    """What another control folder set up is taken over."""
    rekeys: bool = False
    """The keys are replaced, so that a node that left opens nothing."""
    left: Sequence[Node] = ()
    """Nodes that this folder set up, and that are not in the inventory any more."""
    former: Mapping[str, Node] = field(default_factory=dict)
    """Nodes that had another container at the last setup, as they were then."""

    @property
    def cluster(self) -> Cluster:
        """Whose nodes they are."""
        return self.progress.cluster

    def look(self, connect: Connect) -> Surveyed:
        """Reach, ask and judge.

        Raises:
            Stopped: the operator interrupted.
        """
        hosts = self._reach(connect)
        asked = self._ask(hosts)
        seen = Seen(
            facts={
                node.name: with_stated(self.cluster, node, asked[node.name].facts)
                for node in self.cluster.nodes
                if node.name in asked
            },
            own={name: answer.own for name, answer in asked.items()},
            served={name: a.served for name, a in asked.items() if a.served is not None},
            idle={name: a.idle for name, a in asked.items() if a.idle is not None},
            left_in={name: a.left_in for name, a in asked.items() if a.left_in},
        )
        sides = {name: Sides(host, host) for name, host in hosts.items()}
        sides |= {name: answer.sides for name, answer in asked.items()}
        return Surveyed(seen, sides, self._judge(seen, self._of_control(seen, sides)))

    def _reach(self, connect: Connect) -> Mapping[str, HostSide]:
        """The host sides of all nodes that can be reached."""
        self.progress.listener.phase_begins(REACH)
        began = time.monotonic()
        hosts, errors = connect(self.cluster.nodes)
        took = time.monotonic() - began
        self.progress.end(
            REACH,
            [
                failed("reach", "connect", errors[node.name], took)
                if node.name in errors
                else ok(node.name, "reach", "connect", "connected", took)
                for node in self.cluster.nodes
            ],
        )
        return hosts

    def _ask(self, hosts: Mapping[str, HostSide]) -> dict[str, Asked]:
        """Ask every node that was reached; what one node cannot say does not silence the others."""
        self.progress.begin(ASK)
        began = time.monotonic()
        answers = self._answers(hosts)
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
                if answer.broke:
                    words = f"broke the lock of {answer.broke}"
                    results.append(ok(node.name, "ask", "lock", words, took))
        self.progress.end(ASK, results)
        return asked

    def _answers(self, hosts: Mapping[str, HostSide]) -> dict[str, Asked | NodeError]:
        """What all say; once more where somebody else held the lock while they said it."""
        outdated = threading.Event()

        def work(node: Node) -> Asked:
            asked = self._ask_node(node, hosts[node.name])
            if asked.was_locked:
                outdated.set()
            return asked

        answers = self.progress.for_each(hosts, work)
        if outdated.is_set():
            answers |= self.progress.for_each({*hosts} - {self.cluster.primary_name}, work)
        return answers

    def _ask_node(self, node: Node, host: HostSide) -> Asked:
        asked = ask_node(
            self.cluster,
            node,
            host,
            locks=self.locks if node == self.cluster.primary else None,
            asker=self.asker,
            of_code=self.sending.questions() if self.sending else {},
        )
        if node.name in self.former:
            return replace(asked, left_in=left_behind(self.cluster, self.former[node.name], host))
        return asked

    def _of_control(self, seen: Seen, sides: Mapping[str, Sides]) -> list[Finding]:
        """Nodes that another control folder set up; to take them over, no job may run there."""
        if self.control is None:
            return []
        by, here = self.authority, self.control.folder
        ca = [fingerprint(key) for key in (by.host, by.user)] if by else []
        owns = {name: seen.serving(name) for name in seen.own}
        elsewhere = set_up_elsewhere(owns, {*self.control.known, *ca})
        if self.cluster.trust == "ca":
            here = f"{here}, with {f'CA {ca[0]}' if ca else 'no CA of this cluster'}"
        found = elsewhere_findings(elsewhere, here=here, take_over=self.take_over)
        found = [*found, *left_findings(self.left)]
        affected = {*seen.own} if self.rekeys else {*elsewhere} if self.take_over else set()
        if not affected:
            return found
        look = look_below(base_script(self.cluster.name))
        looks = self.progress.for_each(
            affected, lambda node: looked(sides[node.name].work.run(look))
        )
        flag = "reset --node" if self.rekeys else "--take-over"
        return [*found, *job_findings(living(looks), f"{flag} would replace the keys that it uses")]

    def _judge(self, seen: Seen, of_control: Sequence[Finding]) -> Context | None:
        known = [node for node in self.cluster.nodes if node.name in seen.facts]
        findings = judge(replace(self.cluster, nodes=tuple(known)), seen.facts) if known else ()
        findings = (*of_control, *findings)
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
        self.progress.end(JUDGE, results)
        if decisions is None:
            return None
        return Context(
            cluster=self.cluster,
            decisions=decisions,
            seen=seen,
            templates=self.templates,
            authority=self.authority,
            control=self.control,
        )


def _errors(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "error"]
