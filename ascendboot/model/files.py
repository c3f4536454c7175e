"""Files that ascendboot writes: training code, certificates, who owns the base folder, and how."""

from __future__ import annotations

import base64
import dataclasses
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias

from ascendboot.value import Value, field

ALWAYS_LEFT_OUT = (".git", "__pycache__", "*.pyc", ".ascendboot", ".ascendboot-sending.??????")
"""Names that are no code: of the last two, one holds the cluster's CA keys, which no node may have,
the other an unfinished transfer."""
MOST_FILES = 10_000
MOST_BYTES = 512 * 1024**2
"""Every job reads the tree of the code; a larger tree holds data that must be excluded."""
PRIMARY = "primary"
"""The `code.source` that is the primary's own tree."""

_PROGRAMS = (".py", ".sh", ".so", ".toml", ".yaml", ".yml", ".cfg", ".ini", ".conf")
"""Programs and their settings. Jobs leave files of other kinds, which differ between nodes: logs,
checkpoints, what the NPU software compiled."""
_EXECUTABLE = 0o111


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file with SHA-256 and mode, or a symbolic link."""

    sha256: str = ""
    """Empty for a link, and for a file that could not be read."""
    mode: int = 0
    target: str | None = None
    """The target of a link; None: it is a file."""
    size: int = dataclasses.field(default=0, compare=False)

    @property
    def is_readable(self) -> bool:
        """Whether its content is known."""
        return self.target is not None or bool(self.sha256)

    def has_content_of(self, other: Entry) -> bool:
        """Whether the content of both is known and equal, regardless of modes."""
        mine, its = (self.sha256, self.target), (other.sha256, other.target)
        return mine == its and self.is_readable


TreeState: TypeAlias = Literal["absent", "unreadable", "present"]


class CodeTree(Value, kw_only=True):
    """Files and links by their path below the root, sorted."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    state: TreeState = "present"
    excess: tuple[int, int] | None = None
    """The files and bytes of a tree that is too large; then there are no entries."""
    others: tuple[str, ...] = ()
    """Further files, queried by name only."""


DifferenceKind: TypeAlias = Literal["differs", "missing", "extra", "unreadable"]


class Difference(Value):
    """One path at which a tree differs from the reference."""

    path: str
    kind: DifferenceKind
    is_code: bool = True
    """Whether a job could run other code because of it; else it may be the result of a job."""

    def words(self, reference: str) -> str:
        """`main.py differs from lab-1`."""
        return {
            "differs": f"{self.path} differs from {reference}",
            "missing": f"{self.path} is missing, which {reference} has",
            "extra": f"{self.path} is not in {reference}",
            "unreadable": f"{self.path} cannot be read",
        }[self.kind]


def differences(reference: CodeTree, tree: CodeTree) -> tuple[Difference, ...]:
    """The paths at which the content of `tree` differs from `reference`, sorted."""
    found = []
    for path in sorted({*reference.entries, *tree.entries}):
        wanted, there = reference.entries.get(path), tree.entries.get(path)
        kind: DifferenceKind
        if there is None:
            kind = "missing"
        elif not there.is_readable:
            kind = "unreadable"
        elif wanted is None:
            kind = "extra"
        elif there.has_content_of(wanted):
            continue
        else:
            kind = "differs"
        found.append(Difference(path, kind, is_program(path, wanted, there)))
    return tuple(found)


def is_program(path: str, *entries: Entry | None) -> bool:
    """Whether a file is a program or its settings, by its name or because it can be executed."""
    modes = [entry.mode for entry in entries if entry is not None]
    return path.endswith(_PROGRAMS) or any(mode & _EXECUTABLE for mode in modes)


def unlike(reference: CodeTree, tree: CodeTree) -> tuple[str, ...]:
    """The paths of `reference` that `tree` lacks or has in another form, mode included."""
    there = tree.entries
    return tuple(path for path, entry in reference.entries.items() if there.get(path) != entry)


def differences_text(found: Sequence[Difference], reference: str) -> str:
    """The first two differences, and how many more there are."""
    words = ", ".join(difference.words(reference) for difference in found[:2])
    return f"{words}; {len(found) - 2} more" if len(found) > 2 else words  # noqa: PLR2004


def why_not_sent(path: str, entry: Entry | None) -> str | None:
    """Why a file cannot be sent to a node, or None; without `entry` its content is unknown."""
    if not path.isprintable() or "\\" in path:
        return "has a name that cannot be sent; rename it"
    if entry is None:
        return None
    if entry.target is None:
        return None if entry.is_readable else "cannot be read"
    folder = path.rpartition("/")[0]
    place = os.path.normpath(os.path.join(folder, entry.target))  # noqa: PTH118 - a path of nodes
    if place == ".." or place.startswith(("../", "/")) or not entry.target.isprintable():
        return f"is a symbolic link that leads out of the tree, to {entry.target}"
    return None


