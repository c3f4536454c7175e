"""Ctrl-C before, during and after a verb: whenever it comes, the exit code is one that we chose."""

from __future__ import annotations

import atexit
import os
import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

INTERRUPTED = 130


def end_at_ctrl_c() -> None:
    """From now on Ctrl-C ends this process at once, where no verb is at work that tidies up.

    Python's own way would be a traceback, another exit code, or the end by the signal itself.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # it is ignored, as of a job in a shell's background
    signal.signal(signal.SIGINT, partial(_end, INTERRUPTED))
    # Python gives up its handlers as it ends, and would end by the signal.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def end_at_ctrl_c_with(code: int) -> None:
    """As `end_at_ctrl_c`, once the verb has ended with `code`: what is left to do can be left."""
    if _is_ours():
        signal.signal(signal.SIGINT, partial(_end, code))


@contextmanager
def ctrl_c_raised() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt in here; enter it where one is caught."""
    if not _is_ours():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_ours() -> bool:
    return getattr(signal.getsignal(signal.SIGINT), "func", None) is _end


def _end(code: int, _signal: int, _frame: FrameType | None) -> None:
    if code == INTERRUPTED:
        os.write(2, b"interrupted\n")
    os._exit(code)
