"""What comes after a job: nothing of it is left on its nodes, and all its output is here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.launch.detached import unknown
from ascendboot.launch.follow import NodeEvent
from ascendboot.launch.sweep import LINGER_S, Swept, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.launch.follow import Followers
    from ascendboot.launch.lifelines import Lifelines
    from ascendboot.launch.running import Running
    from ascendboot.launch.sweep import Survivor

_SHOWN_SURVIVORS = 5
_FULL = "the disk of {folder} is full: what its ranks wrote last may be missing; make room there"


class Aftermath:
    """Clears up behind a job whose launcher is over, or is not waited for any longer."""

    def __init__(self, job: Running, lifelines: Lifelines) -> None:
        self._job = job
        self._lifelines = lifelines

    def settle(self, followers: Followers, *, patience_s: float) -> None:
        """End what is left on any node, and wait for output as long as any comes."""
        found = self._swept()
        found.update(self._swept_when_back(found, patience_s=patience_s))
        sizes: dict[str, Mapping[str, int]] = {}
        for node, swept in found.items():
            if isinstance(swept, NodeError):
                self._miss(node, unknown(swept))
            else:
                self._take(node, swept)
                sizes[node] = swept.sizes
        self._job.course.notes += tuple(
            f"{node}: {name} is not whole here: {here} of {there} bytes"
            for node, files in followers.short_of(sizes, patience_s=patience_s).items()
            for name, (here, there) in files.items()
        )
        while not self._job.box.empty():
            self._note_next()

    def _take(self, node: str, swept: Swept) -> None:
        course = self._job.course
        course.unsure += tuple(_survivors(node, swept.left, "could not be ended"))
        course.notes += tuple(_survivors(node, swept.ended, "was left behind and ended"))
        if swept.full:
            course.full_disks[node] = swept.full
            course.notes += (f"{node}: {_FULL.format(folder=swept.full)}",)

    def _miss(self, node: str, words: str) -> None:
        """Nobody knows what is left on a node; that of a lost one is no failure of the job."""
        if self._job.plan.nodes.index(node) in self._job.course.left:
            self._job.course.notes += (words,)
        else:
            self._job.course.unsure += (words,)

    def _swept(self) -> dict[str, Swept | NodeError]:
        """Sweep all nodes; a second Ctrl-C cuts all waiting short."""
        kill_now = partial(self._sweep, linger_s=0.0, grace_s=0.0)
        if self._job.interrupts.count > 1:
            return kill_now()
        linger_s = LINGER_S if self._job.course.launcher_over else 0.0
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(self._sweep, linger_s=linger_s, grace_s=self._job.plan.grace_s)
            going.add_done_callback(lambda _: self._job.box.put(None))
            while not going.done():
                self._note_next()
                if self._job.interrupts.count > 1 and not going.done():
                    self._job.course.interrupted = True
                    kill_now()
                    break
            return going.result()

    def _swept_when_back(
        self, found: Mapping[str, Swept | NodeError], *, patience_s: float
    ) -> dict[str, Swept | NodeError]:
        """Sweep those again of which only the connection was lost: their ranks may have gone on.

        Where the launcher failed, they may be what it lost: then they have only `patience_s`.
        """
        course, nodes = self._job.course, self._job.plan.nodes
        gone = [
            node
            for node, swept in found.items()
            if isinstance(swept, UnreachableError) and nodes.index(node) not in course.left
        ]
        if not gone or self._job.interrupts.count:
            return {}
        went_well = course.launcher_code == 0
        self._lifelines.wait(gone, at_most_s=float("inf") if went_well else patience_s)
        back = [node for node in gone if not self._lifelines.is_away(node)]
        if not back:
            return {}
        return self._sweep(linger_s=LINGER_S, grace_s=self._job.plan.grace_s, on=back)

    def _sweep(
        self, *, linger_s: float, grace_s: float, on: Sequence[str] = ()
    ) -> dict[str, Swept | NodeError]:
        transports = self._job.transports
        return sweep(
            {node: transports[node] for node in on or transports},
            self._job.plan.job_folder,
            linger_s=linger_s,
            grace_s=grace_s,
            forks=self._job.forks,
        )

    def _note_next(self) -> None:
        """Wait for what comes next, and take it in if it is an event."""
        seen = self._job.box.get()
        if isinstance(seen, NodeEvent) and seen.event is not None:
            self._job.course.note(seen.event)


def _survivors(node: str, survivors: Sequence[Survivor], what: str) -> list[str]:
    shown = survivors[:_SHOWN_SURVIVORS]
    lines = [f"{node}: process {p.pid} {what}: {p.command}" for p in shown]
    more = len(survivors) - len(shown)
    return [*lines, f"{node}: and {more} more"] if more > 0 else lines
