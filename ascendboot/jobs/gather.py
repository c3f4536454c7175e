"""Gathers the logs of a job from its nodes."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError, NotUnderstoodError, UnreachableError
from ascendboot.jobs.logs import Frames
from ascendboot.jobs.output import LineView, LogCopy, RankOutput
from ascendboot.jobs.progress import Arrivals, Progress
from ascendboot.launch.events import Event, EventReader, LauncherEnded, NodeSample, parse_sample
from ascendboot.launch.plan import JobRecord, LaunchPlan, rank_log, rank_marks
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Stream, Transport
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


_EVENTS = "events"


class NodeLogs:
    """Parses the streams of one node, one at a time, into copies of logs, events and samples."""

    def __init__(
        self,
        node: str,
        copies: Mapping[str, LogCopy],
        *,
        on_event: Callable[[Event], None],
        on_sample: Callable[[NodeSample], None] | None = None,
        on_end: Callable[[], None] = lambda: None,
        on_data: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_end` is called when a stream has ended, `on_data` after each piece of it."""
        self._copies = copies
        self._events = EventReader(node, on_event)
        self._on_sample = on_sample
        self._on_end = on_end
        self._on_data = on_data
        self._changed = threading.Condition()
        self._received_at = time.monotonic()
        self._is_busy = False
        self._wrote = False
        self._reader: object = None
        self.problem = ""
        """Why the stream could not be understood."""
        self.arrivals = {name: Arrivals() for name in copies}
        self.is_absent = False
        self.is_lost = False
        self.ended = threading.Event()
        """Whether the last stream is complete."""

    @property
    def is_read(self) -> bool:
        """Whether the last stream has not ended yet, complete or not."""
        return self._reader is not None

    @property
    def silent_s(self) -> float:
        """How long nothing has come; time spent on what has come does not count."""
        return 0.0 if self._is_busy else time.monotonic() - self._received_at

    @property
    def sizes(self) -> dict[str, int]:
        """How many bytes of each file are on the control machine."""
        here = {name: copy.size for name, copy in self._copies.items()}
        return {_EVENTS: self._events.size, **here}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why copies are incomplete."""
        return tuple(f"{n}: {copy.problem}" for n, copy in self._copies.items() if copy.problem)

    def reader(self) -> Callable[[bytes], None]:
        """Parses a new stream from `sizes` on; later bytes of an older stream are dropped."""
        frames = Frames(self._on_bytes, self._on_gap, self._on_word)

        def feed(data: bytes) -> None:
            if self._reader is not feed:
                return
            self._is_busy = True
            try:
                with self._changed:
                    self._feed(frames, data)
                    self._changed.notify_all()
            finally:
                self._received_at = time.monotonic()
                self._is_busy = False
                self._on_data()

        self.ended.clear()
        self._received_at = time.monotonic()
        self._reader = feed
        return feed

    def short_of(
        self, sizes: Mapping[str, int], *, patience_s: float
    ) -> dict[str, tuple[int, int]]:
        """Wait until all files have their sizes; those that have not: bytes here, bytes there.

        Gives up when none of their bytes came for `patience_s`.
        """
        with self._changed:
            short, until = self._short_of(sizes), time.monotonic() + patience_s
            while short and (left_s := until - time.monotonic()) > 0:
                self._changed.wait(left_s)
                before, short = short, self._short_of(sizes)
                if short != before:
                    until = time.monotonic() + patience_s
            return short

    def close(self) -> None:
        """Close the copies; nothing more will come."""
        with self._changed:
            self._reader = None
            for copy in self._copies.values():
                copy.close()

    def _short_of(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        here = self.sizes
        return {n: (here[n], size) for n, size in sizes.items() if n in here and here[n] < size}

    def _feed(self, frames: Frames, data: bytes) -> None:
        """Parse the next bytes; once a stream is not understood, the rest of it is dropped."""
        if not data:
            self._reader = None
            self._on_end()
        elif not self.problem:
            try:
                frames.feed(data)
            except NotUnderstoodError as error:
                self.problem = str(error)

    def _on_bytes(self, name: str, data: bytes) -> None:
        if name == _EVENTS:
            self._events.feed(data)
        elif name in self._copies:
            self._wrote = self._wrote or name.startswith("rank.")
            self._copies[name].give(data)
            self.arrivals[name].note(self._copies[name].size, time.time())

    def _on_gap(self, name: str, count: int) -> None:
        if name in self._copies:
            self._copies[name].skip(count)

    def _on_word(self, word: str) -> None:
        if word == "absent":
            self.is_absent = True
        elif word == "lost":
            self.is_lost = True
        elif word == "end":
            self.ended.set()
        elif self._on_sample is not None and (sample := parse_sample(word, wrote=self._wrote)):
            self._wrote = False
            self._on_sample(sample)


POLL_S = 0.2
"""How often `jobs-logs.sh` looks for new bytes."""


def logs_command(
    job: JobRecord | LaunchPlan,
    mode: str,
    sizes: Mapping[str, int],
    *,
    beat_s: float = 10.0,
    sample_s: int = 0,
) -> Command:
    """The command that sends what is missing of files; `mode` is that of `jobs-logs.sh`."""
    beat = max(1, round(beat_s / POLL_S))
    words = [word for name, size in sizes.items() for word in (name, str(size))]
    return Command(
        argv=(
            *("bash", "-c", script("jobs-logs.sh"), "logs", str(job.job_folder)),
            *(mode, str(beat), str(sample_s), *words),
        ),
        purpose=f"read logs of job {job.job_id}",
        effect=Effect.WRITE if mode == "record" else Effect.READ,
    )


SILENCE_S = 60.0
"""A node counts as lost after so long without a sign of life."""


@dataclass(frozen=True)
class Selection:
    """What is shown of a log."""

    lines: LineView | None = None
    start: int = 0
    """From which byte on."""


class LogGatherer:
    """Completes the logs of one job in the folder of its run from its nodes."""

    def __init__(
        self,
        job: JobRecord,
        transports: Mapping[str, Transport],
        *,
        folder: Path,
        output: RankOutput,
        shown: Mapping[int, Selection] | None = None,
        forks: int,
    ) -> None:
        """`shown`: what goes to `output`, by rank; what is here already comes first."""
        self._job = job
        self._transports = transports
        self._forks = forks
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.progress = Progress()
        self.errors: dict[str, NodeError] = {}
        self.nodes = {
            node: NodeLogs(
                node,
                {
                    name: LogCopy(
                        folder / name,
                        view.lines,
                        output,
                        resumes=True,
                        shown_from=view.start,
                        limit=job.log_limit,
                    )
                    for name, view in _views(job, node, shown or {}).items()
                },
                on_event=self._note,
                on_data=lambda: self._inbox.put(None),
            )
            for node in transports
        }

    def follow(self) -> None:
        """Gather logs until the job's launcher has ended, or the primary is lost."""
        streams = self._open(follow=True)
        try:
            while self._goes_on():
                self._wait(1.0)
        finally:
            self._close(streams)

    def complete(self) -> None:
        """Gather what there is now; nodes that failed are in `errors`."""
        self._see_the_last()
        streams = self._open(follow=False)
        try:
            while any(not n.ended.is_set() for n in self._asked()):
                self._wait(1.0)
        finally:
            self._close(streams)

    def close(self) -> None:
        """Close the copies."""
        for node in self.nodes.values():
            node.close()

    @property
    def is_gone(self) -> bool:
        """Whether the primary no longer has the job's folder."""
        return self.primary_node is not None and self.primary_node.is_absent

    @property
    def primary_node(self) -> NodeLogs | None:
        """The logs of the primary; None when it was not reached."""
        return self.nodes.get(self._job.primary)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why copies are incomplete."""
        return tuple(p for node in self.nodes.values() for p in node.problems)

    def _goes_on(self) -> bool:
        primary = self.primary_node
        if primary is None or self._job.primary in self.errors:
            return False
        if primary.is_lost and not self.progress.launcher_over:
            self.progress.note(LauncherEnded(None))
        return not (self.progress.launcher_over or primary.is_absent)

    def _see_the_last(self) -> None:
        """Wait for the rest of closed streams: new ones begin where these end."""
        while any(node.is_read for node in self._asked()):
            self._sleep(1.0)
            for name, node in self.nodes.items():
                if name not in self.errors and node.is_read and node.silent_s > SILENCE_S:
                    self._mark_lost(
                        name, f"its last stream has not ended for {node.silent_s:.0f} s"
                    )

    def _asked(self) -> Iterable[NodeLogs]:
        return (node for name, node in self.nodes.items() if name not in self.errors)

    def _sleep(self, seconds: float) -> None:
        with suppress(queue.Empty):
            self._inbox.get(timeout=seconds)

    def _wait(self, seconds: float) -> None:
        self._sleep(seconds)
        for name, node in self.nodes.items():
            if name in self.errors:
                continue
            is_over = not node.is_read  # read first: the stream may complete and end meanwhile
            if node.problem:
                self.errors[name] = NodeError(name, f"could not give its logs: {node.problem}")
            elif node.ended.is_set():
                continue
            elif is_over:
                self._mark_lost(name, "its connection has ended")
            elif node.silent_s > SILENCE_S:
                self._mark_lost(name, f"nothing came for {node.silent_s:.0f} s")

    def _mark_lost(self, node: str, seen: str) -> None:
        words = f"could not gather logs of job {self._job.job_id}: {seen}"
        self.errors[node] = UnreachableError(node, words)

    def _open(self, *, follow: bool) -> dict[str, Stream]:
        names = [name for name in self.nodes if name not in self.errors]
        opened = on_each(names, lambda name: self._stream(name, follow=follow), forks=self._forks)
        streams: dict[str, Stream] = {}
        for name, stream in opened.items():
            if isinstance(stream, NodeError):
                self.errors[name] = stream
            else:
                streams[name] = stream
        return streams

    def _stream(self, name: str, *, follow: bool) -> Stream:
        node = self.nodes[name]
        command = logs_command(self._job, "follow" if follow else "once", node.sizes)
        return self._transports[name].stream(command, node.reader())

    def _close(self, streams: Mapping[str, Stream]) -> None:
        on_each(streams, lambda name: streams[name].close(), forks=self._forks)

    def _note(self, event: Event) -> None:
        with self._lock:
            self.progress.note(event)


def _views(job: JobRecord, node: str, shown: Mapping[int, Selection]) -> dict[str, Selection]:
    """What to show of each file of a node."""
    views = dict.fromkeys(job.logs_on(node), Selection())
    for rank in job.ranks_on(node):
        views[rank_log(rank.rank)] = shown.get(rank.rank, Selection())
        views[rank_marks(rank.rank)] = Selection()
    return views
