"""The last step before a job: what was found is said, and leftovers are ended if that is wanted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ascendboot.errors import LaunchError, NodeError
from ascendboot.launch.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.before.leftovers import Leftover
    from ascendboot.console import Screen
    from ascendboot.launch.sweep import Swept
    from ascendboot.ready import Readiness
    from ascendboot.tasks.start_rules import StartRules
    from ascendboot.transport.api import Transport


def settle(
    ready: Readiness,
    transports: Mapping[str, Transport],
    rules: StartRules,
    screen: Screen,
    *,
    planning: bool,
    grace_s: float,
    forks: int,
) -> None:
    """Say what was found, and make the nodes free of what is left of earlier jobs.

    Raises:
        LaunchError: something stands in the way of the job.
    """
    for note in (*rules.notes, *(f"warning: {warning}" for warning in ready.warnings)):
        screen.say(note, "yellow")
    if ready.problems:
        raise refused(*ready.problems, *ready.left)
    if not ready.leftovers:
        return
    if planning or not (rules.ends_leftovers or _wants_an_end(ready.left, screen)):
        raise refused(*ready.left)
    problems: list[str] = []
    for leftover in ready.leftovers:
        there = {node: transports[node] for node in leftover.pids}
        swept = sweep(there, leftover.folder, linger_s=0.0, grace_s=grace_s, forks=forks)
        problems += _ended(leftover, swept, screen)
    if problems:
        raise refused(*problems)


def refused(*problems: str) -> LaunchError:
    """The error that says why nothing is started."""
    # What a node says may have several lines: none of them shall look like one of ours.
    told = (problem.replace("\n", "\n      ") for problem in problems)
    return LaunchError("\n".join((*told, "The job was not started.")))


def _wants_an_end(left: Sequence[str], screen: Screen) -> bool:
    """What the operator answers, where there is a terminal to ask on."""
    if not sys.stdin.isatty():
        return False
    for line in left:
        screen.say(line, "yellow")
    return screen.agrees("End them and start the job?")


def _ended(
    leftover: Leftover, answers: Mapping[str, Swept | NodeError], screen: Screen
) -> list[str]:
    """Say what was ended of one job; what could not be."""
    problems = []
    for node, swept in answers.items():
        if isinstance(swept, NodeError):
            problems.append(str(swept))
            continue
        problems += [
            f"{node}: could not end process {process.pid} of job {leftover.job_id}: it lives on "
            f"after SIGKILL ({process.command}); it may wait for the NPU driver: look at dmesg"
            for process in swept.left
        ]
        count = len(swept.ended)
        what = "1 process" if count == 1 else f"{count} processes"
        screen.say(f"{node}: {what} of job {leftover.job_id} ended")
    return problems
