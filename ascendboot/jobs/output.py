"""The output of ranks: separated by rank, written to files, shown with a prefix."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

# The hole takes no place on the disk, and every byte stays where it was: whoever knows how much
# of a log is here can ask for what comes after it, whatever was dropped meanwhile.

_EDGE: Final = 1 << 20
"""Holes begin and end there: file systems can free whole blocks only."""
_BLOCK: Final = 1 << 20
_LONGEST_LINE: Final = 1 << 20
_MARK = re.compile(rb"^(\d+\.\d+) (\d+) (\d+) (\d+)$", re.MULTILINE)
_NOTHING = re.compile(rb"\0{4096,}")


def dropped_range(size: int, limit: int) -> tuple[int, int]:
    """From where to where a log of this size is dropped once it takes more than `limit`.

    A quarter of the limit stays at the beginning, half of it at the end.
    """
    return limit // 4 // _EDGE * _EDGE, (size - limit // 2) // _EDGE * _EDGE


def drop(descriptor: int, start: int, end: int) -> bool:
    """Give the place of these bytes back; False where the file system, or the system, cannot."""
    import ctypes  # noqa: PLC0415 - a log has to outgrow its limit before it is needed

    keep_size, punch_hole = 1, 2
    allocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if allocate is None:
        return False
    place = ctypes.c_longlong(start), ctypes.c_longlong(end - start)
    return bool(allocate(descriptor, keep_size | punch_hole, *place) == 0)


def pieces(file: BinaryIO, start: int) -> Iterator[bytes | int]:
    """All that a log holds from `start` on; a number stands for so many bytes that were dropped."""
    at = start
    while True:
        data_at = _next_data(file, at)
        if data_at > at:
            yield data_at - at
            at = data_at
        file.seek(at)
        block = file.read(_BLOCK)
        if not block:
            return
        yield from split_at_gaps(block)
        at += len(block)


def split_at_gaps(data: bytes) -> Iterator[bytes | int]:
    """`data`, with the number of bytes in place of a long row of zero bytes.

    So reads what was dropped before it could be read.
    """
    if 0 not in data:
        yield data
        return
    at = 0
    for row in _NOTHING.finditer(data):
        if row.start() > at:
            yield data[at : row.start()]
        yield row.end() - row.start()
        at = row.end()
    if at < len(data):
        yield data[at:]


def start_of_last_lines(path: Path, count: int) -> int:
    """Where the last `count` lines of a log begin; those before a hole are not looked for."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        missing = count
        is_last = True
        while at > 0:
            step = min(_BLOCK, at)
            file.seek(at - step)
            block = file.read(step)
            if not block.strip(b"\0"):
                return at
            end = len(block) - 1 if is_last and block.endswith(b"\n") else len(block)
            is_last = False
            while (found := block.rfind(b"\n", 0, end)) >= 0:
                missing -= 1
                if missing <= 0:
                    return at - step + found + 1
                end = found
            at -= step
    return 0


def start_of_line(path: Path, at: int) -> int:
    """Where the line begins of which the byte at `at` is a part."""
    with path.open("rb") as file:
        begin = max(0, at - _LONGEST_LINE)
        file.seek(begin)
        before = file.read(at - begin)
        found = max(before.rfind(b"\n"), before.rfind(b"\0"))
        return begin + found + 1


def size_at(marks: bytes, moment: float) -> int | None:
    """How long a log was at a moment, or a little before: seconds since 1970, its node's clock.

    `marks` is what the node noted: lines of time, size, and from where to where it was dropped.
    None: nothing was noted.
    """
    size: int | None = None
    for mark in _MARK.finditer(marks):
        size = size or 0
        if float(mark[1]) > moment:
            break
        size = int(mark[2])
    return size


