"""What tests need from the machine: where it is missing, tests are skipped, and in CI they fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

LONG = pytest.mark.skipif(
    os.environ.get("ASCENDBOOT_LONG_TESTS") != "1",
    reason="a variant for which CI has no time; set ASCENDBOOT_LONG_TESTS=1 to run it",
)
"""Marks slow variants of a test that always runs."""


def missing(what: str) -> NoReturn:
    """Skip a test; with CI=true, fail it, because no other run would show the same."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}; with CI=true this is no reason to skip", pytrace=False)
    pytest.skip(what)


def with_torch(config: pytest.Config) -> Path:
    """The interpreter that has PyTorch, beside which Horovod lies."""
    found = config.rootpath / ".venv-horovod/bin/python"
    if not found.with_name("horovodrun").exists():
        missing("there is no .venv-horovod here; scripts/horovod torch builds it")
    return found
