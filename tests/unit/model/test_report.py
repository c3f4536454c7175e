"""A report's exit code and its JSON."""

from __future__ import annotations

import pytest

from ascendboot.model.report import Outcome, Report, StepResult


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


def test_json_has_the_documented_keys() -> None:
    result = StepResult(
        node="lab-2",
        phase="sshd",
        step="sshd",
        outcome=Outcome.CHANGED,
        detail="started",
        duration_s=0.12345,
    )
    whole = Report(run_id="r1", cluster="lab", results=(result,))
    assert whole.to_json() == {
        "run_id": "r1",
        "cluster": "lab",
        "exit_code": 0,
        "results": [
            {
                "node": "lab-2",
                "phase": "sshd",
                "step": "sshd",
                "outcome": "changed",
                "detail": "started",
                "duration_s": 0.123,
            }
        ],
    }
