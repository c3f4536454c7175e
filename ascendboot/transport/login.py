"""Logs in to a node: keys, agents and passphrases, tried in OpenSSH's order."""

from __future__ import annotations

import copy
import io
import os
import time
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from ascendboot.transport import connect
from ascendboot.transport.connect import (
    DEFAULT_FILES,
    Cause,
    ConnectError,
    EncryptedError,
    Identities,
    IdentityError,
    UnreadableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ascendboot.model.cluster import Node

_PKCS8 = (b"-----BEGIN PRIVATE KEY-----", b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
_CERTIFICATE = "-cert-v01@openssh.com"


def load_key(path: Path, passphrase: str | None) -> paramiko.PKey:
    """The private key in a file, of whatever kind.

    Raises:
        EncryptedError: it needs another passphrase, or one at all.
        UnreadableError: it is none that can be read.
    """
    content = path.read_bytes()
    text = io.StringIO(content.decode(errors="replace"))
    if content.lstrip().startswith(_PKCS8):
        text, passphrase = _rewritten(content, passphrase), None
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        text.seek(0)
        with suppress(UnreadableError):
            return _load_as(kind, text, passphrase)
    raise UnreadableError


def _load_as(kind: type[paramiko.PKey], text: io.StringIO, passphrase: str | None) -> paramiko.PKey:
    try:
        return kind.from_private_key(text, passphrase)
    except paramiko.PasswordRequiredException as error:
        raise EncryptedError from error
    except (paramiko.SSHException, ValueError) as error:
        raise UnreadableError from error


def _rewritten(content: bytes, passphrase: str | None) -> io.StringIO:
    """A PKCS8 key, which OpenSSH reads and Paramiko does not, in OpenSSH's own format."""
    try:
        key = serialization.load_pem_private_key(
            content, passphrase.encode() if passphrase else None
        )
        rewritten = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    except TypeError as error:  # it is encrypted and there is no passphrase
        raise EncryptedError from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnreadableError from error
    return io.StringIO(rewritten.decode())


def certified(key: paramiko.PKey, file: str) -> tuple[str, paramiko.PKey] | None:
    """The key with the certificate in a file, and what to call it; None: there is no such file.

    Raises:
        IdentityError: there is one, and it is not of this key.
    """
    path = Path(file).expanduser()
    try:
        found = serialization.load_ssh_public_identity(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"{file}: not a certificate that can be read: {error}") from error
    if not isinstance(found, serialization.SSHCertificate):
        raise IdentityError(f"{file}: a plain key, not a certificate")
    public = found.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    if b64decode(public.split()[1]) != key.asbytes():
        raise IdentityError(f"{file}: it certifies another key")
    ended = ""
    if found.valid_before < time.time():
        day = time.strftime("%Y-%m-%d", time.gmtime(found.valid_before))
        ended = f", which expired on {day},"
    return f"the certificate {file}{ended}", _with_certificate(key, path)


def _with_certificate(key: paramiko.PKey, path: Path) -> paramiko.PKey:
    """A key of its own: the plain one is offered too, and other nodes' threads have it as well."""
    if isinstance(key, paramiko.AgentKey):
        new: paramiko.PKey = paramiko.AgentKey(key.agent, key.blob, key.comment)
    else:
        new = copy.copy(key)
    new.load_certificate(str(path))
    return new


def held_by(agent: paramiko.Agent) -> list[paramiko.PKey]:
    """All keys of an agent; Paramiko would offer its certificates as if they were plain keys."""
    keys = list(agent.get_keys())
    for key in keys:
        if key.get_name().endswith(_CERTIFICATE):
            key.public_blob = paramiko.pkey.PublicBlob(key.get_name(), key.blob)
    return keys


def chosen(keys: Sequence[paramiko.PKey], file: str) -> paramiko.PKey:
    """The one of an agent's keys whose public half is in a file.

    Raises:
        IdentityError: there is no such file, or no such key.
    """
    try:
        words = Path(file).expanduser().read_text(errors="replace").split()
        blob = b64decode(words[1], validate=True)
    except FileNotFoundError as error:
        raise IdentityError(f"{file}: there is no such file; correct `identity`") from error
    except OSError as error:
        raise IdentityError(f"{file}: not readable: {error.strerror}") from error
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
            f"{file}: a public key, and there is no ssh-agent to hold its other half "
            f"(SSH_AUTH_SOCK is not set); start one, or state `identity: {private}`"
        )
    raise IdentityError(
        f"{file}: ssh-agent does not hold this key; ssh-add {private}, or "
        f"state `identity: {private}`"
    )


ERRORS = (paramiko.SSHException, OSError, EOFError)
"""What Paramiko raises when a connection does not do what it should."""


class Login:
    """Logs in with keys; has the form that Paramiko calls an authentication strategy."""

    def __init__(self, node: Node, identities: Identities[paramiko.PKey]) -> None:
        self._node = node
        self._identities = identities
        self._tried: list[str] = []
        self._unusable: list[str] = []
        self._taken = ""
        """The key that the server took and that was not enough for it."""

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Try one key after the other until the server takes one.

        Raises:
            ConnectError: it took none.
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
        raise self._refused(self._allowed(transport))

    def _agent(self) -> paramiko.Agent | None:
        if self._node.ssh.identity is not None and not self._names_public_key:
            return None
        try:
            return paramiko.Agent()
        except ERRORS as error:
            self._unusable.append(f"ssh-agent: {error}")
            return None

    @property
    def _names_public_key(self) -> bool:
        """As with ssh, the public half says which key of the agent is meant."""
        return (self._node.ssh.identity or "").endswith(".pub")

    def _with_certificates(
        self, agent: paramiko.Agent | None
    ) -> Iterator[tuple[str, paramiko.PKey]]:
        """Each key; before it its certificate, where one lies beside its file."""
        for label, key, file in self._keys(agent):
            try:
                found = certified(key, f"{file}-cert.pub") if file else None
            except IdentityError as error:
                yield f"{label} without its certificate, because of {error},", key
                continue
            if found is not None:
                yield found
            yield label, key

    def _keys(self, agent: paramiko.Agent | None) -> Iterator[tuple[str, paramiko.PKey, str]]:
        """Label and key, and the file beside which a certificate may lie."""
        identity = self._node.ssh.identity
        if identity is not None:
            yield identity, self._stated(agent, identity), identity.removesuffix(".pub")
            return
        seen = set()
        for key in held_by(agent) if agent is not None else ():
            seen.add(key.asbytes())
            yield "a key of ssh-agent", key, ""
        for file in DEFAULT_FILES:
            try:
                key = self._identities.get(file)
            except IdentityError as error:
                self._unusable.append(str(error))
                continue
            if key.asbytes() not in seen:
                yield file, key, file

    def _stated(self, agent: paramiko.Agent | None, identity: str) -> paramiko.PKey:
        try:
            if self._names_public_key:
                return chosen(held_by(agent) if agent is not None else (), identity)
            return self._identities.get(identity)
        except IdentityError as error:
            raise ConnectError(
                self._node.name, Cause.IDENTITY, f"could not log in: {error}"
            ) from error

    def _accepted(self, transport: paramiko.Transport, key: paramiko.PKey) -> bool:
        try:
            further = transport.auth_publickey(self._node.ssh.user, key)
        except paramiko.BadAuthenticationType as error:
            raise self._refused(error.allowed_types) from error
        except ERRORS as error:
            if not transport.is_active():
                raise self._refused((), ended=True) from error
            return False
        if further:
            self._taken = self._tried[-1]
            if "publickey" not in further:
                raise self._refused(further)
        return not further

    def _allowed(self, transport: paramiko.Transport) -> Sequence[str]:
        try:
            transport.auth_none(self._node.ssh.user)
        except ERRORS as error:
            return tuple(getattr(error, "allowed_types", ()))
        return ()

    def _refused(self, allowed: Sequence[str], *, ended: bool = False) -> ConnectError:
        return connect.login_refused(
            self._node, self._tried, self._unusable, allowed, taken=self._taken, ended=ended
        )
