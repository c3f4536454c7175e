"""The certificate authority of a cluster, and the certificates that it signs."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ascendboot.errors import AscendbootError
from ascendboot.model.files import (
    DAY_S,
    RENEW_DAYS,
    START_SLACK_S,
    VALID_DAYS,
    Authority,
    Certificate,
    Claims,
    fingerprint,
)
from ascendboot.setup.steps import Blocked, Change, Satisfied, Step, StepState
from ascendboot.transport.api import Command, FileWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.facts.installed import Installed

USER_CA, HOST_CA = "user_ca", "host_ca"
_PEM, _OPENSSH = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
_OTHERS = 0o077
_MODE = 0o644


@dataclass(frozen=True)
class CaKeys:
    """The folder of one cluster's CA keys: `user_ca` and `host_ca`, ed25519, 0600, no passphrase.

    Both or none exist: they are made in another folder, which is then renamed.
    """

    folder: Path
    cluster: str

    def look(self) -> Authority | None:
        """The authority without the means to sign; None when there are no keys yet.

        Raises:
            AscendbootError: one is missing, not readable as a key, or open to others.
        """
        return replace(self._read(), sign=None) if self.folder.exists() else None

    def known_as(self) -> frozenset[str]:
        """The host CA's fingerprint, also where trust needs no CA any more; nothing is checked."""
        path = self.folder / f"{HOST_CA}.pub"
        words = path.read_text().split() if path.is_file() else []
        return frozenset({fingerprint(" ".join(words[:2]))} if len(words) > 1 else ())

    def ensure(self) -> Authority:
        """The authority, able to sign; the keys are made when there are none.

        The caller keeps others from doing the same at once.

        Raises:
            AscendbootError: as `look`; or keys could not be made.
        """
        if not self.folder.exists():
            self._make()
        return self._read()

    def renew(self) -> None:
        """Make other keys in place of those that are there."""
        shutil.rmtree(self.folder)
        self.ensure()

    def _make(self) -> None:
        parent = self.folder.parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for stale in parent.glob(".ca.*"):
                shutil.rmtree(stale)
            with tempfile.TemporaryDirectory(
                prefix=".ca.", dir=parent, ignore_cleanup_errors=True
            ) as folder:
                new = Path(folder)
                # The keys must not get into the version control of the working directory.
                (new / ".gitignore").write_text("*\n")
                for name in (USER_CA, HOST_CA):
                    key = Ed25519PrivateKey.generate()
                    private = key.private_bytes(_PEM, _OPENSSH, serialization.NoEncryption())
                    public = f"{_public_text(key)} ascendboot {name} of {self.cluster}\n".encode()
                    for path, content in ((new / name, private), (new / f"{name}.pub", public)):
                        path.touch(mode=0o600)
                        path.write_bytes(content)
                new.rename(self.folder)
        except OSError as error:
            raise AscendbootError(f"{self.folder}: could not make the CA keys: {error}") from error

    def _read(self) -> Authority:
        keys = {"user": self._private(USER_CA), "host": self._private(HOST_CA)}
        user, host = map(_public_text, keys.values())
        return Authority(user=user, host=host, sign=partial(_sign, keys))

    def _private(self, name: str) -> Ed25519PrivateKey:
        path = self.folder / name
        try:
            mode = path.stat().st_mode & 0o777
            if mode & _OTHERS:
                raise AscendbootError(
                    f"{path}: could not use the CA key: others may read it (mode {mode:04o}); "
                    f"chmod 600 if nobody has, else remove {self.folder} and run "
                    "`setup --take-over`"
                )
            key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
            if isinstance(key, Ed25519PrivateKey):
                return key
            why = "it is not an ed25519 key"
        except OSError as error:
            why = str(error.strerror)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            why = str(error)
        raise AscendbootError(
            f"{path}: could not read the CA key: {why.rstrip('.')}; put the right one back, or "
            f"remove {self.folder} and have `setup --take-over` make new keys and sign everything "
            "again"
        )


def _public_text(key: Ed25519PrivateKey) -> str:
    """`ssh-ed25519 BASE64`."""
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_key().public_bytes(*form).decode()


