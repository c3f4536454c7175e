"""Defines the errors that ascendboot raises, with their exit codes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

_EXCERPT = 200
_LINE_ENDS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_MOST_PROBLEMS = 200
_LONGEST_PROBLEM = 600


def excerpt(text: str) -> str:
    """Shorten a text for a message: both ends, since errors end with the reason, on one line.

    Line ends are escaped, so that quoted text cannot look like another message.
    """
    half = _EXCERPT // 2
    return one_line(text if len(text) <= _EXCERPT else f"{text[: half - 1]}…{text[-half:]}")


def one_line(text: str) -> str:
    """Escape the line ends of a text."""
    return _LINE_ENDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class AscendbootError(Exception):
    """An error that the operator can act on; its text is the complete message.

    A line end within one of `lines` is escaped: it stands in words of a node or a file.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(map(one_line, lines)))


class UsageError(AscendbootError):
    """The command line names something that does not exist, or is contradictory."""

    exit_code = 2


class OutputError(AscendbootError):
    """The work was done, but the result could not be written to standard output."""


class InventoryError(AscendbootError):
    """The inventory is invalid; holds every problem as `file:line: key: what`.

    The text has the first problems, and of long ones both ends with place and remedy, because a
    hostile file could have too many.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[str]) -> None:
        more = len(problems) - _MOST_PROBLEMS
        rest = [f"and {more} more problems; correct these first"] if more > 0 else []
        half = _LONGEST_PROBLEM // 2
        first = problems[:_MOST_PROBLEMS]
        shown = [p if len(p) <= 2 * half else f"{p[:half]} … {p[-half:]}" for p in first]
        super().__init__(*shown, *rest)
        self.problems = tuple(problems)


class NotUnderstoodError(AscendbootError):
    """The output of a tool has an unknown form; parsers never guess."""

    def __init__(self, tool: str, line_number: int, line: str, expected: str) -> None:
        super().__init__(
            f'{tool}: line {line_number} not understood: "{excerpt(line)}"; expected {expected}'
        )


class ToolError(AscendbootError):
    """A tool reported an error in a known form."""


class NodeError(AscendbootError):
    """An error on one node; the text begins with the node's name."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node
        self.message = message


class UnreachableError(NodeError):
    """The node is unreachable, or refused the login."""

    exit_code = 4


class CommandError(NodeError):
    """A command on a node ended with an unexpected result."""


class PlanViolationError(NodeError):
    """A step tried to write during a read-only phase: a bug in the step."""


class LaunchError(AscendbootError):
    """The job was not started."""

    exit_code = 125


class InterruptedRunError(AscendbootError):
    """The operator pressed Ctrl-C; running commands on the nodes completed."""

    exit_code = 130


class RankTableError(AscendbootError):
    """A rank table could not be read or converted."""

    exit_code = 2
