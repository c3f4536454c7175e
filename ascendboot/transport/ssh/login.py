"""Logging in with keys: those of the inventory, else those that ssh uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import paramiko

from ascendboot.transport import reach
from ascendboot.transport.identity import DEFAULT_FILES, IdentityError
from ascendboot.transport.reach import Cause, ConnectError
from ascendboot.transport.ssh.keys import certified, chosen, held_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        return reach.login_refused(
            self._node, self._tried, self._unusable, allowed, taken=self._taken, ended=ended
        )
