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
from ascendboot.jobs.output import LogCopy
from ascendboot.jobs.progress import Progress
from ascendboot.launch.events import EventReader, LauncherEnded
from ascendboot.launch.plan import rank_log, rank_marks
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ascendboot.jobs.output import LineView, RankOutput
    from ascendboot.launch.events import Event
    from ascendboot.launch.plan import JobRecord
    from ascendboot.transport.api import Stream, Transport

_EVENTS = "events"


class NodeGatherer:
    """Takes a node's streams, one at a time, into the copies of its logs, and its events."""

    def __init__(
        self,
        copies: Mapping[str, LogCopy],
        events: EventReader,
        wake: Callable[[], None],
    ) -> None:
        self._copies = copies
        self._events = events
        self._wake = wake
        self._received_at = time.monotonic()
        self._is_busy = False
        self._reader: object = None
        self.is_absent = False
        self.is_lost = False
        self.ended = threading.Event()
        """Whether all of the last stream was said."""
        self.problem = ""

    @property
    def is_read(self) -> bool:
        """Whether the last stream has not ended yet, be it before or after all was said."""
        return self._reader is not None

    @property
    def silent_s(self) -> float:
        """How long nothing has come; time in which we ourselves were busy does not count."""
        return 0.0 if self._is_busy else time.monotonic() - self._received_at

    @property
    def sizes(self) -> dict[str, int]:
        """How much of each file is here."""
        here = {name: copy.size for name, copy in self._copies.items()}
        return {_EVENTS: self._events.size, **here}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why a copy here is not whole."""
        return tuple(f"{n}: {copy.problem}" for n, copy in self._copies.items() if copy.problem)

    def reader(self) -> Callable[[bytes], None]:
        """Takes the bytes of a new stream; what an older one still delivers is left out."""
        frames = Frames(self._give, self._skip, self._tell)

        def feed(data: bytes) -> None:
            if self._reader is not feed:
                return
            self._is_busy = True
            try:
                self._feed(frames, data)
            finally:
                self._received_at = time.monotonic()
                self._is_busy = False
                self._wake()

        self.ended.clear()
        self._received_at = time.monotonic()
        self._reader = feed
        return feed

    def close(self) -> None:
        """Nothing more will come."""
        self._reader = None
        for copy in self._copies.values():
            copy.close()

    def _feed(self, frames: Frames, data: bytes) -> None:
        """Take the next bytes; once they are not understood, nothing more is taken."""
        if not data:
            self._reader = None
        elif not self.problem:
            try:
                frames.feed(data)
            except NotUnderstoodError as error:
                self.problem = str(error)

    def _give(self, name: str, data: bytes) -> None:
        if name == _EVENTS:
            self._events.feed(data)
        elif name in self._copies:
            self._copies[name].give(data)

    def _skip(self, name: str, count: int) -> None:
        if name in self._copies:
            self._copies[name].skip(count)

    def _tell(self, word: str) -> None:
        if word == "absent":
            self.is_absent = True
        elif word == "lost":
            self.is_lost = True
        elif word == "end":
            self.ended.set()


SILENCE_S = 60.0
"""Without a sign of life from a node until it counts as lost."""


@dataclass(frozen=True)
class Selection:
    """What is shown of a log."""

    lines: LineView | None = None
    start: int = 0
    """From which byte on."""


class LogGatherer:
    """The logs of one job in the folder of its run, completed from its nodes."""

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
        """`shown`: what goes to `output` of which ranks, that which is here already first."""
        self._job = job
        self._transports = transports
        self._forks = forks
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.progress = Progress()
        self.errors: dict[str, NodeError] = {}
        self.nodes = {
            node: NodeGatherer(
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
                EventReader(node, self._note),
                lambda: self._inbox.put(None),
            )
            for node in transports
        }

    def follow(self) -> None:
        """Gather all that is added until the job's launcher has ended, or the primary is lost."""
        streams = self._open(follow=True)
        try:
            while self._goes_on():
                self._wait(1.0)
        finally:
            self._close(streams)

    def complete(self) -> None:
        """Gather what there is now; who did not give all is in `errors`."""
        self._see_the_last()
        streams = self._open(follow=False)
        try:
            while any(not n.ended.is_set() for n in self._asked()):
                self._wait(1.0)
        finally:
            self._close(streams)

    def close(self) -> None:
        """Let go of the copies."""
        for node in self.nodes.values():
            node.close()

    @property
    def is_gone(self) -> bool:
        """Whether the primary no longer has the job's folder."""
        return self.primary_node is not None and self.primary_node.is_absent

    @property
    def primary_node(self) -> NodeGatherer | None:
        """What came from the primary; None when it was not reached."""
        return self.nodes.get(self._job.primary)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why copies here are not whole."""
        return tuple(p for node in self.nodes.values() for p in node.problems)

    def _goes_on(self) -> bool:
        primary = self.primary_node
        if primary is None or self._job.primary in self.errors:
            return False
        if primary.is_lost and not self.progress.launcher_over:
            self.progress.note(LauncherEnded(None))
        return not (self.progress.launcher_over or primary.is_absent)

    def _see_the_last(self) -> None:
        """Wait for what is still taken in of closed streams: new ones begin where these end."""
        while any(node.is_read for node in self._asked()):
            self._sleep(1.0)
            for name, node in self.nodes.items():
                if name not in self.errors and node.is_read and node.silent_s > SILENCE_S:
                    self._mark_lost(
                        name, f"its last stream has not ended for {node.silent_s:.0f} s"
                    )

    def _asked(self) -> Iterable[NodeGatherer]:
        return (node for name, node in self.nodes.items() if name not in self.errors)

    def _sleep(self, seconds: float) -> None:
        with suppress(queue.Empty):
            self._inbox.get(timeout=seconds)

    def _wait(self, seconds: float) -> None:
        self._sleep(seconds)
        for name, node in self.nodes.items():
            if name in self.errors:
                continue
            is_over = not node.is_read  # asked first: all may be said, and over, meanwhile
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
        words = [word for file, size in node.sizes.items() for word in (file, str(size))]
        command = Command(
            argv=(
                *("bash", "-c", script("jobs-fetch.sh"), "fetch", str(self._job.job_folder)),
                *("1" if follow else "0", *words),
            ),
            purpose=f"gather logs of job {self._job.job_id}",
            effect=Effect.READ,
        )
        return self._transports[name].stream(command, node.reader())

    def _close(self, streams: Mapping[str, Stream]) -> None:
        on_each(streams, lambda name: streams[name].close(), forks=self._forks)

    def _note(self, event: Event) -> None:
        with self._lock:
            self.progress.note(event)


def _views(job: JobRecord, node: str, shown: Mapping[int, Selection]) -> dict[str, Selection]:
    """What is shown of each file that is gathered from a node."""
    views = dict.fromkeys(job.logs_on(node), Selection())
    for rank in job.ranks_on(node):
        views[rank_log(rank.rank)] = shown.get(rank.rank, Selection())
        views[rank_marks(rank.rank)] = Selection()
    return views
