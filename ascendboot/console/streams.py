"""Writes to terminals, pipes and files; unsafe characters are escaped."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import sys
import termios
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import TextIOWrapper, UnsupportedOperation
from typing import IO, Any, Final, TextIO, TypeAlias, cast

from ascendboot.errors import OutputError

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
    """Escape the line ends as well, so that quoted text cannot begin a line."""
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


def json_text(document: Mapping[str, object], stream: TextIO) -> str:
    """Return a JSON document in characters that the stream has and that are safe to show."""
    is_unicode = (stream.encoding or "utf").lower().startswith("utf")
    text = json.dumps(document, indent=2, ensure_ascii=not is_unicode)
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _number(match: re.Match[str]) -> str:
    return (match["shown"] or "").encode("unicode_escape").decode()


_REFUSING = {"strict", "surrogateescape"}
"""Error handlers of Python that refuse characters outside of the encoding."""


class BestEffortStream:
    """A stream for a person; lost output does not end the program."""

    def __init__(self, stream: TextIO) -> None:
        _escape_missing_characters(stream)
        self._stream = stream
        self.lost = False
        """Whether output was lost although the reader did not close the pipe."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else that rich uses
        return getattr(self._stream, name)

    def write(self, words: str) -> int:
        """Write and flush."""
        try:
            _write(self._stream, words)
        except OSError as error:
            self.lost = not isinstance(error, BrokenPipeError)
            _redirect_to_null(self._stream)
            if self.lost and self._stream is sys.stdout:
                why = error.strerror or error
                BestEffortStream(sys.stderr).write(
                    f"standard output: nothing is shown any longer: {why}\n"
                )
        return len(words)

    def flush(self) -> None:
        """Do nothing: every write is flushed."""


def write_document(stream: TextIO, words: str) -> None:
    """Write a document, unless the reader closed the pipe; OutputError if not all was written."""
    try:
        _escape_missing_characters(stream)  # this also flushes the buffer
        _write(stream, words)
    except BrokenPipeError:
        _redirect_to_null(stream)
    except OSError as error:
        raise lost_document(stream, error) from error


def lost_document(stream: TextIO, error: OSError) -> OutputError:
    """Return the error for a result that could not be written."""
    _redirect_to_null(stream)  # otherwise Python tries again at exit
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


def _escape_missing_characters(stream: TextIO) -> None:
    """Escape characters that the encoding lacks, for output of jobs and nodes."""
    if isinstance(stream, TextIOWrapper) and stream.errors in _REFUSING:
        stream.reconfigure(errors="backslashreplace")


def _write(stream: TextIO, words: str) -> None:
    """Write without Python's buffer, which could be lost at exit."""
    stream.flush()
    try:
        descriptor = stream.fileno()
    except UnsupportedOperation:  # a stream in memory
        stream.write(words)
    else:
        pass_on(descriptor, words.encode(stream.encoding, stream.errors or "strict"))


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect a broken stream to /dev/null, so that the work on the nodes continues."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


wrapped = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
"""Divides a text into lines, but no word."""
Part: TypeAlias = "str | tuple[str, str]"
"""A part of a line, or a part with a style of rich: ("failed", "red")."""

