"""A report's exit code and its JSON."""

from __future__ import annotations

import pytest

from ascendboot.model.report import Finding, Outcome, Report, StepResult
from ascendboot.value import replace


def report(*outcomes: Outcome, interrupted: bool = False) -> Report:
    results = tuple(
        StepResult(node="lab-1", phase="ask", step="questions", outcome=o) for o in outcomes
    )
    return Report(run_id="r", cluster="lab", results=results, interrupted=interrupted)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        ([Outcome.OK, Outcome.CHANGED, Outcome.WOULD_CHANGE, Outcome.NOT_RUN], 0),
        ([Outcome.OK, Outcome.FAILED], 1),
        ([Outcome.BLOCKED], 1),
        ([Outcome.FAILED, Outcome.UNREACHABLE], 4),
    ],
)
def test_the_exit_code_is_that_of_the_worst_outcome(outcomes: list[Outcome], code: int) -> None:
    assert report(*outcomes).exit_code == code


def test_an_interrupted_run_says_so_whatever_else_happened() -> None:
    assert report(Outcome.FAILED, interrupted=True).exit_code == 130


NOTHING = "nothing was written on the nodes"
KEPT = "what was changed stays, and the next run goes on from there"


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([("sshd", Outcome.CHANGED)], ""),
        ([("judge", Outcome.BLOCKED)], f"blocked by the above; {NOTHING}"),
        (
            [("reach", Outcome.UNREACHABLE), ("judge", Outcome.BLOCKED)],
            f"a node is unreachable, blocked by the above; {NOTHING}",
        ),
        ([("sshd", Outcome.CHANGED), ("sshd", Outcome.FAILED)], f"a step failed; {KEPT}"),
        ([("sshd", Outcome.FAILED)], f"a step failed; {KEPT}"),
        ([("sshd", Outcome.CHANGED), ("prove", Outcome.FAILED)], ""),
        # `remove` of a node that is down, and of one that is up.
        ([("ask", Outcome.UNREACHABLE), ("sshd", Outcome.CHANGED), ("network", Outcome.OK)], ""),
        ([("ask", Outcome.UNREACHABLE), ("sshd", Outcome.CHANGED), ("reset", Outcome.OK)], ""),
    ],
)
def test_a_run_that_ended_early_states_whether_it_wrote(
    results: list[tuple[str, Outcome]], words: str
) -> None:
    made = tuple(StepResult("lab-1", phase, "x", outcome) for phase, outcome in results)
    ended = Report(run_id="r", cluster="lab", results=made)
    assert ended.stopped == words
    is_changed = any(phase == "sshd" for phase, _ in results)
    stopped = replace(ended, interrupted=True).stopped
    assert stopped == f"interrupted; {KEPT if is_changed else NOTHING}"


def test_json_has_the_documented_keys() -> None:
    result = StepResult("lab-2", "sshd", "sshd", Outcome.CHANGED, "started", duration_s=0.12345)
    whole = Report(run_id="r1", cluster="lab", results=(result,))
    shown = {"node": "lab-2", "phase": "sshd", "step": "sshd", "outcome": "changed"}
    detail = {"detail": "started", "duration_s": 0.123}
    head = {"run_id": "r1", "cluster": "lab", "exit_code": 0}
    assert whole.to_json() == {**head, "results": [{**shown, **detail}]}


def test_a_finding_on_several_nodes_counts_once_whatever_their_names() -> None:
    cause = Finding("x", "warning", ("alpha", "gamma"), "is odd")
    assert cause.message.startswith("alpha,gamma: ")
    results = [
        StepResult(node, "compare", "x", Outcome.OK, f"warning: {cause.message}", cause=cause)
        for node in cause.nodes
    ]
    own = [StepResult(n, "sshd", "x", Outcome.OK, f"{n}: odd", cause=cause) for n in cause.nodes]
    whole = replace(report(), results=(*results, *own))
    assert whole.findings("warning") == 2
