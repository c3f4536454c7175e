"""Host keys: always checked, from known_hosts or the record of `setup`."""

from __future__ import annotations

import base64
import fcntl
import hmac
import logging
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import SSH_PORT, Node
from ascendboot.model.files import fingerprint, write_atomically
from ascendboot.transport.login import PKey

_LOG = logging.getLogger(__name__)

_RSA = ("rsa-sha2-512", "rsa-sha2-256")
_REFUSED = "refused to log in"

USER_FILES = (Path("~/.ssh/known_hosts"), Path("/etc/ssh/ssh_known_hosts"))
"""The files of the operator's ssh."""


class HostKeyChangedError(UnreachableError):
    """The server shows a host key other than the known one."""


class UnknownHostKeyError(UnreachableError):
    """The server's host key is not known; `condition` is what must hold to accept it."""

    def __init__(self, node: str, condition: str, remedy: str) -> None:
        super().__init__(node, f"{condition}, {remedy}")
        self.condition = condition


@dataclass(frozen=True)
class HostKey:
    """A public host key: its type as SSH names it, and its bytes."""

    key_type: str
    blob: bytes
    where: str = field(default="", compare=False)
    """`file:line` of a known key."""

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as ssh-keygen -l shows it."""
        return fingerprint(f"{self.key_type} {base64.b64encode(self.blob).decode()}")

    @property
    def label(self) -> str:
        """`ED25519 SHA256:…`, for messages."""
        name = self.key_type.removeprefix("ssh-").removeprefix("ecdsa-sha2-")
        return f"{name.upper()} {self.fingerprint}"

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithms by which a server can show this type of key."""
        return _RSA if self.key_type == "ssh-rsa" else (self.key_type,)


def host_name(address: str, port: int) -> str:
    """Return the server's name in known_hosts files: the address, or `[address]:port`."""
    return address.lower() if port == SSH_PORT else f"[{address.lower()}]:{port}"


class KnownHosts:
    """The keys of known_hosts files; plain names are looked up without a search."""

    def __init__(self, files: Sequence[Path] = ()) -> None:
        """Read all `files`; missing and unreadable ones count as empty."""
        self.revoked: set[bytes] = set()
        self._plain: dict[str, list[HostKey]] = {}
        self._others: list[tuple[str, HostKey]] = []
        """Hashed names, and lists with patterns."""
        for file in files:
            path = Path(os.path.expanduser(file))  # noqa: PTH111 - never raises
            try:
                text = path.read_text(errors="replace")
            except OSError as error:
                _LOG.debug("no host keys from %s: %s", path, error.strerror)
                continue
            for number, line in enumerate(text.splitlines(), start=1):
                self.add_line(line, f"{path}:{number}")

    def add_line(self, line: str, where: str) -> None:
        """Add one line; lines that ssh ignores are ignored."""
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if not words or words[0].startswith("#"):
            return
        try:
            names, key_type, encoded, *_comment = words
            key = HostKey(key_type, base64.b64decode(encoded, validate=True), where)
        except ValueError:
            _LOG.debug("%s: not a host key", where)
            return
        if marker == "@revoked":
            self.revoked.add(key.blob)
        elif not marker and (names.startswith("|") or set(names) & set("*?!")):
            self._others.append((names, key))
        elif not marker:
            for name in names.lower().split(","):
                self._plain.setdefault(name, []).append(key)

    def lookup(self, name: str) -> tuple[HostKey, ...]:
        """Return every key known for `name` (see `host_name`)."""
        others = (key for names, key in self._others if _matches(names, name))
        return (*self._plain.get(name, ()), *others)


def _matches(names: str, name: str) -> bool:
    """Compare as ssh: one pattern must match, and no negated one may."""
    if names.startswith("|"):
        try:
            _, _, salt, digest = names.split("|")
            found = hmac.digest(base64.b64decode(salt), name.encode(), "sha1")
            return found == base64.b64decode(digest)
        except ValueError:
            return False
    matched = False
    for part in names.lower().split(","):
        # Not fnmatch: there "[" starts a set, and here it is part of "[address]:port".
        pattern = re.escape(part.removeprefix("!")).replace(r"\*", ".*").replace(r"\?", ".")
        if re.fullmatch(pattern, name):
            if part.startswith("!"):
                return False
            matched = True
    return matched


