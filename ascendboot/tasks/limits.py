"""The limits of this process on the operator's side."""

from __future__ import annotations

import resource
from contextlib import suppress


def allow_open_files() -> None:
    """Let this process open as many files as it may: a job has one log per rank open here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the hard limit is none at all, the kernel may have one of its own.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
