"""What is kept of a log that may not grow without end: its beginning and its end, with a hole.

The hole takes no place on the disk, and every byte stays where it was: whoever knows how much of a
log is here can ask for what comes after it, whatever was dropped meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

_EDGE: Final = 1 << 20
"""Holes begin and end there: file systems can free whole blocks only."""
_BLOCK: Final = 1 << 20
_LONGEST_LINE: Final = 1 << 20
_MARK = re.compile(rb"^(\d+\.\d+) (\d+) (\d+) (\d+)$", re.MULTILINE)
_NOTHING = re.compile(rb"\0{4096,}")


def hole_of(size: int, limit: int) -> tuple[int, int]:
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
        yield from without_nothing(block)
        at += len(block)


def without_nothing(data: bytes) -> Iterator[bytes | int]:
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
