"""Gathers the logs of a job from its nodes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from ascendboot.errors import NodeError, NotUnderstoodError, UnreachableError
from ascendboot.jobs.output import Lines, LogCopy, RankOutput
from ascendboot.jobs.progress import Arrivals, Progress
from ascendboot.launch.events import Event, EventReader, LauncherEnded, NodeSample, parse_sample
from ascendboot.launch.plan import Job, JobRecord, rank_log, rank_marks
from ascendboot.templates import script
from ascendboot.transport.api import Stream, Transport, read_script, write_script
from ascendboot.transport.pool import on_each

POLL_S: Final = 0.2
"""How often `jobs-logs.sh` looks for new bytes; at the end of a rank it does so at once."""
SILENCE_S = 60.0
"""A node counts as lost after this time without a sign of life."""
_SOON_S: Final = 10.0
"""After this time, a node whose logs are followed is connected anew."""
_BEAT_S: Final = 2.0
_EVENTS: Final = "events"
_HEADER: Final = re.compile(rb"(bytes|gap) (\d{1,15}) ([A-Za-z0-9._-]+)")
_WORD: Final = re.compile(rb"absent|beat|lost|end|sample .*")

Frame: TypeAlias = tuple[str, bytes | int] | str
"""The name of a file with its next bytes or the length of a gap; or another line."""


class Frames:
    """Parses the stream of `jobs-logs.sh`, in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._due = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take the next bytes of the stream."""
        data, self._rest = self._rest + data, b""
        while data:
            if self._due:
                part, data = data[: self._due], data[self._due :]
                self._due -= len(part)
                yield self._name, part
                continue
            line, newline, data = data.partition(b"\n")
            if not newline:
                self._rest = line
            elif match := _HEADER.fullmatch(line):
                count, name = int(match[2]), match[3].decode()
                if match[1] == b"gap":
                    yield name, count
                else:
                    self._due, self._name = count, name
            elif _WORD.fullmatch(line):
                yield line.decode()
            else:
                shown = line.decode(errors="replace")
                raise NotUnderstoodError(
                    "the job's files", 1, shown, "bytes, gap, beat, lost or end"
                )


@dataclass(eq=False)
class NodeLogs:
    """Parses the streams of one node, one at a time, into copies of logs, events and samples."""

    node: str
    copies: Mapping[str, LogCopy]
    on_event: Callable[[Event | None], None]
    """Gets None when a stream has ended."""
    on_sample: Callable[[NodeSample], None] | None = None
    on_data: Callable[[], None] = lambda: None
    arrivals: dict[str, Arrivals] = field(default_factory=dict)
    """By name of a log of which anything has arrived."""
    problem: str = ""
    """Why the stream could not be understood."""
    is_absent: bool = False
    is_lost: bool = False
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the last stream is complete."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _received_at: float = field(default_factory=time.monotonic)
    _is_busy: bool = False
    _wrote: bool = False
    _reader: object = None
    _streams: list[Stream] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._events = EventReader(self.node, self.on_event)

    @property
    def is_read(self) -> bool:
        """Whether the last stream has not ended yet, complete or not."""
        return self._reader is not None

    @property
    def silent_s(self) -> float:
        """For how long nothing has arrived; the time to process what arrived does not count."""
        return 0.0 if self._is_busy else time.monotonic() - self._received_at

    @property
    def sizes(self) -> dict[str, int]:
        """How many bytes of each file are on the control machine."""
        return {_EVENTS: self._events.size} | {n: copy.size for n, copy in self.copies.items()}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why copies are incomplete."""
        return tuple(f"{n}: {copy.problem}" for n, copy in self.copies.items() if copy.problem)

    def reader(self) -> Callable[[bytes], None]:
        """Return a parser for a new stream from `sizes` on; it replaces that of an older stream."""
        frames = Frames()

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
                self.on_data()

        self.ended.clear()
        self._received_at = time.monotonic()
        self._reader = feed
        return feed

    def open(
        self, transport: Transport, job: Job, mode: str, *, beat_s: float = 10.0, sample_s: int = 0
    ) -> None:
        """Open a stream from where the copies end; `mode` is a mode of `jobs-logs.sh`."""
        beat = max(1, round(beat_s / POLL_S))
        words = [word for name, size in self.sizes.items() for word in (name, str(size))]
        command = (write_script if mode == "record" else read_script)(
            script("jobs-logs.sh"),
            *(str(job.job_folder), mode, str(beat), str(sample_s), *words),
            purpose=f"read logs of job {job.job_id}",
        )
        try:
            self._streams.append(transport.stream(command, self.reader()))
        except NodeError:
            self._reader = None
            raise

    def close_streams(self) -> None:
        """End all streams."""
        while self._streams:
            self._streams.pop().close()

    def short_of(
        self, sizes: Mapping[str, int], *, patience_s: float
    ) -> dict[str, tuple[int, int]]:
        """Wait until all files have these sizes; return the others with both sizes in bytes.

        The wait ends when nothing of them arrived for `patience_s`.
        """

        def missing() -> dict[str, tuple[int, int]]:
            here = self.sizes
            return {n: (here[n], size) for n, size in sizes.items() if here.get(n, size) < size}

        with self._changed:
            short, until = missing(), time.monotonic() + patience_s
            while short and (left_s := until - time.monotonic()) > 0:
                self._changed.wait(left_s)
                before, short = short, missing()
                if short != before:
                    until = time.monotonic() + patience_s
            return short

    def close(self) -> None:
        """Close the copies; later bytes are dropped."""
        with self._changed:
            self._reader = None
            for copy in self.copies.values():
                copy.close()

    def _feed(self, frames: Frames, data: bytes) -> None:
        """Take the next bytes; after an error the rest of the stream is dropped."""
        if not data:
            self._reader = None
            self.on_event(None)
        elif not self.problem:
            try:
                for frame in frames.feed(data):
                    self._take(frame)
            except NotUnderstoodError as error:
                self.problem = str(error)

    def _take(self, frame: Frame) -> None:
        match frame:
            case (name, bytes(data)) if name == _EVENTS:
                self._events.feed(data)
            case (name, content) if copy := self.copies.get(name):
                if isinstance(content, int):
                    copy.skip(content)
                else:
                    self._wrote = self._wrote or name.startswith("rank.")
                    copy.give(content)
                    self.arrivals.setdefault(name, Arrivals()).note(copy.size, time.time())
            case "absent":
                self.is_absent = True
            case "lost":
                self.is_lost = True
            case "end":
                self.ended.set()
            case str(line) if self.on_sample and (sample := parse_sample(line, wrote=self._wrote)):
                self._wrote = False
                self.on_sample(sample)
            case _:
                pass  # a sign of life, or a file of another job


