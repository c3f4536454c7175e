"""Writes the output of ranks to the terminal and to files without blocking the job."""

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
"""But for the tab, the newline and the carriage return."""
_NOT_ASCII: Final = "\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""C1, where a terminal may take one character for `ESC [`, and what reorders or ends a line."""
_COLOUR: Final = r"\x1b\[[0-9;:]{0,32}m"
"""SGR alone; behind `[>` or `[?` the same letter sets modes of the terminal."""
_RESET: Final = ("\x1b[0m", "\x1b[m")

_IN_WORDS: Final = re.compile(rf"{_COLOUR}|(?P<shown>[{_C0}\r{_NOT_ASCII}]+)")
# Keras goes back over its bar before it returns to the start of the line.
_IN_LINES: Final = re.compile(
    rf"(?P<colour>{_COLOUR})|(?P<end>\n)|\x08+(?=\r)|(?P<shown>[{_C0}{_NOT_ASCII}]+)"
)
_IN_JSON: Final = re.compile(f"[\x7f{_NOT_ASCII}]")
_NOT_PLAIN: Final = re.compile(rb"[^\t\n\r -~]")


def legible(words: str) -> str:
    """Words for a person: colours go, any other control character is shown by its number."""
    return _IN_WORDS.sub(_number, words)


def legible_lines(block: bytes, encoding: str) -> bytes:
    """Whole lines of ranks for a terminal: colours stay, and end with their line.

    The way back to the start of a line stays, too: progress bars need it.
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
            # A colour, or words made invisible, would go on in what others say next.
            reset = "" if not colour or colour in _RESET else _RESET[0]
            colour = ""
            return f"{reset}\n"
        return _number(match)

    words = _IN_LINES.sub(passed, block.decode(encoding, "backslashreplace"))
    return words.encode(encoding, "backslashreplace")


def escaped_json(document: str) -> str:
    """A JSON document, which means the same, without the characters that JSON need not escape."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def _number(match: re.Match[str]) -> str:
    return (match["shown"] or "").encode("unicode_escape").decode()


_REFUSING = {"strict", "surrogateescape"}
"""What Python does by itself about a character that the encoding has not."""


class BestEffortStream:
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
    BestEffortStream(sys.stderr).write(f"standard output: nothing is shown any longer: {why}\n")


Part: TypeAlias = "str | tuple[str, str]"
"""Some text of a line, or text and style, in rich's words: ("failed", "red")."""

_WISHES = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""With these a reader that is no terminal asks for colours; rich understands them."""


class Writer(Protocol):
    """Where lines go."""

    @property
    def shows_colours(self) -> bool:
        """Whether the reader sees colours, and wants them."""
        ...

    @property
    def lost(self) -> bool:
        """Whether not all lines could be written, though the reader is there."""
        ...

    def line(self, *parts: Part) -> None:
        """Write one line, or several where there are line ends in it."""
        ...

    def work(self, title: str) -> None:
        """Say what is going on until `rest`, to a person at a terminal alone."""
        ...

    def rest(self) -> None:
        """Nothing is going on any more."""
        ...


def writer_to(stream: TextIO) -> Writer:
    """What suits the stream; rich takes longer to import than most nodes take to answer."""
    lasting = BestEffortStream(stream)
    if stream.isatty() or any(os.environ.get(wish) for wish in _WISHES):
        return _Coloured(lasting)
    return _Plain(lasting)


def write_plainly(stream: TextIO, words: str) -> None:
    """Say why a verb ends, plainly: nothing is loaded for it."""
    _Plain(BestEffortStream(stream)).line(words)


def has_every_character(stream: TextIO) -> bool:
    """Whether its encoding is one of Unicode's; one that encodes nothing has them all, too."""
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
        self._stream.write(f"{legible(words)}\n")

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
        self._console.print(Text.assemble(*((legible(text), style) for text, style in pieces)))

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
