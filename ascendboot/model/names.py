"""Names of nodes and ranks in short form (node-[1-3], ranks 0-7), and spans of time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_COMMA = re.compile(r",(?![^\[]*\])")
"""Outside of brackets."""

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


def expand(pattern: str) -> tuple[str, ...]:
    """The names that `pattern` stands for, in counting order; a plain name stands for itself.

    Raises:
        ValueError: the pattern is not a name or a range such as `atlas-[01-16]`.
    """
    if "[" not in pattern and "]" not in pattern:
        return (pattern,)
    from ClusterShell import NodeSet  # noqa: PLC0415

    try:
        return tuple(NodeSet.NodeSet(pattern, resolver=NodeSet.RESOLVER_NOGROUP))
    except NodeSet.NodeSetParseError as error:
        raise ValueError(str(error)) from error


def expand_list(text: str) -> tuple[str, ...]:
    """The names of patterns that are separated by commas, in their order.

    Raises:
        ValueError: a pattern is not a name or a range.
    """
    parts = (part.strip() for part in _COMMA.split(text))
    return tuple(name for part in parts if part for name in expand(part))


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


def parse_span(text: str) -> float:
    """Seconds; a number without a unit is in seconds.

    Raises:
        ValueError: it is no span.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is not a time such as 90s, 10m, 2h or 1d')
    return float(match[1]) * _UNITS[match[2]]
