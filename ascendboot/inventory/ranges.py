"""Ranges such as `atlas-[01-16]`, expanded in the order in which they are written.

Unlike a set of names, a list of addresses has an order that matters: the third name gets the
third address.
"""

from __future__ import annotations

import itertools
import re

MOST = 10_000
"""A range that stands for more than this is a slip of the finger."""

_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_ITEM = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def has_range(text: str) -> bool:
    """Whether `text` is written as a range, well-formed or not."""
    return "[" in text or "]" in text


def expand(text: str) -> tuple[str, ...]:
    """What `text` stands for, in the order written; text without brackets stands for itself.

    Raises:
        ValueError: it is not a range; the text completes `"…": `.
    """
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
            raise ValueError(_too_many())
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
        numbers.extend(_count(first, last))
        if len(numbers) > MOST:
            raise ValueError(_too_many())
    return numbers


def _count(first: str, last: str) -> list[str]:
    if int(last) < int(first):
        raise ValueError(f"[{first}-{last}] runs backwards; write [{last}-{first}]")
    padded = any(len(number) > 1 and number[0] == "0" for number in (first, last))
    if padded and len(first) != len(last):
        width = max(len(first), len(last))
        raise ValueError(
            f"[{first}-{last}] has numbers of different width; write "
            f"[{int(first):0{width}}-{int(last):0{width}}] or [{int(first)}-{int(last)}]"
        )
    if int(last) - int(first) >= MOST:
        raise ValueError(_too_many())
    return [f"{n:0{len(first)}}" for n in range(int(first), int(last) + 1)]


def _too_many() -> str:
    return f"it stands for more than {MOST:,}; state a shorter range"
