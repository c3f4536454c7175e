"""What all verbs share: flags, errors, exit codes, Ctrl-C."""

from __future__ import annotations

import atexit
import os
import resource
import signal
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from invoke.exceptions import Exit

from ascendboot.console.screen import Screen
from ascendboot.errors import OutputError, UsageError
from ascendboot.inventory.load import load
from ascendboot.inventory.yaml import locate
from ascendboot.model.names import parse_span
from ascendboot.ranktable.rules import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from ascendboot.model.cluster import Cluster
    from ascendboot.ranktable.validate import Generation


def allow_open_files() -> None:
    """Let this process open as many files as it may: a job has one log per rank open here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the hard limit is none at all, the kernel may have one of its own.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


W = TypeVar("W", bound=str)

PRODUCT_HELP: Final = f"The product that is to read it: {', '.join(PRODUCTS)}; a5 is 950"
ANSWER_HELP: Final = "Print the answer as JSON on standard output"

GENERATIONS: dict[str, Generation] = {
    "1.0": "1.0",
    "1.2": "1.2",
    "2.0": "2.0",
    "group-list": "group list",
}
"""What --to calls a generation."""


def among(flag: str, word: str | None, known: Sequence[W]) -> W | None:
    """The value of a flag that takes one of some words.

    Raises:
        UsageError: it is another.
    """
    if word is None:
        return None
    for name in known:
        if word == name:
            return name
    raise UsageError(f'{flag}: "{word}" is none of {", ".join(known)}')


def end(screen: Screen, code: int, document: Mapping[str, object] | None) -> None:
    """End a verb that has said what it had to; `document` is None without --json.

    Raises:
        Exit: it does not end with 0: its own code comes first, then that of an answer lost.
    """
    if document is not None:
        try:
            screen.json(document)
        except OutputError as error:
            raise Exit(str(error), code=code or error.exit_code) from error
    if code := code or (OutputError.exit_code if screen.lost_answer else 0):
        raise Exit(code=code)


def exit_with(
    words: str,
    code: int,
    flags: Mapping[str, object],
    besides: Mapping[str, object] | None = None,
) -> Exit:
    """What ends a verb that was called with `flags` and could not do what was asked.

    With --json there is a document, too; `besides` is what else such a document of this verb has.
    """
    if flags.get("json"):
        with suppress(OutputError):  # standard error says the same
            Screen(json_mode=True).json({**(besides or {}), "exit_code": code, "message": words})
    return Exit(words, code=code)


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


def control_machine_problem(error: OSError) -> str:
    """Describe an error of the control machine: `FILE: could not …`."""
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


def chosen_inventory(inventory: str | None) -> Path:
    """The inventory file that a verb works with."""
    return locate(inventory, cwd=Path.cwd(), environ=os.environ)


def chosen_cluster(inventory: str | None, *, with_own_table: bool = True) -> tuple[Path, Cluster]:
    """The inventory file that a verb works with, and the cluster in it."""
    path = chosen_inventory(inventory)
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
