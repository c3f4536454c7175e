"""Logs in to a server with keys of files and of ssh-agent, in OpenSSH's order."""

from __future__ import annotations

import copy
import io
import os
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ascendboot.errors import UnreachableError, UsageError
from ascendboot.model.cluster import Node

ERRORS = (paramiko.SSHException, OSError, EOFError)
"""What Paramiko raises when a connection fails."""

PASSPHRASE_VARIABLE = "ASCENDBOOT_PASSPHRASE"  # noqa: S105  # the name of a variable

SUDO_VARIABLE = "ASCENDBOOT_SUDO_PASSWORD"
_DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_CERTIFICATE = "-cert-v01@openssh.com"
_KINDS = {
    ed25519.Ed25519PrivateKey: paramiko.Ed25519Key,
    ec.EllipticCurvePrivateKey: paramiko.ECDSAKey,
    rsa.RSAPrivateKey: paramiko.RSAKey,
}

PKey: TypeAlias = paramiko.PKey

Ask: TypeAlias = "Callable[[str], str | None]"
"""Prompts for a secret, with this text; None: there is no terminal."""


class IdentityError(Exception):
    """A key that cannot be used; the text is `FILE: what was seen; what to do`."""


class KeyFiles:
    """The private keys of one run; reads each file and prompts for its passphrase once."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._known: dict[str, PKey | IdentityError] = {}
        self._password: str | None = None

    def get(self, file: str) -> PKey:
        """Return the key in `file`.

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

    def sudo_password(self) -> str:
        """Return the password for sudo; prompts once.

        Raises:
            UsageError: there is none.
        """
        with self._lock:
            if not self._password:
                given = os.environ.get(SUDO_VARIABLE) or self._ask("Password for sudo on the nodes")
                # A second line would be read as the beginning of the program.
                self._password = (given or "").partition("\n")[0]
        if not self._password:
            raise UsageError(
                f"`sudo: ask`: no password was given; set ${SUDO_VARIABLE}, or enter it at a "
                "terminal"
            )
        return self._password

    def _read(self, file: str) -> PKey:
        path = Path(os.path.expanduser(file))  # noqa: PTH111 - never raises
        try:
            mode = path.stat().st_mode & 0o777
            if mode & 0o077:
                why = f"others may read it (mode {mode:04o}); chmod 600 {file}"
                raise IdentityError(f"{file}: {why}")
            content = path.read_bytes()
        except OSError as error:
            raise _unreadable(file, error) from error
        try:
            return load_key(content, None)
        except TypeError:
            passphrase = os.environ.get(PASSPHRASE_VARIABLE) or self._ask(f"Passphrase of {file}")
        except (ValueError, UnsupportedAlgorithm, paramiko.SSHException) as error:
            raise IdentityError(
                f"{file}: not a private key that is understood; "
                "`identity` names the private key in OpenSSH or PEM format, or the .pub of a key "
                "that ssh-agent holds"
            ) from error
        if not passphrase:
            raise IdentityError(
                f"{file}: it is encrypted; set ${PASSPHRASE_VARIABLE}, or load it into ssh-agent "
                f"and state `identity: {file}.pub`"
            )
        try:
            return load_key(content, passphrase)
        except (TypeError, ValueError, UnsupportedAlgorithm, paramiko.SSHException) as error:
            raise IdentityError(f"{file}: the passphrase does not open it") from error


