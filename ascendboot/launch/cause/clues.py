"""Clue: one thing that was seen of a failing job, with its place and its time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a clue tells about its rank."""

    ENDED = "ended"
    """It ended with `exit_code`, and nobody had begun to end it."""
    ENDED_BY_US = "ended by us"
    """It ended with `exit_code` after the ranks of its node were being ended on purpose."""
    KILLED = "killed"
    """The launcher saw a signal end it, together with what would have recorded its end."""
    OWN = "own"
    """It wrote of an error that is not one of another rank."""
    LATE = "late"
    """It wrote of an error when it was being ended on purpose already."""
    PEER = "peer"
    """It wrote that another rank is gone or does not answer."""


@dataclass(frozen=True, kw_only=True)
class Clue:
    """One thing that was seen of one rank."""

    kind: Kind
    rank: int
    at: float | None = None
    """Seconds since 1970 by the operator's clock; None where the time is not known."""
    precision_s: float = 0.0
    """It may have been earlier by so much."""
    exit_code: int | None = None
    words: str = ""
    source: str = ""
    blames: tuple[int, ...] = ()
    """Ranks that its output names as missing."""
    blamed_nodes: tuple[str, ...] = ()
    """Nodes on which it misses some rank."""
    out_of_memory: bool = False
    """The kernel ended processes for want of memory on its node while it ran."""
