"""Waits for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(true: Callable[[], bool], *, seconds: float = 300.0) -> None:
    """Return as soon as the condition is true; fail after the time limit."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"the condition was not met within {seconds:g} s"
        time.sleep(0.05)
