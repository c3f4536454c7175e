"""Follows the logs and events of a job; reconnects to nodes."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ascendboot.errors import NodeError, NotUnderstoodError, UnreachableError
from ascendboot.jobs.logs import Frames
from ascendboot.jobs.output import Demux, Lines, LogCopy, RankOutput, plain
from ascendboot.jobs.progress import Arrivals
from ascendboot.launch.events import EventReader, parse_sample
from ascendboot.launch.plan import rank_log
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    import queue
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from ascendboot.jobs.hang import HungJob
    from ascendboot.jobs.progress import Progress
    from ascendboot.launch.events import Event, NodeSample
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.transport.api import Stream, Transport

_EVENTS = "events"
_BEAT = "beat"


@dataclass(frozen=True)
class NodeEvent:
    """An event as it came from a node; None: nothing will come from there any more."""

    node: str
    event: Event | None


@dataclass(frozen=True)
class Reconnected:
    """A node whose stream had ended is followed again; or why it is not."""

    node: str
    error: NodeError | None


class NodeFollower:
    """Takes the stream of one node apart as it comes."""

    def __init__(
        self,
        node: str,
        files: Mapping[str, LogCopy],
        nonce: str,
        on_event: Callable[[Event | None], None],
        on_sample: Callable[[NodeSample], None] | None = None,
    ) -> None:
        self._files = files
        self._on_event = on_event
        self._on_sample = on_sample
        self._demux = Demux(nonce, self._give, self._line_may_end)
        self._first = self._demux
        self._garbled = ""
        self.arrivals = {name: Arrivals() for name in files}
        self._events = EventReader(node, on_event)
        self._beat_rest = b""
        self._wrote = False
        self._changed = threading.Condition()
        self._busy = False
        self._received_at = time.monotonic()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the node's stream; none: it has ended."""
        if self._demux is not self._first:
            return
        if not data:
            self._on_event(None)
            return
        self._take(self._demux.feed, data)

    def resume(self, nonce: str) -> tuple[Callable[[bytes], None], Callable[[bytes], None]]:
        """Take two streams in place of the former, of which nothing is taken any more.

        The first is that of `jobs-fetch.sh`, from the `sizes` on; the second, with signs of life
        and no logs, that of `jobs-follow.sh`.
        """
        with self._changed:
            demux = Demux(nonce, self._give, self._line_may_end)
            frames = Frames(self._give, self._skip, lambda _word: None)
            self._demux, self._received_at = demux, time.monotonic()

        def fetched(data: bytes) -> None:
            if self._demux is not demux or self._garbled:
                return
            if not data:
                self._on_event(None)
                return
            try:
                self._take(frames.feed, data)
            except NotUnderstoodError as error:
                self._garbled = str(error)

        def beats(data: bytes) -> None:
            if self._demux is demux and data:
                self._take(demux.feed, data)

        return fetched, beats

    @property
    def sizes(self) -> dict[str, int]:
        """How much of each file is here."""
        here = {name: file.size for name, file in self._files.items()}
        return {**here, _EVENTS: self._events.size}

    def _take(self, feed: Callable[[bytes], None], data: bytes) -> None:
        self._busy = True
        try:
            with self._changed:
                feed(data)
                self._changed.notify_all()
        finally:
            self._received_at = time.monotonic()
            self._busy = False

    @property
    def silent_s(self) -> float:
        """How long nothing has come; time in which we ourselves were busy does not count."""
        return 0.0 if self._busy else time.monotonic() - self._received_at

    def short_of(
        self, sizes: Mapping[str, int], *, patience_s: float
    ) -> dict[str, tuple[int, int]]:
        """Wait until all files have their sizes; those that have not: bytes here, bytes there.

        Gives up when nothing of them has come for `patience_s`, whatever else came.
        """
        with self._changed:
            short, until = self._short_of(sizes), time.monotonic() + patience_s
            while short and (left_s := until - time.monotonic()) > 0:
                self._changed.wait(left_s)
                before, short = short, self._short_of(sizes)
                if short != before:
                    until = time.monotonic() + patience_s
            return short

    @property
    def problems(self) -> tuple[str, ...]:
        """Which copies on the operator's side are not whole, and why."""
        garbled = (self._garbled,) if self._garbled else ()
        return (*(f"{n}: {f.problem}" for n, f in self._files.items() if f.problem), *garbled)

    def close(self) -> None:
        """The stream has ended: write out what was held back."""
        with self._changed:
            self._demux.finish()
            for file in self._files.values():
                file.close()

    def _short_of(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        here = self.sizes
        return {
            name: (here[name] + self._demux.held(name), size)
            for name, size in sizes.items()
            if name in here and here[name] + self._demux.held(name) < size
        }

    def _give(self, name: str, data: bytes) -> None:
        if name == _EVENTS:
            self._events.feed(data)
        elif name == _BEAT:
            self._read_beat(data)
        elif name in self._files:
            self._wrote = self._wrote or name.startswith("rank.")
            self._files[name].give(data)
            self.arrivals[name].note(self._files[name].size, time.time())

    def _skip(self, name: str, count: int) -> None:
        if name in self._files:
            self._files[name].skip(count)

    def _line_may_end(self, name: str) -> None:
        if name == _EVENTS:
            # Each event is one write that ends its line, so the newline held back has been written.
            self._events.end_line()
        elif name == _BEAT:
            self._read_beat(b"\n")
        elif name in self._files:
            self._files[name].end_line()

    def _read_beat(self, data: bytes) -> None:
        *lines, self._beat_rest = (self._beat_rest + data).split(b"\n")
        for line in lines:
            sample = parse_sample(line.decode(errors="replace"), wrote=self._wrote)
            if sample is not None and self._on_sample is not None:
                self._wrote = False
                self._on_sample(sample)


class Followers:
    """One stream per node, from before the start to after the end of a job."""

    def __init__(
        self,
        plan: LaunchPlan,
        *,
        folder: Path,
        sink: Callable[[bytes], None],
        on_event: Callable[[NodeEvent], None],
        on_sample: Callable[[str, NodeSample], None] | None = None,
        sample_s: int = 0,
        prefix: Callable[[str, int], bytes] = plain,
        forks: int,
    ) -> None:
        """`prefix` of a node and a rank stands before each line that goes to `sink`.

        `on_sample` is told what the ranks of a node use, every `sample_s` seconds or so.
        """
        self._plan = plan
        self._folder = folder
        self._on_event = on_event
        self._on_sample = on_sample
        self._sample_s = sample_s
        self._prefix = prefix
        self._forks = forks
        self._streams: dict[str, list[Stream]] = {node: [] for node in plan.nodes}
        self._beat_s = 0.0
        self.output = RankOutput(sink)
        self.nodes: dict[str, NodeFollower] = {}
        self._arrivals: dict[str, Arrivals] = {}

    @property
    def arrivals(self) -> Mapping[str, Arrivals]:
        """When which part of which log came in; live, also for nodes not followed yet."""
        return self._arrivals

    def open(self, transports: Mapping[str, Transport], *, beat_s: float) -> None:
        """Begin to follow all nodes.

        Raises:
            OSError: a file here could not be opened.
            NodeError: a node's stream could not be opened; close those that were.
        """
        self._beat_s = beat_s
        self._folder.mkdir(parents=True, exist_ok=True)
        nonces = {node: secrets.token_hex(16) for node in self._plan.nodes}
        for node, nonce in nonces.items():
            self._begin(node, nonce)
        opened = on_each(
            nonces,
            lambda node: self._open(transports[node], nonces[node]),
            forks=self._forks,
        )
        for error in opened.values():
            if isinstance(error, NodeError):
                raise error

    def resume(self, node: str, transport: Transport) -> None:
        """Follow a node again whose stream has ended, from where its files end here.

        Raises:
            NodeError: it cannot be.
        """
        follower = self.nodes[node]
        nonce = secrets.token_hex(16)
        fetched, beats = follower.resume(nonce)
        sizes = [word for name, size in follower.sizes.items() for word in (name, str(size))]
        command = Command(
            argv=(
                "bash",
                "-c",
                script("jobs-fetch.sh"),
                "fetch",
                str(self._plan.job_folder),
                "1",
                *sizes,
            ),
            purpose=f"follow job {self._plan.job_id} again",
            effect=Effect.READ,
        )
        streams = self._streams[node]
        streams.append(transport.stream(self._following(nonce), beats))
        streams.append(transport.stream(command, fetched))

    def short_of(
        self, sizes: Mapping[str, Mapping[str, int]], *, patience_s: float
    ) -> dict[str, dict[str, tuple[int, int]]]:
        """As `NodeFollower.short_of`, for several nodes at once: files and sizes by node."""
        short = on_each(
            sizes,
            lambda node: self.nodes[node].short_of(sizes[node], patience_s=patience_s),
            forks=len(sizes),  # no node does anything for it
        )
        return {node: files for node, files in short.items() if not isinstance(files, NodeError)}

    def close(self) -> None:
        """End all streams and write out what was held back."""
        on_each(self._streams, self._close, forks=self._forks)
        for follower in self.nodes.values():
            follower.close()

    def _begin(self, node: str, nonce: str) -> None:
        told = self._on_sample
        on_sample = None if told is None else partial(told, node)
        follower = NodeFollower(
            node, self._files(node), nonce, self._event_handler(node), on_sample
        )
        self.nodes[node] = follower
        self._arrivals.update(follower.arrivals)

    def _open(self, transport: Transport, nonce: str) -> None:
        node = transport.node
        command = self._following(nonce, _EVENTS, *self._plan.logs_on(node))
        self._streams[node].append(transport.stream(command, self.nodes[node].feed))

    def _following(self, nonce: str, *names: str) -> Command:
        words = (str(self._plan.job_folder), nonce, f"{self._beat_s:g}", f"{self._sample_s}")
        return Command(
            argv=("bash", "-c", script("jobs-follow.sh"), "follow", *words, *names),
            purpose=f"follow job {self._plan.job_id}",
            effect=Effect.WRITE,
        )

    def _close(self, node: str) -> None:
        for stream in self._streams[node]:
            stream.close()

    def _event_handler(self, node: str) -> Callable[[Event | None], None]:
        return lambda event: self._on_event(NodeEvent(node, event))

    def _files(self, node: str) -> dict[str, LogCopy]:
        prefixes = {
            rank_log(rank.rank): self._prefix(node, rank.rank) for rank in self._plan.ranks_on(node)
        }
        files: dict[str, LogCopy] = {}
        try:
            for name in self._plan.logs_on(node):
                prefix = prefixes.get(name)
                files[name] = LogCopy(
                    self._folder / name,
                    None if prefix is None else Lines(prefix),
                    self.output,
                    limit=self._plan.log_limit,
                )
        except OSError:
            for file in files.values():
                file.close()
            raise
        return files


if TYPE_CHECKING:
    Inbox: TypeAlias = queue.SimpleQueue[NodeEvent | Reconnected | HungJob | None]
    """What comes to whoever follows a job; None wakes it."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long what may be waited for, in seconds."""

    start_s: float = 120.0
    """From the start until every rank has begun."""
    beat_s: float = 10.0
    """Between two signs of life of a node's follower."""
    silence_s: float = 60.0
    """Without any sign from the primary until it counts as lost."""
    reconnect_s: float = 60.0
    """Until a connection that was lost has to be back."""
    drain_s: float = 10.0
    """Without any byte of a log that is known to be longer."""


class Interrupts:
    """Ctrl-C, counted: once ends the job as usual, twice kills it. For a signal handler."""

    def __init__(self) -> None:
        self.count = 0
        self._inbox: Inbox | None = None

    def press(self) -> None:
        """Note one more interrupt; may be called from a signal handler or another thread."""
        self.count += 1
        if self._inbox is not None:
            self._inbox.put(None)

    def wake(self, inbox: Inbox) -> None:
        """Put None into `box` at every press from now on."""
        self._inbox = inbox


@dataclass(frozen=True, kw_only=True)
class Running:
    """What it is, where it runs, and what is seen of it."""

    plan: LaunchPlan
    transports: dict[str, Transport]
    """Of its nodes; another one where a connection was lost and came back."""
    progress: Progress
    interrupts: Interrupts
    inbox: Inbox
    """What comes of it to whoever follows it."""
    forks: int
    """On how many nodes to work at once."""


# The job needs none of our connections. So one that is lost is opened again, its node's logs and
# events are read from where they end here, and the job is judged by what it did meanwhile.

_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 1.0
"""Between two attempts."""


class Reconnector:
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
        self._reconnecting: set[str] = set()
        self._over = threading.Event()

    def is_reconnecting(self, node: str) -> bool:
        """Whether its connection is being brought back."""
        return node in self._reconnecting

    def reconnect(self, node: str) -> None:
        """Begin to, unless that goes on already; a `Back` comes to the job's box."""
        if not self.is_reconnecting(node):
            self._reconnecting.add(node)
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
            self.reconnect(node)
        for node in waited:
            while self.is_reconnecting(node) and not self._job.interrupts.count:
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
            self._reconnecting.discard(node)
            self._job.inbox.put(Reconnected(node, why))

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
            self._job.progress.notes += (f"{words}; the job went on meanwhile",)
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
            seen = f"its folder {folder} is gone; was its container, or the node, re-created?"
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
