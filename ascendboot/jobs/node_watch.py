"""Looks after the nodes of a supervised job while a generation runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ascendboot.jobs.follow import Interrupts
from ascendboot.supervise.core import Action, Core, Stop
from ascendboot.supervise.policy import Fault

LOOK_S = 10.0
"""From the end of one look at the nodes to the next; vendor tools take seconds themselves."""
RETURNING = ("absent", "soft-quarantine", "suspect")
"""Nodes that are used again once they have been well for some time."""


class Nodes(Protocol):
    """What can be seen of the nodes while a job runs on some of them."""

    @property
    def may_grow(self) -> bool:
        """Whether a job can take in a node that returns; else it is used only if it is needed."""

    def faults(self, nodes: Collection[str], at: float) -> Sequence[Fault]:
        """What is wrong with the NPUs and links of these nodes; nodes without an answer are not."""

    def has_returned(self, node: str) -> bool:
        """Whether a node answers, and its NPUs and links are well."""

    def newest_step(self, nodes: Sequence[str]) -> int | None:
        """The step of the newest complete checkpoint that these nodes have; None: none is known."""


@dataclass(kw_only=True, eq=False)
class NodeWatch:
    """Reports to the core what it sees, and ends the generation when the core decides that."""

    core: Core
    nodes: Nodes
    interrupts: Interrupts
    clock: Callable[[], float]
    every_s: float = LOOK_S
    keep: Callable[[], None] = lambda: None
    """Keeps the state of the core; called after each call of it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def watching(self, begun: Callable[[], bool]) -> Iterator[None]:
        """Watch in a thread of its own until the block ends; then the core is left alone.

        `begun` returns whether all ranks of the generation have begun.
        """
        over = threading.Event()
        words = (begun, over)
        threading.Thread(target=self._run, args=words, name="node watch", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:  # a query of a node may take longer than the end of the block
                over.set()

    def _run(self, begun: Callable[[], bool], over: threading.Event) -> None:
        while not over.wait(self.every_s):
            self.look(begun, over)

    def look(self, begun: Callable[[], bool], over: threading.Event) -> None:
        """Look once; the first thing that demands the end of the generation ends it."""
        for report in self._reports(begun):
            with self._lock:
                if over.is_set():
                    return
                actions = report()
                self.keep()
            if stop := next((each for each in actions if isinstance(each, Stop)), None):
                self.interrupts.end(stop.cause.shown)
                return

    def _reports(self, begun: Callable[[], bool]) -> Iterator[Callable[[], Sequence[Action]]]:
        """Calls of the core, each made after the nodes were queried for it."""
        core, members = self.core, self.core.members
        if begun():
            yield partial(core.launched, self.clock())
        for fault in self.nodes.faults(members, self.clock()):
            yield partial(core.fault, fault)
        if (step := self.nodes.newest_step(members)) is not None:
            yield partial(core.checkpoint, self.clock(), step)
        for name, state in core.nodes.items() if self.nodes.may_grow else ():
            if state.status in RETURNING and state.until is None and self.nodes.has_returned(name):
                yield partial(core.node_up, self.clock(), name)
        yield partial(core.tick, self.clock())
