"""How each rank of a job ended, by what was seen of it."""

from __future__ import annotations

from signal import SIGHUP, SIGKILL, SIGPIPE, SIGTERM
from typing import TYPE_CHECKING

from ascendboot.model.job import RankEnd

if TYPE_CHECKING:
    from ascendboot.launch.course import Course
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.record import JobRecord

SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a process."""
_HIGHEST_SIGNAL = 64
BY_LAUNCHER = frozenset({SIGTERM, SIGKILL})
"""By which launchers end ranks."""
OF_A_LOST_LAUNCHER = BY_LAUNCHER | {SIGHUP, SIGPIPE}
"""What ends ranks whose launcher is gone."""


def ends_of(plan: LaunchPlan | JobRecord, course: Course) -> tuple[RankEnd, ...]:
    """The end of every rank, in rank order; one without an exit code was not seen to end."""
    ends = []
    for rank in plan.ranks:
        seen = course.ended.get(rank.rank)
        ends.append(
            RankEnd(
                rank=rank.rank,
                node=rank.node,
                device=rank.device_id,
                exit_code=None if seen is None else seen.exit_code,
                signal=None if seen is None else signal_of(seen.exit_code),
            )
        )
    return tuple(ends)


def signal_of(exit_code: int) -> int | None:
    """The signal that a shell's exit code stands for; None when it stands for none."""
    number = exit_code - SIGNALLED
    return number if 0 < number <= _HIGHEST_SIGNAL else None
