"""Which private keys to log in with, and what is wrong with those that cannot be used."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

PASSPHRASE_VARIABLE = "ASCENDBOOT_PASSPHRASE"  # noqa: S105  # the name of a variable

DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")

K = TypeVar("K")

Ask: TypeAlias = Callable[[str], "str | None"]
"""Asks the operator for the passphrase of a file; None: there is nobody to ask."""


class IdentityError(Exception):
    """A private key that cannot be used; the text is `FILE: what was seen; what to do`."""


class EncryptedError(Exception):
    """The loader's: this file needs a passphrase."""


class UnreadableError(Exception):
    """The loader's: this is no private key, or the passphrase is wrong."""


Load: TypeAlias = Callable[[Path, "str | None"], K]
"""Reads a private key; raises EncryptedError, UnreadableError or OSError."""


def ask_nobody(_file: str) -> str | None:
    """For runs without a person: the passphrase comes from the environment or not at all."""
    return None


@dataclass
class Identities(Generic[K]):
    """The private keys of one run: each file is read, and its passphrase asked for, once."""

    load: Load[K]
    ask: Ask = ask_nobody
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[str, K | IdentityError] = field(default_factory=dict)

    def get(self, file: str) -> K:
        """The key in `file`.

        Raises:
            IdentityError: it cannot be used.
        """
        with self._lock:
            if file not in self._known:
                try:
                    self._known[file] = self._read(file)
                except IdentityError as error:
                    self._known[file] = error
            found = self._known[file]
        if isinstance(found, IdentityError):
            raise found
        return found

    def _read(self, file: str) -> K:
        path = Path(file).expanduser()
        try:
            mode = path.stat().st_mode
            if mode & 0o077:
                raise IdentityError(
                    f"{file}: others may read it (mode {mode & 0o777:04o}); chmod 600 {file}"
                )
            return self._decrypted(path, file)
        except FileNotFoundError as error:
            raise IdentityError(f"{file}: there is no such file; correct `identity`") from error
        except OSError as error:
            raise IdentityError(f"{file}: not readable: {error.strerror}") from error

    def _decrypted(self, path: Path, file: str) -> K:
        try:
            return self.load(path, None)
        except UnreadableError as error:
            raise IdentityError(
                f"{file}: not a private key that is understood; "
                "`identity` names the private key in OpenSSH or PEM format, or the .pub of a key "
                "that ssh-agent holds"
            ) from error
        except EncryptedError:
            pass
        passphrase = os.environ.get(PASSPHRASE_VARIABLE) or self.ask(file)
        if not passphrase:
            raise IdentityError(
                f"{file}: it is encrypted; set ${PASSPHRASE_VARIABLE}, or load it into ssh-agent "
                f"and state `identity: {file}.pub`"
            )
        try:
            return self.load(path, passphrase)
        except (UnreadableError, EncryptedError) as error:
            raise IdentityError(f"{file}: the passphrase does not open it") from error
