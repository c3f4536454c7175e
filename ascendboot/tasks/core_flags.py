"""Flags of Invoke's own that do nothing here, or not what they say: not shown, and refused."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from invoke.exceptions import Exit
from invoke.executor import Executor
from invoke.program import Program

from ascendboot.errors import LaunchError, UsageError
from ascendboot.tasks.ending import exit_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invoke.parser.argument import Argument
    from invoke.parser.context import ParserContext

_NO_COMMANDS: Final = "it is for commands that Invoke runs, and here it runs none"
_REFUSED: Final = {
    "dry": "the verb would be run all the same; what it would change is shown by --plan behind a "
    "verb that has it: setup --plan",
    "pty": f"{_NO_COMMANDS}; if -p was to be --plan, it comes behind a verb that has it: setup -p",
} | dict.fromkeys(
    ("command-timeout", "echo", "hide", "prompt-for-sudo-password", "warn-only"),
    f"{_NO_COMMANDS}; leave it out",
)


class CarefulExecutor(Executor):
    """Runs verbs, unless a flag was said that would not do what the operator expects of it."""

    def execute(self, *tasks: Any) -> Any:  # noqa: ANN401 - Invoke's
        """Run them.

        Raises:
            Exit: a flag is refused, or the verb ended with another code than 0.
        """
        said: Mapping[str, Argument] = self.core[0].args if self.core else {}
        for name, why in _REFUSED.items():
            if name in said and said[name].value != said[name].default:
                raise _refusal(f"--{name}: could not be taken: {why}", tasks)
        try:
            return super().execute(*tasks)
        except Exit as end:
            _say(end.message)
            raise Exit(code=end.code) from end


class CarefulProgram(Program):
    """A program whose help does not show what its executor refuses."""

    def print_columns(self, tuples: Iterable[tuple[str, str | None]]) -> None:
        """Print flags, or verbs, beside their help."""
        super().print_columns([(flag, words) for flag, words in tuples if not _is_refused(flag)])


def _refusal(words: str, verbs: Sequence[ParserContext]) -> Exit:
    starts_jobs = any(verb.name == "train" for verb in verbs)
    wants_json = any("json" in verb.args and verb.args["json"].value for verb in verbs)
    code = (LaunchError if starts_jobs else UsageError).exit_code
    return exit_with(words, code, {"json": wants_json})


def _say(words: str | None) -> None:
    """On standard error; where Invoke could not, it would end with another code than the verb's."""
    if words:
        from ascendboot.console.streams import Lasting  # noqa: PLC0415 - only at such an end

        Lasting(sys.stderr).write(f"{words}\n")


def _is_refused(flag: str) -> bool:
    return flag.partition("=")[0].rpartition("--")[2] in _REFUSED and "--" in flag
