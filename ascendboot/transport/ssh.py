"""SSH: the one module that knows Fabric and Paramiko."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import fabric
import paramiko

from ascendboot.transport import reach
from ascendboot.transport.identity import (
    DEFAULT_FILES,
    EncryptedError,
    Identities,
    IdentityError,
    UnreadableError,
    ask_nobody,
)
from ascendboot.transport.jumps import Shared, jump_has_no_way, jump_node, jump_unusable
from ascendboot.transport.reach import Cause, ConnectError
from ascendboot.transport.session import SshTransport
from ascendboot.transport.trust import HostKeyCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ascendboot.model.cluster import Node
    from ascendboot.transport.api import Result
    from ascendboot.transport.channel import Channel
    from ascendboot.transport.hostkeys import HostKeys
    from ascendboot.transport.identity import Ask
    from ascendboot.transport.jumps import Closes

_ERRORS = (paramiko.SSHException, OSError, EOFError)
"""What Paramiko raises when a connection does not do what it should."""

_ANSWER_S = 30.0
"""How long the server may take for what is not a command of ours: a login, a channel."""

_LAST_WORDS_S = 1.0

# The server sends so much that nobody has taken yet, and no more: what a reader who is slower than
# the job costs here, for each node. Measured on loopback, 200 MB through a stream: as fast as with
# 16 MiB, 10 % more CPU; with Paramiko's own choice (32 KiB packets, aes128-ctr) twice the CPU.
_WINDOW = 2 << 20
_PACKET = 128 << 10
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


class SshOpener:
    """Opens the transports of one run; what they share (host keys, private keys) lives here."""

    def __init__(
        self,
        host_keys: HostKeys,
        *,
        nodes: Iterable[Node] = (),
        connect_timeout_s: float = 10.0,
        ask: Ask = ask_nobody,
        on_result: Callable[[Result], None] | None = None,
    ) -> None:
        self.host_keys = host_keys
        self._nodes = {node.name: node for node in nodes}
        self._timeout_s = connect_timeout_s
        self._identities: Identities[paramiko.PKey] = Identities(_load_key, ask)
        self._on_result = on_result
        self._jumps: Shared[_Link] = Shared()
        _silence_paramiko()

    def __call__(self, node: Node) -> SshTransport:
        """A transport to `node`, logged in.

        Raises:
            ConnectError: why not, with its cause and a remedy.
        """
        return SshTransport(self._open(node, ()), self._on_result)

    def _open(self, node: Node, behind: Sequence[str]) -> _Link:
        link, tries = reach.retried(lambda: self._try(node, behind))
        link.connections += tries - 1
        return link

    def _try(self, node: Node, behind: Sequence[str]) -> _Link:
        check = HostKeyCheck(node, self.host_keys)
        changed: ConnectError | None = None
        while True:
            link = _Link(node, *self._socket(node, behind))
            try:
                link.login(check, self._identities)
            except ConnectError as error:
                if changed is not None and error.cause is Cause.PROTOCOL:
                    raise changed from error  # it has no key of another type
                if error.cause is not Cause.HOST_KEY_CHANGED or not check.may_ask_again:
                    raise
                changed = error
            else:
                link.connections = check.rounds
                return link

    def _socket(self, node: Node, behind: Sequence[str]) -> tuple[Closes, Callable[[], None]]:
        """A socket, or what is as good as one, and what gives it back."""
        if node.ssh.jump is None:
            found = reach.open_socket(
                node.name, node.address, node.ssh.port, timeout_s=self._timeout_s
            )
            return found, found.close
        jump = jump_node(node, self._nodes, behind)
        return self._through(node, jump, (*behind, node.name))

    def _through(
        self, node: Node, jump: Node, behind: Sequence[str]
    ) -> tuple[Closes, Callable[[], None]]:
        key = f"{jump.ssh.user}@{jump.address}:{jump.ssh.port}"
        try:
            link = self._jumps.take(key, lambda: self._open(jump, behind))
        except ConnectError as error:
            raise jump_unusable(node, jump, error) from error
        try:
            channel = link.transport.open_channel(
                "direct-tcpip",
                (node.address, node.ssh.port),
                ("127.0.0.1", 0),
                timeout=self._timeout_s,
            )
        except _ERRORS as error:
            self._jumps.give_back(key)
            seen = error.text if isinstance(error, paramiko.ChannelException) else str(error)
            raise jump_has_no_way(node, jump, seen) from error
        return channel, lambda: self._jumps.give_back(key)


class _Link:
    """One connection to one server, and what has to end with it."""

    def __init__(self, node: Node, sock: Closes, release: Callable[[], None]) -> None:
        self.node = node
        self.connections = 1
        self._sock = sock
        self._release = release
        self._fabric: fabric.Connection | None = None
        self._lock = threading.Lock()

    @property
    def transport(self) -> paramiko.Transport:
        """Paramiko's side of it, logged in; EOFError after `close`."""
        connection = self._fabric
        if connection is None:
            raise EOFError("it was closed")
        return connection.transport

    def login(self, check: HostKeyCheck, identities: Identities[paramiko.PKey]) -> None:
        """Greet, check the host key, log in.

        Raises:
            ConnectError: one of them failed.
        """
        node, began = self.node, time.monotonic()
        # One each: Fabric writes into it, and rebuilds it while others would read.
        config = fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
        with ExitStack() as unless_done:
            unless_done.callback(self.close)
            self._fabric = fabric.Connection(
                node.address,
                user=node.ssh.user,
                port=node.ssh.port,
                config=config,
                connect_kwargs={
                    "sock": self._sock,
                    "auth_strategy": _Login(node, identities),
                    "transport_factory": lambda sock, **_: _new_transport(sock, check),
                },
            )
            self._fabric.client.set_missing_host_key_policy(check)
            try:
                self._fabric.open()
            except _ERRORS as error:
                raise reach.not_greeted(
                    node,
                    str(error),
                    incompatible=isinstance(error, paramiko.ssh_exception.IncompatiblePeer),
                    slow=time.monotonic() - began >= reach.HANDSHAKE_S,
                    dropped=isinstance(error, (EOFError, OSError)) or "banner" in str(error),
                ) from error
            self.transport.set_keepalive(reach.KEEPALIVE_S)
            unless_done.pop_all()

    def why_ended(self) -> str | None:
        """Why the server is gone, or None; asked after a channel ended for no reason told."""
        try:
            transport = self.transport
        except EOFError as error:
            return str(error)
        # Paramiko ends the channels first and only then says that the connection is gone.
        transport.join(_LAST_WORDS_S)
        if transport.is_active():
            return None
        seen = transport.get_exception()
        return (isinstance(seen, OSError) and seen.strerror) or "the server closed it"

    def session(self, purpose: str) -> Channel:
        """A channel to run something in.

        Raises:
            UnreachableError: the connection is gone, or the server opens no more sessions.
        """
        try:
            return _Channel(self.transport.open_session(_WINDOW, _PACKET, timeout=_ANSWER_S))
        except paramiko.ChannelException as error:
            raise reach.no_session(self.node.name, purpose, error.text) from error
        except _ERRORS as error:
            raise reach.lost(self.node.name, purpose, str(error)) from error

    def close(self) -> None:
        """End it; never raises."""
        with self._lock:
            connection, self._fabric = self._fabric, None
            release, self._release = self._release, _nothing
        if connection is not None:
            with suppress(*_ERRORS):
                connection.client.close()
        with suppress(*_ERRORS):
            self._sock.close()
        release()


