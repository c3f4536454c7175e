"""JSON as strictly as HCCL's readers take it, and where in the text a value stands."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Path: TypeAlias = tuple[str | int, ...]
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
    doubled: tuple[Path, ...]


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


def lines_of(text: str, paths: Sequence[Path]) -> Mapping[Path, int]:
    """The line of each path; of one that is not there, that of the nearest thing around it.

    The text is JSON, as `parse` has found.
    """
    wanted = {path[:length] for path in paths for length in range(len(path) + 1)}
    found: dict[Path, int] = {(): 1}
    line, last = 1, 0
    for path, position, _ in _walk(text):
        if path in wanted:
            line += text.count("\n", last, position)
            last = position
            found[path] = line
    return {path: _nearest(path, found) for path in paths}


def shown(path: Path) -> str:
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


def _walk(text: str) -> Iterator[tuple[Path, int, bool]]:
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


def _path(opened: Sequence[_Open]) -> Path:
    return tuple(item.at for item in opened)


def _nearest(path: Path, found: Mapping[Path, int]) -> int:
    return next(found[path[:end]] for end in range(len(path), -1, -1) if path[:end] in found)
