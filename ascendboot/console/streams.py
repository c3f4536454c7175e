"""Writing words to standard output and error, whatever becomes of those who read them."""

from __future__ import annotations

import errno
import os
import select
import sys
from contextlib import suppress
from io import TextIOWrapper, UnsupportedOperation
from typing import TextIO

from ascendboot.errors import OutputError

_REFUSING = {"strict", "surrogateescape"}
"""What Python does by itself about a character that the encoding has not."""


class Lasting:
    """A stream for a person: what does not get through to the reader is lost, and ends nothing."""

    def __init__(self, stream: TextIO) -> None:
        _take_every_character(stream)
        self._stream = stream
        self.lost = False
        """Whether words are missing for another reason than that the reader has read enough."""

    @property
    def encoding(self) -> str:
        """How characters become bytes."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor below."""
        return self._stream.fileno()

    def write(self, words: str) -> int:
        """Write and flush."""
        try:
            _write(self._stream, words)
        except OSError as error:
            self.lost = not isinstance(error, BrokenPipeError)
            _lead_nowhere(self._stream)
            _tell_on(self._stream, error)
        return len(words)

    def flush(self) -> None:
        """Nothing is held back."""


def write_document(stream: TextIO, words: str) -> None:
    """Write what another program is to read; that it has read enough (`| head -1`) ends nothing.

    Raises:
        OutputError: not all of it could be written.
    """
    try:
        _take_every_character(stream)  # which writes what is held back
        _write(stream, words)
    except BrokenPipeError:
        _lead_nowhere(stream)
    except OSError as error:
        raise lost_document(stream, error) from error


def lost_document(stream: TextIO, error: OSError) -> OutputError:
    """What ends a verb whose answer could not be written."""
    _lead_nowhere(stream)  # or Python tries again at its end
    return OutputError(f"standard output: could not be written: {error.strerror or error}")


def pass_on(descriptor: int, block: bytes) -> None:
    """Write all of a block, also where the descriptor is one that does not wait for its reader."""
    rest = memoryview(block)
    while rest:
        select.select([], [descriptor], [])
        with suppress(BlockingIOError):
            rest = rest[os.write(descriptor, rest) :]


def pass_on_to_terminal(descriptor: int, block: bytes) -> None:
    """As `pass_on`; a terminal that hung up is a reader who is gone."""
    try:
        pass_on(descriptor, block)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise BrokenPipeError(errno.EPIPE, "the terminal hung up") from error


def _take_every_character(stream: TextIO) -> None:
    """Words of jobs and nodes may hold what the encoding has not: it is shown by its number."""
    if isinstance(stream, TextIOWrapper) and stream.errors in _REFUSING:
        stream.reconfigure(errors="backslashreplace")


def _write(stream: TextIO, words: str) -> None:
    """Write at once, past Python's buffer: what it holds may be lost, or spoil the end."""
    stream.flush()
    descriptor = _descriptor(stream)
    if descriptor is None:
        stream.write(words)
    else:
        pass_on(descriptor, words.encode(stream.encoding, stream.errors or "strict"))


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except UnsupportedOperation:  # it is in memory
        return None


def _lead_nowhere(stream: TextIO) -> None:
    """What is done on the nodes is not for the reader alone: it goes on without one."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _tell_on(stream: TextIO, error: OSError) -> None:
    """Somebody may read standard error, and take the end of the other for the end of the work."""
    if isinstance(error, BrokenPipeError) or stream is not sys.stdout:
        return
    why = error.strerror or error
    Lasting(sys.stderr).write(f"standard output: nothing is shown any longer: {why}\n")
