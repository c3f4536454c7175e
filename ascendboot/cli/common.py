"""Parses flag values, ends verbs with exit codes, and handles Ctrl-C."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar
from urllib.parse import urlsplit

from invoke.exceptions import Exit

from ascendboot.console.screen import Screen
from ascendboot.errors import InterruptedRunError, OutputError, UsageError
from ascendboot.model.names import parse_span
from ascendboot.model.report import KEPT, NOTHING_WRITTEN
from ascendboot.value import Value

W = TypeVar("W", bound=str)


def among(flag: str, word: str | None, known: Sequence[W]) -> W | None:
    """Return the value of a flag with a fixed set of values; UsageError if it is another."""
    found = next((name for name in known if name == word), None)
    if found is None and word is not None:
        raise UsageError(f'{flag}: "{word}" is not one of {", ".join(known)}')
    return found


def exit_with(
    words: str, code: int, besides: Mapping[str, object] | None = None, *, json: bool
) -> Exit:
    """Return the exception that ends a failed verb; with `json` print a document as well.

    `besides` holds further keys of that document.
    """
    if json:
        with suppress(OutputError):  # standard error says the same
            Screen(json_mode=True).json({**(besides or {}), "exit_code": code, "message": words})
    return Exit(words, code=code)


INTERRUPTED = 130


def end_at_ctrl_c() -> None:
    """Make Ctrl-C end this process at once, outside of verbs that clean up.

    By default Python prints a traceback, exits with another code, or ends by the signal.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return  # it is ignored, as for a background job of a shell
    words = b"Stopped: interrupted; nothing was written.\n"
    signal.signal(signal.SIGINT, partial(_end, INTERRUPTED, words))
    # Python removes its handlers at exit and would then end by the signal.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def end_at_ctrl_c_with(code: int) -> None:
    """Make Ctrl-C exit with `code`, after the verb has ended with it."""
    if _is_ours():
        signal.signal(signal.SIGINT, partial(_end, code, b""))


@contextmanager
def ctrl_c_raised() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt inside the block, for callers that catch it."""
    if not _is_ours():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ctrl_c_says(words: str) -> Iterator[None]:
    """Say at a Ctrl-C that ends the block what holds then."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedRunError(f"Stopped: {words}.") from error


before_start = partial(ctrl_c_says, "interrupted before the job was started; nothing was written")


UNCHANGED = f"Stopped: interrupted; {NOTHING_WRITTEN}."
"""After Ctrl-C, of verbs that change nodes and have not begun to."""


def ctrl_c_keeps(*, planning: bool) -> AbstractContextManager[None]:
    """Say at a Ctrl-C that ends setup, reset or a plan of them what holds then."""
    return ctrl_c_says(f"interrupted; {NOTHING_WRITTEN if planning else KEPT}")


def _is_ours() -> bool:
    return getattr(signal.getsignal(signal.SIGINT), "func", None) is _end


def _end(code: int, words: bytes, _signal: int, _frame: FrameType | None) -> None:
    os.write(2, words)
    os._exit(code)


_LONGEST_S = 86400.0
_MOST_DIGITS = 18
"""Python refuses to convert numbers with thousands of digits."""


def whole_number(flag: str, text: str, *, at_least: int | None) -> int:
    """Return the value of a flag as a whole number; UsageError if it is none, or too small."""
    is_number = re.fullmatch(rf"[+-]?[0-9]{{1,{_MOST_DIGITS}}}", text) is not None
    if not is_number or (at_least is not None and int(text) < at_least):
        shown = text if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}…"
        least = "" if at_least is None else f" of at least {at_least}"
        raise UsageError(f'{flag}: "{shown}" is not a whole number{least}')
    return int(text)


def seconds(flag: str, text: str) -> float:
    """Return the value of a flag in seconds; UsageError if it is not a number, or negative."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _LONGEST_S:
        raise UsageError(f'{flag}: "{text}" is not a number of seconds from 0 to {_LONGEST_S:g}')
    return value


def duration(flag: str, text: str) -> float:
    """Return the value of a flag such as `90s` or `10m`, in seconds; UsageError if it is none."""
    try:
        return parse_span(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


class Outputs(Value):
    """Where events and figures of a supervised job go; empty: nowhere."""

    on_event: str = ""
    metrics: str = ""

    def check(self) -> None:
        """Check both before anything is started; UsageError if one of them cannot be used."""
        path = Path(self.metrics)
        if self.metrics and path.suffix != ".prom":
            raise UsageError(f"--metrics: {path}: node_exporter reads only files *.prom; rename it")
        if self.metrics and not path.parent.is_dir():
            raise UsageError(f"--metrics: {path.parent}: is no folder; create it")
        if self.on_event:
            event_target(self.on_event)


def event_target(text: str) -> str | list[str]:
    """Return the URL of --on-event, or the words of its command; UsageError if it is neither."""
    if "://" in text.split(" ", 1)[0]:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError(
                "--on-event: a URL begins with http:// or https:// and a host, without a user; "
                "for anything else state a command"
            )
        return text
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--on-event: is not a command line: {error}; check its quotes") from error
    if not argv:
        raise UsageError("--on-event: is empty; state a command or a URL")
    return argv


@contextmanager
def on_interrupt(press: Callable[[], None], screen: Screen, *promises: str) -> Iterator[None]:
    """Call `press` at each Ctrl-C and print the next of `promises`; one more Ctrl-C aborts.

    At a question the first one aborts.
    """
    words = iter(promises)

    def handle(_signal: int, _frame: FrameType | None) -> None:
        promise = None if screen.end_question else next(words, None)
        if promise is None:
            raise KeyboardInterrupt
        press()  # first, because the screen may block
        screen.rest()
        screen.error(f"interrupted: {promise}")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def stopped_in_steps(press: Callable[[], None], screen: Screen, what: str) -> Iterator[None]:
    """While a job or preflight runs: stop it at Ctrl-C, then kill it, then leave it as it is."""
    stop = f"stopping the {what} on all nodes; press Ctrl-C again to kill it"
    kill = f"killing the {what} on all nodes; press Ctrl-C again to leave it as it is"
    left = f"the {what} is left as it is; status shows it, stop ends it"
    with ctrl_c_says(left), on_interrupt(press, screen, stop, kill):
        yield
