"""What an elastic job lost on its way, and how often its ranks began: for its report; pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ascendboot.model.names import ranks_named

if TYPE_CHECKING:
    from ascendboot.launch.course import Course
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.record import JobRecord
    from ascendboot.model.clocks import NodeClocks


def settled(plan: LaunchPlan | JobRecord, course: Course) -> Course:
    """The course without what the job has got over.

    That is what ended on nodes that it gave up and, while it goes on, the ends of ranks that begin
    again. Of a job that failed everything counts: its end may have begun on such a node.
    """
    if course.launcher_code or 0 in course.endings:
        return course
    gone = _gone(plan, course)
    ended = {
        rank: end
        for rank, end in course.ended.items()
        if rank not in gone and (course.launcher_over or end.exit_code == 0)
    }
    endings = {node: at for node, at in course.endings.items() if node not in course.left}
    return replace(course, ended=ended, endings=endings)


def notes(plan: LaunchPlan | JobRecord, course: Course, clocks: NodeClocks) -> tuple[str, ...]:
    """Which node was lost when and why, and each time that the ranks began again, in that order."""

    def when(at: float) -> str:
        return f"{datetime.fromtimestamp(clocks.here(plan.primary, at), timezone.utc):%H:%M:%S} UTC"

    told = [
        (left.at, f"{_lost(plan, left.node_rank)} at {when(left.at)}: {left.why}")
        for left in course.left.values()
    ]
    for before, life in zip(course.lives, course.lives[1:], strict=False):
        same = life.world_size == before.world_size
        sizes = f"{life.world_size} of them, {'as' if same else before.world_size} before"
        told.append((life.at, f"the ranks began again at {when(life.at)}: {sizes}"))
    return tuple(words for _, words in sorted(told))


def _lost(plan: LaunchPlan | JobRecord, node_rank: int) -> str:
    node = plan.nodes[node_rank]
    return f"{node}: lost with {ranks_named(tuple(r.rank for r in plan.ranks_on(node)))}"


def _gone(plan: LaunchPlan | JobRecord, course: Course) -> frozenset[int]:
    return frozenset(
        rank.rank for number in course.left for rank in plan.ranks_on(plan.nodes[number])
    )
