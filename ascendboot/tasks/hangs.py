"""What `train` is told about hangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ascendboot.errors import UsageError
from ascendboot.tasks.common import duration

HANG_TIMEOUT_HELP: Final = (
    "A job hangs when no rank has put out anything or used its processor for so long (10m, 2h; 0:"
    " never). Default: 30m"
)
ON_HANG_HELP: Final = (
    "What is done about a job that hangs: tell (the default), or stop (exit code 124)"
)
_USUAL: Final = "30m"
_LEAST_S: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class HangWish:
    """What is to be done about a job that stands still."""

    timeout_s: float
    """0: nothing, whatever it does."""
    stops: bool
    """It is stopped then; otherwise it is only told."""


def wanted_hangs(timeout: str | None, on_hang: str, *, detach: bool) -> HangWish:
    """What the two flags stand for; `timeout` is None where it is not stated.

    Raises:
        UsageError: a flag has a value that it does not take, or promises what nobody would do.
    """
    timeout_s = duration("--hang-timeout", _USUAL if timeout is None else timeout)
    if 0 < timeout_s < _LEAST_S:
        raise UsageError(
            f'--hang-timeout: "{timeout}" is less than {_LEAST_S:g} s; every rank waits so long now'
            " and then"
        )
    if on_hang not in ("tell", "stop"):
        raise UsageError(f'--on-hang: "{on_hang}" is neither tell nor stop')
    if detach and (on_hang == "stop" or (timeout is not None and timeout_s)):
        stated = "--on-hang stop" if on_hang == "stop" else f"--hang-timeout {timeout}"
        raise UsageError(
            f"{stated}: nobody looks for hangs of a job that is started with --detach; leave one of"
            " the two away. status says when such a job seems to stand still"
        )
    return HangWish(timeout_s=timeout_s, stops=on_hang == "stop")
