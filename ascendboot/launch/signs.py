"""By what it is seen that a job has begun, and that it is about to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ascendboot.launch.events import (
    EndingBegan,
    NodeLeft,
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


class OfSome:
    """An elastic job: ranks begin again, and nodes may go."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._node_ranks = {rank.rank: plan.nodes.index(rank.node) for rank in plan.ranks}

    def has_begun(self, course: Course) -> bool:
        """The first rank has: it waits for as many nodes as are needed."""
        return 0 in course.started

    def will_end(self, event: Event, course: Course) -> bool:
        """The primary ends it, or all ranks are through on the nodes that are left."""
        match event:
            case StopAsked() | EndingBegan(node_rank=0):
                return True
            case RankEnded() | NodeLeft():
                ends = {
                    n: course.ended.get(n)
                    for n, on in self._node_ranks.items()
                    if on not in course.left
                }
                return all(end is not None and end.exit_code == 0 for end in ends.values())
            case _:
                return False


def signs_of(plan: LaunchPlan) -> Signs:
    """Those of the kind of job that it plans."""
    return OfAll(len(plan.ranks)) if plan.min_nodes is None else OfSome(plan)
