"""All verbs in one collection, and the console script that runs them."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from ascendboot import __version__
from ascendboot.tasks.interrupts import end_at_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from invoke.collection import Collection
    from invoke.program import Program

_VERBS = ("setup", "check", "train", "status", "logs", "stop", "reset")
_GROUPS = ("lab", "ranktable")
_ONLY_TELL = {
    *("--list", "-l", "--help", "-h", "--version", "-V"),
    *("--complete", "--print-completion-script"),
}
_TRAIN_SCRIPT = ("train", "main.py")
_UNKNOWN_WORD = "No idea what "
AFTER_DASHES = "train: arguments of the script come after --: train main.py -- --steps 100\n"


def prepare(words: Sequence[str]) -> None:
    """Make the streams of this process, and Ctrl-C, fit for `words`, its command line.

    What only tells something ends with its reader, in silence, as `ls | head -1` does. A verb goes
    on without one, and without a stream that was closed: else the next file would take its place.
    An answer that is written to a closed standard output is lost, and that is an error.
    """
    end_at_ctrl_c()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            way = os.O_WRONLY if name == "stderr" else os.O_RDONLY
            setattr(sys, name, open(os.open(os.devnull, way), mode))  # noqa: PTH123, SIM115
    if not words or words[0].partition("=")[0] in _ONLY_TELL:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def namespace(words: Sequence[str] = ()) -> Collection:
    """Every verb under the name by which the operator calls it.

    Where `words`, a command line, begins with a verb, only those verbs that it names: to import
    the others takes longer than to reach a node.
    """
    wanted = _named(words)
    with _here_to_stay():
        from invoke.collection import Collection  # noqa: PLC0415

        collection = Collection()
        for name in _VERBS:
            if name in wanted:
                collection.add_task(getattr(import_module(f"ascendboot.tasks.{name}"), name))
        for name in _GROUPS:
            if name in wanted:
                collection.add_collection(import_module(f"ascendboot.tasks.{name}").collection)
    return collection


def with_help_first(argv: Sequence[str]) -> list[str]:
    """`VERB … --help` as `--help VERB`, which Invoke understands for every verb.

    As it stands it would take `--help` for the value of a verb's first argument.
    """
    ours = list(argv[1 : argv.index("--")] if "--" in argv else argv[1:])
    if not ours or ours[0].startswith("-") or not {"--help", "-h"} & set(ours[1:]):
        return list(argv)
    return [argv[0], "--help", ours[0]]


def say_where_dashes_lack(words: Sequence[str], program: Program, verbs: Collection) -> None:
    """Say that a script's arguments come after `--`, where Invoke is about to refuse one.

    Its own words, which follow, do not say what to do.
    """
    if words[:1] != ["train"] or "--" in words or len(words) <= len(_TRAIN_SCRIPT):
        return
    from invoke.exceptions import ParseError  # noqa: PLC0415 - see `_here_to_stay`
    from invoke.parser import Parser  # noqa: PLC0415

    contexts = verbs.to_contexts(ignore_unknown_help=True)
    try:
        Parser(initial=program.initial_context, contexts=contexts).parse_argv(list(words))
    except ParseError as error:
        if str(error).startswith(_UNKNOWN_WORD):
            sys.stderr.write(AFTER_DASHES)


def main() -> None:
    """Run `ascendboot VERB …`; the same program as `invoke VERB …` in a checkout."""
    argv = with_help_first(sys.argv)
    prepare(argv[1:])
    with _here_to_stay():
        from ascendboot.tasks.core_flags import CarefulExecutor, CarefulProgram  # noqa: PLC0415

        verbs = namespace(sys.argv[1:])
        program = CarefulProgram(
            name="ascendboot",
            binary="ascendboot",
            namespace=verbs,
            version=__version__,
            executor_class=CarefulExecutor,
        )
    say_where_dashes_lack(argv[1:], program, verbs)
    program.run(argv)


def _named(words: Sequence[str]) -> set[str]:
    known = {*_VERBS, *_GROUPS}
    names = [word.partition(".")[0] for word in words]
    return known & set(names) if names and names[0] in known else known


@contextmanager
def _here_to_stay() -> Iterator[None]:
    """Python does not look for garbage in what is made meanwhile, not at its own end either.

    In a hundred thousand objects of imported modules there is none: 0.1 s of every call. That is
    why modules are imported in here that would else be at the top of this file.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
