"""`python3 --version`: the version of an interpreter."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.parse.reading import only_line_of

TOOL = "python --version"
_VERSION = re.compile(r"Python ([0-9]+\.[0-9]+\S*)( ::.*)?")
_EXPECTED = "Python VERSION"


@dataclass(frozen=True)
class Python:
    """An installed interpreter."""

    path: str
    version: str


def parse_version(text: str) -> str:
    """`3.10.4` from what the interpreter prints.

    Raises:
        NotUnderstoodError: it prints something else.
    """
    line = only_line_of(text, TOOL, _EXPECTED)
    match = _VERSION.fullmatch(line.text.strip())
    if match is None:
        raise line.not_understood(TOOL, _EXPECTED)
    return match[1]
