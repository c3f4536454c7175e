"""All verbs in one program; each is imported when it is called."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.executor import Executor
from invoke.parser import Parser
from invoke.program import Program

from ascendboot import __version__
from ascendboot.cli.common import INTERRUPTED, end_at_ctrl_c, end_at_ctrl_c_with, exit_with
from ascendboot.console.streams import lost_document, write_plainly
from ascendboot.errors import LaunchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from invoke.parser.context import ParserContext

_UNKNOWN: Final = re.compile(r"No idea what '(.+)' is!")
_NO_COMMANDS: Final = "it is for commands that Invoke runs, and here it runs none"
_REFUSED: Final = {
    "dry": "the verb would be run all the same; what it would change is shown by --plan behind a "
    "verb that has it: setup --plan",
    "pty": f"{_NO_COMMANDS}; if -p was to be --plan, it comes behind a verb that has it: setup -p",
} | dict.fromkeys(
    ("command-timeout", "config", "echo", "hide", "prompt-for-sudo-password", "warn-only"),
    f"{_NO_COMMANDS}; leave it out",
)
"""Without effect wherever they stand."""
_INSTEAD_OF_A_VERB: Final = dict.fromkeys(
    (
        *("complete", "list", "list-depth", "list-format"),
        *("print-completion-script", "version"),
    ),
    "the verb would be run all the same; leave out the flag or the verb",
)
_ONLY_BEFORE: Final = dict.fromkeys(
    ("collection", "debug", "search-root", "write-pyc"),
    "Invoke reads it only before the verb; put it there, or leave it out",
)
_FORMATS: Final = ("flat", "nested", "json")


class CarefulExecutor(Executor):
    """Runs verbs whose last words reach the reader, or are lost without changing the exit code."""

    def execute(self, *tasks: Any) -> Any:  # noqa: ANN401 - Invoke's
        """Run them.

        Raises:
            Exit: a verb ended with another code than 0.
        """
        code = 1
        try:
            with _plain_errors():
                done = super().execute(*tasks)
            code = 0
        except Exit as end:
            code = end.code
            raise
        except KeyboardInterrupt as error:  # while a verb said how it ended
            raise Exit(code=INTERRUPTED) from error
        finally:
            end_at_ctrl_c_with(code)
        return done


class CarefulProgram(Program):
    """A program that runs no verb beside a flag of Invoke that the verb cannot honour."""

    def parse_core_args(self) -> None:
        """Read Invoke's flags before the verb."""
        with _numbers():
            super().parse_core_args()

    def parse_tasks(self) -> None:
        """Read the verbs with their flags.

        Raises:
            Exit: a flag, or an argument behind `--`, would be ignored.
        """
        with _numbers(), self._remedies():
            super().parse_tasks()
        if not self.tasks:
            return
        behind = {name for name, arg in self.core_via_tasks.args.items() if arg.got_value}
        # What Invoke has obeyed by now, because the flag stood before the verb as well.
        if logging.getLogger("invoke").isEnabledFor(logging.DEBUG):
            behind.discard("debug")
        given = {name for name, arg in self.args.items() if arg.got_value}
        useless = {"list-depth", "list-format"} & given if not self.args["list"].value else set()
        for name, why in (_REFUSED | _INSTEAD_OF_A_VERB | _ONLY_BEFORE).items():
            if name in behind | useless or (name in _REFUSED and name in given):
                _refuse(f"--{name}: could not be taken: {why}", self.tasks)
        if self.core.remainder and not any(verb.name == "train" for verb in self.tasks):
            _refuse(
                f"-- {self.core.remainder}: could not be taken: only train has a script that gets "
                "these words; leave -- out",
                self.tasks,
            )

    @contextmanager
    def _remedies(self) -> Iterator[None]:
        """Invoke says what it does not know, or misses, and not what to do."""
        try:
            yield
        except ParseError as error:
            verb = error.context.name if error.context else None
            word = _UNKNOWN.fullmatch(str(error))
            known = error.context.flags if error.context and verb else self.collection.task_names
            near = get_close_matches(word[1], known, 1) if word else []
            remedy = f"{self.called_as} {verb} --help shows what it takes"
            if near:
                remedy = f"did you mean {near[0]}?"
            elif word and verb == "train":  # that its script's words stand elsewhere is said
                raise
            elif not verb:
                remedy = f"{self.called_as} --list shows the verbs"
            raise ParseError(f"{str(error).rstrip('!')}; {remedy}", error.context) from error

    def parse_core(self, argv: list[str] | None) -> None:
        """Read Invoke's flags; some of them are answered at once."""
        with _written():
            super().parse_core(argv)

    def parse_cleanup(self) -> None:
        """Answer what is not for a verb."""
        with _written():
            super().parse_cleanup()

    def list_tasks(self) -> None:
        """Show the verbs.

        Raises:
            ParseError: there is no such form.
        """
        if self.list_format not in _FORMATS:
            raise ParseError(
                f'--list-format: "{self.list_format}" is not one of {", ".join(_FORMATS)}'
            )
        super().list_tasks()

    def print_columns(self, tuples: Iterable[tuple[str, str | None]]) -> None:
        """Print flags, or verbs, beside their help."""
        super().print_columns([(flag, words) for flag, words in tuples if not _is_refused(flag)])


def _refuse(words: str, verbs: Sequence[ParserContext]) -> None:
    starts_jobs = any(verb.name == "train" for verb in verbs)
    wants_json = any("json" in verb.args and verb.args["json"].value for verb in verbs)
    code = (LaunchError if starts_jobs else UsageError).exit_code
    with _plain_errors():
        raise exit_with(words, code, {"json": wants_json})


@contextmanager
def _numbers() -> Iterator[None]:
    """Invoke turns some values into numbers, and has no words for one that is none."""
    try:
        yield
    except ValueError as error:
        raise ParseError(
            f"--list-depth, --command-timeout: not a whole number ({error}); leave the flag out"
        ) from error


@contextmanager
def _written() -> Iterator[None]:
    """What Invoke prints is an answer, too: without it the exit code is not 0."""
    code = 0
    with _plain_errors():
        try:
            try:
                yield
            except Exit as end:
                code = end.code
                raise
            finally:
                sys.stdout.flush()
        except OSError as error:
            lost = lost_document(sys.stdout, error)
            raise Exit(str(lost), code=code or lost.exit_code) from error


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except Exit as end:
        _say(end.message)
        raise Exit(code=end.code) from end


def _say(words: str | None) -> None:
    """On standard error; where Invoke could not, it would end with another code than the verb's."""
    if words:
        write_plainly(sys.stderr, words)


def _is_refused(flag: str) -> bool:
    return flag.partition("=")[0].rpartition("--")[2] in _REFUSED and "--" in flag


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
    collection = Collection()
    for name in _VERBS:
        if name in wanted:
            collection.add_task(getattr(import_module(f"ascendboot.cli.{name}"), name))
    for name in _GROUPS:
        if name in wanted:
            collection.add_collection(import_module(f"ascendboot.cli.{name}").collection)
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