@dataclass(kw_only=True, eq=False)
class LogGatherer:
    """Completes the copies of one job's logs from its nodes."""

    job: JobRecord
    transports: dict[str, Transport]
    absent: Collection[str] = ()
    """Nodes that could not be reached; `follow` tries again."""
    folder: Path
    output: RankOutput
    shown: Mapping[int, tuple[Lines, int]]
    """What goes to `output`, by rank, and the offset from which on; existing copies come first."""
    forks: int
    progress: Progress = field(default_factory=Progress)
    errors: dict[str, NodeError] = field(default_factory=dict)
    nodes: dict[str, NodeLogs] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: threading.Event = field(default_factory=threading.Event)
    _returning: dict[str, float] = field(default_factory=dict)
    """By node that is connected anew, until when `follow` waits for it after the job's end."""

    def __post_init__(self) -> None:
        job = self.job
        copy = partial(LogCopy, output=self.output, resumes=True, limit=job.log_limit)
        views = {rank_log(rank): view for rank, view in self.shown.items()}
        for node in (*self.transports, *self.absent):
            names = (*job.logs_on(node), *(rank_marks(r.rank) for r in job.ranks_on(node)))
            copies = {}
            for name in names:
                lines, start = views.get(name, (None, 0))
                copies[name] = copy(self.folder / name, lines, shown_from=start)
            logs = NodeLogs(node, copies, on_event=self._note, on_data=self._changed.set)
            self.nodes[node] = logs

    def follow(self, reconnect: Callable[..., None]) -> None:
        """Gather logs until the job's launcher has ended; `reconnect` gets node and `silent_s`."""
        with self._opened("follow"):
            while self._goes_on() or self._waits_until() > time.monotonic():
                self._wait(reconnect)
        for name in self._returning.copy():
            self._mark_lost(name, "it does not answer")

    def on_reconnected(self, node: str, error: NodeError | None) -> None:
        """Note that a node was reconnected, or why it was not."""
        if isinstance(error, UnreachableError):
            self._mark_lost(node, "its connection has ended")
        elif error is not None:
            self.errors[node] = error
        self._returning.pop(node, None)
        self._changed.set()

    def complete(self) -> None:
        """Copy what exists now; nodes that failed are in `errors`."""
        # New streams begin where closed ones end: wait until those have ended.
        while any(node.is_read for node in self._asked().values()):
            self._changed.wait(1.0)
            self._changed.clear()
            for name, node in self._asked().items():
                if node.is_read and node.silent_s > SILENCE_S:
                    silent = f"its last stream has not ended for {node.silent_s:.0f} s"
                    self._mark_lost(name, silent)
        with self._opened("once"):
            while any(not node.ended.is_set() for node in self._asked().values()):
                self._wait()

    def close(self) -> None:
        """Close the copies."""
        for node in self.nodes.values():
            node.close()

    @property
    def is_gone(self) -> bool:
        """Whether the primary no longer has the job's folder."""
        primary = self.nodes.get(self.job.primary)
        return primary is not None and primary.is_absent

    @property
    def problems(self) -> tuple[str, ...]:
        """Why copies are incomplete."""
        return tuple(p for node in self.nodes.values() for p in node.problems)

    def _goes_on(self) -> bool:
        primary = self._asked().get(self.job.primary)
        if primary is None:
            return False
        if primary.is_lost and not self.progress.launcher_over:
            self.progress.note(LauncherEnded(None))
        return not (self.progress.launcher_over or primary.is_absent)

    def _waits_until(self) -> float:
        return max(self._returning.copy().values(), default=0.0)

    def _asked(self) -> dict[str, NodeLogs]:
        return {name: node for name, node in self.nodes.items() if name not in self.errors}

    def _wait(self, reconnect: Callable[..., None] | None = None) -> None:
        """Wait for the next bytes, and note failed nodes."""
        self._changed.wait(1.0)
        self._changed.clear()
        for name, node in self._asked().items():
            is_over = not node.is_read  # read before `ended`, which is set earlier
            if node.problem:
                self.errors[name] = NodeError(name, f"could not read its logs: {node.problem}")
            elif node.ended.is_set() or name in self._returning:
                continue
            elif reconnect is not None and (is_over or node.silent_s > _SOON_S):
                is_new = name not in self.transports
                self._returning[name] = 0.0 if is_new else time.monotonic() + SILENCE_S
                reconnect(name, silent_s=0.0 if is_over else node.silent_s)
            elif is_over:
                self._mark_lost(name, "its connection has ended")
            elif node.silent_s > SILENCE_S:
                self._mark_lost(name, f"no data for {node.silent_s:.0f} s")

    def _mark_lost(self, node: str, seen: str) -> None:
        words = f"could not gather logs of job {self.job.job_id}: {seen}"
        self.errors[node] = UnreachableError(node, words)

    def read(self, name: str, transport: Transport, mode: str = "follow") -> None:
        """Read the logs of a node from where its copies end; `mode` is a mode of `jobs-logs.sh`."""
        if name not in self.errors:
            self.nodes[name].open(transport, self.job, mode, beat_s=_BEAT_S)

    @contextmanager
    def _opened(self, mode: str) -> Iterator[None]:
        found = on_each(
            [name for name in self._asked() if name in self.transports],
            lambda name: self.read(name, self.transports[name], mode),
            forks=self.forks,
        )
        for name, error in found.items():
            if error and not (mode == "follow" and isinstance(error, UnreachableError)):
                self.errors[name] = error
        try:
            yield
        finally:
            on_each(self.nodes, lambda name: self.nodes[name].close_streams(), forks=self.forks)

    def _note(self, event: Event | None) -> None:
        if event is not None:
            with self._lock:
                self.progress.note(event)
