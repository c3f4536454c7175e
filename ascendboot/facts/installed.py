"""Queries what ascendboot has installed on a node: files, keys and its sshd."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)

from ascendboot.errors import NotUnderstoodError, ToolError, excerpt
from ascendboot.model.files import (
    FOLDER,
    OWNER_BYTES,
    Certificate,
    Claims,
    Owner,
    OwnFile,
    fingerprint,
)
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Daemon:
    """Our sshd on a node; `identity` is the SHA-256 of its configuration and public host key."""

    pid: int
    identity: str
    certificate: str | None = None
    """SHA-256 of the host certificate that was there when it started."""


_NAMED = 4


@dataclass(frozen=True)
class Open:
    """A folder or file that another user could change."""

    mode: int
    owner: int | None = None
    """The user id of a foreign owner; None: it belongs to us or to root."""
    kind: str = "d"
    """The type letter of `find`: d, f, l."""

    @property
    def why(self) -> str:
        """`has mode 0777`, or `belongs to user id 1000`."""
        return (
            f"has mode {self.mode:04o}"
            if self.owner is None
            else f"belongs to user id {self.owner}"
        )

    @property
    def closed(self) -> int:
        """The mode that it should have."""
        return self.mode & ~0o7022 | (0o700 if self.kind == "d" else 0)


@dataclass(frozen=True)
class Installed:
    """All that ascendboot has on one node, below its folder `base`; `files` by path in there."""

    base: PurePosixPath
    files: Mapping[str, OwnFile] = field(default_factory=dict)
    host_key: str | None = None
    """Public host key of our sshd as read from its private key; None: absent or unusable."""
    cluster_key: str | None = None
    """Public key of the cluster, on the primary only; None: absent or unusable."""
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    """Our certificates by path, without those that cannot be read."""
    daemon: Daemon | None = None
    """Our sshd if it runs (recorded pid and start time both match); None: it does not."""
    strays: tuple[int, ...] = ()
    """Pids of our sshds without a record: it was lost, or the start was interrupted."""
    port: int | None = None
    """The port in our sshd's configuration, whether it runs or not."""
    leads_to: str | None = None
    """The real path of `base` if it contains a symbolic link, else None."""
    owner: Owner | None = None
    """The control folder that set this up; None: no record, or one that cannot be read."""
    open: Mapping[str, Open] = field(default_factory=dict)
    """Our files that others could change, by path in `base`, from the top down. `.` is `base`, `..`
    our folder above it; of `jobs` only the folder itself, because the folders in it are closed."""
    open_above: Mapping[str, Open] = field(default_factory=dict)
    """Folders further up, not ours, in which others could replace ours."""

    def place(self, path: str) -> PurePosixPath:
        """The absolute path of one in `open`."""
        return self.base.parent if path == ".." else self.base / path

    @property
    def open_words(self) -> str:
        """The first few of our files that others could change, with the reason."""
        listed = [f"{self.place(path)} {there.why}" for path, there in self.open.items()]
        more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
        return f"{', '.join(listed[:_NAMED])}{more}"

    @property
    def sshd_pids(self) -> tuple[int, ...]:
        """All sshds of this cluster, recorded or not."""
        return self.strays if self.daemon is None else (self.daemon.pid, *self.strays)


_PRIVATE_KEYS = "sshd/host_key trust/cluster_key"
_CERTIFICATES = "sshd/host_key-cert.pub trust/cluster_key-cert.pub"
_CERTIFICATE_BYTES = 8192
"""No certificate of ours is longer; a node may hold anything."""
_FOREVER = 2**64 - 1


def base_script(cluster: str) -> str:
    """Shell that sets `b` to the folder of a cluster on a node; root and other users differ."""
    name = shlex.quote(cluster)
    return f'b={FOLDER}/{name}\n[ "$EUID" = 0 ] || b=$HOME/.ascendboot/{name}\n'


def installed_query(
    cluster: str, *, with_public_keys: bool = True, with_certificates: bool = True
) -> Command:
    """Queries all that ascendboot has installed for `cluster`; `parse_installed` reads the answer.

    A query for changes needs no public keys, each of which takes a call of ssh-keygen, and no
    certificates if their expiry is known.
    """
    keys = _PRIVATE_KEYS if with_public_keys else ""
    certificates = _CERTIFICATES if with_certificates else ""
    return Command(
        argv=("bash", "-c", _script(cluster, keys, certificates)),
        purpose="look at what ascendboot has set up",
        effect=Effect.READ,
    )


def _script(cluster: str, private_keys: str, certificates: str) -> str:
    look = script(
        "facts-installed.sh",
        owner_bytes=OWNER_BYTES,
        certificate_bytes=_CERTIFICATE_BYTES,
        private=private_keys,
        certificates=certificates,
    )
    return base_script(cluster) + look


