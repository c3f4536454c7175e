"""Queries what ascendboot has installed on a node: files, keys and its sshd."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal, TypeAlias, cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from ascendboot.errors import NotUnderstoodError, excerpt
from ascendboot.facts.npus import NpuPort
from ascendboot.facts.query import NOT_QUERIED, Answer, output_of
from ascendboot.model import files
from ascendboot.model.files import Certificate, Owner, OwnFile
from ascendboot.templates import script
from ascendboot.transport.api import Command, Result, read_script
from ascendboot.value import Value, field


class Daemon(Value):
    """Our sshd on a node; `identity` is the SHA-256 of its configuration and public host key."""

    pid: int
    identity: str
    certificate: str | None = None
    """SHA-256 of the host certificate that was there when it started."""


NftState: TypeAlias = Literal["loaded", "changed", "absent", "missing", "refused"]


class NftTable(Value):
    """The cluster's own table of nft on a host."""

    state: NftState
    """Missing: there is no nft; refused: nft did not list tables."""
    detail: str = ""
    """The SHA-256 of the rules with which it was loaded, or the message of nft."""


class Open(Value):
    """A folder or file that another user could change."""

    mode: int
    owner: int | None = None
    """The user id of a foreign owner; None: it belongs to us or to root."""
    kind: str = "d"
    """The type letter of `find`: d, f, l."""

    @property
    def why(self) -> str:
        """`has mode 0777`, or `belongs to user id 1000`."""
        owner = self.owner
        return f"has mode {self.mode:04o}" if owner is None else f"belongs to user id {owner}"

    @property
    def closed(self) -> int:
        """The mode that it should have."""
        return self.mode & ~0o7022 | (0o700 if self.kind == "d" else 0)


class Installed(Value):
    """All that ascendboot has on one node; paths are relative to its folder `base`."""

    base: PurePosixPath
    files: Mapping[str, OwnFile] = field(default_factory=dict)
    host_key: str | None = None
    """Public host key of our sshd as read from its private key; None: absent or unusable."""
    cluster_key: str | None = None
    """Public key of the cluster, on the primary only; None: absent or unusable."""
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
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
    firewall: NftTable | None = None
    """None: not queried."""
    ports: Answer[Mapping[int, NpuPort]] = NOT_QUERIED
    """By device id the ports of NPUs that the inventory states; on the host side."""

    @property
    def is_closed(self) -> bool:
        """Whether the table of nft has the rules in our file."""
        rules = self.files.get(FIREWALL_RULES)
        return rules is not None and self.firewall == NftTable("loaded", rules.sha256)

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


FIREWALL_RULES = "env/firewall.nft"
_NAMED = 4
_PRIVATE_KEYS = "sshd/host_key trust/cluster_key"
_CERTIFICATES = "sshd/host_key-cert.pub trust/cluster_key-cert.pub"
_CERTIFICATE_BYTES = 8192
"""No certificate that setup makes is longer; a file on a node may be anything."""
_FOREVER = 2**64 - 1
_TOOL = "own files"
_ID = r"([0-9]{1,10})"
_MODE = r"([0-7]{1,5})"
_LINES = {
    "mode": re.compile(rf"mode {_MODE} (?:\./)?(.+)"),
    "open": re.compile(rf"open {_MODE} (-|{_ID}) (\S) (?:\./)?(.+)"),
    "above": re.compile(rf"above {_MODE} (-|{_ID}) {_ID}:{_ID} (.+)"),
    "key": re.compile(r"key (\S+) (.+)"),
    "certificate": re.compile(r"certificate (\S+) (.+)"),
    "sshd": re.compile(rf"sshd {_ID} (\S+)(?: (\S+))?"),
    "stray": re.compile(rf"stray {_ID}"),
    "port": re.compile(rf"port {_ID}"),
    "leads": re.compile(r"leads (.+)"),
    "owner": re.compile(r"owner (.+)"),
    "firewall": re.compile(r"firewall (loaded|changed|absent|missing|refused)(?: (.{1,200}))?"),
}
"""The lines of an answer by their first word; all other lines are those of sha256sum."""
_DIGEST = re.compile(r"(\S+)  (?:\./)?(.+)")


def base_script(cluster: str) -> str:
    """Shell that sets `b` to the folder of a cluster on a node; root and other users differ."""
    name = shlex.quote(cluster)
    return f'b={files.FOLDER}/{name}\n[ "$EUID" = 0 ] || b=$HOME/.ascendboot/{name}\n'


def firewall_table(cluster: str) -> str:
    """The name of the cluster's own table of nft, in the family inet."""
    return f"ascendboot_{cluster}"