def _sign(keys: dict[str, Ed25519PrivateKey], claims: Claims, public_key: str) -> str:
    """The certificate's one line."""
    try:
        key = serialization.load_ssh_public_key(public_key.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise AscendbootError(f"could not sign the key {claims.key}: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise AscendbootError(
            f"could not sign the key {claims.key}: it is not an ed25519 key; remove it from "
            "the node and run setup again"
        )
    kinds = serialization.SSHCertificateType
    now = time.time()
    builder = (
        serialization.SSHCertificateBuilder()
        .public_key(key)
        .type(kinds.HOST if claims.kind == "host" else kinds.USER)
        .key_id(claims.key_id.encode())
        .valid_principals([principal.encode() for principal in claims.principals])
        .valid_after(int(now - START_SLACK_S))
        .valid_before(int(now + VALID_DAYS * DAY_S))
    )
    for name, _, value in (option.partition(" ") for option in claims.options):
        builder = builder.add_critical_option(name.encode(), value.encode())
    return builder.sign(keys[claims.kind]).public_bytes().decode() + "\n"


@dataclass(frozen=True, kw_only=True)
class CertificateFile(Step):
    """A certificate of `claims` that is valid on all nodes and does not expire soon."""

    claims: Claims
    now: float
    """The time on the control machine."""
    times: Mapping[str, float]
    """The time on every node, by name."""
    sign: Callable[[], str] | None
    """Makes the certificate; None while planning: then the change is only announced."""
    load: Command | None = None
    """Makes the running sshd load it; None where the file is enough."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied by a certificate with these claims that does not expire soon."""
        file, certificate = installed.files.get(self.name), installed.certificates.get(self.name)
        if file is None:
            return self._renewed(installed, "is missing")
        if certificate is None:
            return self._renewed(installed, "cannot be read as a certificate")
        wrong = difference(certificate.claims, self.claims) or self._untimely(certificate)
        if not wrong and file.mode != _MODE:
            wrong = f"has mode {file.mode:04o} instead of 0644"
        elif not wrong and self.name in installed.open:
            wrong = installed.open[self.name].why
        if wrong:
            return self._renewed(installed, wrong)
        if self.load is not None:
            # A plan starts a stopped sshd in a step of its own.
            daemon = installed.daemon
            is_shown = daemon.certificate == file.sha256 if daemon else self.sign is None
            if not is_shown:
                summary = f"{self.name} is not what the running sshd shows"
                return Change(summary=summary, commands=(self.load,))
        return Satisfied(f"expires in {self._days(certificate)} days")

    def _renewed(self, installed: Installed, why: str) -> Change | Blocked:
        """The change that signs it again; blocked where a node's clock would refuse it."""
        now, earliest, latest = self.now, min(self.times.values()), max(self.times.values())
        behind, ahead = (first(self.times, key=self.times.__getitem__) for first in (min, max))
        refused = ""
        if now - earliest > START_SLACK_S:
            refused = (
                f"is not valid yet on {behind}, whose clock is {now - earliest:.0f} s behind this "
                "side's"
            )
        elif latest - now > (VALID_DAYS - RENEW_DAYS) * DAY_S:
            refused = (
                f"soon expires on {ahead}, whose clock is {(latest - now) / DAY_S:.0f} days ahead "
                "of this side's"
            )
        if refused:
            return Blocked(
                f"could not renew {self.name}: a certificate made now {refused}",
                "set the time on all nodes and here from one source",
            )
        summary = f"{self.name} {why}"
        if self.sign is None:
            return Change(summary=summary)
        write = FileWrite(installed.base / self.name, self.sign().encode(), _MODE)
        commands = () if self.load is None else (self.load,)
        return Change(summary=summary, files=(write,), commands=commands)

    def _untimely(self, certificate: Certificate) -> str | None:
        days = self._days(certificate)
        if certificate.valid_to is None or days > VALID_DAYS:
            return f"is valid for longer than {VALID_DAYS} days"
        if days < 0:
            return f"expired {-days} days ago"
        if days < RENEW_DAYS:
            return f"expires in {days} days"
        behind = min(self.times, key=self.times.__getitem__)
        if certificate.valid_from is not None and certificate.valid_from > self.times[behind]:
            return f"is not valid yet by the clock of {behind}"
        return None

    def _days(self, certificate: Certificate) -> int:
        return int(((certificate.valid_to or 0.0) - max(self.times.values())) // DAY_S)


def difference(actual: Claims, wanted: Claims) -> str | None:
    """How a certificate's claims differ from the wanted ones; None when they are the same."""
    if actual.ca != wanted.ca:
        return f"is signed by another CA ({actual.ca}); {wanted.ca} signs it again"
    if actual.key != wanted.key:
        return f"certifies another key ({actual.key})"
    for name in ("kind", "principals", "options", "extensions", "key_id"):
        values = getattr(actual, name), getattr(wanted, name)
        if values[0] != values[1]:
            words = (", ".join(v) if isinstance(v, tuple) else v for v in values)
            return "states {} {} instead of {}".format(
                name.replace("_", " "), *(word or "(none)" for word in words)
            )
    return None
