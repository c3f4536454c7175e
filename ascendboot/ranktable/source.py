"""A file that should hold a rank table: read whole, or refused with what it is instead."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.ranktable import jsontext

if TYPE_CHECKING:
    from ascendboot.ranktable.jsontext import Path as DocumentPath

LARGEST_MIB = 256
"""16,384 servers of eight devices take 16 MiB in version 1.0."""

_BOM = "\ufeff"
_UTF_16_OR_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a file holds, and what is worth knowing of the file itself."""

    name: str
    """As the operator wrote it."""
    text: str
    document: object
    doubled: tuple[DocumentPath, ...] = ()
    """Members that the text names twice."""
    has_bom: bool = False
    mode: int = 0o644
    is_symlink: bool = False
    absolute: str = ""
    """Its absolute path as named; empty where it is no file."""


def read(name: str) -> Source:
    """The JSON in a file.

    Raises:
        RankTableError: it cannot be read, is too large, or is not JSON.
    """
    path = Path(name)
    content = _content(path, name)
    text = _text(name, content)
    source = from_text(name, text.removeprefix(_BOM))
    return Source(
        name=name,
        text=source.text,
        document=source.document,
        doubled=source.doubled,
        has_bom=text.startswith(_BOM),
        mode=stat.S_IMODE(path.stat().st_mode),
        is_symlink=path.is_symlink(),
        absolute=str(path.absolute()),
    )


def text_of(name: str) -> str:
    """The text of a file that is no table, such as a hostfile.

    Raises:
        RankTableError: it cannot be read, is too large, or is no text.
    """
    return _text(name, _content(Path(name), name)).removeprefix(_BOM)


def from_text(name: str, text: str) -> Source:
    """The JSON in a text; `name` says where it came from.

    Raises:
        RankTableError: it is not JSON.
    """
    try:
        parsed = jsontext.parse(text)
    except jsontext.JsonTextError as error:
        raise RankTableError(f"{name}: could not be read as JSON: {error}") from None
    return Source(name=name, text=text, document=parsed.document, doubled=parsed.doubled)


def _content(path: Path, name: str) -> bytes:
    try:
        # a pipe would wait for somebody who writes
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _refuse(os.fstat(descriptor), name)
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RankTableError(f"{name}: could not be read: {error.strerror}") from None
    if not content.strip():
        raise RankTableError(f"{name}: could not be read: the file is empty")
    return content


def _refuse(found: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise RankTableError(f"{name}: could not be read: it is {what}; name the file")
    if found.st_size > LARGEST_MIB << 20:
        raise RankTableError(
            f"{name}: could not be read: it has {found.st_size >> 20} MiB, and {LARGEST_MIB} MiB "
            "are the most; a table of 131,072 ranks takes 16 MiB"
        )


def _text(name: str, content: bytes) -> str:
    if content.startswith(_UTF_16_OR_32) or b"\x00" in content[:4]:
        raise RankTableError(
            f"{name}: could not be read: the text is UTF-16 or UTF-32; save it as UTF-8"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RankTableError(
            f"{name}: could not be read: line {line}: byte 0x{content[error.start]:02x} is not "
            "UTF-8; save the file as UTF-8"
        ) from None