def parse_installed(result: Result) -> Installed:
    """Parses the answer to `installed_query`.

    Raises:
        ToolError: the script failed on the node.
        NotUnderstoodError: a line of the answer has an unknown form, or its end is missing.
    """
    if not result.as_expected:
        raise ToolError(result.outcome())
    lines = result.lines
    if not lines or lines[-1] != "end":
        raise NotUnderstoodError("own files", len(lines), lines[-1] if lines else "", "end")
    reader = _Reader()
    for number, line in enumerate(lines[1:-1], 2):
        try:
            is_known = reader.takes(line)
        except ValueError:  # no number where one belongs
            is_known = False
        if not is_known:
            raise NotUnderstoodError("own files", number, line, "a line of a known kind")
    return reader.own(PurePosixPath(lines[0].removeprefix("base ")))


@dataclass
class _Reader:
    """Collects the lines of an answer by kind."""

    modes: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    certificates: dict[str, str] = field(default_factory=dict)
    daemon: Daemon | None = None
    strays: list[int] = field(default_factory=list)
    port: int | None = None
    leads_to: str | None = None
    owner: Owner | None = None
    open: dict[str, Open] = field(default_factory=dict)
    above: dict[str, Open] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)

    def takes(self, line: str) -> bool:
        """Reads one line; False if its kind is unknown."""
        match line.split(" ", 2):
            case ["mode", mode, path]:
                self.modes[path.removeprefix("./")] = int(mode, 8)
            case [("open" | "above") as where, mode, rest]:
                self._takes_open(where, int(mode, 8), *rest.split(" ", 2))
            case ["key", path, public]:
                self.keys[path] = public
            case ["certificate", path, text]:
                self.certificates[path] = text
            case ["stray", pid]:
                self.strays.append(int(pid))
            case ["port", port]:
                self.port = int(port)
            case [("leads" | "owner") as what, *words]:
                self._takes_words(what, " ".join(words))
            case [sha, "", path]:
                self.digests[path.removeprefix("./")] = sha
            case ["sshd", pid, known]:
                sha, _, certificate = known.partition(" ")
                self.daemon = Daemon(int(pid), sha, None if certificate == "-" else certificate)
            case _:
                return False
        return True

    def _takes_words(self, what: str, words: str) -> None:
        if what == "leads":
            self.leads_to = words
        else:
            self.owner = Owner.parse(words)

    def _takes_open(self, where: str, mode: int, owner: str, more: str, path: str) -> None:
        """`more`: the type of our file, or user and group of a folder above.

        A group with the number of its user counts as private to that user, as on Debian.
        """
        whose = None if owner == "-" else int(owner)
        if where == "open":
            self.open[path.removeprefix("./")] = Open(mode, whose, more)
        else:
            self.above[path] = Open(mode, whose)
            user, _, group = more.partition(":")
            if whose is None and user == group and not mode & 0o002:
                self.private.add(path)

    def own(self, base: PurePosixPath) -> Installed:
        """All of it."""
        if above := self.above.pop(str(base.parent), None):
            self.open[".."] = above
        # From the top down.
        paths = sorted(self.open, key=lambda path: (path not in {"..", "."}, path != "..", path))
        above_all = {path: one for path, one in self.above.items() if path not in self.private}
        return Installed(
            base=base,
            files={p: OwnFile(self.digests.get(p, ""), mode) for p, mode in self.modes.items()},
            host_key=self.keys.get("sshd/host_key"),
            cluster_key=self.keys.get("trust/cluster_key"),
            certificates={
                path: certificate
                for path, text in self.certificates.items()
                if (certificate := _certificate(text)) is not None
            },
            daemon=self.daemon,
            strays=tuple(self.strays),
            port=self.port,
            leads_to=self.leads_to,
            owner=self.owner,
            open={path: self.open[path] for path in paths},
            open_above=above_all,
        )


def _certificate(text: str) -> Certificate | None:
    """The certificate in a line; None where it cannot be read or its signature is wrong."""
    try:
        found = load_ssh_public_identity(text.encode())
        if not isinstance(found, SSHCertificate):
            return None
        found.verify_cert_signature()
        key, ca = (
            fingerprint(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
            for key in (found.public_key(), found.signature_key())
        )
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        return None
    return Certificate(
        claims=Claims(
            kind="host" if found.type is SSHCertificateType.HOST else "user",
            key=key,
            ca=ca,
            key_id=_shown(found.key_id),
            principals=tuple(map(_shown, found.valid_principals)),
            options=tuple(
                f"{_shown(name)} {_shown(value)}".rstrip()
                for name, value in found.critical_options.items()
            ),
            extensions=tuple(map(_shown, found.extensions)),
        ),
        valid_from=found.valid_after or None,
        valid_to=None if found.valid_before == _FOREVER else found.valid_before,
    )


def _shown(text: bytes) -> str:
    """What a certificate states, on one line."""
    return excerpt(text.decode(errors="replace"))
