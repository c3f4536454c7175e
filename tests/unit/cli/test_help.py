"""`--help` of every verb on a terminal of 80 columns."""

from __future__ import annotations

import inspect

import pytest

from ascendboot.cli.program import namespace

VERBS = namespace()


@pytest.mark.parametrize("name", sorted(VERBS.task_names))
def test_help_fits_has_an_example_and_names_exit_codes(name: str) -> None:
    text = inspect.getdoc(VERBS[name]) or ""
    assert [line for line in text.splitlines() if len(line) > 78] == []
    assert f"\nExamples:\n  invoke {name}" in text
    assert "\nExit codes: " in text
