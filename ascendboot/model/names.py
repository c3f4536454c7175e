"""Names of nodes and ranks in short form (node-[1-3], ranks 0-7), spans of time, and paths."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

from ascendboot.errors import UsageError

_COMMA = re.compile(r",(?![^\[]*\])")
"""Outside of brackets."""
_OPERATOR = re.compile(r"(?:\s*([,!&^])\s*|\s+)(?![^\[]*\])")
"""As in ClusterShell: joins sets, leaves out, keeps what is in both, or in one of them only."""
_PLAIN = re.compile(r"[\w.@-]{1,253}", re.ASCII)
"""What ClusterShell folds as it is."""

# ClusterShell is imported where it is used: most jobs have no names to fold.


def fold(names: Iterable[str]) -> str:
    """One short text for a set of names, `lab-[1-3]`; the order of the input does not matter."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # noqa: PLC0415

    return str(NodeSet.fromlist(sorted(names), resolver=RESOLVER_NOGROUP))


def counted(number: int, kind: str) -> str:
    """`1 node`, `2 nodes`; `kind` is the singular."""
    return f"{number} {kind}" if number == 1 else f"{number} {kind}s"


def runs(numbers: Iterable[int]) -> str:
    """`0-3,5`; the order of the input does not matter."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ",".join("-".join(map(str, run)) for run in found)


def ranks_named(ranks: Collection[int]) -> str:
    """`rank 3`, or `ranks 0-7,9`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {runs(ranks)}"


MOST = 10_000
"""A range that stands for more than this is refused as a typing error."""

_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_ITEM = re.compile(r"([0-9]{1,64})(?:-([0-9]{1,64})(?:/0*([1-9][0-9]{0,8}))?)?")
_TOO_MANY = f"it stands for more than {MOST:,}; state a shorter range"


def expand(text: str) -> tuple[str, ...]:
    """What a text stands for, in its order; else a ValueError that completes `"…": `."""
    # Not ClusterShell's: it sorts, and the third name of a range gets the third address.
    choices: list[list[str]] = []
    end, size = 0, 1
    for piece in _PIECE.finditer(text):
        if piece.start() != end:
            break
        end = piece.end()
        inner: str | None = piece[1]
        choices.append([piece[2]] if inner is None else _numbers(inner))
        size *= len(choices[-1])
        if size > MOST:
            raise ValueError(_TOO_MANY)
    if end != len(text):
        raise ValueError("its brackets do not pair up; write a range such as [01-16]")
    names = tuple("".join(parts) for parts in itertools.product(*choices))
    if len(set(names)) != len(names):
        raise ValueError("it names something twice; state every number once")
    return names


def _numbers(inner: str) -> list[str]:
    numbers: list[str] = []
    for item in inner.split(","):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            raise ValueError(f"[{inner}] is not a range; write numbers such as [01-16] or [1,3-5]")
        first, last = match[1], match[2] or match[1]
        start, end = int(first), int(last)
        if end < start:
            raise ValueError(f"[{first}-{last}] runs backwards; write [{last}-{first}]")
        is_padded = [len(number) > 1 and number[0] == "0" for number in (first, last)]
        # Slurm writes [01-102] for 01 to 102.
        if (is_padded[1] and len(first) != len(last)) or (is_padded[0] and len(first) > len(last)):
            width = max(len(first), len(last))
            remedy = f"write [{start:0{width}}-{end:0{width}}] or [{start}-{end}]"
            raise ValueError(f"[{first}-{last}] has numbers of different width; {remedy}")
        every = range(start, end + 1, int(match[3] or 1))
        if len(numbers) + (end - start) // every.step >= MOST:
            raise ValueError(_TOO_MANY)
        numbers += [f"{number:0{len(first)}}" for number in every]
    return numbers


def expand_list(text: str) -> tuple[str, ...]:
    """The names of patterns that commas separate; ValueError if one is no name or range."""
    parts = (part.strip() for part in _COMMA.split(text))
    try:
        return tuple(name for part in parts if part for name in expand(part))
    except ValueError as error:
        raise ValueError(f'"{text}": {error}') from error


def names_among(
    flag: str, text: str, known: Sequence[str], groups: Mapping[str, Sequence[str]] | None = None
) -> tuple[str, ...]:
    """As `among`; UsageError with the name of the flag."""
    try:
        return among(text, known, groups or {})
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None


