"""One SSH connection to one server, through Fabric and Paramiko."""

from __future__ import annotations

import errno
import socket
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import fabric
import paramiko

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import Node
from ascendboot.transport.hostkeys import HostKeyCheck
from ascendboot.transport.login import ERRORS, KeyFiles, Login
from ascendboot.value import Value

Channel: TypeAlias = paramiko.Channel
Socket: TypeAlias = "socket.socket | Channel"

HANDSHAKE_S = 20.0
"""How long a server may take to greet and to agree on keys."""

_ANSWER_S = 30.0
"""How long the server may take to answer a login or to open a channel."""

_END_S = 1.0

# The server sends at most one window of data that nobody has read: the memory that a slow reader
# costs, for each node. Measured on loopback, 200 MB through a stream: as fast as with 16 MiB, with
# 10 % more CPU; with Paramiko's defaults (32 KiB packets, aes128-ctr) twice the CPU.
_WINDOW = 2 << 20
_PACKET = 128 << 10
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")

# TCP keepalives are answered by the kernel, also for a frozen sshd, and Paramiko's own keepalive
# requests no reply. Every server answers this one, known or not. As for OpenSSH's
# `ServerAliveInterval`, any byte counts as an answer.
_REQUEST = "keepalive@openssh.com"


class DroppedError(UnreachableError):
    """The server closed the connection before the login, as sshd does when it has too many."""


class ProtocolError(UnreachableError):
    """The server does not offer what is needed."""


def lost(node: str, purpose: str, seen: str) -> UnreachableError:
    """Return the error for a connection that ended while it was in use."""
    remedy = "is the node up? Run again; completed steps are kept"
    return UnreachableError(node, f"could not {purpose}: the connection was lost: {seen}; {remedy}")


class Keepalive(Value, kw_only=True):
    """How the peer of a connection is checked, in seconds."""

    every_s: float = 10.0
    """How long nothing is sent before a keepalive request, and between lines to held commands."""
    silent_s: float = 30.0
    """How long the server may leave a request unanswered before the connection counts as lost."""


class WatchedSocket:
    """A socket whose `recv` and `send` raise ConnectionError if a keepalive got no answer."""

    def __init__(self, sock: Socket, silent_s: float) -> None:
        self._sock = sock
        self._silent_s = silent_s
        self._requested: float | None = None

    def note_request(self) -> None:
        """Expect an answer from now on."""
        if self._requested is None:
            self._requested = time.monotonic()

    def recv(self, size: int) -> bytes:
        """As a socket's."""
        try:
            data: bytes = self._sock.recv(size)
        except TimeoutError:
            self._check_silence()
            raise
        self._requested = None
        return data

    def send(self, data: bytes) -> int:
        """As a socket's."""
        try:
            return int(self._sock.send(data))
        except TimeoutError:
            self._check_silence()
            raise

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything else that a socket has
        return getattr(self._sock, name)

    def _check_silence(self) -> None:
        requested = self._requested
        if requested is not None and time.monotonic() - requested > self._silent_s:
            seen = f"the server answered no keepalive within {self._silent_s:g} s"
            raise ConnectionError(errno.ETIMEDOUT, seen)