_NARROW, _INDENT = 30, 6
"""Lines go on with this indent where fewer columns are left for them."""
_COLOUR_VARIABLES = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables that turn colours on without a terminal, as in rich."""


class Writer:
    """Writes lines for a person, in colours at a terminal or if a variable turns them on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = BestEffortStream(stream)
        self._console: Any = None
        """A console of rich, whose import is slow and often not needed; None: plain lines."""
        self._status: Any = None
        self._resting = threading.RLock()
        self._is_fitted = stream.isatty()
        if self._is_fitted or any(os.environ.get(name) for name in _COLOUR_VARIABLES):
            from rich.console import Console  # noqa: PLC0415

            file = cast("IO[str]", self._stream)
            self._console = Console(file=file, highlight=False, soft_wrap=True)

    @property
    def has_colours(self) -> bool:
        """Whether colours are on."""
        console = self._console
        return console is not None and bool(console.color_system and not console.no_color)

    @property
    def lost(self) -> bool:
        """Whether lines were lost although the reader did not close the pipe."""
        return self._stream.lost

    def line(self, *parts: Part) -> None:
        """Write one line; a line end in it is escaped, because others wrote it."""
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        pieces = [(legible_line(text), style) for text, style in pairs]
        if self._console is None:
            self._stream.write("".join(text for text, _ in pieces) + "\n")
        else:
            self._console.print(_text(*pieces))

    def fitted(self, words: str, column: int) -> list[str]:
        """Return words that begin in a column as lines that fit the terminal; elsewhere one line.

        All but the first begin with spaces: a word is never divided.
        """
        words = legible_line(words)
        if not self._is_fitted:
            return [words]
        width = self._console.width
        hang = column if width - column >= _NARROW else _INDENT
        further = partial(wrapped, width=width, subsequent_indent=" " * hang)
        first, *lines = further(words, initial_indent=" " * column) or [""]
        if len(first) > width and len(first) - column + hang <= width:
            return ["", *further(words, initial_indent=" " * hang)]
        return [first[column:], *lines]

    def say(self, text: str, style: str = "") -> None:
        """Print one line; at a terminal it is wrapped, and further lines are indented."""
        words = text.lstrip(" ")
        indent = len(text) - len(words)
        lines = self.fitted(words, indent)
        first, *rest = self.fitted(words, indent + 2) if len(lines) > 1 else lines
        for line in (f"{' ' * indent}{first}", *rest):
            self.line((line, style))

    def working(self, title: str) -> None:
        """Show a spinner with this title until `rest`, only at a terminal."""
        self.rest()
        if self._console is not None and self._console.is_terminal:
            self._title = _text(f"{legible(title)} …")
            self._status = self._console.status(self._title)
            self._status.start()

    @contextmanager
    def live(self) -> Iterator[LiveView | None]:
        """Show a view over the whole terminal until the block ends; None: this is no terminal."""
        console = self._console
        if console is None or not self._stream.isatty() or console.is_dumb_terminal:
            yield None
            return
        from rich.live import Live  # noqa: PLC0415

        with _keys_at_once(), Live(console=console, screen=True, auto_refresh=False) as live:
            yield LiveView(live)

    def progress(self, words: str) -> None:
        """Show how far the work is, beside its title."""
        if (status := self._status) is not None:
            status.update(self._title + f" {legible(words)}")

    def rest(self) -> None:
        """Remove the spinner."""
        with self._resting:  # a second thread that comes to write waits until it is gone
            if self._status is not None:
                self._status.stop()
                self._status = None


def _text(*parts: Part) -> Any:  # noqa: ANN401 - that of rich, whose import is slow
    from rich.text import Text  # noqa: PLC0415

    return Text.assemble(*parts)


class LiveView:
    """Shows changing lines over a whole terminal, and reads its keys."""

    def __init__(self, live: Any) -> None:  # noqa: ANN401 - that of rich
        self._live = live

    def show(self, view: Callable[[int, int], Sequence[str]]) -> None:
        """Show the lines that `view` returns for this width and height; the first is a title."""
        width, height = self._live.console.size
        title, *lines = map(legible_line, view(width, height)[:height])
        text = _text((title, "bold"), *(f"\n{line}" for line in lines))
        text.no_wrap, text.overflow = True, "ellipsis"
        self._live.update(text, refresh=True)

    @staticmethod
    def quits(within_s: float) -> bool:
        """Wait so long; whether `q` was pressed, or the terminal is gone."""
        if not sys.stdin.isatty():
            time.sleep(within_s)
            return False
        until = time.monotonic() + within_s
        while (left_s := until - time.monotonic()) > 0:
            is_pressed = select.select([sys.stdin], [], [], left_s)[0]
            if is_pressed and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
                return True
        return False


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Have each key read when it is pressed, and not shown, if standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    mode = before[3] & ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, [*before[:3], mode, *before[4:]])
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def has_reader(stream: TextIO) -> bool:
    """Whether a stream is no pipe whose reader is gone, and no terminal that hung up."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return not poll.poll(0)
