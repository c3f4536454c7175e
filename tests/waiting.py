"""Waiting for what nobody announces."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(true: Callable[[], bool], *, seconds: float = 300.0) -> None:
    """Return as soon as it is true; an error where it is not in time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it did not come about within {seconds:g} s"
        time.sleep(0.05)
