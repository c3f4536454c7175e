"""Which host keys are known: known_hosts files, read once per run, and what is accepted."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import logging
import os
import re
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LOG = logging.getLogger(__name__)

_DEFAULT_PORT = 22

USER_FILES = (
    Path("~/.ssh/known_hosts"),
    Path("/etc/ssh/ssh_known_hosts"),
)
"""What the operator's own ssh trusts."""


@dataclass(frozen=True)
class HostKey:
    """A public host key: its type as SSH names it, and its bytes."""

    key_type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as ssh-keygen -l shows it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"

    @property
    def label(self) -> str:
        """`ED25519 SHA256:…`, for messages."""
        name = self.key_type.removeprefix("ssh-").removeprefix("ecdsa-sha2-")
        return f"{name.upper()} {self.fingerprint}"


@dataclass(frozen=True)
class KnownKey:
    """A host key and the line that vouches for it."""

    key: HostKey
    where: str
    """`file:line`, or "the inventory"."""


@dataclass(frozen=True)
class Accepted:
    """A key that was unknown and taken on trust, because the operator said so."""

    node: str
    fingerprint: str
    key_type: str


def host_name(address: str, port: int) -> str:
    """What known_hosts files call this server: the address, or `[address]:port`."""
    return address.lower() if port == _DEFAULT_PORT else f"[{address.lower()}]:{port}"


@dataclass
class KnownHosts:
    """The keys of some known_hosts files; looking one up does not grow with the files."""

    plain: dict[str, list[KnownKey]] = field(default_factory=dict)
    hashed: list[tuple[bytes, bytes, KnownKey]] = field(default_factory=list)
    patterns: list[tuple[tuple[str, ...], KnownKey]] = field(default_factory=list)
    revoked: set[bytes] = field(default_factory=set)

    @classmethod
    def read(cls, files: Sequence[Path]) -> KnownHosts:
        """Read all `files`; those that are absent or unreadable know nobody."""
        known = cls()
        for file in files:
            path = file.expanduser()
            try:
                text = path.read_text(errors="replace")
            except OSError as error:
                _LOG.debug("no host keys from %s: %s", path, error.strerror)
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                known.add_line(line, f"{path}:{number}")
        return known

    def add_line(self, line: str, where: str) -> None:
        """Take in one line; what ssh itself would pass over is passed over."""
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if not words or words[0].startswith("#"):
            return
        try:
            names, key_type, encoded, *_comment = words
            key = KnownKey(HostKey(key_type, base64.b64decode(encoded, validate=True)), where)
        except ValueError:
            _LOG.debug("%s: not a host key", where)
            return
        if marker == "@revoked":
            self.revoked.add(key.key.blob)
        elif not marker:
            self._add(names, key)

    def _add(self, names: str, key: KnownKey) -> None:
        if names.startswith("|1|"):
            with contextlib.suppress(ValueError):
                salt, digest = (base64.b64decode(part) for part in names[3:].split("|"))
                self.hashed.append((salt, digest, key))
            return
        parts = tuple(names.lower().split(","))
        if any(set(part) & set("*?!") for part in parts):
            self.patterns.append((parts, key))
            return
        for part in parts:
            self.plain.setdefault(part, []).append(key)

    def lookup(self, name: str) -> tuple[KnownKey, ...]:
        """Every key known for `name` (see `host_name`)."""
        return tuple(self._found(name))

    def _found(self, name: str) -> Iterator[KnownKey]:
        yield from self.plain.get(name, ())
        encoded = name.encode()
        for salt, digest, key in self.hashed:
            if hmac.digest(salt, encoded, "sha1") == digest:
                yield key
        for parts, key in self.patterns:
            if _matches(parts, name):
                yield key


def _matches(parts: Sequence[str], name: str) -> bool:
    """As ssh does it: one pattern must match and no negated one may."""
    negated = [part[1:] for part in parts if part.startswith("!")]
    plain = [part for part in parts if not part.startswith("!")]
    return any(_like(part, name) for part in plain) and not any(_like(p, name) for p in negated)


def _like(pattern: str, name: str) -> bool:
    # Not fnmatch: there "[" opens a set, and here it is part of "[address]:port".
    regex = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(regex, name) is not None


class HostKeys:
    """What one run trusts: the project's own file, then what the operator's ssh trusts.

    Files are read once, when first asked; every method may be called from any thread.
    """

    def __init__(
        self,
        project_file: Path,
        *,
        user_files: Sequence[Path] = USER_FILES,
        accept_new: bool = False,
    ) -> None:
        self.project_file = project_file
        self.accept_new = accept_new
        self._user_files = tuple(user_files)
        self._lock = threading.Lock()
        self._stores: tuple[KnownHosts, KnownHosts] | None = None
        self._accepted: list[Accepted] = []

    @property
    def accepted(self) -> tuple[Accepted, ...]:
        """The keys taken on trust in this run, by node."""
        with self._lock:
            return tuple(sorted(self._accepted, key=lambda a: a.node))

    def lookup(self, name: str) -> tuple[KnownKey, ...]:
        """The keys known for `name`: the project's, or if it knows none, the operator's."""
        project, user = self._loaded()
        return project.lookup(name) or user.lookup(name)

    def is_revoked(self, key: HostKey) -> bool:
        """Whether any file says `@revoked` of this key."""
        return any(key.blob in store.revoked for store in self._loaded())

    def accept(self, node: str, name: str, key: HostKey) -> None:
        """Record an unknown key in the project's file, on disk before this returns."""
        line = f"{name} {key.key_type} {base64.b64encode(key.blob).decode()}"
        project, _ = self._loaded()
        with self._lock:
            number = _append(self.project_file, line)
            project.add_line(line, f"{self.project_file}:{number}")
            self._accepted.append(Accepted(node, key.fingerprint, key.key_type))

    def _loaded(self) -> tuple[KnownHosts, KnownHosts]:
        with self._lock:
            if self._stores is None:
                self._stores = (
                    KnownHosts.read([self.project_file]),
                    KnownHosts.read(self._user_files),
                )
            return self._stores


def _append(file: Path, line: str) -> int:
    """Put `line` at the end of `file`, beside and then renamed; its line number."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # another run may be accepting keys too
        lines = file.read_bytes().splitlines() if file.exists() else []
        descriptor, beside = tempfile.mkstemp(dir=file.parent, prefix=".known_hosts.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(b"\n".join([*lines, line.encode(), b""]))
            Path(beside).replace(file)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
        return len(lines) + 1
    finally:
        os.close(folder)
