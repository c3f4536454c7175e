"""Which checks can be skipped, and that every page and flag knows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ascendboot.errors import UsageError
from ascendboot.readiness.checks import CHECKS, SKIPPABLE, skipped_checks

ALL = "setup, code, data, packages, devices, device-ips, links, tls, ports, disk"


def test_alone_the_flag_skips_all_that_can_be_skipped() -> None:
    assert ", ".join(SKIPPABLE) == ALL
    assert skipped_checks(True) == skipped_checks("all") == SKIPPABLE  # noqa: FBT003
    assert skipped_checks(None) == skipped_checks("") == ()
    assert skipped_checks("ports, code") == ("code", "ports")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("prots,code", 'there is no check "prots"'),
        ("jobs", '"jobs" cannot be skipped: two jobs would spoil each other'),
        (
            "x,rank-table",
            (
                '"rank-table" cannot be skipped: ranks would take the wrong places; there is no '
                'check "x"'
            ),
        ),
    ],
)
def test_what_cannot_be_skipped_is_refused_with_the_list(words: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        skipped_checks(words)
    assert str(refused.value) == f"--skip-checks: {problem}. What can be skipped: {ALL}"


def test_every_check_has_its_row_in_the_reference() -> None:
    page = Path(__file__).parents[3] / "docs/reference/checks.md"
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| (yes|no)[ :|]", page.read_text(), re.MULTILINE)
    assert rows == [(check, "no" if always else "yes") for check, always in CHECKS.items()]
