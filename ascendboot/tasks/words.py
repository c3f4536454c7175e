"""Flags that the verbs of rank tables share, and those that take one of some words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from ascendboot.errors import UsageError
from ascendboot.ranktable.rule import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.ranktable.validate import Generation

W = TypeVar("W", bound=str)

PRODUCT_HELP: Final = f"The product that is to read it: {', '.join(PRODUCTS)}; a5 is 950"
ANSWER_HELP: Final = "Print the answer as JSON on standard output"

GENERATIONS: dict[str, Generation] = {
    "1.0": "1.0",
    "1.2": "1.2",
    "2.0": "2.0",
    "group-list": "group list",
}
"""What --to calls a generation."""


def among(flag: str, word: str | None, known: Sequence[W]) -> W | None:
    """The value of a flag that takes one of some words.

    Raises:
        UsageError: it is another.
    """
    if word is None:
        return None
    for name in known:
        if word == name:
            return name
    raise UsageError(f'{flag}: "{word}" is none of {", ".join(known)}')
