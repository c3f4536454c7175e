"""Looks after the nodes of a supervised job while a generation runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from ascendboot.jobs.follow import Interrupts
from ascendboot.supervise.core import Action, Core, State, Stop
from ascendboot.supervise.policy import Fault, FaultKind
from ascendboot.value import Struct, field, replace

LOOK_S = 10.0
"""From the end of one look at the nodes to the next; vendor tools take seconds themselves."""
REQUESTS_S = 1.0
RETURNING = ("absent", "soft-quarantine", "suspect")
"""Nodes that are used again once they have been well for some time."""


class Nodes(Protocol):
    """What can be seen of the nodes while a job runs on some of them."""

    @property
    def may_grow(self) -> bool:
        """Whether a job can take in a node that returns; else it is used only if it is needed."""

    def faults(self, nodes: Collection[str], at: float) -> Sequence[Fault]:
        """What is wrong with the NPUs and links of these nodes, as far as it is known."""

    def ready_among(self, nodes: Collection[str]) -> Collection[str]:
        """Those of the nodes that answer, and whose NPUs and links are well."""

    def newest_step(self, nodes: Sequence[str]) -> int | None:
        """The step of the newest complete checkpoint that these nodes have; None: none is known."""


class NodeWatch(Struct, kw_only=True, eq=False):
    """Reports to the core what it sees, and ends the generation when the core decides that."""

    core: Core
    nodes: Nodes
    interrupts: Interrupts
    clock: Callable[[], float]
    every_s: float = LOOK_S
    keep: Callable[[], None] = lambda: None
    requested: Callable[[], Sequence[Action]] = tuple
    _known: set[Fault] = field(default_factory=set)
    """What was wrong at the last look, without its time; the core knows it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def watching(self, begun: Callable[[], bool]) -> Iterator[None]:
        """Watch in a thread until the block ends; `begun` returns whether all ranks have begun."""
        over = threading.Event()
        words = (begun, over)
        threading.Thread(target=self._run, args=words, name="node watch", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:  # a query of a node may take longer than the end of the block
                over.set()

    def _run(self, begun: Callable[[], bool], over: threading.Event) -> None:
        look_at = self.clock() + self.every_s
        while not over.wait(min(self.every_s, REQUESTS_S)):
            self._reported(partial(self._often, begun), over)
            if self.clock() >= look_at:
                self.look(begun, over)
                look_at = self.clock() + self.every_s

    def look(self, begun: Callable[[], bool], over: threading.Event) -> None:
        """Look once; the first thing that demands the end of the generation ends it."""
        for report in self._reports(begun):
            if self._reported(report, over, self.keep):
                return

    def _often(self, begun: Callable[[], bool]) -> Sequence[Action]:
        """What needs no query of a node: the start of all ranks, and requests."""
        if self.core.state is State.LAUNCHING and begun():
            self.core.launched(self.clock())
            self.keep()
        return self.requested()

    def _reported(
        self,
        report: Callable[[], Sequence[Action]],
        over: threading.Event,
        keep: Callable[[], None] = lambda: None,
    ) -> bool:
        """Call the core; whether nothing more of this generation is looked at."""
        with self._lock:
            if over.is_set():
                return True
            actions = report()
            keep()
        stop = next((each for each in actions if isinstance(each, Stop)), None)
        if stop is not None:
            self.interrupts.end(stop.cause.shown)
        return stop is not None

    def _reports(self, begun: Callable[[], bool]) -> Iterator[Callable[[], Sequence[Action]]]:
        """Calls of the core, each made after the nodes were queried for it."""
        core, members = self.core, self.core.members
        if begun():
            yield partial(core.launched, self.clock())
        yield from self._of_faults()
        if self.nodes.may_grow:
            yield from self._of_others()
        yield partial(core.tick, self.clock())
        if (step := self.nodes.newest_step(members)) is not None:
            yield partial(core.checkpoint, self.clock(), step)

    def _of_faults(self) -> Iterator[Callable[[], Sequence[Action]]]:
        """Faults that were not there at the last look, and those that have passed."""
        core, found = self.core, self.nodes.faults(self.core.members, self.clock())
        known, self._known = self._known, {replace(fault, at=0.0) for fault in found}
        for fault in core.persisting:
            if replace(fault, at=0.0) not in self._known:
                yield partial(core.passed, self.clock(), fault)
        new = [each for each in found if each.is_slow or replace(each, at=0.0) not in known]
        # Together, although the first may end the generation: they can have a common cause.
        yield lambda: [action for fault in new for action in core.fault(fault)]

    def _of_others(self) -> Iterator[Callable[[], Sequence[Action]]]:
        """Nodes that have returned, and spares and held nodes that were lost before their use."""
        core = self.core
        # Where its ranks run, a node is looked at again when they have ended.
        others = {n: state for n, state in core.nodes.items() if n not in core.members}
        held = [n for n, state in others.items() if state.until is not None or n in core.spares]
        away = [n for n, s in others.items() if s.status in RETURNING and n not in held]
        ready = self.nodes.ready_among([*held, *away])
        for name in held:
            if name not in ready:
                is_held = others[name].until is not None
                words = "it was not ready for long enough" if is_held else "the spare is not ready"
                lost = Fault(kind=FaultKind.NODE_DOWN, at=self.clock(), node=name, words=words)
                yield partial(core.fault, lost)
        if back := [name for name in away if name in ready]:
            yield partial(core.node_up, self.clock(), *back)
