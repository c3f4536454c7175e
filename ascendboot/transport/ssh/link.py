"""One connection to one server, logged in, and the channels that run things in it."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import fabric
import paramiko

from ascendboot.transport import reach
from ascendboot.transport.keepalive import REQUEST, Watched
from ascendboot.transport.ssh.login import ERRORS, Login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ascendboot.model.cluster import Node
    from ascendboot.transport.channel import Channel
    from ascendboot.transport.identity import Identities
    from ascendboot.transport.keepalive import Keepalive, Socket
    from ascendboot.transport.trust import HostKeyCheck

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
                raise reach.not_greeted(
                    node,
                    str(error),
                    incompatible=isinstance(error, paramiko.ssh_exception.IncompatiblePeer),
                    slow=time.monotonic() - began >= reach.HANDSHAKE_S,
                    dropped=isinstance(error, (EOFError, OSError)) or "banner" in str(error),
                ) from error
            self.transport.packetizer.set_keepalive(self.keepalive.every_s, self._ask)
            unless_done.pop_all()

    def _ask(self) -> None:
        """Ask the server whether it is there; called by Paramiko's thread, which may not wait."""
        self._sock.asked()
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
        return self._told_by(transport.get_exception()) or "the server closed it"

    def _told_by(self, error: BaseException | None) -> str:
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
            raise reach.no_session(self.node.name, purpose, error.text) from error
        except ERRORS as error:
            seen = self._told_by(error) or str(error)
            raise reach.lost(self.node.name, purpose, seen) from error
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
    transport.banner_timeout = transport.handshake_timeout = reach.HANDSHAKE_S
    transport.auth_timeout = transport.channel_timeout = _ANSWER_S
    return transport
