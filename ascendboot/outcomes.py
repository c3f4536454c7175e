"""From verdicts, findings and errors to the results that a report holds; pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ascendboot.errors import UnreachableError
from ascendboot.model.report import Cause, Outcome, StepResult
from ascendboot.steps.api import Blocked, Change, Satisfied

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.errors import NodeError
    from ascendboot.facts.own import Own
    from ascendboot.judge.finding import Finding
    from ascendboot.model.cluster import Node
    from ascendboot.phases import Phase
    from ascendboot.steps.api import Step, Verdict


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


def judged(nodes: Sequence[str], findings: Sequence[Finding]) -> list[StepResult]:
    """Errors block, warnings are told; a node that nothing was found at agrees with the others."""
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
    """One result per finding and node; `well` has what is said of nodes without findings."""
    results = [
        StepResult(
            node=node,
            phase=phase,
            step=finding.id,
            outcome=as_error if finding.level == "error" else Outcome.OK,
            detail=finding.message if finding.level == "error" else _told(finding),
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
    phase: Phase, node: Node, step: Step, own: Own, current: Mapping[str, str]
) -> StepResult:
    """What a step would do; `current` holds the text of files that exist, by absolute path."""
    verdict = step.check(own)
    if not isinstance(verdict, Change):
        return checked(phase, node, step, verdict)
    return StepResult(
        node=node.name,
        phase=phase.name,
        step=step.name,
        outcome=Outcome.WOULD_CHANGE,
        detail=verdict.summary,
        diff=_diff(verdict, current),
    )


def checked(phase: Phase, node: Node, step: Step, verdict: Verdict) -> StepResult:
    """A verdict that nothing has been done about."""
    outcome, detail = _shown(node, verdict)
    return StepResult(
        node=node.name, phase=phase.name, step=step.name, outcome=outcome, detail=detail
    )


def settled(
    phase: Phase,
    node: Node,
    step: Step,
    *,
    before: Verdict,
    after: Verdict,
    complaints: Sequence[str],
    duration_s: float,
) -> StepResult:
    """A step after the change: `complaints` is what the node said to the commands of its round."""
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
        seen = why.rstrip(".")
        detail = f"{node.name}: {step.name} did not settle: {seen}; mend that and run setup again"
    return StepResult(
        node=node.name,
        phase=phase.name,
        step=step.name,
        outcome=outcome,
        detail=detail,
        duration_s=duration_s,
    )


def proved(node: str, problems: Sequence[str], duration_s: float) -> list[StepResult]:
    """What the live proof found at one node."""
    if not problems:
        return [
            ok(node, "prove", "login", "the primary logs in and finds all as written", duration_s)
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


def _shown(node: Node, verdict: Verdict) -> tuple[Outcome, str]:
    match verdict:
        case Satisfied(because):
            return Outcome.OK, because
        case Blocked(reason, remedy):
            return Outcome.BLOCKED, f"{node.name}: {reason}; {remedy}"
        case Change(summary=summary):
            return Outcome.NOT_RUN, summary


def _told(finding: Finding) -> str:
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
