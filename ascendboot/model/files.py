"""Files that ascendboot writes: training code, certificates, and who owns the base folder."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ALWAYS_LEFT_OUT = (".git", "__pycache__", "*.pyc", ".ascendboot-sending.??????")
"""Names that are no code; the last is where we were writing."""
MOST_FILES = 10_000
MOST_BYTES = 512 * 1024**2
"""Code is looked at before every job: a tree that is larger holds data, which is to be left out."""
PRIMARY = "primary"
"""The `code.source` that is the primary's own tree."""

_PROGRAMS = (".py", ".sh", ".so", ".toml", ".yaml", ".yml", ".cfg", ".ini", ".conf")
"""Programs and their settings. A job leaves files of other kinds where it runs, on every node other
ones: logs, checkpoints, what the NPU software compiled."""
_EXECUTABLE = 0o111


@dataclass(frozen=True)
class Entry:
    """A file with SHA-256 and mode, or a symbolic link."""

    sha256: str = ""
    """Empty for a file that could not be read, and for a link."""
    mode: int = 0
    target: str | None = None
    """Of a link; None: it is a file."""
    size: int = field(default=0, compare=False)

    @property
    def is_readable(self) -> bool:
        """Whether its content is known."""
        return self.target is not None or bool(self.sha256)

    def has_content_of(self, other: Entry) -> bool:
        """Both are known and the same, whatever their modes."""
        mine, its = (self.sha256, self.target), (other.sha256, other.target)
        return mine == its and self.is_readable


@dataclass(frozen=True, kw_only=True)
class CodeTree:
    """Files and links by their path below the root, sorted."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    exists: bool = True
    excess: tuple[int, int] | None = None
    """Files and bytes counted when it was seen to hold too much; then there are no entries."""
    others: tuple[str, ...] = ()
    """Further files, queried by name only."""


@dataclass(frozen=True)
class Difference:
    """One path at which a tree is not as the reference."""

    path: str
    kind: Literal["differs", "missing", "extra", "unreadable"]
    is_code: bool = True
    """A job could run other code for it; else it may be a result that a job left."""

    def words(self, reference: str) -> str:
        """`main.py differs from lab-1`."""
        return {
            "differs": f"{self.path} differs from {reference}",
            "missing": f"{self.path} is missing, which {reference} has",
            "extra": f"{self.path} is not in {reference}",
            "unreadable": f"{self.path} cannot be read",
        }[self.kind]


def differences(reference: CodeTree, tree: CodeTree) -> tuple[Difference, ...]:
    """Where `tree` has not the content of `reference`, sorted by path."""
    found = []
    for path in sorted({*reference.entries, *tree.entries}):
        wanted, there = reference.entries.get(path), tree.entries.get(path)
        kind = _difference(wanted, there)
        if kind is not None:
            found.append(Difference(path, kind, is_program(path, wanted, there)))
    return tuple(found)


def is_program(path: str, *entries: Entry | None) -> bool:
    """Whether a file is a program or its settings, by its name or because it can be executed."""
    modes = [entry.mode for entry in entries if entry is not None]
    return path.endswith(_PROGRAMS) or any(mode & _EXECUTABLE for mode in modes)


def _difference(
    wanted: Entry | None, there: Entry | None
) -> Literal["differs", "missing", "extra", "unreadable"] | None:
    if there is None:
        return "missing"
    if not there.is_readable:
        return "unreadable"
    if wanted is None:
        return "extra"
    return None if there.has_content_of(wanted) else "differs"


def unlike(reference: CodeTree, tree: CodeTree) -> tuple[str, ...]:
    """The paths of `reference` that `tree` has not in the same form, mode included."""
    there = tree.entries
    return tuple(path for path, entry in reference.entries.items() if there.get(path) != entry)


def differences_text(found: Sequence[Difference], reference: str) -> str:
    """The first of them in words, and how many more there are."""
    words = ", ".join(difference.words(reference) for difference in found[:2])
    return f"{words}; {len(found) - 2} more" if len(found) > 2 else words  # noqa: PLR2004


def why_not_sent(path: str, entry: Entry | None) -> str | None:
    """Why a file, or one of unknown content, cannot be sent to a node; None when it can."""
    if not path.isprintable() or "\\" in path:
        return "has a name that cannot be sent; rename it"
    if entry is None:
        return None
    if entry.target is None:
        return None if entry.is_readable else "cannot be read"
    folder = path.rpartition("/")[0]
    place = os.path.normpath(os.path.join(folder, entry.target))  # noqa: PTH118 - not of this side
    if place == ".." or place.startswith(("../", "/")) or not entry.target.isprintable():
        return f"is a symbolic link that leads out of the tree, to {entry.target}"
    return None


def is_left_out(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern takes out the path or a folder on the way to it.

    A pattern with a slash is held against the whole path, one without against each name.
    """
    names = path.split("/")
    ways = ["/".join(names[: count + 1]) for count in range(len(names))]
    return any(
        fnmatchcase(way if "/" in pattern else name, pattern)
        for way, name in zip(ways, names, strict=True)
        for pattern in (*ALWAYS_LEFT_OUT, *patterns)
    )


