"""The output of ranks: separated by rank, written to files, shown with a prefix."""

from __future__ import annotations

import errno
import os
import queue
import re
import subprocess
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Final

from ascendboot.model.names import fold, runs

MAX_LINE: Final = 1 << 20
MAX_BAR: Final = 1 << 12
"""The length at which an unfinished progress bar is shown: about fifty updates."""
MOST_BLOCKS: Final = 32
"""How many blocks may wait for the reader until writers do."""
_PATIENCE_S: Final = 1.0
_LOOK_S: Final = 0.25
_MIB: Final = 1 << 20

_COLOURS: Final = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""Terminal colours (ECMA-48) without red, which marks errors and matches of `--grep`."""
_GOES_BACK: Final = re.compile(rb"\r(?![\r\n]|\Z)")
"""A return to the start of the line; not the line end of Windows."""
_MARK: Final = re.compile(rb"^(\d{1,12}\.\d+) (\d{1,15}) (\d{1,15}) (\d{1,15})$", re.MULTILINE)
_HOLE: Final = bytes(4096)
_NOTHING: Final = re.compile(b"(%b\0*)" % _HOLE)


def plain(node: str, rank: int) -> bytes:
    """The prefix for files, pipes and other programs."""
    return f"{node}:{rank} | ".encode()


def by_node(nodes: Sequence[str]) -> Callable[[str, int], bytes]:
    """Return a function for prefixes with one colour per node, which also end an older colour."""
    places = {node: place for place, node in enumerate(nodes)}

    def coloured(node: str, rank: int) -> bytes:
        colour = _COLOURS[places[node] % len(_COLOURS)]
        return f"\x1b[0;{colour}m{node}:{rank} |\x1b[0m ".encode()

    return coloured


class Lines:
    """Splits the bytes of one file into whole lines and puts `prefix` before each.

    A progress bar, which returns to the start of its line many times, is shown from time to time.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._pending = b""
        self._missing = 0

    def feed(self, data: bytes) -> bytes:
        """Return all lines that `data` completes, in one piece; empty when there is none."""
        gap = self._gap_line() if data else b""
        block, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._pending += rest
            return gap + self._split_pending()
        block = self._pending + block
        self._pending = rest
        if len(block) > MAX_LINE:
            pieces = (
                line[at : at + MAX_LINE]
                for line in block.split(b"\n")
                for at in range(0, max(1, len(line)), MAX_LINE)
            )
            block = b"\n".join(pieces)
        return gap + self.shown(block) + self._split_pending()

    def skip(self, count: int) -> bytes:
        """Return the unfinished line; the next output begins with a line about the gap."""
        self._missing += count
        return self._flush()

    def finish(self) -> bytes:
        """Return the last line if it has no newline."""
        return self._gap_line() + self._flush()

    def shown(self, block: bytes) -> bytes:
        """Return the output for whole lines; subclasses may select some of them."""
        return self.behind_prefix(block)

    def behind_prefix(self, block: bytes) -> bytes:
        """Put the prefix before each line, and again where the line returns to its start."""
        if b"\r" in block:
            block = _GOES_BACK.sub(lambda _: b"\r" + self._prefix, block)
        return self._prefix + block.replace(b"\n", b"\n" + self._prefix) + b"\n"

    def _gap_line(self) -> bytes:
        count, self._missing = self._missing, 0
        words = f"[ascendboot: {count} bytes are missing here: the log outgrew logs.max_size]"
        return self.behind_prefix(words.encode()) if count else b""

    def _flush(self) -> bytes:
        line, self._pending = self._pending, b""
        return self.shown(line) if line else b""

    def _split_pending(self) -> bytes:
        shown = b""
        if len(self._pending) > MAX_BAR:
            # A newline may follow: a final return may be the line end of Windows.
            bar, goes_back, begun = self._pending[:-1].rpartition(b"\r")
            if goes_back:
                shown, self._pending = self.shown(bar), begun + self._pending[-1:]
        while len(self._pending) > MAX_LINE:
            shown += self.shown(self._pending[:MAX_LINE])
            self._pending = self._pending[MAX_LINE:]
        return shown


