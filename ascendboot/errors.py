"""Every error that ascendboot raises on purpose, and the exit code it stands for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXCERPT = 200
_LINE_ENDS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_MOST_TOLD = 200
_LONGEST_TOLD = 600


def excerpt(text: str) -> str:
    """So much of what a node or a file says as belongs into a message: its beginning, on one line.

    Whatever ends a line is shown by its number: what follows would look like a message of ours.
    """
    text = _LINE_ENDS.sub(_by_number, text[: _EXCERPT + 1])
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1]}…"


def _by_number(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class AscendbootError(Exception):
    """Something went wrong that the operator can act on; its text is the whole message."""

    exit_code: ClassVar[int] = 1


class UsageError(AscendbootError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


class OutputError(AscendbootError):
    """What was asked for was done, and could not be written to standard output."""


class InventoryError(AscendbootError):
    """The inventory cannot be used; carries every problem found, each as `file:line: key: what`.

    Its text has the first of them, and of a long one both ends: a file of 1 MiB has room for more
    problems, and longer words, than anybody reads.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[str]) -> None:
        more = len(problems) - _MOST_TOLD
        rest = [f"and {more} more problems; correct these first"] if more > 0 else []
        super().__init__("\n".join([*map(_both_ends, problems[:_MOST_TOLD]), *rest]))
        self.problems = tuple(problems)


def _both_ends(words: str) -> str:
    """Where it is and what to do stand at the ends of a message."""
    if len(words) <= _LONGEST_TOLD:
        return words
    half = _LONGEST_TOLD // 2
    return f"{words[:half]} … {words[-half:]}"


class NotUnderstoodError(AscendbootError):
    """A tool answered in a form that its parser does not know; nothing was guessed."""

    def __init__(self, tool: str, line_number: int, line: str, expected: str) -> None:
        super().__init__(
            f'{tool}: line {line_number} not understood: "{excerpt(line)}"; expected {expected}'
        )
        self.tool = tool
        self.line_number = line_number
        self.line = excerpt(line)


class ToolError(AscendbootError):
    """A tool answered, in a known form, that it could not do what was asked."""


class NodeError(AscendbootError):
    """Something went wrong on one node; the text begins with the node's name."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node
        self.message = message


class UnreachableError(NodeError):
    """The node could not be reached or would not let us in."""

    exit_code = 4


class CommandError(NodeError):
    """A command on a node ended in a way its caller did not expect."""


class PlanViolationError(NodeError):
    """A step tried to write while it was only allowed to look: a bug in the step."""


class LaunchError(AscendbootError):
    """The job was not started; nothing of it runs."""

    exit_code = 125


class InterruptedRunError(AscendbootError):
    """The operator pressed Ctrl-C; what was running on the nodes was let finish."""

    exit_code = 130


class RankTableError(AscendbootError):
    """A rank table could not be read, or what is asked of it cannot be made from it."""

    exit_code = 2