class HostKeys:
    """The known host keys of one run: of the project's file, then of the operator's ssh."""

    def __init__(
        self,
        project_file: Path,
        *,
        user_files: Sequence[Path] = USER_FILES,
        accept_new: bool,
        inventory: str = "FILE",
    ) -> None:
        self.project_file = project_file
        self.accept_new, self.inventory = accept_new, inventory
        self._project = KnownHosts([project_file])
        self._user = KnownHosts(user_files)
        self._lock = threading.Lock()
        self._accepted: dict[str, HostKey] = {}

    @property
    def accepted(self) -> dict[str, HostKey]:
        """The unknown keys accepted in this run because the operator permits it, by node."""
        with self._lock:
            return dict(sorted(self._accepted.items()))

    def lookup(self, name: str) -> tuple[HostKey, ...]:
        """Return the keys known for `name`: the project's, or if it has none, the operator's."""
        return self._project.lookup(name) or self._user.lookup(name)

    def is_revoked(self, key: HostKey) -> bool:
        """Return whether any file marks this key as `@revoked`."""
        return key.blob in self._project.revoked | self._user.revoked

    def accept(self, node: str, name: str, key: HostKey) -> None:
        """Record an unknown key in the project's file, on disk before this returns."""
        line = f"{name} {key.key_type} {base64.b64encode(key.blob).decode()}"
        file = self.project_file
        with self._lock:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)  # another run may be accepting keys too
                lines = file.read_bytes().splitlines() if file.exists() else []
                write_atomically(file, b"\n".join([*lines, line.encode(), b""]))
            finally:
                os.close(folder)
            self._project.add_line(line, f"{file}:{len(lines) + 1}")
            self._accepted[node] = key


class HostKeyCheck:
    """Checks one server's key; a policy of Paramiko for unknown keys.

    Paramiko gets no known keys, so that it passes every key to this policy.
    """

    def __init__(self, node: Node, host_keys: HostKeys) -> None:
        self._node = node
        self._host_keys = host_keys
        alias = node.ssh.known_as
        self._name = alias.lower() if alias else host_name(node.address, node.ssh.port)
        self.shown: list[HostKey] = []
        """The keys that the server showed, each over its own connection."""

    def algorithms(self, offered: Sequence[str]) -> list[str]:
        """Return the algorithms to request the server's key with, in order of preference.

        Types of known keys come first: a server that is known by its ed25519 key must not look
        changed because it shows its ecdsa key. After a key that does not have the inventory's
        fingerprint only other types are requested.
        """
        seen = {algorithm for key in self.shown for algorithm in key.algorithms}
        known = [a for key in self._host_keys.lookup(self._name) for a in key.algorithms]
        left = [algorithm for algorithm in offered if algorithm not in seen]
        return sorted(left, key=lambda a: known.index(a) if a in known else len(known))

    def missing_host_key(self, _client: object, _hostname: str, key: PKey) -> None:
        """Accept or refuse the key that the server shows, before anything is sent to it.

        Raises:
            UnreachableError: it is unknown, changed or revoked.
        """
        shown = HostKey(key.get_name(), key.asbytes())
        self.shown.append(shown)
        expected = self._node.ssh.fingerprint
        known = self._host_keys.lookup(self._name)
        if self._host_keys.is_revoked(shown):
            why = f"its host key {shown.label} is revoked; give the node a new one"
            raise self._refused(why, HostKeyChangedError)
        if expected is not None:
            if shown.fingerprint == expected.rstrip("="):
                return
            labels = " and ".join(key.label for key in self.shown)
            seen, instead = labels, f"the inventory states {expected}"
            remedy = "correct `fingerprint`"
        elif not known:
            self._accept(shown)
            return
        elif shown in known:
            return
        else:
            first = next((k for k in known if k.key_type == shown.key_type), known[0])
            seen, instead = shown.label, f"known is {first.label} ({first.where})"
            remedy = "remove that line"
        raise self._refused(
            f"its host key has changed: it shows {seen}, {instead}; if the node was reinstalled, "
            f"{remedy}; otherwise someone may intercept the connection",
            HostKeyChangedError,
        )

    def _accept(self, shown: HostKey) -> None:
        """Record an unknown key if the operator permits it."""
        if not self._host_keys.accept_new:
            kind = "ecdsa" if "ecdsa" in shown.key_type else shown.key_type.removeprefix("ssh-")
            raise UnknownHostKeyError(
                self._node.name,
                f"{_REFUSED}: its host key is not known: {shown.label}; if `ssh-keygen -lf "
                f"/etc/ssh/ssh_host_{kind}_key.pub` on the node shows the same",
                f"run setup --inventory {self._host_keys.inventory} --plan --accept-new or put "
                f"`fingerprint: {shown.fingerprint}` into the inventory",
            )
        try:
            self._host_keys.accept(self._node.name, self._name, shown)
        except OSError as error:
            where = f"could not be recorded in {self._host_keys.project_file}: {error.strerror}"
            why = f"its new host key {where}; make room or give access there"
            raise self._refused(why, UnreachableError) from error

    def _refused(self, why: str, kind: type[UnreachableError]) -> UnreachableError:
        return kind(self._node.name, f"{_REFUSED}: {why}")
