"""What the verbs share: errors to exit codes, values of flags, the cluster meant, Ctrl-C."""

from __future__ import annotations

import functools
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from invoke.exceptions import Exit

from ascendboot.errors import (
    AscendbootError,
    InterruptedRunError,
    OutputError,
    UsageError,
)
from ascendboot.inventory.find import locate
from ascendboot.inventory.load import load
from ascendboot.model.spans import parse_span
from ascendboot.tasks.ending import exit_with
from ascendboot.tasks.interrupts import ctrl_c_raised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from ascendboot.console import Screen
    from ascendboot.model.cluster import Cluster

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_S = 86400.0
_MOST_DIGITS = 18
"""More are a mistake, and of some thousands Python makes no number."""

INVENTORY_HELP = (
    "The inventory: a path, or a name under inventories/. Default: $ASCENDBOOT_INVENTORY, else the"
    " cluster that was set up last"
)
JSON_HELP = "Print the report as JSON on standard output, progress on standard error"
FORKS = "32"
"""As a word: an `int` here would have Invoke refuse other words with a traceback."""
FORKS_HELP = f"How many nodes to work on at the same time. Default: {FORKS}"


def reports_errors(verb: Callable[P, T]) -> Callable[P, T]:
    """Turn an error that we raise on purpose into its message and its exit code.

    With --json standard output has a document also then.
    """

    @functools.wraps(verb)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with ctrl_c_raised():
                return verb(*args, **kwargs)
        except OutputError as error:
            raise Exit(str(error), code=error.exit_code) from error
        except AscendbootError as error:
            raise exit_with(str(error), error.exit_code, kwargs) from error
        except OSError as error:
            raise exit_with(on_this_side(error), AscendbootError.exit_code, kwargs) from error
        except KeyboardInterrupt as error:
            raise exit_with("interrupted", InterruptedRunError.exit_code, kwargs) from error

    return wrapped


def on_this_side(error: OSError) -> str:
    """What the operator's own machine refused, as a message: `FILE: could not …`."""
    where = error.filename or "this machine"
    return (
        f"{where}: could not be used: {error.strerror or error}; make room or access, then repeat"
    )


def whole_number(flag: str, text: str, *, at_least: int) -> int:
    """The value of a flag.

    Raises:
        UsageError: it is no number, or too small.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_number or int(text) < at_least:
        shown = text if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}…"
        raise UsageError(f'{flag}: "{shown}" is not a whole number of at least {at_least}')
    return int(text)


def forks_of(forks: str) -> int:
    """On how many nodes to work at the same time, by the value of `--forks`.

    Raises:
        UsageError: it is no number, or none at all.
    """
    return whole_number("--forks", forks, at_least=1)


def seconds(flag: str, text: str) -> float:
    """The value of a flag that is a time in seconds.

    Raises:
        UsageError: it is no number, or less than nothing.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _LONGEST_S:
        raise UsageError(f'{flag}: "{text}" is not a number of seconds from 0 to {_LONGEST_S:g}')
    return value


def duration(flag: str, text: str) -> float:
    """The value of a flag that is a time such as `90s` or `10m`, in seconds.

    Raises:
        UsageError: it is none.
    """
    try:
        return parse_span(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def wanted_inventory(inventory: str | None) -> Path:
    """The inventory file that a verb works with."""
    return locate(inventory, cwd=Path.cwd(), environ=os.environ)


def wanted_cluster(inventory: str | None, *, with_own_table: bool = True) -> tuple[Path, Cluster]:
    """The inventory file that a verb works with, and the cluster in it."""
    path = wanted_inventory(inventory)
    return path, load(path, with_own_table=with_own_table)


@contextmanager
def on_interrupt(press: Callable[[], None], screen: Screen, *promises: str) -> Iterator[None]:
    """Call `press` at each Ctrl-C and say what follows from it; one more than promised ends us.

    `promises` says it in words: for the first Ctrl-C, for the second, and so on.
    """
    words = iter(promises)

    def handle(_signal: int, _frame: FrameType | None) -> None:
        promise = next(words, None)
        if promise is None:
            raise KeyboardInterrupt
        press()  # first: the screen may be one that takes nothing
        screen.error(f"interrupted: {promise}")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
