"""What tests need of the machine: without it a developer's machine skips them, and CI fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

LONG = pytest.mark.skipif(
    os.environ.get("ASCENDBOOT_LONG_TESTS") != "1",
    reason="the same in another way, for which CI has no time; ASCENDBOOT_LONG_TESTS=1 asks for it",
)
"""What takes long and is shown in one way by a test that always runs."""


def missing(what: str) -> NoReturn:
    """Skip a test; with CI=true it fails, for what is skipped there is shown by nobody."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}; with CI=true this is no reason to skip", pytrace=False)
    pytest.skip(what)


def with_torch(config: pytest.Config) -> Path:
    """The interpreter that has PyTorch, beside which Horovod lies."""
    found = config.rootpath / ".venv-horovod/bin/python"
    if not found.with_name("horovodrun").exists():
        missing("there is no .venv-horovod here; scripts/horovod torch builds it")
    return found
