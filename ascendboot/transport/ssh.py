"""Connections to nodes over SSH, through Fabric and Paramiko."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import fabric
import paramiko

from ascendboot.transport import connect
from ascendboot.transport.connect import (
    Ask,
    Cause,
    ConnectError,
    Identities,
    Shared,
    ask_nobody,
    jump_has_no_way,
    jump_node,
    jump_unusable,
)
from ascendboot.transport.hostkeys import HostKeyCheck, HostKeys
from ascendboot.transport.login import ERRORS, Login, load_key
from ascendboot.transport.login_session import (
    REQUEST,
    Keepalive,
    Socket,
    SshTransport,
    Waits,
    Watched,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ascendboot.model.cluster import Node
    from ascendboot.transport.api import Result
    from ascendboot.transport.channel import Channel

_ANSWER_S = 30.0
"""How long the server may take for what is not a command of ours: a login, a channel."""

_LAST_WORDS_S = 1.0

# The server sends so much that nobody has taken yet, and no more: what a reader who is slower than
# the job costs here, for each node. Measured on loopback, 200 MB through a stream: as fast as with
# 16 MiB, 10 % more CPU; with Paramiko's own choice (32 KiB packets, aes128-ctr) twice the CPU.
_WINDOW = 2 << 20
_PACKET = 128 << 10
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


class Link:
    """One connection to one server, and what has to end with it."""

    def __init__(
        self, node: Node, sock: Socket, release: Callable[[], None], keepalive: Keepalive
    ) -> None:
        self.node = node
        self.connections = 1
        self.round_trip_s = 0.0
        self.keepalive = keepalive
        self._sock = Watched(sock, keepalive.silent_s)
        self._release = release
        self._fabric: fabric.Connection | None = None
        self._lock = threading.Lock()
        self._ended = ""

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
                    "auth_strategy": Login(node, identities),
                    "transport_factory": lambda sock, **_: _new_transport(sock, check),
                },
            )
            self._fabric.client.set_missing_host_key_policy(check)
            try:
                self._fabric.open()
            except ERRORS as error:
                raise connect.not_greeted(
                    node,
                    str(error),
                    incompatible=isinstance(error, paramiko.ssh_exception.IncompatiblePeer),
                    slow=time.monotonic() - began >= connect.HANDSHAKE_S,
                    dropped=isinstance(error, (EOFError, OSError)) or "banner" in str(error),
                ) from error
            self.transport.packetizer.set_keepalive(self.keepalive.every_s, self._ask)
            unless_done.pop_all()

    def _ask(self) -> None:
        """Ask the server whether it is there; called by Paramiko's thread, which may not wait."""
        self._sock.note_request()
        request = paramiko.Message()
        request.add_byte(paramiko.common.cMSG_GLOBAL_REQUEST)
        request.add_string(REQUEST)
        request.add_boolean(True)  # noqa: FBT003 - it wants a reply, as no other way to ask does
        self.transport._send_user_message(request)  # noqa: SLF001

    @property
    def is_open(self) -> bool:
        """Whether the connection is there, as far as is known at once."""
        connection = self._fabric
        return connection is not None and bool(connection.transport.is_active())

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
        return self._reason(transport.get_exception()) or "the server closed it"

    def _reason(self, error: BaseException | None) -> str:
        """Why the connection ended: Paramiko says it once, and from then on only that it has."""
        if isinstance(error, OSError) and error.strerror:
            self._ended = error.strerror
        return self._ended

    def session(self, purpose: str) -> Channel:
        """A channel to run something in.

        Raises:
            UnreachableError: the connection is gone, or the server opens no more sessions.
        """
        began = time.monotonic()
        try:
            opened = self.transport.open_session(_WINDOW, _PACKET, timeout=_ANSWER_S)
        except paramiko.ChannelException as error:
            raise connect.no_session(self.node.name, purpose, error.text) from error
        except ERRORS as error:
            seen = self._reason(error) or str(error)
            raise connect.lost(self.node.name, purpose, seen) from error
        self.round_trip_s = time.monotonic() - began
        return _Channel(opened)

    def close(self) -> None:
        """End it; never raises."""
        with self._lock:
            connection, self._fabric = self._fabric, None
            release, self._release = self._release, _nothing
        if connection is not None:
            with suppress(*ERRORS):
                connection.client.close()
        with suppress(*ERRORS):
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

    @property
    def has_ended(self) -> bool:
        return bool(self._channel.closed or self._channel.eof_received)

    def recv_exit_status(self) -> int:
        return int(self._channel.recv_exit_status())

    def close(self) -> None:
        with _as_os_errors():
            self._channel.close()


