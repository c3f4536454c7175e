"""The program: finds and runs verbs, each imported only when it is called."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.executor import Executor
from invoke.parser.context import ParserContext
from invoke.program import Program

from ascendboot import __version__
from ascendboot.cli.common import INTERRUPTED, end_at_ctrl_c, end_at_ctrl_c_with, exit_with
from ascendboot.console.streams import lost_document, write_plainly
from ascendboot.errors import LaunchError, UsageError

_UNKNOWN: Final = re.compile(r"No idea what '(.+)' is!")
_NO_COMMANDS: Final = "it applies to commands that Invoke runs, and ascendboot runs none with it"
_REFUSED: Final = {
    "dry": "the verb would still run; to preview changes, put --plan after a verb that has it: "
    "setup --plan",
    "pty": f"{_NO_COMMANDS}; for --plan, put -p after a verb that has it: setup -p",
} | dict.fromkeys(
    ("command-timeout", "config", "echo", "hide", "prompt-for-sudo-password", "warn-only"),
    f"{_NO_COMMANDS}; leave it out",
)
"""Flags of Invoke without effect, before or after a verb."""
_NOT_BEHIND: Final = dict.fromkeys(
    ["complete", "list", "list-depth", "list-format", "print-completion-script", "version"],
    "the verb would still run; leave out the flag or the verb",
) | dict.fromkeys(
    ("collection", "debug", "search-root", "write-pyc"),
    "Invoke reads it only before the verb; move it there, or leave it out",
)
"""Flags of Invoke that work only without a verb, or before it."""
_WITH_WORDS: Final = ("train", "exec", "export.volcano", "export.sbatch")
_FORMATS: Final = ("flat", "nested", "json")


class CarefulExecutor(Executor):
    """Runs verbs; an error while their last message is printed does not change the exit code."""

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
        except KeyboardInterrupt as error:  # while a verb printed its result
            raise Exit(code=INTERRUPTED) from error
        finally:
            end_at_ctrl_c_with(code)
        return done


class CarefulProgram(Program):
    """Refuses flags of Invoke that a verb cannot honour."""

    def parse_core_args(self) -> None:
        """Parse Invoke's flags before the verb."""
        with _numbers():
            super().parse_core_args()

    def parse_tasks(self) -> None:
        """Parse the verbs with their flags.

        Raises:
            Exit: a flag, or an argument after `--`, would be ignored.
        """
        with _numbers(), self._remedies():
            super().parse_tasks()
        if not self.tasks:
            return
        behind = {name for name, arg in self.core_via_tasks.args.items() if arg.got_value}
        # Invoke has already applied it if it was also given before the verb.
        if logging.getLogger("invoke").isEnabledFor(logging.DEBUG):
            behind.discard("debug")
        given = {name for name, arg in self.args.items() if arg.got_value}
        useless = {"list-depth", "list-format"} & given if not self.args["list"].value else set()
        for name, why in (_REFUSED | _NOT_BEHIND).items():
            if name in behind | useless or (name in _REFUSED and name in given):
                _refuse(f"--{name}: not accepted: {why}", self.tasks)
        if self.core.remainder and not any(verb.name in _WITH_WORDS for verb in self.tasks):
            _refuse(
                f"-- {self.core.remainder}: not accepted: only {', '.join(_WITH_WORDS)} take "
                "words after --; leave out --",
                self.tasks,
            )

    @contextmanager
    def _remedies(self) -> Iterator[None]:
        """Add a remedy to Invoke's messages about unknown or missing words."""
        try:
            yield
        except ParseError as error:
            verb = error.context.name if error.context else None
            word = _UNKNOWN.fullmatch(str(error))
            known = error.context.flags if error.context and verb else self.collection.task_names
            near = get_close_matches(word[1], known, 1) if word else []
            if word and verb == "train" and self._lacks_dashes():
                sys.stderr.write(AFTER_DASHES)
                if not near:
                    raise
            remedy = f"{self.called_as} {verb} --help shows its flags"
            if near:
                remedy = f"did you mean {near[0]}?"
            elif not verb:
                remedy = f"{self.called_as} --list shows the verbs"
            raise ParseError(f"{str(error).rstrip('!')}; {remedy}", error.context) from error

    def _lacks_dashes(self) -> bool:
        """Whether the unknown word may be an argument of the script."""
        words = self.argv[1:]
        return words[0] == "train" and len(words) > len(_TRAIN_SCRIPT) and "--" not in words

    def parse_core(self, argv: list[str] | None) -> None:
        """Parse Invoke's flags; some of them, such as --help, are handled at once."""
        with _written():
            super().parse_core(argv)

    def parse_cleanup(self) -> None:
        """Handle flags without a verb, such as --list."""
        with _written():
            super().parse_cleanup()

    def list_tasks(self) -> None:
        """List the verbs.

        Raises:
            ParseError: there is no such format.
        """
        if self.list_format not in _FORMATS:
            raise ParseError(
                f'--list-format: "{self.list_format}" is not one of {", ".join(_FORMATS)}'
            )
        super().list_tasks()

    def print_columns(self, tuples: Iterable[tuple[str, str | None]]) -> None:
        """Print flags or verbs with their help, without refused flags."""
        refused = tuple(f"--{name}" for name in _REFUSED)
        super().print_columns([r for r in tuples if not r[0].partition("=")[0].endswith(refused)])


