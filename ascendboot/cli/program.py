"""The program: finds and runs verbs, each imported only when it is called."""

from __future__ import annotations

import inspect
import logging
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from itertools import groupby
from typing import Any, Final

from invoke.collection import Collection
from invoke.config import Config
from invoke.exceptions import Exit, ParseError
from invoke.executor import Executor
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext, to_flag
from invoke.parser.parser import Parser, ParseResult
from invoke.program import Program
from invoke.util import helpline

from ascendboot import __version__
from ascendboot.cli.common import INTERRUPTED, end_at_ctrl_c, end_at_ctrl_c_with, exit_with
from ascendboot.cli.completion import PLACES, VERBS
from ascendboot.cli.verbs import own_help
from ascendboot.console.screen import Screen
from ascendboot.console.streams import lost_document, wrapped
from ascendboot.errors import UsageError
from ascendboot.templates import installed_templates

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
_WITH_WORDS: Final = {
    "train": ("[-- ARGS]", "train main.py -- --steps 100"),
    "exec": ("-- COMMAND", "exec -- npu-smi info"),
    "export.volcano": ("[-- ARGS]", "export.volcano main.py --image I -- --steps 100"),
    "export.sbatch": ("[-- ARGS]", "export.sbatch main.py -- --steps 100"),
}
"""Verbs that accept words after --: how their usage shows them, and an example."""
_SHELLS: Final = ("bash", "zsh", "fish")
_FORMATS: Final = ("flat", "nested", "json")
_VALUES: Final = {
    **dict.fromkeys(("count", "elastic", "forks", "max-restarts", "max-retry", "min-nodes"), "N"),
    **dict.fromkeys(("milliseconds", "seconds", "tail", "times"), "N"),
    **dict.fromkeys(("hang-timeout", "interval", "since", "stable-for", "timeout"), "TIME"),
    **dict.fromkeys(("from", "identity", "inventory", "metrics", "output"), "FILE"),
    **dict.fromkeys(("rank-table", "table"), "FILE"),
    "env": "NAME=VALUE",
    "floor": "GBPS",
    "grace": "SECONDS",
    "grep": "PATTERN",
    "hccn-conf": "HOST=FILE",
    "level": "quick|full",
    "network": "A,B",
    "on-event": "TARGET",
    "on-hang": "tell|stop",
    "resume": "JOB",
    "skip-checks": "ID,...",
    "to": "GENERATION",
}
"""How help shows the value of a flag; by default as the name of the flag."""
_WITHOUT_VERB: Final = (
    ("-h, --help [VERB]", "Show this text, or usage, flags and examples of a verb"),
    ("-l, --list [GROUP]", "List the verbs, or those of a group, such as lab"),
    ("-V, --version", "Show the version"),
    ("--print-completion-script SHELL", "Print what completes words in bash, zsh or fish"),
)


