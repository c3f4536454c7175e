"""Results of setup per node, and their progress on the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.report import Finding, Outcome, Report, StepResult
from ascendboot.model.secrets import masked
from ascendboot.transport.pool import FORKS, on_each
from ascendboot.value import Struct, field, replace

T = TypeVar("T")
_BAD = {Outcome.FAILED, Outcome.BLOCKED, Outcome.UNREACHABLE}
_OF_OTHERS = {"node-not-compared", "not-as-setup-wishes"}
"""Warnings about nodes that setup does not change."""


def failed(phase: str, step: str, error: NodeError, duration_s: float = 0.0) -> StepResult:
    """A node could not be reached, or something on it went wrong."""
    outcome = Outcome.UNREACHABLE if isinstance(error, UnreachableError) else Outcome.FAILED
    return StepResult(error.node, phase, step, outcome, str(error), duration_s)


def found(
    phase: str,
    step: str,
    well: Mapping[str, str],
    findings: Sequence[Finding],
    *,
    as_error: Outcome = Outcome.FAILED,
) -> list[StepResult]:
    """One result per finding and node; `well` has the text for nodes without findings."""
    results = []
    for finding in findings:
        is_error = finding.level == "error"
        detail = finding.message if is_error else f"{finding.level}: {finding.message}"
        remedy = finding.remedy or f"See {finding.id} in docs/reference/findings.md"
        cause = replace(finding, remedy=remedy)
        outcome = as_error if is_error else Outcome.OK
        results += [
            StepResult(node, phase, finding.id, outcome, detail, cause=cause)
            for node in finding.nodes
        ]
    named = {result.node for result in results}
    return results + [
        StepResult(node, phase, step, Outcome.OK, words)
        for node, words in well.items()
        if node not in named
    ]


class Display(Protocol):
    """Shows the progress of every phase."""

    def working(self, title: str) -> None:
        """A phase begins."""

    def progress(self, words: str) -> None:
        """How far the phase is."""

    def phase(self, title: str, results: Sequence[StepResult]) -> None:
        """All results of one phase, in inventory order."""


class Stopped(Exception):  # noqa: N818 - not an error: it ends the run early
    """The run ends here; the results so far have the reason."""


class Progress(Struct):
    """One run over the nodes, and its results so far."""

    cluster: Cluster
    display: Display
    interrupted: threading.Event
    forks: int = FORKS
    diffs: bool = False
    """Changes that are made have diffs, too, as those of a plan."""
    only: Collection[str] = ()
    """The nodes that are changed, or checked; empty: all."""
    shows_others: bool = True
    """Also problems of other nodes are results: setup needs them."""
    results: list[StepResult] = field(default_factory=list)

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Those of the nodes that are changed or checked."""
        return [name for name in names if not self.only or name in self.only]

    def begin(self, title: str) -> None:
        """Begin a phase.

        Raises:
            Stopped: the operator interrupted.
        """
        if self.interrupted.is_set():
            raise Stopped
        self.display.working(title)

    def end(self, title: str, results: Sequence[StepResult]) -> None:
        """Keep the results of a phase, and show them, without the cluster's secrets."""
        secrets = self.cluster.secrets
        if self.only:
            results = [
                r
                for r in results
                if r.node in self.only
                or r.step == "node-left"  # it is about the cluster
                or (self.shows_others and (r.outcome in _BAD or r.step in _OF_OTHERS))
            ]
        if secrets:
            results = [
                replace(r, detail=masked(r.detail, secrets), diff=masked(r.diff, secrets))
                for r in results
            ]
        self.results.extend(results)
        self.display.phase(title, results)

    def for_each(
        self, names: Container[str], work: Callable[[Node], T]
    ) -> dict[str, T | NodeError]:
        """The result of `work` for each node of these names, in inventory order.

        The primary begins first: other nodes are queried while or after it gets the lock.
        """
        nodes = [node for node in self.cluster.rank_order if node.name in names]
        done = on_each(nodes, work, forks=self.forks, watch=self.display.progress)
        return {node.name: done[node.name] for node in self.cluster.nodes if node.name in done}

    def stop_if_bad(self) -> None:
        """Continue only if nothing has gone wrong so far.

        Raises:
            Stopped: something has; the results have the reason.
        """
        if any(result.outcome in _BAD for result in self.results):
            raise Stopped

    def report(self, run_id: str) -> Report:
        """All results of the run."""
        return Report(
            run_id=run_id,
            cluster=self.cluster.name,
            results=tuple(self.results),
            interrupted=self.interrupted.is_set(),
        )
