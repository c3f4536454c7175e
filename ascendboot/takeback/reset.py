"""Taking back what setup did: what is found, what stands in the way, and what came of it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError
from ascendboot.facts.api import answer_to, ask
from ascendboot.launch.look import living
from ascendboot.model.report import Outcome, StepResult
from ascendboot.outcomes import failed, ok
from ascendboot.steps.lock import ours
from ascendboot.takeback.leftovers import Found, find, results, take_back

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ascendboot.engine.progress import Progress
    from ascendboot.engine.survey import Connect
    from ascendboot.launch.look import JobLook
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.steps.lock import Lock, Locks
    from ascendboot.transport.api import HostSide

HERE = "here"
"""Stands for the operator's side where a report names nodes."""

_ASK = "Ask every node"


@dataclass
class Reset:
    """One reset: what was found, and what came of it."""

    progress: Progress
    here: Sequence[Path]
    """The files on the operator's side that would go."""
    locks: Locks
    """Taken on the primary before anything is taken back."""
    former: Mapping[str, Node]
    """Nodes that had another container at the last setup, as they were then."""
    found: dict[str, Found] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        """The cluster that is taken back."""
        return self.progress.cluster

    @property
    def has_work(self) -> bool:
        """Whether there is anything to take back."""
        return bool(self.here) or any(not found.is_nothing for found in self.found.values())

    def look(self, connect: Connect) -> bool:
        """Ask every node, in one execution; False where something stands in the way."""
        told = self._ask(*connect(self.cluster.nodes))
        self.progress.end(_ASK, told)
        return _is_well(told)

    def plan(self) -> None:
        """What would be taken back."""
        told = [
            result
            for node, found in self.found.items()
            for result in results(node, found, Outcome.WOULD_CHANGE)
        ]
        told += [self._of_file(path, Outcome.WOULD_CHANGE) for path in self.here]
        self.progress.end("What reset would take back", told or [_nothing_here()])

    def say_nothing(self) -> None:
        """There was nothing to take back."""
        told = [r for n, found in self.found.items() for r in results(n, found, Outcome.OK)]
        self.progress.end("Take back what setup did", [*told, _nothing_here()])

    def apply(self, hosts: Mapping[str, HostSide]) -> None:
        """Take it all back: under the cluster's lock, in one execution per node."""
        if self.progress.interrupted.is_set():
            return
        if any(not found.is_nothing for found in self.found.values()):
            try:
                lock = self._locked(hosts[self.cluster.primary_name])
            except NodeError as error:
                self.progress.end("Lock the cluster", [failed("ask", "lock", error, 0.0)])
                return
            if lock.broke:
                words = f"broke the lock of {lock.broke}"
                told = [ok(self.cluster.primary_name, "ask", "lock", words, 0.0)]
                self.progress.end("Lock the cluster", told)
            # While the operator was asked, somebody may have started a job.
            told = self._ask(hosts, {})
            if not _is_well(told):
                self.progress.end(_ASK, told)
                return
        began = time.monotonic()
        answers = self.progress.for_each(
            hosts, lambda node: take_back(self.cluster, self.found[node.name], hosts[node.name])
        )
        took = time.monotonic() - began
        told = []
        for node, answer in answers.items():
            if isinstance(answer, NodeError):
                told.append(failed("reset", "files", answer, took))
            else:
                told += results(node, answer, Outcome.CHANGED, took)
        if not any(r.outcome in {Outcome.FAILED, Outcome.UNREACHABLE} for r in told):
            told += self._clear_here()
        self.progress.end("Take back what setup did", told)

    def _ask(
        self, hosts: Mapping[str, HostSide], errors: Mapping[str, NodeError]
    ) -> list[StepResult]:
        """What is found on the nodes that were reached, and which jobs stand in the way."""
        began = time.monotonic()
        answers = self.progress.for_each(
            hosts,
            lambda node: find(self.cluster, node, hosts[node.name], self.former.get(node.name)),
        )
        took = time.monotonic() - began
        told: list[StepResult] = []
        for node in self.cluster.nodes:
            answer = errors.get(node.name) or answers[node.name]
            if isinstance(answer, NodeError):
                told.append(failed("ask", "questions", answer, took))
            else:
                self.found[node.name] = answer
                told.append(ok(node.name, "ask", "questions", "answered", took))
        return told + _of_running({name: found.jobs for name, found in self.found.items()})

    def _locked(self, host: HostSide) -> Lock:
        """Take the lock through the primary.

        Raises:
            NodeError: it is not ours.
        """
        primary, inside = self.cluster.primary_name, self.locks.inside
        lock = ours(primary, ask(host, {"lock": self.locks.on_server})["lock"])
        for way in (part.way for part in self.found[primary].parts if part.way is not None):
            answer = answer_to(inside, host.inside(way).hold(inside.command))
            lock = lock.and_then(ours(primary, answer))
        return lock

    def _clear_here(self) -> list[StepResult]:
        results = []
        for path in self.here:
            path.unlink()
            results.append(self._of_file(path, Outcome.CHANGED))
            if path.parent.name == "ca":
                with suppress(OSError):  # not empty: what else is there is not ours
                    path.parent.rmdir()
        return results or [_nothing_here()]

    @staticmethod
    def _of_file(path: Path, outcome: Outcome) -> StepResult:
        words = "removed" if outcome is Outcome.CHANGED else "would be removed"
        detail = f"{os.path.relpath(path)} {words}"
        return StepResult(node=HERE, phase="reset", step="files", outcome=outcome, detail=detail)


def _is_well(told: Sequence[StepResult]) -> bool:
    return all(result.outcome is Outcome.OK for result in told)


def _of_running(looks: Mapping[str, dict[str, JobLook]]) -> list[StepResult]:
    """One result per job of which something lives, on every node where it does."""
    return [
        StepResult(
            node=node,
            phase="ask",
            step="jobs",
            outcome=Outcome.BLOCKED,
            detail=f"{node}: job {job_id} runs; end it first with: stop --job {job_id}",
        )
        for job_id, nodes in living(dict(looks)).items()
        for node in nodes
    ]


def _nothing_here() -> StepResult:
    detail = "nothing to take back on this side"
    return StepResult(node=HERE, phase="reset", step="files", outcome=Outcome.OK, detail=detail)
