"""The certificate authority of a cluster: its keys, and how it signs."""

from __future__ import annotations

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ascendboot.errors import AscendbootError
from ascendboot.model import files
from ascendboot.model.files import HOST_CA, USER_CA, Authority, Claims, fingerprint
from ascendboot.value import Value, replace

_PEM, _OPENSSH = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
_OTHERS = 0o077


class CaKeys(Value):
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
                    f"chmod 600 if you are sure that nobody did, else remove {self.folder} and run "
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
        why = "it is not an ed25519 key; remove it from the node and run setup again"
        raise AscendbootError(f"could not sign the key {claims.key}: {why}")
    kinds = serialization.SSHCertificateType
    now = time.time()
    builder = (
        serialization.SSHCertificateBuilder()
        .public_key(key)
        .type(kinds.HOST if claims.kind == "host" else kinds.USER)
        .key_id(claims.key_id.encode())
        .valid_principals([principal.encode() for principal in claims.principals])
        .valid_after(int(now - files.START_SLACK_S))
        .valid_before(int(now + files.VALID_DAYS * files.DAY_S))
    )
    for name, _, value in (option.partition(" ") for option in claims.options):
        builder = builder.add_critical_option(name.encode(), value.encode())
    return builder.sign(keys[claims.kind]).public_bytes().decode() + "\n"
