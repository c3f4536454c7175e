"""A job under way, as all see it who start it, follow it and clear up behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendboot.launch.course import Course
    from ascendboot.launch.patience import Box, Interrupts
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.transport.api import Transport


@dataclass(frozen=True, kw_only=True)
class Running:
    """What it is, where it runs, and what is seen of it."""

    plan: LaunchPlan
    transports: dict[str, Transport]
    """Of its nodes; another one where a connection was lost and came back."""
    course: Course
    interrupts: Interrupts
    box: Box
    """What comes of it to whoever follows it."""
    forks: int
    """On how many nodes to work at once."""
