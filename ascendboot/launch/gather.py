"""Gathering a job's logs, from where the operator's copies end; nothing is written on nodes."""

from __future__ import annotations

import logging
import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError, NotUnderstoodError, UnreachableError
from ascendboot.launch.copies import LogCopy
from ascendboot.launch.course import Course
from ascendboot.launch.events import LauncherEnded, parse_event
from ascendboot.launch.fetch import FETCH, Frames
from ascendboot.launch.plan import rank_log, rank_marks
from ascendboot.launch.prepare import on_each
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ascendboot.launch.copies import Screen
    from ascendboot.launch.demux import View
    from ascendboot.launch.record import JobRecord
    from ascendboot.transport.api import Stream, Transport

SILENCE_S = 60.0
"""Without a sign of life from a node until it counts as lost."""
_EVENTS = "events"
log = logging.getLogger(__name__)


class NodeGathering:
    """What comes from one node: into the copies of its logs, and its events into the course."""

    def __init__(
        self,
        copies: Mapping[str, LogCopy],
        take: Callable[[str, bytes], None],
        wake: Callable[[], None],
    ) -> None:
        self._copies = copies
        self._take = take
        self._wake = wake
        self._frames = Frames(self._give, self._skip, self._tell)
        self._heard_at = time.monotonic()
        self.events = 0
        self.is_absent = False
        self.is_lost = False
        self.ended = threading.Event()
        self.is_cut = False
        """Whether the stream has ended, be it before or after all was said."""
        self.problem = ""

    @property
    def silent_s(self) -> float:
        """How long nothing has come."""
        return time.monotonic() - self._heard_at

    @property
    def sizes(self) -> dict[str, int]:
        """How much of each file is here."""
        return {_EVENTS: self.events} | {name: copy.size for name, copy in self._copies.items()}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why a copy here is not whole."""
        return tuple(f"{n}: {copy.problem}" for n, copy in self._copies.items() if copy.problem)

    def feed(self, data: bytes) -> None:
        """Take the next bytes; once they are not understood, nothing more is taken."""
        self._heard_at = time.monotonic()
        self.is_cut = not data
        if self.problem:
            return
        try:
            self._frames.feed(data)
        except NotUnderstoodError as error:
            self.problem = str(error)
            self.ended.set()
        self._heard_at = time.monotonic()
        self._wake()

    def close(self) -> None:
        """Nothing more will come."""
        for copy in self._copies.values():
            copy.close()

    def _give(self, name: str, data: bytes) -> None:
        if name == _EVENTS:
            self.events += len(data)
            self._take(name, data)
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


@dataclass(frozen=True)
class Shown:
    """What is shown of a log."""

    lines: View | None = None
    start: int = 0
    """From which byte on."""


class Gathering:
    """The logs of one job in the folder of its run, completed from its nodes."""

    def __init__(
        self,
        job: JobRecord,
        transports: Mapping[str, Transport],
        *,
        folder: Path,
        screen: Screen,
        shown: Mapping[int, Shown] | None = None,
    ) -> None:
        """`shown`: what goes to the screen of which ranks, that which is here already first."""
        self._job = job
        self._transports = transports
        self._lock = threading.Lock()
        self._rests: dict[str, bytes] = {}
        self._box: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.course = Course()
        self.errors: dict[str, NodeError] = {}
        self.nodes = {
            node: NodeGathering(
                {
                    name: LogCopy(
                        folder / name,
                        view.lines,
                        screen,
                        resumes=True,
                        shown_from=view.start,
                        limit=job.log_limit,
                    )
                    for name, view in _views(job, node, shown or {}).items()
                },
                self._taker(node),
                lambda: self._box.put(None),
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
            for stream in streams:
                stream.close()

    def complete(self) -> None:
        """Gather what there is now; who did not give all is in `errors`."""
        streams = self._open(follow=False)
        try:
            while any(not n.ended.is_set() for n in self._asked()):
                self._wait(1.0)
        finally:
            for stream in streams:
                stream.close()
        for name, node in self.nodes.items():
            if node.problem and name not in self.errors:
                self.errors[name] = NodeError(name, f"could not give its logs: {node.problem}")

    def close(self) -> None:
        """Let go of the copies."""
        for node in self.nodes.values():
            node.close()

    @property
    def is_gone(self) -> bool:
        """Whether the primary no longer has the job's folder."""
        return self.job_primary is not None and self.job_primary.is_absent

    @property
    def job_primary(self) -> NodeGathering | None:
        """What came from the primary; None when it was not reached."""
        return self.nodes.get(self._job.primary)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why copies here are not whole."""
        return tuple(p for node in self.nodes.values() for p in node.problems)

    def _goes_on(self) -> bool:
        primary = self.job_primary
        if primary is None or self._job.primary in self.errors:
            return False
        if primary.is_lost and not self.course.launcher_over:
            self.course.note(LauncherEnded(None))
        return not (self.course.launcher_over or primary.is_absent or primary.problem)

    def _asked(self) -> Iterable[NodeGathering]:
        return (node for name, node in self.nodes.items() if name not in self.errors)

    def _wait(self, seconds: float) -> None:
        with suppress(queue.Empty):
            self._box.get(timeout=seconds)
        for name, node in self.nodes.items():
            if name in self.errors or node.ended.is_set():
                continue
            if node.is_cut or node.silent_s > SILENCE_S:
                seen = f"nothing came for {node.silent_s:.0f} s"
                self.errors[name] = UnreachableError(
                    name,
                    f"could not gather logs of job {self._job.job_id}: "
                    f"{'its connection has ended' if node.is_cut else seen}",
                )

    def _open(self, *, follow: bool) -> list[Stream]:
        names = [name for name in self.nodes if name not in self.errors]
        opened = on_each(names, lambda name: self._stream(name, follow=follow))
        streams = []
        for name, stream in opened.items():
            if isinstance(stream, NodeError):
                self.errors[name] = stream
            else:
                streams.append(stream)
        return streams

    def _stream(self, name: str, *, follow: bool) -> Stream:
        node = self.nodes[name]
        node.ended.clear()
        node.is_cut = False
        words = [word for file, size in node.sizes.items() for word in (file, str(size))]
        command = Command(
            argv=(
                *("bash", "-c", FETCH, "fetch", str(self._job.job_folder)),
                *("1" if follow else "0", *words),
            ),
            purpose=f"gather logs of job {self._job.job_id}",
            effect=Effect.READ,
        )
        return self._transports[name].stream(command, node.feed)

    def _taker(self, node: str) -> Callable[[str, bytes], None]:
        return lambda _, data: self._read_events(node, data)

    def _read_events(self, node: str, data: bytes) -> None:
        *lines, self._rests[node] = (self._rests.get(node, b"") + data).split(b"\n")
        with self._lock:
            for line in lines:
                self._note(node, line.decode(errors="replace"))

    def _note(self, node: str, line: str) -> None:
        try:
            self.course.note(parse_event(line, 1))
        except NotUnderstoodError as error:
            log.warning("%s: %s", node, error)


def _views(job: JobRecord, node: str, shown: Mapping[int, Shown]) -> dict[str, Shown]:
    """What is shown of each file that is gathered from a node."""
    views = dict.fromkeys(job.logs_on(node), Shown())
    for rank in job.ranks_on(node):
        views[rank_log(rank.rank)] = shown.get(rank.rank, Shown())
        views[rank_marks(rank.rank)] = Shown()
    return views
