"""Queries to a node, their answers, and running all of them at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from ascendboot.errors import NotUnderstoodError, ToolError, excerpt
from ascendboot.facts.parsers.base import Section, ToolBusyError, ToolMissingError, split
from ascendboot.facts.parsers.system import parse_epoch
from ascendboot.transport.api import HANGS, Command, Effect, Result, RunsAll

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Lack: TypeAlias = Literal["missing", "busy", "failed", "not-understood", "not-asked"]


@dataclass(frozen=True)
class Answered(Generic[T_co]):
    """The value of an answer that was understood as a whole."""

    value: T_co


@dataclass(frozen=True)
class Unanswered:
    """No value: the tool is missing or busy, failed, or printed something unknown."""

    kind: Lack
    message: str
    """`could not list the NPUs: …`, without the node's name."""

    @property
    def why(self) -> str:
        """The message without what could not be done."""
        return self.message.partition(": ")[2] or self.message


Answer: TypeAlias = Answered[T] | Unanswered

_NOT_FOUND = 127
ENDED_BY_TIMEOUT = (124, 137)
"""Exit codes of timeout(1) after it ended a program."""
NOT_ASKED = Unanswered("not-asked", "not asked")


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A query: a command that reads, and the parser of its result.

    `parse` may raise ToolMissingError, ToolError and NotUnderstoodError; each becomes an
    Unanswered of its kind.
    """

    name: str
    command: Command
    parse: Callable[[Result], T]
    purpose: str = ""
    """Completes "could not …" for facts that share a command; default: the command's purpose."""


@dataclass(frozen=True, kw_only=True)
class Clock:
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


def output_of(result: Result) -> str:
    """The output of a command.

    Raises:
        ToolMissingError: there is no such program (exit code 127).
        ToolError: it failed in another way.
    """
    if result.exit_code == _NOT_FOUND and not result.as_expected:
        raise ToolMissingError(result.outcome())
    if not result.as_expected:
        raise ToolError(result.outcome())
    return result.text


def sections_of(result: Result, tool: str) -> dict[str, Section]:
    """The sections of the output of a script.

    Raises:
        ToolError: the script itself failed.
        NotUnderstoodError: the frame is broken.
    """
    output_of(result)
    return split(result.stdout, tool)


def part_of(sections: Mapping[str, Section], name: str, tool: str) -> str:
    """The text of one section whose program succeeded.

    Raises:
        ToolMissingError, ToolError: it did not.
        NotUnderstoodError: the section is not there.
    """
    section = sections.get(name)
    if section is None:
        raise NotUnderstoodError(tool, len(sections), name, f"a section {name}")
    if section.exit_code == 0:
        return section.text
    message = excerpt(section.text.strip().split("\n")[-1])
    message = message or f"exited {section.exit_code} and said nothing"
    if section.exit_code == _NOT_FOUND:
        raise ToolMissingError(message)
    if section.exit_code in ENDED_BY_TIMEOUT and not section.content:
        raise ToolError(f"it gave no answer in time; {HANGS}")
    raise ToolError(message)


def answer_to(fact: Fact[T], result: Result) -> Answer[T]:
    """Parses the answer to `fact`; never raises for the output of a tool."""
    return attempt(fact.purpose or fact.command.purpose, lambda: fact.parse(result))


def attempt(purpose: str, parse: Callable[[], T]) -> Answer[T]:
    """The value of `parse`, or the known error that it raised: `could not PURPOSE: …`."""
    try:
        return Answered(parse())
    except ToolBusyError as error:
        return Unanswered("busy", f"could not {purpose}: {error}")
    except ToolMissingError as error:
        return Unanswered("missing", f"could not {purpose}: {error}")
    except ToolError as error:
        return Unanswered("failed", f"could not {purpose}: {error}")
    except NotUnderstoodError as error:
        return Unanswered("not-understood", f"could not {purpose}: {error}")


def query(
    transport: RunsAll,
    facts: Mapping[str, Fact[Any]],
    *,
    now: Callable[[], float] = time.time,
) -> dict[str, Answer[Any]]:
    """Run all queries on a node in one execution; maps the name of each to its answer.

    Facts that share a command share its one run. The answers always include `clock` (a `Clock`):
    the script reads the clock first and last.

    Raises:
        UnreachableError: the connection broke.
        CommandError: the reply as a whole is broken.
    """
    commands = tuple(dict.fromkeys(fact.command for fact in facts.values()))
    before = now()
    first, *results, last = transport.run_all((CLOCK_COMMAND, *commands, CLOCK_COMMAND))
    after = now()
    of_command = dict(zip(commands, results, strict=True))
    answers = {name: answer_to(fact, of_command[fact.command]) for name, fact in facts.items()}
    return {**answers, "clock": _clock(first, last, before=before, after=after)}


def _clock(first: Result, last: Result, *, before: float, after: float) -> Answer[Clock]:
    """The first reading was made after `before`, the last one before `after`: that bounds it."""
    reading = Fact("clock", CLOCK_COMMAND, lambda result: parse_epoch(output_of(result)))
    start, end = answer_to(reading, first), answer_to(reading, last)
    if isinstance(start, Unanswered):
        return start
    if isinstance(end, Unanswered):
        return end
    at_most, at_least = start.value - before, end.value - after
    return Answered(
        Clock(
            offset_s=round((at_most + at_least) / 2, 6),
            uncertainty_s=round(abs(at_most - at_least) / 2, 6),
        )
    )
