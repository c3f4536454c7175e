"""Logging in with keys: those of the inventory, else those that ssh uses."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import paramiko

from ascendboot.transport import reach
from ascendboot.transport.identity import (
    DEFAULT_FILES,
    EncryptedError,
    IdentityError,
    UnreadableError,
)
from ascendboot.transport.reach import Cause, ConnectError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ascendboot.model.cluster import Node
    from ascendboot.transport.identity import Identities

ERRORS = (paramiko.SSHException, OSError, EOFError)
"""What Paramiko raises when a connection does not do what it should."""


class Login:
    """Logs in with keys; has the form that Paramiko calls an authentication strategy."""

    def __init__(self, node: Node, identities: Identities[paramiko.PKey]) -> None:
        self._node = node
        self._identities = identities
        self._tried: list[str] = []
        self._unusable: list[str] = []

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Try one key after the other until the server takes one.

        Raises:
            ConnectError: it took none.
        """
        agent = self._agent()
        try:
            for label, key in self._keys(agent):
                self._tried.append(f"{label} ({key.get_name()} {key.fingerprint})")
                if self._accepted(transport, key):
                    return
        finally:
            if agent is not None:
                agent.close()
        raise self._refused(self._allowed(transport))

    def _agent(self) -> paramiko.Agent | None:
        if self._node.ssh.identity is not None:
            return None
        try:
            return paramiko.Agent()
        except ERRORS as error:
            self._unusable.append(f"ssh-agent: {error}")
            return None

    def _keys(self, agent: paramiko.Agent | None) -> Iterator[tuple[str, paramiko.PKey]]:
        identity = self._node.ssh.identity
        if identity is not None:
            try:
                yield identity, self._identities.get(identity)
            except IdentityError as error:
                raise ConnectError(
                    self._node.name, Cause.IDENTITY, f"could not log in: {error}"
                ) from error
            return
        seen = set()
        for key in agent.get_keys() if agent is not None else ():
            seen.add(key.asbytes())
            yield "a key of ssh-agent", key
        for file in DEFAULT_FILES:
            try:
                key = self._identities.get(file)
            except IdentityError as error:
                self._unusable.append(str(error))
                continue
            if key.asbytes() not in seen:
                yield file, key

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
            raise self._refused(further)
        return True

    def _allowed(self, transport: paramiko.Transport) -> Sequence[str]:
        try:
            transport.auth_none(self._node.ssh.user)
        except ERRORS as error:
            return tuple(getattr(error, "allowed_types", ()))
        return ()

    def _refused(self, allowed: Sequence[str], *, ended: bool = False) -> ConnectError:
        return reach.login_refused(self._node, self._tried, self._unusable, allowed, ended=ended)


def load_key(path: Path, passphrase: str | None) -> paramiko.PKey:
    """The private key in a file, of whatever kind.

    Raises:
        EncryptedError: it needs another passphrase, or one at all.
        UnreadableError: it is none that Paramiko reads.
    """
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        with suppress(UnreadableError):
            return _load_as(kind, path, passphrase)
    raise UnreadableError


def _load_as(kind: type[paramiko.PKey], path: Path, passphrase: str | None) -> paramiko.PKey:
    try:
        return kind.from_private_key_file(str(path), passphrase)
    except paramiko.PasswordRequiredException as error:
        raise EncryptedError from error
    except (paramiko.SSHException, ValueError) as error:
        raise UnreadableError from error
