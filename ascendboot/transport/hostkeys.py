"""Host keys: always checked, from known_hosts or the record of `setup`."""

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
from typing import TYPE_CHECKING, Protocol

from ascendboot.transport.connect import Cause, ConnectError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ascendboot.model.cluster import Node

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
    """An unknown key that was accepted because the operator permits it."""

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
        """Read all `files`; absent and unreadable ones count as empty."""
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

    Files are read once, on first use; every method may be called from any thread.
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
        """Whether any file marks this key as `@revoked`."""
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


_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class PublicKey(Protocol):
    """What the SSH library calls a key."""

    def get_name(self) -> str:
        """Its type, `ssh-ed25519`."""
        ...

    def asbytes(self) -> bytes:
        """Its public part."""
        ...


class HostKeyCheck:
    """The check of one server's key, in the form of a policy for keys that are not known yet.

    The SSH library gets no known keys, so every key comes here.
    """

    def __init__(self, node: Node, host_keys: HostKeys) -> None:
        self._node = node
        self._host_keys = host_keys
        self._name = host_name(node.address, node.ssh.port)
        self._shown: list[HostKey] = []

    def algorithms(self, offered: Sequence[str]) -> list[str]:
        """`offered`, in the order in which to ask the server for its key.

        Types of which we know a key come first: else a server that we know by its ed25519 key
        would look strange for showing its ecdsa key. When the inventory's fingerprint did not
        fit a key shown before, only the other types are asked for.
        """
        seen = {algorithm for key in self._shown for algorithm in _algorithms(key.key_type)}
        wanted = [
            algorithm
            for known in self._host_keys.lookup(self._name)
            for algorithm in _algorithms(known.key.key_type)
        ]
        left = [algorithm for algorithm in offered if algorithm not in seen]
        return sorted(left, key=lambda a: wanted.index(a) if a in wanted else len(wanted))

    @property
    def may_ask_again(self) -> bool:
        """Whether another type of key could still be the one that the inventory names."""
        return self._node.ssh.fingerprint is not None and bool(self._shown)

    @property
    def rounds(self) -> int:
        """How many keys were requested from the server, each over a connection of its own."""
        return len(self._shown)

    def missing_host_key(self, _client: object, _hostname: str, key: PublicKey) -> None:
        """Accept the key that the server shows, or refuse it.

        Raises:
            ConnectError: it is unknown, changed or revoked; nothing was sent to the server.
        """
        shown = HostKey(key.get_name(), key.asbytes())
        self._shown.append(shown)
        if self._host_keys.is_revoked(shown):
            raise self._refused(
                Cause.HOST_KEY_CHANGED,
                f"its host key {shown.label} is revoked; give the node a new one",
            )
        fingerprint = self._node.ssh.fingerprint
        if fingerprint is not None:
            if shown.fingerprint != fingerprint.rstrip("="):
                raise self._changed_from(fingerprint)
            return
        known = self._host_keys.lookup(self._name)
        if not known:
            self._take_unknown(shown)
        elif shown not in [k.key for k in known]:
            raise self._changed(shown, known)

    def _take_unknown(self, shown: HostKey) -> None:
        if self._host_keys.accept_new:
            try:
                self._host_keys.accept(self._node.name, self._name, shown)
            except OSError as error:
                raise self._refused(
                    Cause.HOST_KEY_UNKNOWN,
                    f"its new host key could not be recorded in {self._host_keys.project_file}: "
                    f"{error.strerror}; make room or give access there",
                ) from error
            return
        raise self._refused(
            Cause.HOST_KEY_UNKNOWN,
            f"its host key is not known: {shown.label}; if `ssh-keygen -lf "
            f"{_file_of(shown)}` on the node shows the same, run setup --plan --accept-new or put "
            f"`fingerprint: {shown.fingerprint}` into the inventory",
        )

    def _changed(self, shown: HostKey, known: Sequence[KnownKey]) -> ConnectError:
        same_type = [k for k in known if k.key.key_type == shown.key_type]
        expected = (same_type or list(known))[0]
        return self._refused(
            Cause.HOST_KEY_CHANGED,
            f"its host key has changed: it shows {shown.label}, known is {expected.key.label} "
            f"({expected.where}); if the node was installed anew remove that line, "
            "if not, someone may stand in between",
        )

    def _changed_from(self, fingerprint: str) -> ConnectError:
        shown = " and ".join(key.label for key in self._shown)
        return self._refused(
            Cause.HOST_KEY_CHANGED,
            f"its host key has changed: it shows {shown}, the inventory states {fingerprint}; "
            "if the node was installed anew correct `fingerprint`, "
            "if not, someone may stand in between",
        )

    def _refused(self, cause: Cause, why: str) -> ConnectError:
        return ConnectError(self._node.name, cause, f"refused to log in: {why}")


def _algorithms(key_type: str) -> tuple[str, ...]:
    return _RSA if key_type == "ssh-rsa" else (key_type,)


def _file_of(key: HostKey) -> str:
    kind = "ecdsa" if "ecdsa" in key.key_type else key.key_type.removeprefix("ssh-")
    return f"/etc/ssh/ssh_host_{kind}_key.pub"
