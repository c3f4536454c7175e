"""Follows the logs and events of a job; reconnects to nodes."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.jobs.gather import NodeLogs
from ascendboot.jobs.hang import HungJob
from ascendboot.jobs.loss import BadLoss, LossLines, LossWatch
from ascendboot.jobs.output import LogCopy, RankOutput, plain, start_of_line
from ascendboot.jobs.progress import Arrivals, Progress
from ascendboot.launch.events import Event, NodeSample
from ascendboot.launch.plan import Job, JobRecord, rank_log
from ascendboot.transport.api import Command, Effect, Transport
from ascendboot.transport.pool import on_each, results_and_errors
from ascendboot.value import Struct, Value, field


class NodeEvent(Value):
    """An event of a node; None: its stream has ended."""

    node: str
    event: Event | None


class Reconnected(Value):
    """A node is followed again after its stream had ended, or cannot be."""

    node: str
    error: NodeError | None


class Timeouts(Value, kw_only=True):
    """Timeouts in seconds."""

    start_s: float = 120.0
    """From the start until every rank has started."""
    told_s: float = 10.0
    """After this time of the start, the missing nodes are named."""
    beat_s: float = 10.0
    """Interval of the signs of life of a node."""
    silence_s: float = 60.0
    """The primary counts as lost after this time without a sign of life."""
    reconnect_s: float = 60.0
    """For reopening a lost connection."""
    drain_s: float = 10.0
    """For the next byte of an incomplete log."""
    node_s: float = float("inf")
    """A node without a sign of life for this time is connected anew; if that fails, it counts as
    lost and the job is ended. By default only its launcher notices."""


class Followers(Struct, eq=False):
    """One stream per node, from before the start to after the end of a job.

    Copies of a job that was started before are continued: what they have already is not shown.
    """

    plan: Job
    folder: Path
    output: RankOutput
    on_event: Callable[[NodeEvent], None]
    forks: int
    prefix: Callable[[str, int], bytes] = plain
    """Returns the part before each line in the output, for a node and rank."""
    on_sample: Callable[[str, NodeSample], None] = lambda _node, _sample: None
    on_loss: Callable[[BadLoss], None] = lambda _bad: None
    sample_s: int = 0
    """About how often, in seconds; 0: never."""
    beat_s: float = Timeouts().beat_s
    nodes: dict[str, NodeLogs] = field(default_factory=dict)
    arrivals: dict[str, Arrivals] = field(default_factory=dict)

    def open(self, transports: Mapping[str, Transport]) -> None:
        """Start to follow all nodes; call `close` also after an OSError or NodeError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for node in self.plan.nodes:
            self._open_copies(node)
        _, errors = results_and_errors(
            self.plan.nodes, lambda node: self.follow(node, transports[node]), forks=self.forks
        )
        for error in errors.values():
            raise error

    def follow(self, node: str, transport: Transport) -> None:
        """Follow a node from where the copies of its files end; drop its previous stream."""
        self.nodes[node].open(
            transport, self.plan, "record", beat_s=self.beat_s, sample_s=self.sample_s
        )

    def short_of(
        self, sizes: Mapping[str, Mapping[str, int]], *, patience_s: float
    ) -> dict[str, dict[str, tuple[int, int]]]:
        """As `NodeLogs.short_of`, for several nodes at once: files and sizes by node."""
        short, _ = results_and_errors(
            sizes,
            lambda node: self.nodes[node].short_of(sizes[node], patience_s=patience_s),
            forks=len(sizes),  # it only waits, and runs nothing on the nodes
        )
        return short

    def close(self) -> None:
        """End all streams and close the copies."""
        on_each(self.nodes, lambda node: self.nodes[node].close_streams(), forks=self.forks)
        for logs in self.nodes.values():
            logs.close()

    def _open_copies(self, node: str) -> None:
        """Open the copies of a node's logs; `close` also closes them if one cannot be opened."""
        plan, copies = self.plan, dict[str, LogCopy]()
        self.nodes[node] = NodeLogs(
            node,
            copies,
            on_event=lambda event: self.on_event(NodeEvent(node, event)),
            on_sample=lambda sample: self.on_sample(node, sample),
            arrivals=self.arrivals,
        )
        lines = {
            rank_log(rank.rank): LossLines(
                self.prefix(node, rank.rank),
                LossWatch(rank.rank, node, plan.loss_form),
                self.on_loss,
            )
            for rank in plan.ranks_on(node)
        }
        copy = partial(LogCopy, output=self.output, limit=plan.log_limit)
        for name in plan.logs_on(node):
            path, resumes = self.folder / name, isinstance(plan, JobRecord)
            # Of a copy that is continued, the unfinished line is shown again.
            start = start_of_line(path, path.stat().st_size) if resumes and path.exists() else 0
            copies[name] = copy(path, lines.get(name), resumes=resumes, shown_from=start)


Inbox: TypeAlias = queue.SimpleQueue[NodeEvent | Reconnected | HungJob | BadLoss | None]
"""Messages to the thread that follows a job; None only wakes it."""


