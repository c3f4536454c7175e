"""JSON text with the line of every value."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ascendboot.errors import RankTableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

JsonPath: TypeAlias = tuple[str | int, ...]
"""The way to a value in a document: names of members, and positions in lists from 0."""

_TOKEN = re.compile(
    r"""[ \t\n\r]*(?:(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<mark>[{}\[\],:])"""
    r"""|(?P<other>[^\s{}\[\],:"]+))"""
)
_COMMENT = ("//", "/*", "#")
_SURROGATE = re.compile(r"\\u[dD][89A-Fa-f]")
_HALF = re.compile("[\ud800-\udfff]")
_MOST_DIGITS = 64


class JsonTextError(ValueError):
    """The text is not JSON; says what stands where."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        line, column = line_and_column(text, position)
        super().__init__(f"line {line}, column {column}: {problem}")


@dataclass(frozen=True)
class Parsed:
    """A document, and the members that it names twice (of which readers take the last)."""

    document: object
    doubled: tuple[JsonPath, ...]


def parse(text: str) -> Parsed:
    """What the text says.

    Raises:
        JsonTextError: it is not JSON, or is nested too deeply.
    """
    hook = _Members()
    try:
        document = json.loads(
            text,
            object_pairs_hook=hook,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_not_endless,
        )
    except json.JSONDecodeError as error:
        raise _explained(text, error) from None
    except _NotANumberError as error:
        raise JsonTextError(text, _position_of(text, str(error)), _number(str(error))) from None
    except RecursionError:
        raise JsonTextError(text, 0, "lists or objects are nested too deeply") from None
    if _SURROGATE.search(text):
        _refuse_half_characters(text)
    doubled = tuple(p for p, _, again in _walk(text) if again) if hook.doubled else ()
    return Parsed(document, doubled)


def lines_of(text: str, paths: Sequence[JsonPath]) -> Mapping[JsonPath, int]:
    """The line of each path; of one that is not there, that of the nearest thing around it.

    The text is JSON, as `parse` has found.
    """
    wanted = {path[:length] for path in paths for length in range(len(path) + 1)}
    found: dict[JsonPath, int] = {(): 1}
    line, last = 1, 0
    for path, position, _ in _walk(text):
        if path in wanted:
            line += text.count("\n", last, position)
            last = position
            found[path] = line
    return {path: _nearest(path, found) for path in paths}


def shown(path: JsonPath) -> str:
    """`server_list[0].device[3].device_ip`; the document itself is `$`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "$"


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Both from 1, as editors count."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _refuse_half_characters(text: str) -> None:
    r"""HCCL's reader takes no `\ud800` without its other half."""
    for match in _TOKEN.finditer(text):
        words = match["string"] or ""
        half = _HALF.search(json.loads(words)) if _SURROGATE.search(words) else None
        if half is not None:
            problem = f"\\u{ord(half[0]):04x} is half of a character; write it as a whole"
            raise JsonTextError(text, match.start("string"), problem)


class _NotANumberError(Exception):
    """A word that Python would take for a number, and JSON does not."""


class _Members:
    """Makes the members of an object a dictionary, and remembers if any had two of one name."""

    def __init__(self) -> None:
        self.doubled = False

    def __call__(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) != len(pairs):
            self.doubled = True
        return members


def _refuse(word: str) -> NoReturn:
    raise _NotANumberError(word)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _NotANumberError(digits)
    return value


def _not_endless(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _NotANumberError(digits)
    return int(digits)


def _number(word: str) -> str:
    if len(word) > _MOST_DIGITS:
        return f"a number of {len(word)} digits"
    return f"{word} is no number of JSON" if word.lstrip("-").isalpha() else f"{word} is too large"


def _position_of(text: str, word: str) -> int:
    for match in _TOKEN.finditer(text):
        if match["other"] == word:
            return match.start("other")
    return 0


def _explained(text: str, error: json.JSONDecodeError) -> JsonTextError:
    """Python's words for common mistakes say little: name the comment, the comma, the quote."""
    position = error.pos + len(text[error.pos :]) - len(text[error.pos :].lstrip())
    rest = text[position : position + 2]
    if text[error.pos : error.pos + 1] == ",":  # newer Pythons point at the comma itself
        position, rest = error.pos, text[error.pos + 1 :].lstrip()[:2] or rest
    before = text[:position].rstrip()
    if rest.startswith(_COMMENT):
        problem = "a comment; JSON has none, take it out"
    elif rest[:1] in ("}", "]") and (before.endswith(",") or text[position] == ","):
        problem = f"a comma before {rest[0]}; take it out"
    elif rest.startswith("'"):
        problem = "a single quote; JSON puts texts between double quotes"
    elif not rest:
        problem = "the text ends too early"
    else:
        problem = error.msg[0].lower() + error.msg[1:]
    return JsonTextError(text, position, problem)


@dataclass
class _Open:
    """An object or a list that is not closed yet, and which of its members we are at."""

    names: set[str] | None
    """Those seen in an object; None in a list."""
    at: str | int
    awaits_name: bool


def _walk(text: str) -> Iterator[tuple[JsonPath, int, bool]]:
    """Every value below the document: its path, where it or its name begins, if it is a double."""
    opened: list[_Open] = []
    for match in _TOKEN.finditer(text):
        mark, inner = match["mark"], opened[-1] if opened else None
        if mark in ("}", "]"):
            opened.pop()
        elif mark == "," and inner is not None:
            inner.awaits_name = inner.names is not None
            inner.at = inner.at + 1 if isinstance(inner.at, int) else inner.at
        elif mark == ":" or inner is None:
            pass
        elif inner.names is None:
            yield _path(opened), match.start(match.lastgroup or 0), False
        elif inner.awaits_name:
            inner.at, inner.awaits_name = json.loads(match["string"]), False
            yield _path(opened), match.start("string"), inner.at in inner.names
            inner.names.add(str(inner.at))
            continue
        if mark == "{":
            opened.append(_Open(set(), "", awaits_name=True))
        elif mark == "[":
            opened.append(_Open(None, 0, awaits_name=False))


def _path(opened: Sequence[_Open]) -> JsonPath:
    return tuple(item.at for item in opened)


def _nearest(path: JsonPath, found: Mapping[JsonPath, int]) -> int:
    return next(found[path[:end]] for end in range(len(path), -1, -1) if path[:end] in found)


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
    doubled: tuple[JsonPath, ...] = ()
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
        parsed = parse(text)
    except JsonTextError as error:
        raise RankTableError(f"{name}: could not be read as JSON: {error}") from None
    return Source(name=name, text=text, document=parsed.document, doubled=parsed.doubled)


def _content(path: Path, name: str) -> bytes:
    try:
        # a pipe would wait for somebody who writes
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _refuse_file(os.fstat(descriptor), name)
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RankTableError(f"{name}: could not be read: {error.strerror}") from None
    if not content.strip():
        raise RankTableError(f"{name}: could not be read: the file is empty")
    return content


def _refuse_file(found: os.stat_result, name: str) -> None:
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