def _nothing() -> None:
    pass


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except (paramiko.SSHException, EOFError) as error:
        raise ConnectionError(str(error) or "the connection ended") from error


class _Channel:
    """Paramiko's channel, raising OSError alone."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def exec_command(self, command: str) -> None:
        with _as_os_errors():
            self._channel.exec_command(command)

    def sendall(self, data: bytes) -> None:
        with _as_os_errors():
            self._channel.sendall(data)

    def shutdown_write(self) -> None:
        with _as_os_errors():
            self._channel.shutdown_write()

    def settimeout(self, timeout: float | None) -> None:
        self._channel.settimeout(timeout)

    def recv(self, size: int) -> bytes:
        with _as_os_errors():
            return bytes(self._channel.recv(size))

    def recv_stderr(self, size: int) -> bytes:
        with _as_os_errors():
            return bytes(self._channel.recv_stderr(size))

    def recv_stderr_ready(self) -> bool:
        return bool(self._channel.recv_stderr_ready())

    def recv_exit_status(self) -> int:
        return int(self._channel.recv_exit_status())

    def close(self) -> None:
        with _as_os_errors():
            self._channel.close()


def _new_transport(sock: Closes, check: HostKeyCheck) -> paramiko.Transport:
    transport = paramiko.Transport(sock)
    options = transport.get_security_options()
    options.key_types = check.algorithms(options.key_types)
    options.ciphers = sorted(options.ciphers, key=lambda name: name not in _CIPHERS)
    transport.banner_timeout = transport.handshake_timeout = reach.HANDSHAKE_S
    transport.auth_timeout = transport.channel_timeout = _ANSWER_S
    return transport


class _Login:
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
        except _ERRORS as error:
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
        except _ERRORS as error:
            if not transport.is_active():
                raise self._refused((), ended=True) from error
            return False
        if further:
            raise self._refused(further)
        return True

    def _allowed(self, transport: paramiko.Transport) -> Sequence[str]:
        try:
            transport.auth_none(self._node.ssh.user)
        except _ERRORS as error:
            return tuple(getattr(error, "allowed_types", ()))
        return ()

    def _refused(self, allowed: Sequence[str], *, ended: bool = False) -> ConnectError:
        return reach.login_refused(self._node, self._tried, self._unusable, allowed, ended=ended)


def _load_key(path: Path, passphrase: str | None) -> paramiko.PKey:
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


def _silence_paramiko() -> None:
    # It logs every failed connection with a traceback; ours say in one line what it was.
    logger = logging.getLogger("paramiko")
    logger.setLevel(logging.CRITICAL)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