def installed_query(
    cluster: str, *, with_keys: bool = True, with_firewall: bool = False
) -> Command:
    """Queries all that ascendboot has installed for `cluster`; `parse_installed` reads the answer.

    A query for changes needs no public keys, each of which takes a call of ssh-keygen, and no
    certificates, whose expiry is known. A table of nft that setup loaded is always queried.
    """
    text = script(
        "facts-installed.sh",
        owner_bytes=files.OWNER_BYTES,
        certificate_bytes=_CERTIFICATE_BYTES,
        private=_PRIVATE_KEYS if with_keys else "",
        certificates=_CERTIFICATES if with_keys else "",
        table=firewall_table(cluster),
        with_firewall="yes" if with_firewall else "",
    )
    purpose = "look at what ascendboot has set up"
    return read_script(base_script(cluster) + text, purpose=purpose)


def parse_installed(result: Result) -> Installed:
    """Parses the answer to `installed_query`; a ToolError or NotUnderstoodError if it is none."""
    output_of(result)
    lines = result.lines
    if not lines or lines[-1] != "end":
        raise NotUnderstoodError(_TOOL, len(lines), lines[-1] if lines else "", "end")
    found: dict[str, list[re.Match[str]]] = {name: [] for name in (*_LINES, "digest")}
    for number, line in enumerate(lines[1:-1], 2):
        kind = line.partition(" ")[0]
        match = _LINES.get(kind, _DIGEST).fullmatch(line)
        if match is None:
            raise NotUnderstoodError(_TOOL, number, line, "a line of a known kind")
        found[kind if kind in _LINES else "digest"].append(match)
    base = PurePosixPath(lines[0].removeprefix("base "))
    words = {kind: matches[-1][1] for kind, matches in found.items() if matches}
    digests = {match[2]: match[1] for match in found["digest"]}
    keys = {match[1]: match[2] for match in found["key"]}
    certificates = {match[1]: _certificate(match[2]) for match in found["certificate"]}
    opened, above = _open(base, found["open"], found["above"])
    sshd, nft = (next(reversed(found[kind]), None) for kind in ("sshd", "firewall"))
    certificate = None if sshd is None or sshd[3] == "-" else sshd[3]
    return Installed(
        base=base,
        files={m[2]: OwnFile(digests.get(m[2], ""), int(m[1], 8)) for m in found["mode"]},
        host_key=keys.get("sshd/host_key"),
        cluster_key=keys.get("trust/cluster_key"),
        certificates={path: each for path, each in certificates.items() if each is not None},
        daemon=Daemon(int(sshd[1]), sshd[2], certificate) if sshd else None,
        strays=tuple(int(match[1]) for match in found["stray"]),
        port=int(words["port"]) if "port" in words else None,
        leads_to=words.get("leads"),
        owner=Owner.parse(words["owner"]) if "owner" in words else None,
        open=opened,
        open_above=above,
        firewall=NftTable(cast("NftState", nft[1]), excerpt(nft[2] or "")) if nft else None,
    )


def _open(
    base: PurePosixPath, lines: Sequence[re.Match[str]], lines_above: Sequence[re.Match[str]]
) -> tuple[dict[str, Open], dict[str, Open]]:
    """Our open files from the top down, and the open folders above."""
    opened = {m[5]: Open(int(m[1], 8), int(m[3]) if m[3] else None, m[4]) for m in lines}
    above = {}
    for line in lines_above:
        there = Open(int(line[1], 8), int(line[3]) if line[3] else None)
        # A group with the number of its user counts as private to that user, as on Debian.
        is_private = there.owner is None and line[4] == line[5] and not there.mode & 0o002
        if line[6] == str(base.parent):
            opened[".."] = there
        elif not is_private:
            above[line[6]] = there
    ordered = sorted(opened, key=lambda path: (path not in {"..", "."}, path != "..", path))
    return {path: opened[path] for path in ordered}, above


def _certificate(text: str) -> Certificate | None:
    """The certificate in a line; None where it cannot be read or its signature is wrong."""
    try:
        found = serialization.load_ssh_public_identity(text.encode())
        if not isinstance(found, serialization.SSHCertificate):
            return None
        found.verify_cert_signature()
        form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        keys = (found.public_key(), found.signature_key())
        key, ca = (files.fingerprint(each.public_bytes(*form).decode()) for each in keys)
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        return None
    return Certificate(
        claims=files.Claims(
            kind="host" if found.type is serialization.SSHCertificateType.HOST else "user",
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
    return excerpt(text.decode(errors="replace"))
