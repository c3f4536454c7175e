"""Acceptance on real servers, read-only: pytest -m hardware tests/hardware --inventory FILE.

docs/how-to/first-contact.md says when to run it, and what to send us.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from invoke.exceptions import Exit
from invoke.tasks import Task

from ascendboot.cli.ranktable import write
from ascendboot.cli.setup import check
from ascendboot.cli.verbs import Call
from ascendboot.facts.query import Lack, Unanswered
from tests.hardware.conftest import Found
from tests.unit.ranktable.examples import call as call_verb

pytestmark = pytest.mark.hardware


def _unanswered(found: Found, *kinds: Lack) -> list[str]:
    """Why facts are missing, each reason with its nodes counted."""
    reasons = Counter(
        f"{fact}: {answer.message}"
        for answers in found.values()
        for fact, answer in answers.items()
        if isinstance(answer, Unanswered) and answer.kind in kinds
    )
    return [f"{number} of {len(found)} nodes: {reason}" for reason, number in reasons.items()]


def test_every_output_is_understood(found: Found) -> None:
    assert _unanswered(found, "not-understood") == []


def test_no_tool_is_busy_silent_or_fails(found: Found) -> None:
    assert _unanswered(found, "busy", "silent", "failed") == []


def test_the_npus_and_their_networks_are_read(found: Found) -> None:
    names = ("npus", "device_networks", "hccn_conf")
    missing = {
        node: why
        for node, answers in found.items()
        if (why := [f"{n}: {a.message}" for n in names if isinstance(a := answers[n], Unanswered)])
    }
    assert missing == {}


@pytest.mark.parametrize("verb", [check, write], ids=["check", "ranktable.write"])
def test_a_verb_that_reads_reports_no_error(
    verb: Task[Any], call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        call_verb(verb, inventory=call.inventory, json=True)
        code = 0
    except Exit as end:
        code = end.code
    document = json.loads(capsys.readouterr().out)
    errors = [
        r["detail"]
        for r in document.get("results", [])
        if r["outcome"] in ("blocked", "failed", "unreachable")
    ]
    assert code == 0, "\n".join(errors or [str(document.get("message"))])
