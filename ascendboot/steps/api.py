"""What a step is: a wish about one node, checked against what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from ascendboot.facts.own import Own
    from ascendboot.transport.api import Command, FileWrite


@dataclass(frozen=True)
class Satisfied:
    """The wish is true already."""

    because: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """What has to be done to make the wish true: files first, then commands, in order.

    A change without files and commands waits for an earlier phase: the plan can only announce it.
    """

    summary: str
    files: tuple[FileWrite, ...] = ()
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True)
class Blocked:
    """The wish cannot be made true: what was seen, and what the operator can do."""

    reason: str
    remedy: str


Verdict: TypeAlias = Satisfied | Change | Blocked


class Step(Protocol):
    """A wish about one node."""

    @property
    def name(self) -> str:
        """What is wished for, in a few words: "rank table"."""
        ...

    def check(self, own: Own) -> Verdict:
        """Hold the wish against what is on the node; pure."""
        ...