def _next_data(file: BinaryIO, at: int) -> int:
    """Where there is something next, at `at` or behind the hole in which it lies."""
    try:
        return os.lseek(file.fileno(), at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole up to the end, or beyond it
            return max(at, file.seek(0, os.SEEK_END))
        return at


class RankOutput:
    """Passes blocks of whole lines to a sink, one block at a time; outlives a sink that broke."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self.problem: str = ""
        self.lost = False
        """Whether lines are missing although the reader has not closed the pipe."""

    def show(self, block: bytes) -> None:
        """Write some whole lines."""
        if not block:
            return
        with self._lock:
            if self.problem:
                return
            try:
                self._sink(block)
            except OSError as error:
                self.lose(error)

    def lose(self, error: OSError) -> None:
        """Stop showing output, for this reason."""
        gone = isinstance(error, BrokenPipeError)
        self.lost = not gone
        why = "its reader is gone" if gone else error.strerror or error
        self.problem = f"could not show the output any longer: {why}; it is in the logs"


class LogCopy:
    """One file of a node: its copy on the control machine and its lines.

    The copy always is the beginning of the file on the node: it can be completed later. What the
    node has dropped of it is a hole here as well, and so is what would take more than `limit`.
    """

    def __init__(
        self,
        path: Path,
        lines: LineView | None,
        output: RankOutput,
        *,
        resumes: bool = False,
        shown_from: int = 0,
        limit: int = 0,
    ) -> None:
        """Begin a new copy, or with `resumes` show what is here already and go on after it.

        Without `lines` nothing is shown. `shown_from`: what lies before it is not shown again.
        """
        self._lines = lines
        self._output = output
        self._path = path
        self._limit = limit
        self._dropped_to = 0
        self.size = 0
        self.problem = ""
        if resumes:
            self._show_copy(shown_from)
        else:
            path.write_bytes(b"")
        self._copy = path.open("ab", buffering=0)

    def give(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        for piece in split_at_gaps(data):
            if isinstance(piece, int):
                self.skip(piece)
            else:
                self._take(piece)

    def skip(self, count: int) -> None:
        """The node has dropped the next bytes of the file."""
        self.size += count
        if not self.problem:
            try:
                self._copy.truncate(self.size)
            except OSError as error:
                self._lose(error)
        if self._lines is not None:
            self._output.show(self._lines.skip(count))

    def close(self) -> None:
        """The file is complete."""
        if self._lines is not None:
            self._output.show(self._lines.finish())
        with suppress(OSError):
            self._copy.close()

    def _take(self, data: bytes) -> None:
        self.size += len(data)
        if not self.problem:
            self._keep(data)
        if self._lines is not None:
            self._output.show(self._lines.feed(data))

    def _show_copy(self, start: int) -> None:
        with suppress(FileNotFoundError):
            self.size = self._path.stat().st_size
            if self._lines is not None:
                _show(self._path, self._lines, self._output, start)

    def _keep(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._copy.write(rest) :]
        except OSError as error:
            self._lose(error)
            return
        start, end = dropped_range(self.size, self._limit)
        if self._limit and self.size - max(0, self._dropped_to - start) > self._limit:
            drop(self._copy.fileno(), max(start, self._dropped_to), end)
            self._dropped_to = end

    def _lose(self, error: OSError) -> None:
        self.problem = f"could not keep the whole output: {error.strerror or error}"


def show_copy(path: Path, lines: LineView, output: RankOutput, *, start: int = 0) -> None:
    """Show all lines of a copy, or those from `start` on."""
    with suppress(FileNotFoundError):
        _show(path, lines, output, start)
    output.show(lines.finish())


def _show(path: Path, lines: LineView, output: RankOutput, start: int) -> None:
    with path.open("rb") as copy:
        for piece in pieces(copy, start):
            output.show(lines.skip(piece) if isinstance(piece, int) else lines.feed(piece))


_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""Codes of terminals (ECMA-48), none of red: errors and what `--grep` finds are red."""


def plain(node: str, rank: int) -> bytes:
    """The prefix for files, pipes and other programs."""
    return f"{node}:{rank} | ".encode()


def by_node(nodes: Sequence[str]) -> Callable[[str, int], bytes]:
    """The prefix in a colour for each node of a job.

    A colour that a line of another rank left on ends there, and the rank's own words begin plain.
    """
    places = {node: place for place, node in enumerate(nodes)}

    def coloured(node: str, rank: int) -> bytes:
        colour = _COLOURS[places[node] % len(_COLOURS)]
        return f"\x1b[0;{colour}m{node}:{rank} |\x1b[0m ".encode()

    return coloured


ROOM: Final = 1 << 20
"""How many bytes may wait for the reader before writers wait."""
_PATIENCE_S = 1.0
_LOOK_S = 0.25


class OutputWriter:
    """Passes blocks to a sink from a thread of its own, in order.

    Writers wait for a slow reader. When `is_hurried`, a reader that takes nothing for a second is
    given up.
    """

    def __init__(self, sink: Callable[[bytes], None], *, is_hurried: Callable[[], bool]) -> None:
        self._sink = sink
        self._is_hurried = is_hurried
        self._changed = threading.Condition()
        self._blocks: deque[bytes] = deque()
        self._size = 0
        self._closed = False
        self._error: OSError | None = None
        self._hurried_at: float | None = None
        self._moved_at = time.monotonic()
        # A thread that hangs in a full pipe must not keep the program from ending.
        threading.Thread(target=self._write, name="outlet", daemon=True).start()

    def __call__(self, block: bytes) -> None:
        """Write a block.

        Raises:
            OSError: the sink failed.
        """
        with self._changed:
            while self._error is None and self._size >= ROOM:
                self._wait()
            if self._error is not None:
                raise self._error
            self._blocks.append(block)
            self._size += len(block)
            self._changed.notify_all()

    def close(self) -> OSError | None:
        """Wait until all is written; returns the error if it is not."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._error is None and self._size:
                self._wait()
            return self._error

    def _wait(self) -> None:
        self._changed.wait(_LOOK_S)
        if not self._is_hurried():
            return
        now = time.monotonic()
        if self._hurried_at is None:
            self._hurried_at = now
        if self._error is None and now - max(self._hurried_at, self._moved_at) > _PATIENCE_S:
            self._fail(TimeoutError("its reader takes nothing"))

    def _write(self) -> None:
        while (block := self._next()) is not None:
            error: OSError | None = None
            try:
                self._sink(block)
            except OSError as broken:
                error = broken
            except ValueError as closed:  # the file was closed meanwhile
                error = OSError(str(closed))
            with self._changed:
                self._size -= len(block)
                self._moved_at = time.monotonic()
                self._changed.notify_all()
                if error is not None and self._error is None:
                    self._fail(error)

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._blocks and not self._closed and self._error is None:
                self._changed.wait()
            return self._blocks.popleft() if self._blocks else None

    def _fail(self, error: OSError) -> None:
        self._error = error
        self._blocks.clear()
        self._changed.notify_all()


MAX_LINE = 1 << 20
MAX_BAR = 1 << 12
"""So much of a line that goes back to its start again and again: half a hundred times, mostly."""
_GOES_BACK = re.compile(rb"\r(?![\r\n]|\Z)")
"""Where more of the line follows: not in the line ends of Windows."""


class LineView(Protocol):
    """What is shown of one file as its bytes come."""

    def feed(self, data: bytes) -> bytes:
        """The next bytes."""

    def skip(self, count: int) -> bytes:
        """The node has dropped so many bytes."""

    def finish(self) -> bytes:
        """The file is complete."""


class Lines:
    """Bytes of one file as whole lines, each behind `prefix`; no byte of them is changed.

    A progress bar, which goes back to the start of its line again and again, is shown now and then
    while it lasts.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._pending = b""
        self._missing = 0

    def feed(self, data: bytes) -> bytes:
        """All lines that are complete with `data`, in one piece; empty when there is none."""
        if self._missing and data:
            return self._gap_line() + self.feed(data)
        end = data.rfind(b"\n")
        if end < 0:
            self._pending += data
            return self._split_pending()
        block = self._pending + data[:end]
        self._pending = data[end + 1 :]
        if len(block) > MAX_LINE:
            block = b"\n".join(_split(line) for line in block.split(b"\n"))
        return self._shown(block) + self._split_pending()

    def flush(self) -> bytes:
        """The incomplete last line, as if its newline had come."""
        return self._take_pending() if self._pending else b""

    def skip(self, count: int) -> bytes:
        """The line begun; what follows comes behind a line that says how much is missing."""
        self._missing += count
        return self.flush()

    def finish(self) -> bytes:
        """The last line when it has no newline."""
        return self._gap_line() + self.flush()

    def _gap_line(self) -> bytes:
        count, self._missing = self._missing, 0
        words = f"[ascendboot: {count} bytes are missing here: the log outgrew logs.max_size]"
        return self._shown(words.encode()) if count else b""

    def _take_pending(self) -> bytes:
        line, self._pending = self._pending, b""
        return self._shown(line)

    def _split_pending(self) -> bytes:
        shown = b""
        if len(self._pending) > MAX_BAR:
            # A newline may follow the last byte: what goes back there may be a line's end.
            bar, goes_back, begun = self._pending[:-1].rpartition(b"\r")
            if goes_back:
                shown, self._pending = self._shown(bar), begun + self._pending[-1:]
        while len(self._pending) > MAX_LINE:
            shown += self._shown(self._pending[:MAX_LINE])
            self._pending = self._pending[MAX_LINE:]
        return shown

    def _shown(self, block: bytes) -> bytes:
        return behind(self._prefix, block) + b"\n"


def behind(prefix: bytes, block: bytes) -> bytes:
    """Each line of the block behind `prefix`; again where it goes back over it, to its start."""
    if b"\r" in block:
        block = _GOES_BACK.sub(lambda _: b"\r" + prefix, block)
    return prefix + block.replace(b"\n", b"\n" + prefix)


def _split(line: bytes) -> bytes:
    pieces = (line[at : at + MAX_LINE] for at in range(0, len(line), MAX_LINE))
    return b"\n".join(pieces)
