"""Reads logs of any size and selects the lines that can explain a failure."""

from __future__ import annotations

import codecs
import gzip
import os
import re
import subprocess
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from stat import S_ISREG
from typing import IO, BinaryIO, Final, NamedTuple

from ascendboot.errors import AscendbootError, UsageError
from ascendboot.jobs.error_codes import known_errors
from ascendboot.jobs.evidence import time_in
from ascendboot.launch.plan import PLAN_FILE
from ascendboot.value import Struct, field

_BLOCK: Final = 1 << 20
_CONTEXT: Final = 3
"""Lines after a selected one, such as the message of an exception."""
_LOOKED_AT: Final = 50
_MOST_LINES: Final = 20_000
"""Selected lines at the beginning of a file, and as many at its end."""
_LONGEST: Final = 4096
_MOST_FILES: Final = 20_000
_NO_LOG: Final = re.compile(
    r"\.(?:bin|ckpt|db|jpg|npy|npz|o|onnx|pdf|png|pt|pth|pyc|safetensors|so|stack|tar|tgz|whl|xz"
    r"|zip|zst)$"
)
_MOST_UNPACKED: Final = 1 << 30
"""Bytes that all gzip files may unpack to; besides, each of them a hundred times its size."""
_RATIO: Final = 100
_UNREAD: Final = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""How compressed files begin that are not unpacked."""
_MONTHS_S: Final = 300 * 86400.0
_DAY_S: Final = 86400.0
_OF_RUN: Final = re.compile(r"(?:rank\.\d+|agent\.\d+|launcher)\.log")
"""The logs in the folder of a run; its other files quote them."""
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class LogFile(Struct):
    """One file, and what reading it showed."""

    path: Path
    modified: float = 0.0
    first_line: int = 0
    """The number of lines of all files before it."""
    opening: str = ""
    started: float | None = None
    """The first time in it; times without a zone count as UTC."""
    problem: str = ""
    left_out: int = 0
    """The number of selected lines in its middle that were not examined."""

    def time_in(self, line: str) -> float | None:
        """Return the time on a line; if it has no year, one that fits the first time here."""
        latest = self.modified + _DAY_S if self.started is None else self.started + _MONTHS_S
        at = time_in(line, zone_s=0, until=None)
        return time_in(line, zone_s=0, until=latest) if at is None else at


class Logs(Struct):
    """The files to read, and remarks about others."""

    files: list[LogFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def logs_in(places: Sequence[Path]) -> Logs:
    """Return the files of files and folders, each once, by name; a UsageError for others."""
    logs, seen, left_out = Logs(), set[tuple[int, int]](), 0
    unread: list[OSError] = []
    for place in places:
        if not place.exists():
            raise UsageError(f"doctor: {place}: no such file or folder")
        os.close(os.open(place, os.O_RDONLY | os.O_NONBLOCK))  # an OSError if it may not be read
        for path in _walk(place, unread) if place.is_dir() else [place]:
            try:
                status = path.stat()
            except OSError as error:  # removed meanwhile, or a link to nothing
                unread.append(error)
                continue
            if not S_ISREG(status.st_mode):
                if path == place:
                    raise UsageError(f"doctor: {path}: neither a file nor a folder")
            elif len(logs.files) == _MOST_FILES or (path != place and not _may_be_log(path)):
                left_out += 1
            elif (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                logs.files.append(LogFile(path, status.st_mtime))
    logs.notes += [f"{error.filename}: could not be read: {error.strerror}" for error in unread]
    if left_out:
        logs.notes.append(
            f"{left_out} files were not read: no logs by their names or contents, or more than "
            f"{_MOST_FILES}; name a file to read it"
        )
    return logs


def _walk(folder: Path, unread: list[OSError]) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=unread.append):
        is_run = PLAN_FILE in names
        # What the commands of a run printed on a node quotes its logs.
        folders[:] = sorted(
            f for f in folders if not (is_run and Path(parent, f, "01.txt").exists())
        )
        yield from (Path(parent, n) for n in sorted(names) if not is_run or _OF_RUN.match(n))


def _may_be_log(path: Path) -> bool:
    """Whether a file is text by its name and its beginning, or compressed."""
    if _NO_LOG.search(path.name.lower()):
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(4096)
    except OSError:
        return True  # reading it again reports the error
    return begin.startswith((b"\x1f\x8b", *_UTF_16)) or b"\0" not in begin


@cache
def searched_texts() -> tuple[str, ...]:
    """The texts by which lines are selected: of each known error, and marks of errors."""
    table = known_errors()
    entries = (*table.entries, *table.of_launcher)
    forms = (max(form, key=len) for entry in entries for form in entry.text)
    return tuple(sorted({*forms, *table.marks}))


class Line(NamedTuple):
    """A selected line of a file, at most 4 KiB of it."""

    file: LogFile
    number: int
    """In its file, from 1."""
    raw: bytes


def selected_lines(files: Sequence[LogFile]) -> Iterator[Line]:
    """Yield the lines with one of the texts, and three lines after each, file by file.

    One `grep` searches all files; its input is cut so that no line takes more than 2 MiB.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".texts", encoding="utf-8") as texts:
        texts.write("\n".join(searched_texts()) + "\n")
        texts.flush()
        options = ("-a", "-n", "-F", "-A", str(_CONTEXT), "--no-group-separator", "-f", texts.name)
        try:
            grep = subprocess.Popen(
                ("grep", *options),  # noqa: S607 - as the operator's PATH has it
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError as error:
            raise AscendbootError("doctor: grep is not installed; install GNU grep") from error
        assert grep.stdin is not None  # noqa: S101 - it is a pipe
        assert grep.stdout is not None  # noqa: S101
        feeder = threading.Thread(target=_feed, args=(files, grep.stdin), daemon=True)
        feeder.start()
        with grep.stdout:
            yield from _first_and_last(_numbered(files, grep.stdout))
        feeder.join()
        if grep.wait() > 1:
            raise AscendbootError(f"doctor: grep ended with exit code {grep.returncode}")


_NUMBERED: Final = re.compile(rb"(\d{1,18})[:-]")


def _numbered(files: Sequence[LogFile], output: Iterable[bytes]) -> Iterator[Line]:
    at = 0
    for line in output:
        match = _NUMBERED.match(line)
        if match is None:
            continue  # the end of grep's own message
        number = int(match[1])
        # The feeder has passed a file before grep prints a line of it.
        while at + 1 < len(files) and 0 < files[at + 1].first_line < number:
            at += 1
        raw = line[match.end() : match.end() + _LONGEST].rstrip(b"\r\n")
        yield Line(files[at], number - files[at].first_line, raw)


def _first_and_last(lines: Iterable[Line]) -> Iterator[Line]:
    """Leave out the lines in the middle of a file of which almost every line is selected."""
    for _, of_file in groupby(lines, key=lambda line: id(line.file)):
        last: deque[Line] = deque(maxlen=_MOST_LINES)
        for count, line in enumerate(of_file):
            if count < _MOST_LINES:
                yield line
            else:
                line.file.left_out += len(last) == _MOST_LINES
                last.append(line)
        yield from last


def _feed(files: Sequence[LogFile], pipe: IO[bytes]) -> None:
    lines = 0
    room = max(_BLOCK, _MOST_UNPACKED // max(1, len(files)))
    with pipe:
        for file in files:
            file.first_line = lines
            try:
                for block in _blocks(file, room):
                    lines += block.count(b"\n")
                    pipe.write(block)
            except BrokenPipeError:
                return  # grep ended; its exit code is reported
            except PermissionError:
                file.problem = "could not be read: Permission denied"
            except (OSError, EOFError, zlib.error) as error:
                file.problem = f"could not be read to its end: {error}"
            pipe.write(b"\n")
            lines += 1


def _blocks(file: LogFile, room: int) -> Iterator[bytes]:
    """Yield the content in blocks, as UTF-8 if it was UTF-16; what is added meanwhile is left."""
    with file.path.open("rb") as raw:
        left = os.fstat(raw.fileno()).st_size
        begin = raw.peek(6)
        is_gzip = begin.startswith(b"\x1f\x8b")
        if form := next((name for magic, name in _UNREAD.items() if begin.startswith(magic)), ""):
            file.problem = f"not read: it is compressed with {form}; unpack it first"
            return
        left = max(room, _RATIO * left) if is_gzip else left
        source: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if is_gzip else raw
        decoder = None
        is_first = True
        while block := source.read(min(_BLOCK, left)):
            left -= len(block)
            if is_first and block.startswith(_UTF_16):
                decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
            if decoder is not None:
                block = decoder.decode(block).encode()
            if is_first:
                begun = block[:16384].decode(errors="replace").splitlines()[:_LOOKED_AT]
                lines = [line for line in begun if line.strip()]
                file.opening = lines[0] if lines else ""
                times = map(file.time_in, lines)
                file.started = next((at for at in times if at is not None), None)
            is_first = False
            yield block if b"\n" in block else block + b"\n"
        if is_gzip and left == 0 and source.read(1):
            file.problem = f"only read in part: it unpacks to more than {_RATIO} times its size"