class Connection:
    """One connection to one server; `release` is called when it is closed."""

    def __init__(
        self, node: Node, sock: Socket, release: Callable[[], None], keepalive: Keepalive
    ) -> None:
        self.node = node
        self.round_trip_s = 0.0
        """How long the server took to open the last session."""
        self.keepalive = keepalive
        self._sock = WatchedSocket(sock, keepalive.silent_s)
        self._release: Callable[[], None] | None = release
        self._fabric = fabric.Connection(
            node.address,
            user=node.ssh.user,
            port=node.ssh.port,
            # One for each connection: Fabric writes into it.
            config=fabric.Config(lazy=True, overrides={"load_ssh_configs": False}),
        )
        self._lock = threading.Lock()
        self._ended = ""

    def login(self, check: HostKeyCheck, key_files: KeyFiles) -> None:
        """Check the host key and log in; on failure the connection is closed.

        Raises:
            UnreachableError: with the cause and a remedy.
        """
        began = time.monotonic()
        self._fabric.connect_kwargs = {
            "sock": self._sock,
            "auth_strategy": Login(self.node, key_files),
            "transport_factory": lambda sock, **_: _new_transport(sock, check),
        }
        self._fabric.client.set_missing_host_key_policy(check)
        try:
            self._fabric.open()
            self._fabric.transport.packetizer.set_keepalive(
                self.keepalive.every_s, self._send_keepalive
            )
        except BaseException as error:  # also a refusal of `check` or `Login`, and Ctrl-C
            self.close()
            if isinstance(error, ERRORS):
                raise self._not_greeted(error, time.monotonic() - began) from error
            raise

    def _not_greeted(self, error: Exception, seconds: float) -> UnreachableError:
        """Return the error for a connection that ended before the login."""
        kind: type[UnreachableError] = ProtocolError
        place = f"port {self.node.ssh.port} of {self.node.address}"
        why = f"{place}: {error}; is that an SSH server?"
        if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
            why = (
                f"{place} shares no SSH algorithm with ascendboot: {error}; "
                "update its sshd, or allow one of these there"
            )
        elif seconds >= HANDSHAKE_S:
            kind = UnreachableError
            why = (
                f"{place} is open but no SSH server greets within {HANDSHAKE_S:g} s; "
                "is the node overloaded, or is something else on that port?"
            )
        elif isinstance(error, (EOFError, OSError)) or "banner" in str(error):
            kind = DroppedError
            why = (
                f"{place} closed the connection before the login; too many logins at once "
                "(MaxStartups), a firewall rule against this machine, or no SSH server?"
            )
        return kind(self.node.name, f"unreachable: {why}")

    def _send_keepalive(self) -> None:
        """Send a keepalive request; Paramiko's thread calls this, so it may not wait."""
        self._sock.note_request()
        request = paramiko.Message()
        request.add_byte(paramiko.common.cMSG_GLOBAL_REQUEST)
        request.add_string(_REQUEST)
        request.add_boolean(True)  # noqa: FBT003 - request a reply; set_keepalive() cannot
        self._fabric.transport._send_user_message(request)  # noqa: SLF001

    @property
    def is_open(self) -> bool:
        """Whether the connection is up, as far as is known without waiting."""
        return self._release is not None and bool(self._fabric.is_connected)

    def why_ended(self) -> str | None:
        """Return why the connection ended; None while it is up."""
        transport = self._fabric.transport
        # Paramiko ends the channels before it marks the connection as ended.
        transport.join(_END_S)
        if transport.is_active():
            return None
        return self._reason(transport.get_exception()) or "the server closed it"

    def _reason(self, error: BaseException | None) -> str:
        """Keep the first reason, because Paramiko reports it only once."""
        if not self._ended and isinstance(error, OSError) and error.strerror:
            self._ended = error.strerror
        return self._ended

    def open_session(self, purpose: str) -> Channel:
        """Open a channel for a command.

        Raises:
            UnreachableError: the connection is lost, or the server opens no more sessions.
        """
        began = time.monotonic()
        try:
            channel = self._fabric.transport.open_session(_WINDOW, _PACKET, timeout=_ANSWER_S)
        except paramiko.ChannelException as error:
            why = f"the server opens no further session on this connection: {error.text}"
            text = f"could not {purpose}: {why}; raise MaxSessions in its sshd_config"
            raise ProtocolError(self.node.name, text) from error
        except ERRORS as error:
            seen = self._reason(error) or str(error)
            raise lost(self.node.name, purpose, seen) from error
        self.round_trip_s = time.monotonic() - began
        return channel

    def forward_to(self, node: Node, timeout_s: float) -> Channel:
        """Open a channel to another node, with this server as its jump host.

        Raises:
            UnreachableError: this server does not reach the node.
        """
        place = (node.address, node.ssh.port)
        try:
            return self._fabric.transport.open_channel(
                "direct-tcpip", place, ("127.0.0.1", 0), timeout=timeout_s
            )
        except ERRORS as error:
            seen = error.text if isinstance(error, paramiko.ChannelException) else str(error)
            raise UnreachableError(
                node.name,
                f"unreachable: the jump host {self.node.name} does not reach port {node.ssh.port} "
                f"of {node.address}: {seen}; is sshd running there, and may the jump host forward "
                "(AllowTcpForwarding)?",
            ) from error

    def close(self) -> None:
        """Close the connection; never raises."""
        with self._lock:
            release, self._release = self._release, None
        if release is None:
            return
        self._ended = self._ended or "it was closed"
        for close in (self._fabric.client.close, self._sock.close):
            with suppress(*ERRORS):
                close()
        release()


_AGREED_ON = {
    "kex_algo_list": ("key exchange", "KexAlgorithms"),
    "server_key_algo_list": ("type of host key", "HostKeyAlgorithms"),
    "server_encrypt_algo_list": ("cipher", "Ciphers"),
    "server_mac_algo_list": ("MAC", "MACs"),
}
_NO_ALGORITHMS = ("kex-strict-", "ext-info-")


class _Transport(paramiko.Transport):  # type: ignore[misc]  # Paramiko has no types
    """Names both lists of algorithms if they have none in common; Paramiko names neither."""

    def _parse_kex_init(self, m: paramiko.Message) -> None:
        server = self._really_parse_kex_init(paramiko.Message(m.get_remainder()))
        client = self._get_latest_kex_init()
        for part, (what, keyword) in _AGREED_ON.items():
            theirs, ours = (
                [name for name in offer[part] if not name.startswith(_NO_ALGORITHMS)]
                for offer in (server, client)
            )
            if not set(theirs) & set(ours):
                # A hostile server may send a list of any length.
                shown = textwrap.shorten(", ".join(theirs), 1000, placeholder=" …")
                raise paramiko.ssh_exception.IncompatiblePeer(
                    f"no {what} in common: the server has {shown}; ascendboot has "
                    f"{', '.join(ours)} ({keyword} in its sshd_config)"
                )
        super()._parse_kex_init(m)


def _new_transport(sock: WatchedSocket, check: HostKeyCheck) -> paramiko.Transport:
    transport = _Transport(sock)
    options = transport.get_security_options()
    options.key_types = check.algorithms(options.key_types)
    options.ciphers = sorted(options.ciphers, key=lambda name: name not in _CIPHERS)
    transport.banner_timeout = transport.handshake_timeout = HANDSHAKE_S
    transport.auth_timeout = transport.channel_timeout = _ANSWER_S
    return transport
