"""OpenSSH's own words: its version, and what `sshd -t` finds missing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.parse.reading import lines_of, nothing_printed

TOOL = "sshd -V"
_VERSION = re.compile(r"OpenSSH_([0-9]+\.[0-9]+\S*?),?(\s.*)?")
_REFUSED_OPTION = re.compile(r"(\S*sshd: )?(unknown|illegal|invalid) option -- '?V'?")
_EXPECTED = "OpenSSH_VERSION"
_NO_FOLDER = re.compile(r"Missing privilege separation directory: (/\S+)")


@dataclass(frozen=True)
class Sshd:
    """The node's OpenSSH server, not whether one runs."""

    path: str
    """Absolute: sshd refuses to start by another path."""
    version: str
    missing_folder: str | None = None
    """The folder without which it does not start (`/run/sshd`), where that is missing."""
    lets_us_in: bool = True
    """False where our account is locked: sshd without PAM takes no key for it."""


@dataclass(frozen=True)
class Ssh:
    """The OpenSSH client of the workload side."""

    path: str
    version: str


def release(version: str) -> tuple[int, int]:
    """`(6, 6)` of `6.6.1p1`: what says which options a version knows."""
    major, minor = re.findall(r"[0-9]+", version)[:2]
    return int(major), int(minor)


def parse_version(text: str) -> str:
    """`9.2p1` from what `sshd -V` or `ssh -V` prints.

    Servers before 9.2 refuse `-V` but print their version and their usage as they do.

    Raises:
        NotUnderstoodError: no version stands where it should.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(TOOL, _EXPECTED)
    has_refused = _REFUSED_OPTION.fullmatch(lines[0].text.strip()) is not None
    rest = lines[1:] if has_refused else lines
    if not rest:
        raise lines[0].not_understood(TOOL, f"{_EXPECTED} on the next line")
    match = _VERSION.fullmatch(rest[0].text.strip())
    if match is None:
        raise rest[0].not_understood(TOOL, _EXPECTED)
    if rest[1:] and not has_refused:
        raise rest[1].not_understood(TOOL, f"{_EXPECTED} and nothing more")
    return match[1]


def missing_folder(text: str) -> str | None:
    """The folder that `sshd -t` says it misses; other complaints are about other things."""
    match = _NO_FOLDER.search(text)
    return match[1] if match else None