def among(text: str, known: Sequence[str], groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The known names in a set such as `a-[1-4],@rack2!a-3`; ValueError if it has none, or others.

    Of a group, only its known members count.
    """
    sets = {name: [name] for name in known}
    sets |= {f"@{group}": [n for n in of if n in sets] for group, of in groups.items()}
    sets["@*"] = [*known]
    names, unknown, before = dict[str, None](), list[str](), ""
    parts = _OPERATOR.split(text.strip())
    for operator, part in zip([",", *parts[1::2]], parts[::2], strict=True):
        if operator in {"!", "&", "^"} and not (before and part):
            raise ValueError(f'"{text}": {operator} stands between two sets; one is missing')
        before, named = part, dict[str, None]()
        try:
            words = expand(part) if part else ()
        except ValueError as error:
            raise ValueError(f'"{text}": {error}') from None
        for word in words:
            is_mask = word not in sets and not {"*", "?"}.isdisjoint(word)
            fits = [name for name in known if fnmatchcase(name, word)] if is_mask else []
            unknown += [] if word in sets or fits else [word]
            named |= dict.fromkeys(sets.get(word, fits))
        is_union = operator in {",", None}
        left = [name for name in names if is_union or (name in named) is (operator == "&")]
        right = [name for name in named if is_union or (operator == "^" and name not in names)]
        names = dict.fromkeys([*left, *right])
    if unknown:
        shown = fold(unknown) if all(map(_PLAIN.fullmatch, unknown)) else text
        there = f"{fold(known)}{'; groups: ' if groups else ''}{', '.join(groups)}"
        raise ValueError(f'there is no "{shown}", only {there}')
    if not names:
        raise ValueError(f'"{text}" names none of {fold(known)}')
    return tuple(names)


def id_list(flag: str, text: str) -> tuple[int, ...]:
    """The device ids in a list such as `0-3,6`, in its order; UsageError if it is none."""
    if wrong := [item for item in text.split(",") if not _ITEM.fullmatch(item.strip())]:
        raise UsageError(f'{flag}: "{wrong[0]}" is not a number or a range such as 0-3')
    try:
        return tuple(map(int, expand(f"[{text}]")))
    except ValueError as error:
        raise UsageError(f"{flag}: {re.sub(r'[][]', '', str(error))}") from error


def names_file_here(script: str) -> bool:
    """Whether a script's name always means a file on the control machine."""
    return script.startswith(("./", "../", "/"))


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhd]?)", re.ASCII)
_LONGEST_IN_SECONDS = 120


def span(seconds: float) -> str:
    """A span with at most two units, rounded down: `45 s`, `12 min`, `3 h 12 min`, `2 d 4 h`."""
    whole = max(0, int(seconds))
    if whole < _LONGEST_IN_SECONDS:
        return f"{whole} s"
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    parts = ((days, "d"), (hours, "h"), (0 if days else minutes, "min"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def local_time(iso: str, now: datetime) -> str:
    """A time of day here, `07:50:00`; of another day than `now` with its date."""
    at = datetime.fromisoformat(iso).astimezone()
    return f"{at:%H:%M:%S}" if at.date() == now.astimezone().date() else f"{at:%Y-%m-%d %H:%M:%S}"


def parse_span(text: str) -> float:
    """The seconds that a text such as `90`, `10m` or `2h` means; ValueError if it is no span."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is not a time such as 90s, 10m, 2h or 1d')
    return float(match[1]) * _UNITS[match[2]]


def path_here(text: str, file: str) -> Path:
    """A path that the inventory `file` states: from the working directory, or else beside it."""
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - never raises
    beside = Path(file).parent / path
    return beside if beside.exists() and not path.exists() else path


def least_most(numbers: Sequence[float], shown: Callable[[float], str]) -> str:
    """Return `LEAST - MOST`; one of them if both look the same; empty without numbers."""
    if not numbers:
        return ""
    least, most = shown(min(numbers)), shown(max(numbers))
    return least if least == most else f"{least} - {most}"


def pace_words(per_s: float) -> str:
    """Return `24 lines/s`, of less than ten with one decimal place."""
    whole = 10
    return f"{per_s:.{0 if per_s >= whole else 1}f} lines/s"
