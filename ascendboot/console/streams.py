"""Writes to terminals, pipes and files; unsafe characters are escaped."""

from __future__ import annotations

import errno
import os
import re
import select
import sys
from contextlib import suppress
from io import TextIOWrapper, UnsupportedOperation
from typing import IO, TYPE_CHECKING, Final, Protocol, TextIO, TypeAlias, cast

from ascendboot.errors import OutputError

if TYPE_CHECKING:
    from rich.status import Status

_C0: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
"""C0 without tab, newline and carriage return."""
_NOT_ASCII: Final = "\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""C1, which terminals may read as `ESC [`, and characters that reorder or end a line."""
_COLOUR: Final = r"\x1b\[[0-9;:]{0,32}m"
"""SGR only; after `[>` or `[?` the same letter sets terminal modes."""
_RESET: Final = ("\x1b[0m", "\x1b[m")

_IN_WORDS: Final = re.compile(rf"{_COLOUR}|(?P<shown>[{_C0}\r{_NOT_ASCII}]+)")
# Keras prints backspaces before the carriage return of its progress bar.
_IN_LINES: Final = re.compile(
    rf"(?P<colour>{_COLOUR})|(?P<end>\n)|\x08+(?=\r)|(?P<shown>[{_C0}{_NOT_ASCII}]+)"
)
_IN_JSON: Final = re.compile(f"[\x7f{_NOT_ASCII}]")
_NOT_PLAIN: Final = re.compile(rb"[^\t\n\r -~]")


def legible(words: str) -> str:
    """Remove colours from a text, and escape all other control characters."""
    return _IN_WORDS.sub(_number, words)


def legible_line(words: str) -> str:
    """Escape the line ends as well: nobody's words begin a line of their own."""
    return legible(words).replace("\n", "\\n")


def legible_lines(block: bytes, encoding: str) -> bytes:
    """Prepare whole lines of ranks for a terminal: colours stay, and end with their line.

    Carriage returns stay, because progress bars need them.
    """
    if _NOT_PLAIN.search(block) is None:
        return block
    colour = ""

    def passed(match: re.Match[str]) -> str:
        nonlocal colour
        if match["colour"]:
            colour = match[0]
            return colour
        if match["end"]:
            # Otherwise a colour would continue in the next lines.
            reset = "" if not colour or colour in _RESET else _RESET[0]
            colour = ""
            return f"{reset}\n"
        return _number(match)

    words = _IN_LINES.sub(passed, block.decode(encoding, "backslashreplace"))
    return words.encode(encoding, "backslashreplace")


def escaped_json(document: str) -> str:
    """Escape further characters of a JSON document without changing its meaning."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def _number(match: re.Match[str]) -> str:
    return (match["shown"] or "").encode("unicode_escape").decode()


_REFUSING = {"strict", "surrogateescape"}
"""Error handlers of Python that refuse characters outside of the encoding."""


class BestEffortStream:
    """A stream for a person; lost output does not end the program."""

    def __init__(self, stream: TextIO) -> None:
        _take_every_character(stream)
        self._stream = stream
        self.lost = False
        """Whether output was lost although the reader did not close the pipe."""

    @property
    def encoding(self) -> str:
        """The encoding of the stream."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The file descriptor."""
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
        """Do nothing: every write is flushed."""


def write_document(stream: TextIO, words: str) -> None:
    """Write a document for another program; a closed pipe (`| head -1`) is not an error.

    Raises:
        OutputError: not all of it could be written.
    """
    try:
        _take_every_character(stream)  # this also flushes the buffer
        _write(stream, words)
    except BrokenPipeError:
        _lead_nowhere(stream)
    except OSError as error:
        raise lost_document(stream, error) from error


def lost_document(stream: TextIO, error: OSError) -> OutputError:
    """Return the error for a result that could not be written."""
    _lead_nowhere(stream)  # otherwise Python tries again at exit
    return OutputError(f"standard output: could not be written: {error.strerror or error}")


def pass_on(descriptor: int, block: bytes) -> None:
    """Write all of a block, also to a non-blocking descriptor."""
    rest = memoryview(block)
    while rest:
        select.select([], [descriptor], [])
        with suppress(BlockingIOError):
            rest = rest[os.write(descriptor, rest) :]