def _refuse(words: str, verbs: Sequence[ParserContext]) -> None:
    starts_jobs = any(verb.name == "train" for verb in verbs)
    wants_json = any("json" in verb.args and verb.args["json"].value for verb in verbs)
    code = (LaunchError if starts_jobs else UsageError).exit_code
    with _plain_errors():
        raise exit_with(words, code, json=wants_json)


@contextmanager
def _numbers() -> Iterator[None]:
    """Replace Invoke's traceback for a value that is not a number by a message."""
    try:
        yield
    except ValueError as error:
        raise ParseError(
            f"--list-depth, --command-timeout: not a whole number ({error}); leave the flag out"
        ) from error


@contextmanager
def _written() -> Iterator[None]:
    """Exit with another code than 0 if Invoke's output cannot be written."""
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
        if end.message:
            write_plainly(sys.stderr, end.message)
        raise Exit(code=end.code) from end


_VERBS = {"setup": "setup", "check": "setup"} | {
    name: name for name in ("train", "status", "logs", "stop", "reset", "doctor", "exec")
}
_VERBS |= {"report": "report_file", "jobs": "status"}
_VERBS |= dict.fromkeys(("quarantine", "release", "resize", "events"), "operate")
"""The module of each verb."""
_GROUPS = {name: (name, "collection") for name in ("export", "lab", "ranktable", "topology")}
_GROUPS["import"] = ("export", "imports")
_ONLY_TELL = {
    *("--list", "-l", "--help", "-h", "--version", "-V"),
    *("--complete", "--print-completion-script"),
}
_TRAIN_SCRIPT = ("train", "main.py")
AFTER_DASHES = "train: put arguments of the script after --: train main.py -- --steps 100\n"


def prepare(words: Sequence[str]) -> None:
    """Prepare the standard streams and Ctrl-C for the command line `words`.

    A call that only prints, such as --help, ends silently when its reader exits, like
    `ls | head -1`. A verb continues. Closed streams are opened on /dev/null, so that no other file
    takes their place; output to a closed standard output is an error.
    """
    end_at_ctrl_c()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            way = os.O_WRONLY if name == "stderr" else os.O_RDONLY
            setattr(sys, name, open(os.open(os.devnull, way), mode))  # noqa: PTH123, SIM115
    if not words or words[0].partition("=")[0] in _ONLY_TELL:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def namespace(words: Sequence[str] = ()) -> Collection:
    """Return all verbs, or only those in `words` if that command line begins with a verb.

    Importing all verbs takes longer than connecting to a node.
    """
    known = {*_VERBS, *_GROUPS}
    names = [word.partition(".")[0] for word in words]
    wanted = known & set(names) if names and names[0] in known else known
    collection = Collection()
    for name, module in _VERBS.items():
        if name in wanted:
            collection.add_task(getattr(import_module(f"ascendboot.cli.{module}"), name))
    for name, (module, group) in _GROUPS.items():
        if name in wanted:
            collection.add_collection(getattr(import_module(f"ascendboot.cli.{module}"), group))
    return collection


def with_help_first(argv: Sequence[str]) -> list[str]:
    """Rewrite `VERB … --help` as `--help VERB`.

    Otherwise Invoke would use `--help` as the value of the verb's first argument.
    """
    own = list(argv[1 : argv.index("--")] if "--" in argv else argv[1:])
    if not own or own[0].startswith("-") or not {"--help", "-h"} & set(own[1:]):
        return list(argv)
    return [argv[0], "--help", own[0]]


_WITH_VALUE: Final = ("--job", "--rank-table")


def rewritten(argv: Sequence[str]) -> list[str]:
    """Return the command line in the form that Invoke can parse.

    Invoke takes one argument without a flag: `doctor A B` becomes `doctor --path A --path B`.
    """
    words = with_help_first(argv)
    if words[1:2] != ["doctor"]:
        return words
    found = words[:2]
    for before, word in pairwise(words[1:]):
        is_path = before not in _WITH_VALUE and (not word.startswith("-") or before == "--path")
        found += ["--path", word] if is_path and before != "--path" else [word]
    return found


def main() -> None:
    """Run `ascendboot VERB …`, the same program as `invoke VERB …` in a checkout."""
    argv = rewritten(sys.argv)
    prepare(argv[1:])
    program = CarefulProgram(
        name="ascendboot",
        binary="ascendboot",
        namespace=namespace(sys.argv[1:]),
        version=__version__,
        executor_class=CarefulExecutor,
    )
    code: str | int | None = 0
    try:
        program.run(argv)
    except SystemExit as end:
        code = end.code
    # Every verb has closed what it opened. Python would first search all of its memory for unused
    # objects, and threads that still read from a node might print in the meantime.
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code or 0))
    sys.exit(code)