class CarefulExecutor(Executor):
    """Runs verbs; an error while their last message is printed does not change the exit code."""

    def execute(self, *tasks: Any) -> Any:  # noqa: ANN401 - Invoke's
        """Run them; Exit if a verb ended with another code than 0."""
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
        with _plain_errors(), self._wrong_use():
            super().parse_core_args()
            if shell := self.args["print-completion-script"].value:
                if shell not in _SHELLS:
                    flag = f'--print-completion-script: "{shell}"'
                    raise ParseError(f"{flag} is not one of {', '.join(_SHELLS)}")
                folder = installed_templates() / "completion"
                sys.stdout.write((folder / shell).read_text(encoding="utf-8"))
                raise Exit

    def parse_tasks(self) -> None:
        """Parse the verb with its flags; Exit if one is not understood, or would be ignored."""
        with _plain_errors(), self._wrong_use():
            self._help_first(self.core.unparsed)
            super().parse_tasks()
        if len(self.tasks) > 1:
            one, two, *_ = (str(verb.name) for verb in self.tasks)
            words = f"{one}, {two}: two verbs in one line; call them one after the other"
            _refuse(f"{words}: {self._own_name} {one} && {self._own_name} {two}", ())
        given = {name for name, arg in self.args.items() if arg.got_value}
        useless = {"list-depth", "list-format"} & given if not self.args["list"].value else set()
        if not self.tasks:
            if self.core.remainder:
                _refuse(f"-- {self.core.remainder}: no verb; put it first, without --", ())
            for name in sorted(useless):
                _refuse(
                    f"--{name}: not accepted: it is for --list; add --list, or leave it out", ()
                )
            return
        behind = {name for name, arg in self.core_via_tasks.args.items() if arg.got_value}
        # Invoke has already applied it if it was also given before the verb.
        if logging.getLogger("invoke").isEnabledFor(logging.DEBUG):
            behind.discard("debug")
        for name, why in (_REFUSED | _NOT_BEHIND).items():
            if name in behind | useless or (name in _REFUSED and name in given):
                _refuse(f"--{name}: not accepted: {why}", self.tasks)
        if self.core.remainder and self.tasks[0].name not in _WITH_WORDS:
            _refuse(
                f"-- {self.core.remainder}: not accepted: only {', '.join(_WITH_WORDS)} take "
                "words after --; leave out --",
                self.tasks,
            )

    def _make_parser(self) -> Parser:
        bare = {n: getattr(self.collection[n], "bare", None) for n in self.collection.task_names}
        return _Parser(bare, initial=self.initial_context, contexts=self.collection.to_contexts())

    def _help_first(self, words: list[str]) -> None:
        """Read `help VERB` and `VERB … --help` as `--help VERB`.

        Otherwise Invoke would use `--help` as the value of the verb's first argument.
        """
        if words[:1] == ["help"]:
            if extra := [word for word in words[2:] if word not in ("--help", "-h")]:
                raise ParseError(f"help: {extra[0]}: one word too many")
            verb: str | bool = words[1] if len(words) > 1 else True
        elif words and not words[0].startswith("-") and {"--help", "-h"} & set(words[1:]):
            verb = words[0]
        else:
            return
        self.args["help"].set_value(verb, cast=False)
        words.clear()

    @contextmanager
    def _wrong_use(self) -> Iterator[None]:
        """Say in plain words what Invoke did not understand, and exit with 2."""
        try:
            yield
        except ParseError as error:
            raise Exit(self._explained(error), code=UsageError.exit_code) from error
        except ValueError as error:
            value = str(error).rpartition(": ")[2]
            words = f"--list-depth, --command-timeout: not a whole number: {value}"
            raise Exit(f"{words}; leave the flag out", code=UsageError.exit_code) from error
        except Exit as end:
            if end.message and end.code == 1:
                raise Exit(end.message, code=UsageError.exit_code) from end
            raise

    def _explained(self, error: ParseError) -> str:
        """Return the message for an error of Invoke's parser, with a remedy."""
        context, words = error.context, str(error).rstrip("!")
        verb = context.name if context else None
        remedy = f"{self._own_name} help {f'{verb} shows its flags' if verb else 'shows all verbs'}"
        if context and "did not receive" in words:
            words = " and ".join(f"no {each.name}" for each in context.missing_positional_args)
            remedy = f"usage: {self._usage(str(verb))}"
        elif unclear := re.match(r"'(.*)' is ambiguous when", words):
            words = f"{unclear[1]}: may be an argument, or the value of the flag before it"
            remedy = "put it before that flag, or write FLAG=VALUE"
        elif needing := re.match(r"Flag <Argument: ([\w-]+).* needed value", words):
            words = f"{to_flag(needing[1])}: has no value"
        elif unknown := re.fullmatch(r"No idea what ['\"](.*)['\"] is", words):
            no_such = "no such flag" if unknown[1].startswith("-") else "no such verb"
            is_flag = verb or no_such == "no such flag"
            names = context.flags if context and is_flag else self.collection.task_names
            known = [each for each in names if each not in map(to_flag, _REFUSED)]
            helps = get_close_matches(unknown[1], ["--help"], cutoff=0.8)
            near = helps or get_close_matches(unknown[1], known, 1)
            bare = verb and no_such == "no such verb"
            words = f"{unknown[1]}: {'one word too many' if bare else no_such}"
            remedy = f"did you mean {near[0]}?" if near else remedy
            if unknown[1] in self.collection.collections:
                remedy = f"{self._own_name} help {unknown[1]} shows its verbs"
            elif not verb and no_such == "no such flag":
                remedy = f"put the verb first: {self._own_name} VERB {unknown[1]}; {remedy}"
            if verb in _WITH_WORDS and "--" not in self.argv:
                dashes = f"put words of a script or command after --: {_WITH_WORDS[verb][1]}"
                remedy = f"{remedy} Or {dashes}" if near else dashes
        return f"{verb}: {words}; {remedy}" if verb else f"{words}; {remedy}"

    def parse_core(self, argv: list[str] | None) -> None:
        """Parse Invoke's flags; some of them, such as --version, are handled at once."""
        with _written(), self._wrong_use():
            super().parse_core(argv)

    def parse_cleanup(self) -> None:
        """Handle flags without a verb, such as --list."""
        wanted = self.args["help"]
        with _written(), self._wrong_use():
            if wanted.value == "help":
                wanted.set_value(True, cast=False)
            if wanted.value in self.collection.collections:
                self.args["list"].set_value(wanted.value)
                wanted.set_value(None, cast=False)
            group = self.args["list"].value
            if isinstance(group, str) and group not in self.collection.collections:
                raise ParseError(f"--list {group}: no such group")
            if group and (word := self.args["list-format"].value) not in _FORMATS:
                raise ParseError(f'--list-format: "{word}" is not one of {", ".join(_FORMATS)}')
            super().parse_cleanup()

    def list_flat(self) -> None:
        """List the verbs under their headings."""
        if self.list_depth:
            super().list_flat()
            return
        names = self.collection.task_names
        for title, places in VERBS.items():
            wanted = [p for p in places if self.list_root in (None, p)]
            found = [n for p in wanted for n in names if n.partition(".")[0] == p]
            _print_rows(title, [(name, helpline(self.collection[name]) or "") for name in found])

    def print_help(self) -> None:
        """Print the verbs, and the flags without a verb."""
        name = self._own_name
        sys.stdout.write(f"Usage: {name} VERB [OPTIONS]\n       {name} help VERB\n")
        self.list_flat()
        _print_rows("Options without a verb", _WITHOUT_VERB)

    def print_task_help(self, name: str) -> None:
        """Print usage, text and flags of a verb."""
        task, context = self.collection[name], self.parser.contexts[name]
        usage = textwrap.fill(f"Usage: {self._usage(name)}", _width(), subsequent_indent=" " * 4)
        text = re.sub(r"\binvoke (?=[a-z])", f"{self._own_name} ", inspect.getdoc(task) or "")
        sys.stdout.write("\n".join((usage, "", *_fitted(text))).rstrip() + "\n")
        rows = [(_value_of(flag), flag.help or "") for flag in context.positional_args]
        if bare := getattr(task, "bare", None):
            rows.append((bare.upper(), f"The same as --{bare}"))
        _print_rows("Arguments", rows)
        flags = {to_flag(f.name): f for f in context.flags.values() if not f.positional}
        groups: Mapping[str, Sequence[str]] = getattr(task, "groups", {})
        last = ("--inventory", "--forks", "--json")
        taken = {*last, *(f"--{name}" for names in groups.values() for name in names)}
        _print_rows("Options", [_flag_row(flag) for n, flag in flags.items() if n not in taken])
        for title, names in groups.items():
            _print_rows(title, [_flag_row(flags[f"--{n}"]) for n in names])
        common, own = [_flag_row(flags[n]) for n in last if n in flags], own_help()
        rows = [(row, own.get(text, text)) for row, text in common]
        _print_rows("Common", [*rows, ("-h, --help", "Show this text")])

    @property
    def _own_name(self) -> str:
        """The name by which it is called: ascendboot, or invoke in a checkout."""
        return re.sub(r"[\[\]]", "", self.binary)

    def _usage(self, verb: str) -> str:
        context = self.parser.contexts[verb]
        words = [_value_of(argument) for argument in context.positional_args]
        if bare := getattr(self.collection[verb], "bare", None):
            flag = context.flags[to_flag(bare)]
            words.append(f"[{bare.upper()}{'...' if flag.kind is list else ''}]")
        after, _ = _WITH_WORDS.get(verb, ("", ""))
        return " ".join(filter(None, (self._own_name, verb, "[OPTIONS]", *words, after)))