class RankOutput:
    """Passes blocks of whole lines to a sink in order, from a separate thread.

    Writers wait for a slow reader; when `is_hurried`, one that does not read for a second is
    abandoned. When the sink fails, nothing more is shown.
    """

    def __init__(
        self, sink: Callable[[bytes], None], *, is_hurried: Callable[[], bool] = lambda: False
    ) -> None:
        self._sink, self._is_hurried = sink, is_hurried
        self._blocks: queue.Queue[bytes | None] = queue.Queue(MOST_BLOCKS)
        self._hurried_at: float | None = None
        self._moved_at = time.monotonic()
        self.problem: str = ""
        self.lost = False
        """Whether lines were lost and the reader did not close the pipe."""
        # A thread that hangs in a full pipe must not keep the program from ending.
        self._writer = threading.Thread(target=self._write, name="outlet", daemon=True)
        self._writer.start()

    def show(self, block: bytes) -> None:
        """Write some whole lines."""
        if block:
            self._put(block)

    def close(self) -> None:
        """Wait until all is written."""
        self._put(None)
        while not self.problem and self._writer.is_alive():
            self._writer.join(_LOOK_S)
            self._look()

    def _put(self, block: bytes | None) -> None:
        while not self.problem:
            with suppress(queue.Full):
                self._blocks.put(block, timeout=_LOOK_S)
                return
            self._look()

    def _look(self) -> None:
        if not self._is_hurried():
            return
        now = time.monotonic()
        if self._hurried_at is None:
            self._hurried_at = now
        if now - max(self._hurried_at, self._moved_at) > _PATIENCE_S:
            self._lose(TimeoutError("its reader does not read"))

    def _write(self) -> None:
        while (block := self._blocks.get()) is not None and not self.problem:
            try:
                self._sink(block)
            except OSError as error:
                self._lose(error)
            except ValueError as closed:  # the file was closed meanwhile
                self._lose(OSError(str(closed)))
            self._moved_at = time.monotonic()

    def _lose(self, error: OSError) -> None:
        gone = isinstance(error, BrokenPipeError)
        self.lost = not gone
        why = "its reader is gone" if gone else error.strerror or error
        self.problem = f"could not show the output any longer: {why}; see the logs"


_LABEL: Final = re.compile(rb"([^ ]+):(\d+) \| ")
_MOST_WAITING: Final = 10_000