_AGREED_ON = {
    "kex_algo_list": ("key exchange", "KexAlgorithms"),
    "server_key_algo_list": ("type of host key", "HostKeyAlgorithms"),
    "server_encrypt_algo_list": ("cipher", "Ciphers"),
    "server_mac_algo_list": ("MAC", "MACs"),
}
_MOST_NAMES = 20
_NO_ALGORITHMS = ("kex-strict-", "ext-info-")


class _Transport(paramiko.Transport):  # type: ignore[misc]  # Paramiko has no types
    """Shows both lists where the two sides have nothing in common; Paramiko shows neither."""

    def _parse_kex_init(self, m: paramiko.Message) -> None:
        theirs = self._really_parse_kex_init(paramiko.Message(m.get_remainder()))
        ours = self._get_latest_kex_init()
        for part, (what, keyword) in _AGREED_ON.items():
            lists = [_algorithms(offer[part]) for offer in (theirs, ours)]
            if not set(lists[0]) & set(lists[1]):
                has, wants = map(_shown, lists)
                raise paramiko.ssh_exception.IncompatiblePeer(
                    f"no {what} in common: the server has {has}; ascendboot has {wants} "
                    f"({keyword} in its sshd_config)"
                )
        super()._parse_kex_init(m)


def _algorithms(offer: Sequence[str]) -> list[str]:
    return [name for name in offer if not name.startswith(_NO_ALGORITHMS)]


def _shown(names: Sequence[str]) -> str:
    """The server may send as many, and as long ones, as it likes."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(name[:60] for name in names[:_MOST_NAMES]) + more


def _new_transport(sock: Watched, check: HostKeyCheck) -> paramiko.Transport:
    transport = _Transport(sock)
    options = transport.get_security_options()
    options.key_types = check.algorithms(options.key_types)
    options.ciphers = sorted(options.ciphers, key=lambda name: name not in _CIPHERS)
    transport.banner_timeout = transport.handshake_timeout = connect.HANDSHAKE_S
    transport.auth_timeout = transport.channel_timeout = _ANSWER_S
    return transport


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
        keepalive: Keepalive | None = None,
        waits: Waits | None = None,
    ) -> None:
        self.host_keys = host_keys
        self._nodes = {node.name: node for node in nodes}
        self._timeout_s = connect_timeout_s
        self._identities: Identities[paramiko.PKey] = Identities(load_key, ask)
        self._on_result = on_result
        self._keepalive = keepalive or Keepalive()
        self._waits = waits or Waits()
        self._jumps: Shared[Link] = Shared()
        _silence_paramiko()

    def __call__(self, node: Node) -> SshTransport:
        """A transport to `node`, logged in.

        Raises:
            ConnectError: why not, with its cause and a remedy.
        """
        with self._waits.of(node.name, "connect and log in"):
            link = self._open(node, ())
        return SshTransport(link, self._on_result, waits=self._waits)

    def _open(self, node: Node, behind: Sequence[str]) -> Link:
        link, tries = connect.retried(lambda: self._try(node, behind))
        link.connections += tries - 1
        return link

    def _try(self, node: Node, behind: Sequence[str]) -> Link:
        check = HostKeyCheck(node, self.host_keys)
        changed: ConnectError | None = None
        while True:
            link = Link(node, *self._socket(node, behind), self._keepalive)
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

    def _socket(self, node: Node, behind: Sequence[str]) -> tuple[Socket, Callable[[], None]]:
        """A socket, or what is as good as one, and what gives it back."""
        if node.ssh.jump is None:
            found = connect.open_socket(
                node.name, node.address, node.ssh.port, timeout_s=self._timeout_s
            )
            return found, found.close
        jump = jump_node(node, self._nodes, behind)
        return self._through(node, jump, (*behind, node.name))

    def _through(
        self, node: Node, jump: Node, behind: Sequence[str]
    ) -> tuple[Socket, Callable[[], None]]:
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
        except ERRORS as error:
            self._jumps.give_back(key)
            seen = error.text if isinstance(error, paramiko.ChannelException) else str(error)
            raise jump_has_no_way(node, jump, seen) from error
        return channel, lambda: self._jumps.give_back(key)


def _silence_paramiko() -> None:
    # It logs every failed connection with a traceback; ours say in one line what it was.
    logger = logging.getLogger("paramiko")
    logger.setLevel(logging.CRITICAL)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
