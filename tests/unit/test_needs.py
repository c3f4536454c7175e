"""A missing program skips a test for a developer, and fails it in CI."""

from __future__ import annotations

import pytest

from tests.needs import missing


@pytest.mark.parametrize(
    ("ci", "ends"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_what_is_missing_skips_and_in_ci_fails(
    monkeypatch: pytest.MonkeyPatch, ci: str, ends: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(ends, match=r"^there is no torch"):
        missing("there is no torch")