class Folded:
    """A sink that shows equal lines of several ranks once: `lab-[1-2]:[0-15] | text`.

    A line waits for its like of the other ranks, for `window_s` at most. The lines of each rank
    stay in their order.
    """

    def __init__(self, sink: Callable[[bytes], None], ranks: int, *, window_s: float = 1.0) -> None:
        self._sink, self._ranks, self._window_s = sink, ranks, window_s
        self._lock, self._over = threading.Lock(), threading.Event()
        self._waiting: deque[tuple[float, bytes, set[bytes]]] = deque()
        """When each line came first, its text, and the ranks that printed it, by label."""
        self._alike: dict[bytes, list[int]] = {}
        self._first = 0
        self._newest: dict[bytes, int] = {}
        """The number of the newest line of each rank; the first that waits has `_first`."""
        self._error: OSError | None = None
        threading.Thread(target=self._look, name="fold", daemon=True).start()

    def __call__(self, block: bytes) -> None:
        """Take some whole lines."""
        now = time.monotonic()
        with self._lock:
            for line in block.split(b"\n")[:-1]:
                self._take(line, now)
        self._show(now - self._window_s)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Show what still waits."""
        self._over.set()
        self._show(float("inf"))

    def _take(self, line: bytes, now: float) -> None:
        label = _LABEL.match(line)
        who, text = (label[0], line[label.end() :]) if label else (b"", line)
        alike = self._alike.setdefault(text, []) if label else []
        at = bisect_right(alike, self._newest.get(who, -1))
        number = alike[at] if at < len(alike) else self._first + len(self._waiting)
        if at == len(alike):
            self._waiting.append((now, text, set()))
            alike.append(number)
        self._waiting[number - self._first][2].add(who)
        self._newest[who] = number

    def _show(self, before: float) -> None:
        with self._lock:
            shown = []
            while self._waiting:
                since, text, ranks = self._waiting[0]
                is_full = len(self._waiting) > _MOST_WAITING
                if since > before and len(ranks) < self._ranks and not is_full:
                    break
                self._waiting.popleft()
                alike = self._alike.get(text, [])
                if alike[:1] == [self._first]:
                    del alike[0]
                if not alike:
                    self._alike.pop(text, None)
                self._first += 1
                shown.append(_folded_label(tuple(sorted(ranks))) + text + b"\n")
            try:
                if shown and self._error is None:
                    self._sink(b"".join(shown))
            except OSError as error:
                self._error = error

    def _look(self) -> None:
        while not self._over.wait(self._window_s / 4):
            self._show(time.monotonic() - self._window_s)


@lru_cache(maxsize=1000)
def _folded_label(labels: tuple[bytes, ...]) -> bytes:
    if len(labels) == 1:
        return labels[0]
    places = [match for label in labels if (match := _LABEL.match(label))]
    nodes = fold({place[1].decode() for place in places})
    return f"{nodes}:[{runs(int(place[2]) for place in places)}] | ".encode()


# A log that outgrew its limit has a hole, which uses no disk space. All other bytes keep their
# offsets, so the size of a copy is always the offset of the next byte.


def drop(path: Path, start: int, end: int) -> bool:
    """Free the disk space of these bytes; False if the file system cannot."""
    offset = ("--offset", str(start), "--length", str(end - start))
    command = ("fallocate", "--punch-hole", *offset, "--", str(path))
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@dataclass(eq=False)
class LogCopy:
    """Copies one file of a node to the control machine, and shows its lines.

    The copy is always a beginning of the node's file, so it can be completed later. Ranges that the
    node dropped are holes in the copy; so is what exceeds `limit`.
    """

    path: Path
    lines: Lines | None
    """None: nothing is shown."""
    output: RankOutput
    resumes: bool = False
    """Whether an existing copy is shown, from the offset `shown_from` on, and continued."""
    shown_from: int = 0
    limit: int = 0
    problem: str = ""
    _dropped_to: int = 0

    def __post_init__(self) -> None:
        self._copy = self.path.open("ab" if self.resumes else "wb", buffering=0)
        self.size = self._copy.seek(0, os.SEEK_END)
        if self.resumes and self.lines is not None:
            _show(self.path, self.lines, self.output, self.shown_from)

    def give(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        self.size += len(data)
        if not self.problem:
            self._keep(data)
        if self.lines is not None:
            self.output.show(self.lines.feed(data))

    def skip(self, count: int) -> None:
        """Skip bytes that the node has dropped."""
        self.size += count
        if not self.problem:
            try:
                self._copy.truncate(self.size)
                self._copy.seek(0, os.SEEK_END)
            except OSError as error:
                self._lose(error)
        if self.lines is not None:
            self.output.show(self.lines.skip(count))

    def close(self) -> None:
        """Show the unfinished line and close the copy."""
        if self.lines is not None:
            self.output.show(self.lines.finish())
        with suppress(OSError):
            self._copy.close()

    def _keep(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._copy.write(rest) :]
        except OSError as error:
            self._lose(error)
            return
        # A quarter of the limit stays at the beginning, half of it at the end. File systems only
        # free whole blocks, so the range is aligned to MiB.
        start = self.limit // 4 // _MIB * _MIB
        end = (self.size - self.limit // 2) // _MIB * _MIB
        if self.limit and self.size - max(0, self._dropped_to - start) > self.limit:
            drop(self.path, max(start, self._dropped_to), end)
            self._dropped_to = end

    def _lose(self, error: OSError) -> None:
        self.problem = f"could not keep the whole output: {error.strerror or error}"


def show_copy(path: Path, lines: Lines, output: RankOutput, *, start: int = 0) -> None:
    """Show all lines of a copy, or those from `start` on."""
    with suppress(FileNotFoundError):
        _show(path, lines, output, start)
    output.show(lines.finish())


def _show(path: Path, lines: Lines, output: RankOutput, at: int) -> None:
    with path.open("rb") as copy:
        while True:
            data_at = _next_data(copy, at)
            if data_at > at:
                output.show(lines.skip(data_at - at))
            block = copy.read(_MIB)
            if not block:
                return
            # A hole may begin within the block, and the file system may not know holes.
            for number, piece in enumerate(_NOTHING.split(block)):
                output.show(lines.skip(len(piece)) if number % 2 else lines.feed(piece))
            at = data_at + len(block)


def _next_data(file: BinaryIO, at: int) -> int:
    """Seek to `at`, or to the end of the hole around it; returns the new offset."""
    try:
        return file.seek(at, os.SEEK_DATA)
    except OSError as error:
        # ENXIO: `at` is in a hole at the end of the file, or after the end.
        end = file.seek(0, os.SEEK_END) if error.errno == errno.ENXIO else at
        return file.seek(max(at, end))


def start_of_last_lines(path: Path, count: int) -> int:
    """Return the offset of the last `count` lines of a log; at most back to a hole."""
    if not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as log:
        start = log.rfind(_HOLE) + 1
        end = len(log) - 1 if log[-1:] == b"\n" else len(log)
        for _ in range(count):
            if (end := log.rfind(b"\n", start, end)) < 0:
                return start
    return end + 1


def start_of_line(path: Path, at: int) -> int:
    """Return the offset of the line that contains the byte at `at`."""
    with path.open("rb") as file:
        begin = max(0, at - MAX_LINE)
        file.seek(begin)
        before = file.read(at - begin)
        return begin + max(before.rfind(b"\n"), before.rfind(b"\0")) + 1


def size_at(marks: bytes, moment: float) -> int | None:
    """Return the size of a log at a Unix time of its node, by its `marks`; None: unknown."""
    noted = [(float(mark[1]), int(mark[2])) for mark in _MARK.finditer(marks)]
    before = [size for at, size in noted if at <= moment]
    return None if not noted else before[-1] if before else 0
