"""Lines for people: with colours where a terminal shows them, as plain text elsewhere."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Protocol, TextIO, TypeAlias, cast

from ascendboot.console.controls import legible
from ascendboot.console.streams import Lasting

if TYPE_CHECKING:
    from rich.status import Status

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
    lasting = Lasting(stream)
    if stream.isatty() or any(os.environ.get(wish) for wish in _WISHES):
        return _Coloured(lasting)
    return _Plain(lasting)


def last_words(stream: TextIO, words: str) -> None:
    """Say why a verb ends, plainly: nothing is loaded for it."""
    _Plain(Lasting(stream)).line(words)


def has_every_character(stream: TextIO) -> bool:
    """Whether its encoding is one of Unicode's; one that encodes nothing has them all, too."""
    return (stream.encoding or "utf").lower().startswith("utf")


class _Plain:
    shows_colours = False

    def __init__(self, stream: Lasting) -> None:
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
    def __init__(self, stream: Lasting) -> None:
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
