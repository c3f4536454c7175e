"""Starting a job without following it, and taking back a start that came to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import LaunchError, NodeError
from ascendboot.launch.prepare import discard, nowhere, prepare, start
from ascendboot.launch.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.transport.api import Transport


def start_detached(plan: LaunchPlan, transports: Mapping[str, Transport], *, forks: int) -> None:
    """Start the job and leave it to itself.

    Raises:
        LaunchError: it was not started; no node keeps anything of it.
    """
    prepare(plan, transports, forks=forks)
    try:
        start(plan, transports, forks=forks)
    except NodeError as error:
        unsure = take_back(plan, transports, forks=forks)
        words = (str(error), *unsure, nowhere(plan.job_id))
        raise LaunchError("\n".join(words)) from error


def take_back(
    plan: LaunchPlan, transports: Mapping[str, Transport], *, forks: int
) -> tuple[str, ...]:
    """Undo the preparation; which nodes could not be asked whether something is left.

    A start whose answer was lost may have been one all the same.
    """
    sweep(transports, plan.job_folder, linger_s=0.0, grace_s=0.0, forks=forks)
    # Without its folder a start that is still on its way comes to nothing; what was quicker is
    # found now.
    discard(plan, transports, forks=forks)
    found = sweep(transports, plan.job_folder, linger_s=0.0, grace_s=0.0, forks=forks)
    return tuple(unknown(f) for f in found.values() if isinstance(f, NodeError))


def unknown(error: NodeError) -> str:
    """That nobody can say what is left of the job on a node."""
    return f"{error}; nobody knows what is left of the job there"
