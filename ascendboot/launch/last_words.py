"""What launchers, agents and ranks said last, and what of a job's end only they knew."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ascendboot.errors import excerpt
from ascendboot.launch.ends import SIGNALLED
from ascendboot.launch.minding import ENDING
from ascendboot.launch.plan import start_log
from ascendboot.model.job import RankEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ascendboot.launch.course import Course
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.record import JobRecord
    from ascendboot.model.clocks import NodeClocks

_LAST_LINES = 5
_MOST_QUOTED = 20
_TAIL_BYTES = 16_384
_LOST = "has lost communication with a remote daemon"
"""Open MPI 4.1, of a node that went away; a daemon that ends in good order it does not miss."""

_KILLED = (
    re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)"),
    re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: -(\d+) \(pid: \d+\)"),
)
"""How mpirun (4.1) and torchrun (2.13) name a rank that a signal ended, lines joined."""


def said_on(plan: LaunchPlan | JobRecord, folder: Path) -> dict[str, tuple[str, ...]]:
    """What was said last by what was started on each node, where something was."""
    logs = {node: start_log(number) for number, node in enumerate(plan.nodes)}
    return {
        node: tuple(_lines(folder / log)) for node, log in logs.items() if log in plan.logs_on(node)
    }


def with_killed(ends: tuple[RankEnd, ...], said: Iterable[tuple[str, ...]]) -> tuple[RankEnd, ...]:
    """The ends with what only the launcher saw: a rank killed with what records its end."""
    texts = [" ".join(lines) for lines in said]
    killed = {
        int(rank): int(signal)
        for text in texts
        for form in _KILLED
        for rank, signal in form.findall(text)
    }
    return tuple(
        RankEnd(
            rank=end.rank,
            node=end.node,
            device=end.device,
            exit_code=SIGNALLED + killed[end.rank],
            signal=killed[end.rank],
        )
        if end.exit_code is None and end.rank in killed
        else end
        for end in ends
    )


def of_the_first(
    plan: LaunchPlan | JobRecord,
    course: Course,
    said: Mapping[str, tuple[str, ...]],
    clocks: NodeClocks,
) -> tuple[str, ...]:
    """What the launcher said, or the agent that was the first to see that the job must end."""

    def began_to_end(number: int) -> float:
        return clocks.here(plan.nodes[number], course.endings[number])

    # What an elastic job has lost it goes on without, unless the primary says otherwise.
    standing = [number for number in course.endings if number not in course.left]
    node = plan.nodes[min(standing, key=began_to_end, default=0)]
    words = said.get(node, ())
    return words if node == plan.primary else tuple(f"{node}: {line}" for line in words)


def lost_nodes(ends: tuple[RankEnd, ...], launcher_words: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes that mpirun lost: none of their ranks was seen to end.

    Then the ranks of other nodes were ended because of that, or failed at talking to it.
    """
    if not any(_LOST in line for line in launcher_words):
        return ()
    seen = {end.node for end in ends if end.exit_code is not None}
    return tuple(dict.fromkeys(end.node for end in ends if end.node not in seen))


def gist(words: tuple[str, ...]) -> str:
    """The launcher's words: what ssh said comes first, what is made of it last."""
    lines = [line for line in words if line.strip("-*")]
    decided = next((number for number, line in enumerate(lines, 1) if ENDING in line), None)
    lines = lines[:decided]
    if len(lines) > 2 * _LAST_LINES:
        lines = [*lines[:_LAST_LINES], "…", *lines[-_LAST_LINES:]]
    return "\n".join(lines)


def quoted(said: Mapping[str, tuple[str, ...]]) -> str:
    """What was said last, by node, for a message: it is data of the nodes, and may be anything."""
    lines = [
        f"  {node} | {excerpt(''.join(c if c.isprintable() else '?' for c in line))}"
        for node, words in said.items()
        for line in words[-_LAST_LINES:]
    ]
    more = len(lines) - _MOST_QUOTED
    return "\n".join(lines[:_MOST_QUOTED] + ([f"  and {more} lines more"] if more > 0 else []))


def last_lines(path: Path) -> tuple[str, ...]:
    """The last lines of a log that are not empty, at most five."""
    return tuple(_lines(path)[-_LAST_LINES:])


def _lines(path: Path) -> list[str]:
    """The lines at the end of a file that are not empty; none when there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except FileNotFoundError:
        return []
    return [line for line in tail.decode(errors="replace").splitlines() if line.strip()]
