"""`horovodrun --version` and `--check-build`: which Horovod this is, and whether it can use MPI."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.errors import NotUnderstoodError
from ascendboot.parse.reading import lines_of, nothing_printed

VERSION_TOOL = "horovodrun --version"
BUILD_TOOL = "horovodrun --check-build"
_VERSION = re.compile(r"[0-9]+\.[0-9]+\S*")
_CONTROLLERS = "Available Controllers:"
_ENTRY = re.compile(r"\[([X ])\] (\S+)")


@dataclass(frozen=True)
class Horovod:
    """A Horovod beside an interpreter; `has_mpi` is None where that was not asked."""

    path: str
    """Of horovodrun."""
    version: str
    has_mpi: bool | None = None


def parse_version(text: str) -> str:
    """`0.28.1`: the last line; libraries that it loads may warn before.

    Raises:
        NotUnderstoodError: the last line is no version.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(VERSION_TOOL, "a version")
    if not _VERSION.fullmatch(lines[-1].text.strip()):
        raise lines[-1].not_understood(VERSION_TOOL, "a version")
    return lines[-1].text.strip()


def parse_has_mpi(text: str) -> bool:
    """Whether MPI is among the controllers.

    Raises:
        NotUnderstoodError: the list of controllers is missing, or has another form.
    """
    lines = iter(lines_of(text))
    if not any(line.text.strip() == _CONTROLLERS for line in lines):
        raise NotUnderstoodError(BUILD_TOOL, 1, "", _CONTROLLERS)
    for line in lines:
        entry = _ENTRY.fullmatch(line.text.strip())
        if entry is None:
            raise line.not_understood(BUILD_TOOL, "[X] MPI or [ ] MPI")
        if entry[2] == "MPI":
            return entry[1] == "X"
    raise NotUnderstoodError(BUILD_TOOL, 1, "", "MPI among the controllers")
