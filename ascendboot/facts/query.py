"""Queries to a node and their answers; all queries of one side run in one execution."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from ascendboot.errors import NotUnderstoodError, ToolError, excerpt
from ascendboot.facts.parsers import base
from ascendboot.facts.parsers.system import parse_epoch
from ascendboot.transport.api import HANGS, Command, Effect, Result, RunsAll
from ascendboot.value import Value

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Lack: TypeAlias = Literal["missing", "busy", "silent", "failed", "not-understood", "not-queried"]


class Answered(Value, Generic[T_co], tag=True):
    """The value of an answer that was understood as a whole."""

    value: T_co


class Unanswered(Value, tag=True):
    """No value: the tool is missing, busy or silent, failed, or printed something unknown."""

    kind: Lack
    message: str
    """`could not list the NPUs: …`, without the node's name."""

    @property
    def why(self) -> str:
        """The reason in the message, without its beginning `could not …:`."""
        return self.message.partition(": ")[2] or self.message


Answer: TypeAlias = Answered[T] | Unanswered

NOT_QUERIED = Unanswered("not-queried", "not queried")
ENDED_BY_TIMEOUT = (124, 137)
"""Exit codes of timeout(1) after it ended a program."""
_NOT_FOUND = 127
_KINDS: dict[type[Exception], Lack] = {
    base.ToolBusyError: "busy",
    base.ToolMissingError: "missing",
    base.ToolSilentError: "silent",
    NotUnderstoodError: "not-understood",
}


class Fact(Value, Generic[T]):
    """A query: a command that reads, and the parser of its result."""

    command: Command
    parse: Callable[[Result], T]
    purpose: str = ""
    """Completes "could not …" for facts that share a command; default: the command's purpose."""


Queries: TypeAlias = Mapping[str, Fact[Any]]


class Clock(Value, kw_only=True):
    """The clock of a node against that of the control machine, in seconds."""

    offset_s: float
    """Node minus control machine."""
    uncertainty_s: float
    """The true offset lies within `offset_s` ± this."""


CLOCK_COMMAND = Command(
    argv=("date", "+%s.%N"), purpose="read the clock", effect=Effect.READ, timeout_s=10.0
)


def value_of(answer: Answer[T]) -> T | None:
    """The value, or None when there is none."""
    return answer.value if isinstance(answer, Answered) else None


class Sections(dict[str, base.Section]):
    """The sections in the output of a script that succeeded; a missing one is not understood."""

    def __init__(self, result: Result) -> None:
        self.script = f"the script to {result.command.purpose}"
        output_of(result)
        super().__init__(base.split(result.stdout, self.script))

    def __missing__(self, name: str) -> base.Section:
        raise NotUnderstoodError(self.script, len(self), name, f"a section {name}")

    def text(self, name: str) -> str:
        """The text of one section; a ToolError if its program failed."""
        section = self[name]
        if section.exit_code == 0:
            return section.text
        last = excerpt(section.text.strip().split("\n")[-1])
        message = last or f"exited {section.exit_code} and printed nothing"
        if section.exit_code == _NOT_FOUND:
            raise base.ToolMissingError(message)
        if section.exit_code in ENDED_BY_TIMEOUT and not section.content:
            raise base.ToolSilentError(f"it gave no answer in time; {HANGS}")
        raise ToolError(message)

    def rows(self, name: str, form: str, expected: str) -> list[tuple[Any, ...]]:
        """The groups of `form` in each line of a section, "" where one took no part."""
        rows = []
        for line in base.lines_of(self.text(name), self.script, expected):
            match = re.fullmatch(form, line.text)
            if match is None:
                raise line.not_understood()
            rows.append(match.groups(""))
        return rows


def output_of(result: Result) -> str:
    """The output of a command that succeeded; else a ToolError."""
    if result.as_expected:
        return result.text
    raise (base.ToolMissingError if result.exit_code == _NOT_FOUND else ToolError)(result.outcome())


def of_sections(command: Command, parse: Callable[[Sections], T], purpose: str = "") -> Fact[T]:
    """A query whose answer is in sections of the command's output."""
    return Fact(command, lambda result: parse(Sections(result)), purpose)


Parts: TypeAlias = Mapping[str, tuple[str, Callable[[Sections], Any]]]
"""Queries by name, each with its purpose and the parser of its sections."""


def queries_of(command: Command, parts: Parts) -> dict[str, Fact[Any]]:
    """Queries that share one run of a command."""
    return {name: of_sections(command, parse, what) for name, (what, parse) in parts.items()}


def answer_to(fact: Fact[T], result: Result) -> Answer[T]:
    """Parses the answer to `fact`; never raises for the output of a tool."""
    return attempt(fact.purpose or fact.command.purpose, lambda: fact.parse(result))


def attempt(purpose: str, parse: Callable[[], T]) -> Answer[T]:
    """The value of `parse`, or the known error that it raised: `could not PURPOSE: …`."""
    try:
        return Answered(parse())
    except (ToolError, NotUnderstoodError) as error:
        return Unanswered(_KINDS.get(type(error), "failed"), f"could not {purpose}: {error}")


def query(
    transport: RunsAll, facts: Queries, *, now: Callable[[], float] = time.time
) -> dict[str, Answer[Any]]:
    """Runs all queries on a node in one execution; maps the name of each to its answer.

    Facts that share a command share its one run. The answers always include `clock` (a `Clock`):
    the script reads the clock first and last. A NodeError if the connection or the reply broke.
    """
    commands = tuple(dict.fromkeys(fact.command for fact in facts.values()))
    before = now()
    first, *results, last = transport.run_all((CLOCK_COMMAND, *commands, CLOCK_COMMAND))
    after = now()
    of_command = dict(zip(commands, results, strict=True))

    def clock() -> Clock:
        # The first reading was made after `before`, the last one before `after`.
        start, end = (parse_epoch(output_of(result)) for result in (first, last))
        at_most, at_least = start - before, end - after
        return Clock(
            offset_s=round((at_most + at_least) / 2, 6),
            uncertainty_s=round(abs(at_most - at_least) / 2, 6),
        )

    answers = {name: answer_to(fact, of_command[fact.command]) for name, fact in facts.items()}
    return {**answers, "clock": attempt(CLOCK_COMMAND.purpose, clock)}
