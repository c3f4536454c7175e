"""What the nodes record about a job, line by line, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from ascendboot.errors import NotUnderstoodError

_PID = re.compile(r"(rank|launcher|supervisor) (\d+|-) pid (\d+) start (\d+)")
_STOP = re.compile(r"launcher - stop at (\d+\.\d+)")
_EXIT = re.compile(r"(rank|launcher) (\d+|-) exit (\d+) at (\d+\.\d+)")


@dataclass(frozen=True)
class RankStarted:
    """A rank runs."""

    rank: int
    pid: int
    start: int


@dataclass(frozen=True)
class RankEnded:
    """A rank ended; `at` is seconds since 1970 by its node's clock."""

    rank: int
    exit_code: int
    at: float


@dataclass(frozen=True)
class LauncherStarted:
    """The launcher runs on the primary."""

    pid: int
    start: int


@dataclass(frozen=True)
class LauncherEnded:
    """The launcher ended, and with it the job; no code when nobody was left to see its end."""

    exit_code: int | None
    at: float | None = None
    """Seconds since 1970 by the primary's clock."""


@dataclass(frozen=True)
class StopAsked:
    """Somebody asked for the job's end with `stop`."""

    at: float


@dataclass(frozen=True)
class SupervisorStarted:
    """What waits for the launcher runs."""

    pid: int
    start: int


Event: TypeAlias = (
    RankStarted | RankEnded | LauncherStarted | LauncherEnded | StopAsked | SupervisorStarted
)


def parse_event(line: str, line_number: int) -> Event:
    """The event that one line stands for.

    Raises:
        NotUnderstoodError: the line is none that a job's wrapper, launcher or follower writes.
    """
    if line == "launcher - lost":
        return LauncherEnded(None)
    if match := _STOP.fullmatch(line):
        return StopAsked(float(match[1]))
    if match := _PID.fullmatch(line):
        who, number, pid, start = match.groups()
        if who == "rank" and number != "-":
            return RankStarted(int(number), int(pid), int(start))
        if who != "rank" and number == "-":
            kind = LauncherStarted if who == "launcher" else SupervisorStarted
            return kind(int(pid), int(start))
    elif match := _EXIT.fullmatch(line):
        who, number, code, at = match.groups()
        if who == "rank" and number != "-":
            return RankEnded(int(number), int(code), float(at))
        if who == "launcher" and number == "-":
            return LauncherEnded(int(code), float(at))
    raise NotUnderstoodError(
        "the job's events", line_number, line, "a start or an end of a rank or the launcher"
    )
