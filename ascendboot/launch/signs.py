"""By what it is seen that a job has begun, and that it is about to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ascendboot.launch.events import (
    EndingBegan,
    RankEnded,
    RankEndingBegan,
    StopAsked,
)

if TYPE_CHECKING:
    from ascendboot.launch.course import Course
    from ascendboot.launch.events import Event
    from ascendboot.launch.plan import LaunchPlan


class Signs(Protocol):
    """What the events of a job mean for it as a whole."""

    def has_begun(self, course: Course) -> bool:
        """Whether all began that it waits for."""
        ...

    def will_end(self, event: Event, course: Course) -> bool:
        """Whether its launcher ends soon, now that `event` has come."""
        ...


class OfAll:
    """A job that needs all of its ranks."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def has_begun(self, course: Course) -> bool:
        """Every rank has."""
        return len(course.started) == self._ranks

    def will_end(self, event: Event, course: Course) -> bool:
        """A rank failed or is ended, or all are through."""
        match event:
            case RankEnded(exit_code=code):
                return bool(code) or len(course.ended) == self._ranks
            case StopAsked() | EndingBegan() | RankEndingBegan():
                return True
            case _:
                return False


def signs_of(plan: LaunchPlan) -> Signs:
    """Those of the kind of job that it plans."""
    return OfAll(len(plan.ranks))