def load_key(content: bytes, passphrase: str | None) -> PKey:
    """Return a private key in OpenSSH, PEM or PKCS8 format; Paramiko does not read PKCS8.

    Raises:
        TypeError: it is encrypted and there is no passphrase.
        ValueError, UnsupportedAlgorithm, SSHException: it cannot be read.
    """
    is_openssh = b"-----BEGIN OPENSSH PRIVATE KEY-----" in content
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    key = load(content, passphrase.encode() if passphrase else None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    text = key.private_bytes(*form, serialization.NoEncryption()).decode()
    for kind, paramiko_kind in _KINDS.items():
        if isinstance(key, kind):
            return paramiko_kind.from_private_key(io.StringIO(text))
    raise ValueError(f"{type(key).__name__} is not supported")


def _unreadable(file: str, error: OSError) -> IdentityError:
    if isinstance(error, FileNotFoundError):
        return IdentityError(f"{file}: there is no such file; correct `identity`")
    return IdentityError(f"{file}: not readable: {error.strerror}")


def certified(key: PKey, file: str) -> tuple[str, PKey] | None:
    """Return a label and the key with the certificate in `file`; None if there is no such file.

    Raises:
        IdentityError: it is not a certificate of this key.
    """
    path = Path(os.path.expanduser(file))  # noqa: PTH111 - never raises
    try:
        found = serialization.load_ssh_public_identity(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"{file}: not a certificate that can be read: {error}") from error
    if not isinstance(found, serialization.SSHCertificate):
        raise IdentityError(f"{file}: a plain key, not a certificate")
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    public = found.public_key().public_bytes(*form)
    if b64decode(public.split()[1]) != key.asbytes():
        raise IdentityError(f"{file}: it certifies another key")
    label = f"the certificate {file}"
    if found.valid_before < time.time():
        day = time.strftime("%Y-%m-%d", time.gmtime(found.valid_before))
        label += f", which expired on {day},"
    # A copy: the plain key is offered, too, and threads of other nodes use it.
    if isinstance(key, paramiko.AgentKey):
        new: PKey = paramiko.AgentKey(key.agent, key.blob, key.comment)
    else:
        new = copy.copy(key)
    new.load_certificate(str(path))
    return label, new


def agent_keys(agent: paramiko.Agent | None) -> list[PKey]:
    """Return all keys of an agent; Paramiko would offer its certificates as plain keys."""
    keys = list(agent.get_keys()) if agent is not None else []
    for key in keys:
        if key.get_name().endswith(_CERTIFICATE):
            key.public_blob = paramiko.pkey.PublicBlob(key.get_name(), key.blob)
    return keys


def chosen(keys: Sequence[PKey], file: str) -> PKey:
    """Return the agent's key whose public half is in `file`.

    Raises:
        IdentityError: there is no such file, or no such key.
    """
    try:
        path = Path(os.path.expanduser(file))  # noqa: PTH111 - never raises
        words = path.read_text(errors="replace").split()
        blob = b64decode(words[1], validate=True)
    except OSError as error:
        raise _unreadable(file, error) from error
    except (ValueError, IndexError) as error:
        raise IdentityError(
            f"{file}: not a public key; name the private key as `identity`, or the .pub of one "
            "that ssh-agent holds"
        ) from error
    for key in keys:
        if key.blob == blob:
            return key
    private = file.removesuffix(".pub")
    if not os.environ.get("SSH_AUTH_SOCK"):
        raise IdentityError(
            f"{file}: a public key, and no ssh-agent holds its private key "
            f"(SSH_AUTH_SOCK is not set); start one, or state `identity: {private}`"
        )
    remedy = f"ssh-add {private}, or state `identity: {private}`"
    raise IdentityError(f"{file}: ssh-agent does not hold this key; {remedy}")


class Login:
    """Logs in with keys; an authentication strategy of Paramiko."""

    def __init__(self, node: Node, key_files: KeyFiles) -> None:
        self._node = node
        self._key_files = key_files
        self._tried: list[str] = []
        self._unusable: list[str] = []
        self._not_enough = ""
        """The key that the server accepted although it wants more."""

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Try one key after the other until the server accepts one.

        Raises:
            UnreachableError: it accepted none.
        """
        agent = self._agent()
        try:
            for label, key in self._with_certificates(agent):
                self._tried.append(f"{label} ({key.get_name()} {key.fingerprint})")
                if self._accepted(transport, key):
                    return
        finally:
            if agent is not None:
                agent.close()
        allowed: Sequence[str] = ()
        try:
            transport.auth_none(self._node.ssh.user)
        except ERRORS as error:
            allowed = tuple(getattr(error, "allowed_types", ()))
        raise self._refused(allowed)

    def _agent(self) -> paramiko.Agent | None:
        # As with ssh, a public file means that the agent holds the key.
        if not (self._node.ssh.identity or ".pub").endswith(".pub"):
            return None
        try:
            return paramiko.Agent()
        except ERRORS as error:
            self._unusable.append(f"ssh-agent: {error}")
            return None

    def _with_certificates(self, agent: paramiko.Agent | None) -> Iterator[tuple[str, PKey]]:
        """Yield each key with its label, and before it its certificate, if a file has one."""
        for label, key, file in self._keys(agent):
            try:
                found = certified(key, f"{file}-cert.pub") if file else None
            except IdentityError as error:
                yield f"{label} without its certificate, because of {error},", key
                continue
            if found is not None:
                yield found
            yield label, key

    def _keys(self, agent: paramiko.Agent | None) -> Iterator[tuple[str, PKey, str]]:
        """Yield label, key and file of every key to try."""
        identity = self._node.ssh.identity
        if identity is not None:
            try:
                if identity.endswith(".pub"):
                    key = chosen(agent_keys(agent), identity)
                else:
                    key = self._key_files.get(identity)
            except IdentityError as error:
                message = f"could not log in: {error}"
                raise UnreachableError(self._node.name, message) from error
            yield identity, key, identity.removesuffix(".pub")
            return
        held, ssh, named = agent_keys(agent), self._node.ssh, []
        for file in ssh.files:
            with suppress(IdentityError):
                named.append(chosen(held, f"{file}.pub"))
        held = [*named, *(key for key in held if key not in named and not ssh.only_files)]
        seen = {key.asbytes() for key in held}
        for key in held:
            yield "a key of ssh-agent", key, ""
        for file in ssh.files or _DEFAULT_FILES:
            try:
                key = self._key_files.get(file)
            except IdentityError as error:
                self._unusable.append(str(error))
                continue
            if key.asbytes() not in seen:
                yield file, key, file

    def _accepted(self, transport: paramiko.Transport, key: PKey) -> bool:
        try:
            further = transport.auth_publickey(self._node.ssh.user, key)
        except paramiko.BadAuthenticationType as error:
            raise self._refused(error.allowed_types) from error
        except ERRORS as error:
            if not transport.is_active():
                raise self._refused((), ended=True) from error
            return False
        if further:
            self._not_enough = self._tried[-1]
            if "publickey" not in further:
                raise self._refused(further)
        return not further

    def _refused(self, allowed: Sequence[str], *, ended: bool = False) -> UnreachableError:
        """Return the error for a refused login; `allowed` are the methods that may follow.

        `ended`: the server closed the connection.
        """
        user, keys, methods = self._node.ssh.user, ", ".join(self._tried), ", ".join(allowed)
        remedy = (
            f"put the public key into ~{user}/.ssh/authorized_keys there, or correct `user` or "
            "`identity`"
        )
        if self._not_enough:
            wanted = methods or "more"
            seen = f"the server accepted {self._not_enough} and also requires {wanted}"
            remedy = (
                "ascendboot logs in with a key only: in its sshd_config, allow that for "
                f"{user} from here (Match User {user} Address …, then AuthenticationMethods "
                "publickey)"
            )
        elif allowed and "publickey" not in allowed:
            seen = f"the server accepts no keys, only {methods}"
            remedy = (
                "ascendboot logs in with a key only: in its sshd_config, set PubkeyAuthentication "
                f"yes, and AuthenticationMethods publickey if it is set for {user}"
            )
        elif ended and len(self._tried) > 1:
            number = len(self._tried)
            seen = f"the server ended the connection after {number} keys (MaxAuthTries): {keys}"
            remedy = "state as `identity` the key it accepts, or its .pub if ssh-agent holds it"
        elif self._tried:
            answer = "ended the connection when offered" if ended else "refused"
            seen = f"the server {answer} {keys}" + (f" and allows {methods}" if methods else "")
        else:
            unusable = "; ".join(self._unusable)
            seen = "there is no key to try" + (f" ({unusable})" if unusable else "")
        return UnreachableError(self._node.name, f"could not log in as {user}: {seen}; {remedy}")