class _NoFiles(Config):
    """Invoke's defaults, without its files: they are about commands that Invoke runs."""

    def _load_file(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - Invoke's
        pass


_FLAG: Final = re.compile(r"--|-[A-Za-z]")


class _Parser(Parser):
    """Reads words without a flag as values of a verb's `bare` flag; refuses a flag given twice."""

    def __init__(self, bare: Mapping[str, str | None], **options: Any) -> None:  # noqa: ANN401 - Invoke's
        super().__init__(**options)
        self.bare = bare

    def parse_argv(self, argv: list[str]) -> ParseResult:
        if not argv or argv[0] not in self.contexts:
            return super().parse_argv(argv)
        context = self.contexts[argv[0]]
        words, given = self._with_bare(context, argv[1:])
        for flag in given:
            if flag.kind is not list and given.count(flag) > 1:
                name = str(flag.name)
                bare = f"{name.upper()} or " if name == self.bare.get(argv[0]) else ""
                raise ParseError(f"{bare}{to_flag(name)}: given more than once", context)
        done = super().parse_argv([argv[0], *words])
        for each in done:
            for name, argument in each.args.items():
                if argument.got_value and argument.value in ("", [""]):
                    shown = name.upper() if argument.positional else to_flag(name)
                    raise ParseError(f"{shown}: is empty", each)
        return done

    def _with_bare(
        self, context: ParserContext, argv: Sequence[str]
    ) -> tuple[list[str], list[Argument]]:
        """Return the words of a verb with all flags, and which flags these are."""
        bare, words = self.bare.get(str(context.name)), list[str]()
        given, waits = list[Argument](), False
        needed = len(context.positional_args)
        for word in argv:
            # Invoke would take its own flags, too, for arguments that are needed.
            others = self.initial.flags if self.initial and not needed else ()
            name = word.partition("=")[0]
            name = context.inverse_flags.get(name, name)
            own = name if name.startswith("--") else word[:2]
            if name in context.flags:
                if waits:
                    break
                if "=" in word and not context.flags[name].takes_value:
                    raise ParseError(f"{name}: takes no value; leave it out", context)
                given.append(context.flags[name])
                waits = given[-1].takes_value and not given[-1].optional and "=" not in word
            elif waits:
                waits = False
            elif _FLAG.match(own) and not (own in context.flags or own in others):
                raise ParseError(f"No idea what '{own}' is", context)  # before its value is judged
            elif needed and not word.startswith("-"):
                needed -= 1
            elif bare and not word.startswith("-") and word not in self.contexts:
                given.append(context.flags[to_flag(bare)])
                words.append(to_flag(bare))
            words.append(word)
        if waits:  # Invoke takes a flag of a list without a value for one that is not given
            raise ParseError(f"{to_flag(str(given[-1].name))}: has no value", context)
        return words, given


_NARROW: Final = 60
"""In fewer columns the text of a flag stands below it."""


def _width() -> int:
    return min(max(shutil.get_terminal_size().columns, 30), 100)


def _print_rows(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print flags or verbs with their help, wrapped to the terminal."""
    if not (found := list(rows)):
        return
    width = _width()
    widest = max(len(name) for name, _ in found) + 4
    column = " " * (min(widest, 30) if width >= _NARROW else 10)
    sys.stdout.write(f"\n{title}:\n")
    for name, text in found:
        first = f"  {name}".ljust(len(column))
        if not first.endswith("  "):
            sys.stdout.write(f"{first.rstrip()}\n")
            first = column
        lines = wrapped(text, width, initial_indent=first, subsequent_indent=column)
        sys.stdout.write("".join(f"{line}\n" for line in lines or [first.rstrip()]))


def _value_of(flag: Argument) -> str:
    name = to_flag(str(flag.name)).lstrip("-")
    is_number = isinstance(flag.default, str) and flag.default.isdecimal()
    return _VALUES.get(name) or ("N" if is_number else name.rpartition("-")[2].upper())


def _flag_row(flag: Argument) -> tuple[str, str]:
    """Return how help shows a flag, and its text with the default."""
    words, name = str(flag.help or ""), to_flag(flag.names[0])
    short = next((f"-{n}, " for n in flag.names if len(n) == 1), "    ")
    if flag.kind is bool:
        return f"{short}{f'--[no-]{name[2:]}' if flag.default is True else name}", words
    if flag.default and isinstance(flag.default, str) and "efault" not in words:
        words += f". Default: {flag.default}"
    return f"{short}{name}{'[={}]' if flag.optional else ' {}'}".format(_value_of(flag)), words


def _fitted(text: str) -> Iterator[str]:
    """Yield the lines of a docstring: prose is filled, a note that does not fit stands below."""
    for paragraph in text.split("\n\n"):
        for is_prose, lines in groupby(paragraph.splitlines(), lambda line: not line[:1].isspace()):
            if is_prose:
                yield from wrapped(" ".join(lines), _width())
                continue
            for line in lines:
                example, _, note = line.strip().partition("  ")
                if note and len(line) > _width():
                    yield f"  {example}"
                    yield f"    {note.strip()}"
                else:
                    yield line
        yield ""


def _refuse(words: str, verbs: Sequence[ParserContext]) -> None:
    wants_json = any("json" in verb.args and verb.args["json"].value for verb in verbs)
    with _plain_errors():
        raise exit_with(words, UsageError.exit_code, json=wants_json)


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
            Screen().errors(end.message, style="")
        raise Exit(code=end.code) from end


_ONLY_TELL = {
    *("--list", "-l", "--help", "-h", "--version", "-V", "help", "--print-completion-script")
}


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
    own = words[: words.index("--")] if "--" in words else words
    if not words or words[0].partition("=")[0] in _ONLY_TELL or {"--help", "-h"} & set(own):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")


def namespace(words: Sequence[str] = ()) -> Collection:
    """Return all verbs, or only those in `words` if that command line begins with a verb.

    Importing all verbs takes longer than connecting to a node.
    """
    names = [word.partition(".")[0] for word in words]
    names = names[1:] if names[:1] == ["help"] else names
    wanted = PLACES.keys() & set(names) if names and names[0] in PLACES else PLACES.keys()
    found = []
    for name in (name for name in PLACES if name in wanted):
        module, _, inside = PLACES[name].partition(".")
        found.append(getattr(import_module(f"ascendboot.cli.{module}"), inside or name))
    return Collection(*found)


def main() -> None:
    """Run `ascendboot VERB …`, the same program as `invoke VERB …` in a checkout."""
    prepare(sys.argv[1:])
    program = CarefulProgram(
        name="ascendboot",
        binary="ascendboot",
        namespace=namespace(sys.argv[1:]),
        version=__version__,
        executor_class=CarefulExecutor,
        config_class=_NoFiles,
    )
    code: str | int | None = 0
    try:
        program.run()
    except SystemExit as end:
        code = end.code
    # Every verb has closed what it opened. Python would first search all of its memory for unused
    # objects, and threads that still read from a node might print in the meantime.
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code or 0))
    sys.exit(code)