def is_left_out(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern excludes the path or a folder above it.

    A pattern with a slash must match the whole path, one without a slash a single name.
    """
    names = path.split("/")
    return any(
        fnmatchcase("/".join(names[: at + 1]) if "/" in pattern else name, pattern)
        for at, name in enumerate(names)
        for pattern in (*ALWAYS_LEFT_OUT, *patterns)
    )


USER_CA, HOST_CA = "user_ca", "host_ca"


def holds_ca_keys(folder: Path) -> bool:
    """Whether a folder, whatever its name, has private keys of a CA, which no node may have."""
    return any(os.path.isfile(folder / name) for name in (USER_CA, HOST_CA))  # noqa: PTH113 - never raises


FOLDER = "/var/lib/ascendboot"
"""The parent of the clusters' folders for root; other users have theirs in ~/.ascendboot."""


class OwnFile(Value):
    """A file that setup manages on a node: SHA-256 of its content, and its mode as in chmod."""

    sha256: str
    mode: int


DAY_S = 86400.0
START_SLACK_S = DAY_S
"""Certificates are valid from this long before they are signed, because clocks differ."""
VALID_DAYS = 400
RENEW_DAYS = 100
"""Every setup renews certificates that expire within this time."""


class Claims(Value, kw_only=True):
    """The content of a certificate without its validity; keys are given as `SHA256:…`."""

    kind: Literal["user", "host"]
    key: str
    ca: str
    key_id: str
    """The owner, in the words that sshd logs."""
    principals: tuple[str, ...]
    """Names and addresses of a host, or the names under which a user may log in."""
    options: tuple[str, ...] = ()
    """Critical options with their values: `source-address 192.0.2.11/32`."""
    extensions: tuple[str, ...] = ()


class Certificate(Value, kw_only=True):
    """A certificate on a node; its validity is in seconds since the epoch."""

    claims: Claims
    valid_from: float | None
    """None: no lower limit."""
    valid_to: float | None
    """None: it does not expire."""


class Authority(Value, kw_only=True):
    """The public keys of a cluster's user CA and host CA, and the function that signs."""

    user: str
    host: str
    sign: Callable[[Claims, str], str] | None
    """Makes a certificate for claims and a public key; None in a plan."""


def fingerprint(public_key: str) -> str:
    """`SHA256:…` of a public key `TYPE BASE64`, as `ssh-keygen -l` shows it."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


_LINE = re.compile(
    r"(SHA256:[A-Za-z0-9+/]{43}|id:[0-9a-f]{32}) (\d{4}-\d\d-\d\dT\d\d:\d\dZ) "
    r"(\S{1,100}) (.{1,200})"
)
OWNER_BYTES = 400
"""The longest record that is read: a node may hold anything."""


class Owner(Value):
    """The control folder that set up a node: the one line of the file `owner` there."""

    key: str
    """Fingerprint of the host CA, or with `trust: pinned` the id of the control folder."""
    since: str
    by: str
    folder: str

    @classmethod
    def parse(cls, line: str) -> Owner | None:
        """The record in a line; None if it has another form."""
        found = _LINE.fullmatch(line) if line.isprintable() else None
        return cls(*found.groups()) if found else None

    @property
    def text(self) -> str:
        """The content of the file."""
        return f"{self.key} {self.since} {self.by} {self.folder}\n"

    @property
    def words(self) -> str:
        """The owner, for messages."""
        kind = "" if self.key.startswith("id:") else f", CA {self.key}"
        return f"{self.folder} of {self.by}, since {self.since}{kind}"


class Control(Value, kw_only=True):
    """The control folder of this run: the content of new records, and the keys of its own."""

    by: str
    folder: str
    now: str
    known: frozenset[str]
    """Keys under which this folder has set up the cluster before."""
    id: str = ""
    """The key of this folder with `trust: pinned`; empty if a plan found none."""

    def owner(self, key: str) -> Owner:
        """A new record, without characters that its line cannot hold."""
        by = "".join(self.by.split())[:100] or "-"
        folder = "".join(c for c in self.folder if c.isprintable())[-200:]
        return Owner(key, self.now, by, folder)


def write_atomically(
    path: Path, content: bytes, *, synced: bool = False, mode: int = 0o600
) -> None:
    """Replace a file in one step; `synced`: it survives a loss of power."""
    with _named(path):
        with suppress(FileExistsError):  # where it is no folder, the next line fails
            path.parent.mkdir(parents=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with _named(path):
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, mode)
                file.write(content)
                if synced:
                    file.flush()
                    os.fsync(file.fileno())
            Path(beside).replace(path)
    except BaseException:  # Ctrl-C must leave no temporary file either
        Path(beside).unlink(missing_ok=True)
        raise
    if synced:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def held(path: Path, holder: str) -> Iterator[str | None]:
    """Lock a file and write the holder into it; yields the words of another holder, if any."""
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            yield lock.read().strip()
            return
        with _named(path):
            lock.truncate(0)
            os.write(lock.fileno(), holder.encode(errors="backslashreplace"))
        yield None


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an OSError name this file, not a temporary one; it names none when a disk is full."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
