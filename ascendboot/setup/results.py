"""Results of setup per node, and their progress on the screen."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.model.report import Cause, Outcome, Report, StepResult
from ascendboot.model.secrets import masked
from ascendboot.setup.steps import Blocked, Change, Satisfied, Step, StepState
from ascendboot.transport.pool import FORKS, for_each

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Container, Mapping, Sequence

    from ascendboot.checks.finding import Finding
    from ascendboot.facts.installed import Installed
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.setup.phases import Phase


def ok(node: str, phase: str, step: str, detail: str, duration_s: float = 0.0) -> StepResult:
    """All is well."""
    return StepResult(
        node=node, phase=phase, step=step, outcome=Outcome.OK, detail=detail, duration_s=duration_s
    )


def failed(phase: str, step: str, error: NodeError, duration_s: float = 0.0) -> StepResult:
    """A node could not be reached, or something on it went wrong."""
    unreachable = isinstance(error, UnreachableError)
    return StepResult(
        node=error.node,
        phase=phase,
        step=step,
        outcome=Outcome.UNREACHABLE if unreachable else Outcome.FAILED,
        detail=str(error),
        duration_s=duration_s,
    )


def from_findings(nodes: Sequence[str], findings: Sequence[Finding]) -> list[StepResult]:
    """Results of checks: errors block; a node without findings fits the others."""
    words = dict.fromkeys(nodes, "fit the inventory and each other")
    return found("judge", "facts", words, findings, as_error=Outcome.BLOCKED)


def found(
    phase: str,
    step: str,
    well: Mapping[str, str],
    findings: Sequence[Finding],
    *,
    as_error: Outcome = Outcome.FAILED,
) -> list[StepResult]:
    """One result per finding and node; `well` has the text for nodes without findings."""
    results = [
        StepResult(
            node=node,
            phase=phase,
            step=finding.id,
            outcome=as_error if finding.level == "error" else Outcome.OK,
            detail=finding.message if finding.level == "error" else _finding_text(finding),
            cause=Cause(
                id=finding.id,
                level=finding.level,
                nodes=finding.nodes,
                remedy=finding.remedy or f"See {finding.id} in docs/reference/findings.md",
            ),
        )
        for finding in findings
        for node in finding.nodes
    ]
    named = {node for finding in findings for node in finding.nodes}
    return results + [
        ok(node, phase, step, words) for node, words in well.items() if node not in named
    ]


def planned(
    phase: Phase, node: Node, step: Step, installed: Installed, current: Mapping[str, str]
) -> StepResult:
    """What a step would do; `current` holds the text of files that exist, by absolute path."""
    state = step.check(installed)
    if not isinstance(state, Change):
        return checked(phase, node, step, state)
    return StepResult(
        node=node.name,
        phase=phase.name,
        step=step.name,
        outcome=Outcome.WOULD_CHANGE,
        detail=state.summary,
        diff=_diff(state, current),
    )


def checked(phase: Phase, node: Node, step: Step, state: StepState) -> StepResult:
    """The result of a step that was only checked."""
    outcome, detail = _shown(node, state)
    return StepResult(
        node=node.name, phase=phase.name, step=step.name, outcome=outcome, detail=detail
    )


def applied(
    phase: Phase,
    node: Node,
    step: Step,
    *,
    before: StepState,
    after: StepState,
    complaints: Sequence[str],
    duration_s: float,
) -> StepResult:
    """The result of an applied step; `complaints` are the failed commands of its round."""
    if not isinstance(before, Change) and not isinstance(after, Change):
        return checked(phase, node, step, before)
    if not isinstance(before, Change):
        outcome = Outcome.FAILED
        detail = f"{node.name}: {step.name} was changed by somebody else meanwhile; run setup again"
    elif isinstance(after, Satisfied):
        outcome, detail = Outcome.CHANGED, before.summary
    else:
        why = "; ".join(complaints) or "all commands succeeded, but the same check fails again"
        outcome = Outcome.FAILED
        seen = f"{step.name} did not converge: {why.rstrip('.')}"
        detail = f"{node.name}: {seen}; fix that and run setup again"
    return StepResult(
        node=node.name,
        phase=phase.name,
        step=step.name,
        outcome=outcome,
        detail=detail,
        duration_s=duration_s,
    )


def verified(node: str, problems: Sequence[str], duration_s: float) -> list[StepResult]:
    """The results of verifying one node."""
    if not problems:
        return [
            ok(node, "prove", "login", "the primary logs in and finds all as installed", duration_s)
        ]
    return [
        StepResult(
            node=node,
            phase="prove",
            step="login",
            outcome=Outcome.FAILED,
            detail=f"{node}: {problem}",
            duration_s=duration_s,
        )
        for problem in problems
    ]


def _shown(node: Node, state: StepState) -> tuple[Outcome, str]:
    match state:
        case Satisfied(because):
            return Outcome.OK, because
        case Blocked(reason, remedy):
            return Outcome.BLOCKED, f"{node.name}: {reason}; {remedy}"
        case Change(summary=summary):
            return Outcome.NOT_RUN, summary


def _finding_text(finding: Finding) -> str:
    return f"{finding.level}: {finding.message}"


def _diff(change: Change, current: Mapping[str, str]) -> str:
    """Unified diffs of all files of the change against what is there."""
    parts: list[str] = []
    for file in change.files:
        if file.secret:
            continue
        path = str(file.path)
        old = current.get(path, "").splitlines()
        new = file.content.decode().splitlines()
        parts += difflib.unified_diff(
            old, new, path if path in current else "/dev/null", path, lineterm="", n=1
        )
    return "\n".join(parts)


T = TypeVar("T")


class ProgressListener(Protocol):
    """Receives the progress of every phase."""

    def working(self, title: str) -> None:
        """A phase begins."""
        ...

    def phase(self, title: str, results: Sequence[StepResult]) -> None:
        """All results of one phase, in inventory order."""
        ...


class Stopped(Exception):  # noqa: N818 - not an error: it ends the walk early
    """The walk ends here; the results so far say why."""


@dataclass
class Progress:
    """One walk over the nodes; its results grow as it goes."""

    cluster: Cluster
    listener: ProgressListener
    interrupted: threading.Event
    forks: int = FORKS
    results: list[StepResult] = field(default_factory=list)

    def begin(self, title: str) -> None:
        """Tell that a phase begins.

        Raises:
            Stopped: the operator interrupted.
        """
        if self.interrupted.is_set():
            raise Stopped
        self.listener.working(title)

    def end(self, title: str, results: Sequence[StepResult]) -> None:
        """Keep the results of a phase, and show them, without the cluster's secrets."""
        secrets = self.cluster.secrets
        if secrets:
            results = [
                replace(r, detail=masked(r.detail, secrets), diff=masked(r.diff, secrets))
                for r in results
            ]
        self.results.extend(results)
        self.listener.phase(title, results)

    def for_each(
        self, names: Container[str], work: Callable[[Node], T]
    ) -> dict[str, T | NodeError]:
        """What `work` gives for each node of these names, in inventory order.

        The primary begins first: other nodes are queried while or after it gets the lock.
        """
        nodes = [node for node in self.cluster.rank_order if node.name in names]
        done = for_each(nodes, work, forks=self.forks)
        return {node.name: done[node.name] for node in self.cluster.nodes if node.name in done}

    def stop_if_bad(self) -> None:
        """Go on only where nothing has gone wrong so far.

        Raises:
            Stopped: something has; the results say what.
        """
        bad = {Outcome.FAILED, Outcome.BLOCKED, Outcome.UNREACHABLE}
        if any(result.outcome in bad for result in self.results):
            raise Stopped

    def report(self, run_id: str) -> Report:
        """Everything that happened."""
        return Report(
            run_id=run_id,
            cluster=self.cluster.name,
            results=tuple(self.results),
            interrupted=self.interrupted.is_set(),
        )