FOLDER = "/var/lib/ascendboot"
"""Holds the folders of root's clusters on a node; other users have theirs in ~/.ascendboot."""


@dataclass(frozen=True)
class OwnFile:
    """SHA-256 of its content and its mode as in chmod."""

    sha256: str
    mode: int


DAY_S = 86400.0
START_SLACK_S = 300.0
"""A certificate counts from so long before it was signed: clocks are never quite equal."""
VALID_DAYS = 400
RENEW_DAYS = 100
"""Any setup renews a certificate that is good for less than this."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a certificate says, apart from when; keys are named by `SHA256:…`."""

    kind: Literal["user", "host"]
    key: str
    ca: str
    key_id: str
    """Who it is for, in the words that sshd logs."""
    principals: tuple[str, ...]
    """Names and addresses of a host, or what a user may log in as."""
    options: tuple[str, ...] = ()
    """Critical options with their values: `source-address 192.0.2.11/32`."""
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate that is somewhere; its bounds are in seconds since the epoch."""

    claims: Claims
    valid_from: float | None
    """None: since ever."""
    valid_to: float | None
    """None: for ever."""


@dataclass(frozen=True, kw_only=True)
class Authority:
    """The public keys of a cluster's user CA and host CA, and the way to have something signed."""

    user: str
    host: str
    sign: Callable[[Claims, str], str] | None
    """The certificate's text for claims and a public key; None while nothing may be made."""


def fingerprint(public_key: str) -> str:
    """`SHA256:…` of a public key `TYPE BASE64`, as `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


_LINE = re.compile(
    r"(SHA256:[A-Za-z0-9+/]{43}|id:[0-9a-f]{32}) (\d{4}-\d\d-\d\dT\d\d:\d\dZ) "
    r"(\S{1,100}) (.{1,200})"
)
OWNER_BYTES = 400
"""No record is longer; a node may hold anything."""


@dataclass(frozen=True)
class Owner:
    """What one line of the file `owner` on a node says."""

    key: str
    """Fingerprint of the host CA, or with `trust: pinned` the id of the control folder."""
    since: str
    by: str
    folder: str

    @classmethod
    def parse(cls, line: str) -> Owner | None:
        """The record in a line; None where it is none of ours."""
        found = _LINE.fullmatch(line) if line.isprintable() else None
        return cls(*found.groups()) if found else None

    @property
    def text(self) -> str:
        """The content of the file."""
        return f"{self.key} {self.since} {self.by} {self.folder}\n"

    @property
    def words(self) -> str:
        """Who it is, for messages."""
        kind = "" if self.key.startswith("id:") else f", CA {self.key}"
        return f"{self.folder} of {self.by}, since {self.since}{kind}"


@dataclass(frozen=True, kw_only=True)
class Control:
    """The control folder of this run: what new records say, and which records are its own."""

    by: str
    folder: str
    now: str
    known: frozenset[str]
    """Keys under which this folder has set the cluster up before."""
    id: str = ""
    """What stands for this folder with `trust: pinned`; empty where a plan found none."""

    def owner(self, key: str) -> Owner:
        """A new record; what its line cannot hold is left out."""
        by = "".join(self.by.split())[:100] or "-"
        folder = "".join(c for c in self.folder if c.isprintable())[-200:]
        return Owner(key, self.now, by, folder)
