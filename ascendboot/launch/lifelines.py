"""Brings back the connection to a node of a job that runs, and goes on following it from there.

The job needs none of our connections. So one that is lost is opened again, its node's logs and
events are read from where they end here, and the job is judged by what it did meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.launch.follow import Back
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ascendboot.launch.follow import Followers
    from ascendboot.launch.running import Running
    from ascendboot.transport.api import Transport

_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
"""Between two attempts."""


class Lifelines:
    """The connections to the nodes of one job, each brought back in a thread of its own."""

    def __init__(
        self,
        job: Running,
        followers: Followers,
        *,
        connect: Callable[[str], Transport] | None,
        tell: Callable[[str], None],
        within_s: float,
    ) -> None:
        """`connect` opens a node's connection again; None: one that is lost stays so."""
        self._job = job
        self._followers = followers
        self._connect = connect
        self._tell = tell
        self._within_s = within_s
        self._threads: dict[str, threading.Thread] = {}
        self._away: set[str] = set()
        self._over = threading.Event()

    def is_away(self, node: str) -> bool:
        """Whether its connection is being brought back."""
        return node in self._away

    def bring_back(self, node: str) -> None:
        """Begin to, unless that goes on already; a `Back` comes to the job's box."""
        if not self.is_away(node):
            self._away.add(node)
            thread = threading.Thread(
                target=self._work, args=(node,), name=f"lifeline {node}", daemon=True
            )
            self._threads[node] = thread
            thread.start()

    def wait(self, nodes: Iterable[str], *, at_most_s: float) -> None:
        """Bring all of them back, or find out that they cannot be; any Ctrl-C ends the waiting."""
        waited = tuple(nodes)
        until = time.monotonic() + at_most_s
        for node in waited:
            self.bring_back(node)
        for node in waited:
            while self.is_away(node) and not self._job.interrupts.count:
                if time.monotonic() >= until:
                    return
                self._threads[node].join(0.2)

    def close(self) -> None:
        """No attempt begins from here on."""
        self._over.set()

    def _work(self, node: str) -> None:
        why: NodeError | None = None
        try:
            self._resume(node)
        except NodeError as error:
            why = error
        finally:  # before the word of it: whoever reads that waits for no more of them
            self._away.discard(node)
            self._job.box.put(Back(node, why))

    def _resume(self, node: str) -> None:
        """Follow a node again; where its connection is as it was, over that one.

        Raises:
            NodeError: why it cannot be; an UnreachableError when it had time enough.
        """
        lost_at = time.monotonic()
        transport = self._job.transports[node]
        try:
            self._look(transport)
        except UnreachableError as error:
            if self._connect is None:
                raise
            self._tell(f"{error}; connecting again, while the job goes on")
            transport = self._reached(node, self._connect, until=lost_at + self._within_s)
            self._job.transports[node] = transport
            away_s = time.monotonic() - lost_at
            words = f"{node}: its connection was lost, and is back after {away_s:.0f} s"
            self._tell(words)
            self._job.course.notes += (f"{words}; the job went on meanwhile",)
            self._look(transport)
        self._followers.resume(node, transport)

    def _look(self, transport: Transport) -> None:
        folder = str(self._job.plan.job_folder)
        look = Command(
            argv=("test", "-d", folder),
            purpose="see whether it still answers",
            effect=Effect.READ,
            timeout_s=10.0,
            expect=frozenset({0, 1}),
        )
        if transport.run(look).checked().exit_code:
            seen = f"its folder {folder} is gone; was its container, or the node, made anew?"
            raise NodeError(transport.node, seen)

    def _reached(
        self, node: str, connect: Callable[[str], Transport], *, until: float
    ) -> Transport:
        while True:
            _LOG.debug("%s: connecting again", node)
            try:
                return connect(node)
            except NodeError:
                if time.monotonic() >= until or self._over.wait(_PAUSE_S):
                    raise
