"""JSON text with the line of every value."""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable.configmap import table_within
from ascendboot.value import Struct, Value, replace

JsonPath: TypeAlias = tuple[str | int, ...]
"""The path to a value in a document: names of members, and positions in lists from 0."""

LARGEST_MIB = 256
"""16,384 servers of eight devices take 16 MiB in version 1.0."""

_TOKEN = re.compile(
    r"""[ \t\n\r]*(?:(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<mark>[{}\[\],:])"""
    r"""|(?P<other>[^\s{}\[\],:"]+))"""
)
_SURROGATE = re.compile(r"\\u[dD][89A-Fa-f]")
_BOM = "\ufeff"
_UTF_16_OR_32 = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


class Source(Value, kw_only=True):
    """The document in a file, and what `validate` checks of the file itself."""

    name: str
    """As the operator wrote it."""
    text: str
    document: object
    doubled: tuple[JsonPath, ...] = ()
    """Members that the text names twice; readers take the last."""
    has_bom: bool = False
    mode: int = 0o644
    is_symlink: bool = False
    absolute: str = ""
    """Its absolute path as named; empty where it is no file."""


def read(name: str) -> Source:
    """The JSON in a file, or in the ConfigMap that it is; RankTableError if there is none."""
    path, text = Path(name), _decoded(name)
    if within := table_within(name, text):
        return from_text(*within)
    return replace(
        from_text(name, text.removeprefix(_BOM)),
        has_bom=text.startswith(_BOM),
        mode=stat.S_IMODE(path.stat().st_mode),
        is_symlink=path.is_symlink(),
        absolute=str(path.absolute()),
    )


def text_of(name: str) -> str:
    """The text of a file that is no table, such as a hostfile; RankTableError if it is no text."""
    return _decoded(name).removeprefix(_BOM)


def from_text(name: str, text: str) -> Source:
    """The JSON in a text; `name` names its source in messages, as in a RankTableError."""
    is_doubled = False

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal is_doubled
        found = dict(pairs)
        is_doubled |= len(found) != len(pairs)
        return found

    try:
        document = json.loads(
            text, object_pairs_hook=members, parse_constant=_finite, parse_float=_finite
        )
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        is_cut = not text[error.pos :].strip()
        problem = "the text ends too early" if is_cut else error.msg[0].lower() + error.msg[1:]
        where = f"line {error.lineno}, column {error.colno}: "
    except UnicodeEncodeError as error:  # of "\ud800" without its other half
        half = error.object[error.start]
        where, problem = "", f"\\u{ord(half):04x} is half of a character; write it as a whole"
    except RecursionError:
        where, problem = "", "lists or objects are nested too deeply"
    except ValueError as error:
        where, problem = "", str(error).partition(":")[0]
    else:
        doubled = tuple(path for path, _, again in _walk(text) if again) if is_doubled else ()
        return Source(name=name, text=text, document=document, doubled=doubled)
    raise RankTableError(f"{name}: could not be read as JSON: {where}{problem}")


def lines_of(text: str, paths: Sequence[JsonPath]) -> Mapping[JsonPath, int]:
    """The line of each path; for a missing value, the line of the nearest object around it.

    The text is JSON that `from_text` has read.
    """
    wanted = {path[:length] for path in paths for length in range(len(path) + 1)}
    found: dict[JsonPath, int] = {(): 1}
    line, last = 1, 0
    for path, position, _ in _walk(text):
        if path in wanted:
            line += text.count("\n", last, position)
            last = position
            found[path] = line
    return {
        path: next(found[path[:n]] for n in range(len(path), -1, -1) if path[:n] in found)
        for path in paths
    }


def shown(path: JsonPath) -> str:
    """`server_list[0].device[3].device_ip`; the document itself is `$`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "$"


def _finite(word: str) -> float:
    value = float(word)
    if math.isfinite(value):
        return value
    raise ValueError(f"{word} is no number of JSON")


class _Open(Struct):
    """An object or a list that is not closed yet."""

    names: set[str] | None
    """The names so far in an object; None in a list."""
    at: str | int
    """The name or the index of the current item."""
    awaits_name: bool


def _walk(text: str) -> Iterator[tuple[JsonPath, int, bool]]:
    """Every value below the document: its path, the position of it or its name, if it is a double.

    Python's own reader keeps no positions.
    """
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
            yield tuple(item.at for item in opened), match.start(match.lastgroup or 0), False
        elif inner.awaits_name:
            inner.at, inner.awaits_name = json.loads(match["string"]), False
            path = tuple(item.at for item in opened)
            yield path, match.start("string"), inner.at in inner.names
            inner.names.add(str(inner.at))
            continue
        if mark == "{":
            opened.append(_Open(set(), "", awaits_name=True))
        elif mark == "[":
            opened.append(_Open(None, 0, awaits_name=False))


def _decoded(name: str) -> str:
    """The text of a file that is small enough, and UTF-8."""
    problem = ""
    try:
        found = Path(name).stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would wait for a writer
            what = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            problem = f"it is {what}; name the file"
        elif found.st_size > LARGEST_MIB << 20:
            problem = f"it has {found.st_size >> 20} MiB, and {LARGEST_MIB} MiB are the most; "
            problem += "a table of 131,072 ranks takes 16 MiB"
        content = b"" if problem else Path(name).read_bytes()
    except OSError as error:
        raise RankTableError(f"{name}: could not be read: {error.strerror}") from None
    if not problem and not content.strip():
        problem = "the file is empty"
    elif content.startswith(_UTF_16_OR_32) or b"\x00" in content[:4]:
        problem = "the text is UTF-16 or UTF-32; save it as UTF-8"
    if problem:
        raise RankTableError(f"{name}: could not be read: {problem}")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        words = f"line {line}: byte 0x{content[error.start]:02x} is not UTF-8; save it as UTF-8"
        raise RankTableError(f"{name}: could not be read: {words}") from None