class Interrupts:
    """Counts Ctrl-C: the first ends the job with its grace period, the second kills it."""

    def __init__(self) -> None:
        self.count = 0
        self.why = ""
        """Why the job is ended although nobody pressed Ctrl-C; empty: it is not."""
        self.inbox: Inbox = queue.SimpleQueue()
        """Of the thread that follows a job now."""

    def end(self, why: str) -> None:
        """End the job with its grace period; may be called from another thread."""
        self.why = why
        self.inbox.put(None)

    def press(self) -> None:
        """Note one more interrupt; may be called from a signal handler or another thread."""
        self.count += 1
        self.inbox.put(None)


# A job does not depend on connections. A lost one is reopened, and logs and events of its node are
# read from where the copies end.

_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
"""Pause between two attempts to connect."""


class Reconnector(Struct, eq=False):
    """Reopens lost connections to the nodes of one job, each in a separate thread."""

    job: Job
    transports: dict[str, Transport]
    """By node; new ones replace lost ones."""
    progress: Progress
    follow: Callable[[str, Transport], None]
    on_end: Callable[[Reconnected], None]
    connect: Callable[[str], Transport] | None
    """Opens a new connection to a node; None: it stays lost."""
    tell: Callable[[str], None]
    within_s: float
    known: Collection[str] = ()
    """Errors that were told before."""
    _resumed: dict[str, float] = field(default_factory=dict)
    """By node, when its last stream was opened anew."""
    _hasty: set[str] = field(default_factory=set)
    _threads: dict[str, threading.Thread] = field(default_factory=dict)
    """By node that is being reconnected."""
    _over: threading.Event = field(default_factory=threading.Event)

    def is_reconnecting(self, node: str) -> bool:
        """Whether its connection is being reopened."""
        return node in self._threads

    def reconnect(self, node: str, *, silent_s: float = 0.0) -> None:
        """Start to reopen the connection to a node; the old one of a silent node is not tried."""
        if not self.is_reconnecting(node):
            work = partial(self._work, node, silent_s=silent_s)
            thread = threading.Thread(target=work, name=f"lifeline {node}", daemon=True)
            self._threads[node] = thread
            thread.start()

    def wait(self, nodes: Iterable[str], interrupts: Interrupts, *, at_most_s: float) -> None:
        """Reconnect all of them and wait for the results; any Ctrl-C ends the waiting."""
        waited = tuple(nodes)
        until = time.monotonic() + at_most_s
        for node in waited:
            self.reconnect(node)
        for node in waited:
            while (thread := self._threads.get(node)) and not interrupts.count:
                if time.monotonic() >= until:
                    return
                thread.join(0.2)

    def close(self) -> None:
        """Start no further attempt."""
        self._over.set()

    def _work(self, node: str, *, silent_s: float) -> None:
        why: NodeError | None = None
        try:
            self._resume(node, silent_s=silent_s)
        except NodeError as error:
            why = error
        finally:  # before the message: its reader waits while a node is reconnecting
            del self._threads[node]
            self.on_end(Reconnected(node, why))

    def _resume(self, node: str, *, silent_s: float) -> None:
        """Follow a node again, over its old connection if that still works."""
        since, told = time.monotonic() - silent_s, set(self.known)
        # Wait, and say so once, if its last stream ended as soon as it was opened.
        if time.monotonic() - self._resumed.get(node, -_PAUSE_S) < _PAUSE_S:
            if node not in self._hasty:
                self._hasty.add(node)
                self.tell(f"{node}: what reads its logs ends at once; trying again each second")
            self._over.wait(_PAUSE_S)
        self._resumed[node] = time.monotonic()
        side = None if silent_s else self.transports.get(node)
        if side is not None:
            try:
                self._check_folder(side)
                return self.follow(node, side)
            except UnreachableError as error:
                if self.connect is None:
                    raise
                told.add(str(error))
                self.tell(f"{error}; connecting again; the job continues")
        return self._connect_anew(node, since, told)

    def _connect_anew(self, node: str, since: float, told: set[str]) -> None:
        """Follow a node that was lost at `since` over a new connection; new errors are told."""
        if self.connect is None:
            raise UnreachableError(node, "its connection is silent")
        is_new, words, until = node not in self.transports, "", time.monotonic() + self.within_s
        while True:
            _LOG.debug("%s: connecting again", node)
            side = None
            try:
                side = self.transports[node] = self.connect(node)
                self._check_folder(side)
                if not words:  # before its events
                    words = self._tell_back(node, time.monotonic() - since, is_new=is_new)
                return self.follow(node, side)
            except NodeError as error:
                is_final = side is not None and not isinstance(error, UnreachableError)
                if is_final or time.monotonic() >= until:
                    raise
                if str(error) not in told:
                    told.add(str(error))
                    self.tell(f"{error}; trying again")
                if self._over.wait(_PAUSE_S):
                    raise

    def _tell_back(self, node: str, away_s: float, *, is_new: bool) -> str:
        if is_new:
            words = f"{node}: was reached after {away_s:.0f} s"
        else:
            words = f"{node}: its connection was lost, and was reopened after {away_s:.0f} s"
            self.progress.notes += (f"{words}; the job continued",)
        self.tell(words)
        return words

    def _check_folder(self, transport: Transport) -> None:
        folder = str(self.job.job_folder)
        look = Command(
            argv=("test", "-d", folder),
            purpose="reach the job again",
            effect=Effect.READ,
            timeout_s=10.0,
            expect=frozenset({0, 1}),
        )
        if transport.run(look).checked().exit_code:
            seen = f"its folder {folder} is gone; was its container, or the node, re-created?"
            raise NodeError(transport.node, seen)