def pass_on_to_terminal(descriptor: int, block: bytes) -> None:
    """Write as `pass_on`; a terminal that hung up counts as a closed pipe."""
    try:
        pass_on(descriptor, block)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise BrokenPipeError(errno.EPIPE, "the terminal hung up") from error


def _take_every_character(stream: TextIO) -> None:
    """Escape characters that the encoding lacks, for output of jobs and nodes."""
    if isinstance(stream, TextIOWrapper) and stream.errors in _REFUSING:
        stream.reconfigure(errors="backslashreplace")


def _write(stream: TextIO, words: str) -> None:
    """Write without Python's buffer, which could be lost at exit."""
    stream.flush()
    descriptor = _descriptor(stream)
    if descriptor is None:
        stream.write(words)
    else:
        pass_on(descriptor, words.encode(stream.encoding, stream.errors or "strict"))


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except UnsupportedOperation:  # a stream in memory
        return None


def _lead_nowhere(stream: TextIO) -> None:
    """Redirect a broken stream to /dev/null, so that the work on the nodes continues."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _tell_on(stream: TextIO, error: OSError) -> None:
    """Report on standard error that standard output is broken, while the work continues."""
    if isinstance(error, BrokenPipeError) or stream is not sys.stdout:
        return
    why = error.strerror or error
    BestEffortStream(sys.stderr).write(f"standard output: nothing is shown any longer: {why}\n")


Part: TypeAlias = "str | tuple[str, str]"
"""A part of a line, or a part with a style of rich: ("failed", "red")."""

_COLOUR_VARIABLES = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables that turn colours on without a terminal, as in rich."""


class Writer(Protocol):
    """Writes lines."""

    @property
    def shows_colours(self) -> bool:
        """Whether colours are on."""
        ...

    @property
    def lost(self) -> bool:
        """Whether lines were lost although the reader did not close the pipe."""
        ...

    def line(self, *parts: Part) -> None:
        """Write one line; a line end in it is escaped, because others wrote it."""
        ...

    def work(self, title: str) -> None:
        """Show a spinner with this title until `rest`, only at a terminal."""
        ...

    def rest(self) -> None:
        """Remove the spinner."""
        ...


def writer_to(stream: TextIO) -> Writer:
    """Return a writer that suits the stream; rich is slow to import."""
    lasting = BestEffortStream(stream)
    if stream.isatty() or any(os.environ.get(name) for name in _COLOUR_VARIABLES):
        return _Coloured(lasting)
    return _Plain(lasting)


def write_plainly(stream: TextIO, words: str) -> None:
    """Write the lines of an error without colours."""
    writer = _Plain(BestEffortStream(stream))
    for line in words.split("\n"):
        writer.line(line)


def has_every_character(stream: TextIO) -> bool:
    """Return whether the stream can encode every character."""
    return (stream.encoding or "utf").lower().startswith("utf")


class _Plain:
    shows_colours = False

    def __init__(self, stream: BestEffortStream) -> None:
        self._stream = stream

    @property
    def lost(self) -> bool:
        return self._stream.lost

    def line(self, *parts: Part) -> None:
        words = "".join(part if isinstance(part, str) else part[0] for part in parts)
        self._stream.write(f"{legible_line(words)}\n")

    def work(self, title: str) -> None:
        pass

    def rest(self) -> None:
        pass


class _Coloured:
    def __init__(self, stream: BestEffortStream) -> None:
        from rich.console import Console  # noqa: PLC0415 - only for a person who sees it

        self._stream = stream
        self._console = Console(file=cast("IO[str]", stream), highlight=False, soft_wrap=True)
        self._status: Status | None = None

    @property
    def shows_colours(self) -> bool:
        return self._console.color_system is not None and not self._console.no_color

    @property
    def lost(self) -> bool:
        return self._stream.lost

    def line(self, *parts: Part) -> None:
        from rich.text import Text  # noqa: PLC0415

        pieces = [(part, "") if isinstance(part, str) else part for part in parts]
        self._console.print(Text.assemble(*((legible_line(text), style) for text, style in pieces)))

    def work(self, title: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        self.rest()
        if self._console.is_terminal:
            self._status = self._console.status(Text(f"{legible(title)} …"))
            self._status.start()

    def rest(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
