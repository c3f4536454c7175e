"""Reaches servers: causes of failure, retries, TCP sockets and jump hosts."""

from __future__ import annotations

import random
import socket
import time
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import Node, SshAccess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

KEEPALIVE_S = 10
"""How long a connection may be idle before a keepalive request is sent."""

PEER_SILENT_S = 30
"""How long a keepalive request may stay unanswered before the connection counts as lost."""

HANDSHAKE_S = 20.0
"""How long a server may take to greet and to agree on keys."""

_TRIES = 8
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.6


class Cause(Enum):
    """Why a node was not reached."""

    NAME = "name not resolved"
    REFUSED = "connection refused"
    TIMEOUT = "no answer"
    NO_ROUTE = "no route"
    DROPPED = "dropped by the server"
    HOST_KEY_UNKNOWN = "host key unknown"
    HOST_KEY_CHANGED = "host key changed"
    AUTHENTICATION = "authentication"
    IDENTITY = "identity"
    PROTOCOL = "protocol"
    JUMP = "jump host"
    LOST = "connection lost"


class ConnectError(UnreachableError):
    """A node could not be reached; the text has what was seen and what to do."""

    def __init__(self, node: str, cause: Cause, message: str) -> None:
        super().__init__(node, message)
        self.cause = cause


def retried(
    connect: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep
) -> tuple[T, int]:
    """Call `connect` again while the server drops the connection; return the number of tries.

    With many connections at once sshd drops some (MaxStartups). The pauses grow, about 5 s in all,
    and are random, because equal pauses would collide again.

    Raises:
        ConnectError: the last one, or the first one with another cause.
    """
    pause, tries = _FIRST_PAUSE_S, 1
    while True:
        try:
            return connect(), tries
        except ConnectError as error:
            if error.cause is not Cause.DROPPED:
                raise
            if tries == _TRIES:
                message = f"{error.message} (tried {tries} times)"
                raise ConnectError(error.node, error.cause, message) from error
        sleep(pause * random.SystemRandom().uniform(0.5, 1.5))
        pause, tries = min(2 * pause, _LONGEST_PAUSE_S), tries + 1


def open_socket(node: str, address: str, port: int, *, timeout_s: float) -> socket.socket:
    """Open a TCP connection that sends small packets at once.

    Raises:
        ConnectError: with the cause and a remedy.
    """
    try:
        sock = socket.create_connection((address, port), timeout=timeout_s)
    except OSError as error:
        cause, why = _explained(address, port, timeout_s, error)
        raise ConnectError(node, cause, f"unreachable: {why}") from error
    # Without it an execution takes five times as long.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _explained(address: str, port: int, timeout_s: float, error: OSError) -> tuple[Cause, str]:
    if isinstance(error, socket.gaierror):
        return Cause.NAME, (
            f'the name "{address}" does not resolve: {error.strerror}; '
            "correct `address` in the inventory"
        )
    if isinstance(error, ConnectionRefusedError):
        return Cause.REFUSED, (
            f"no sshd answers on port {port} of {address}: connection refused; is sshd running?"
        )
    if isinstance(error, TimeoutError):
        return Cause.TIMEOUT, (
            f"no answer on port {port} of {address} within {timeout_s:g} s; "
            "is the node up, and does no firewall stand between?"
        )
    if isinstance(error, ConnectionResetError):
        return Cause.DROPPED, f"port {port} of {address}: {error}"
    return Cause.NO_ROUTE, (
        f"no way to {address} port {port}: {error.strerror or error}; "
        "check `address` in the inventory and the network of this machine"
    )


def lost(node: str, purpose: str, seen: str) -> ConnectError:
    """Return the error for a connection that ended while it was in use."""
    return ConnectError(
        node,
        Cause.LOST,
        f"could not {purpose}: the connection was lost: {seen}; "
        "is the node up? Run again: what is done stays done",
    )


def jump_node(node: Node, nodes: Mapping[str, Node], behind: Sequence[str] = ()) -> Node:
    """Return the jump host of a node: another node by name, or `user@host:port`.

    A host that is no node uses the identity of `node`. `behind` are the nodes that are being
    reached through `node`.

    Raises:
        ConnectError: jump hosts form a circle.
    """
    text = node.ssh.jump or ""
    if text in (*behind, node.name):
        raise ConnectError(
            node.name,
            Cause.JUMP,
            f'could not use the jump host "{text}": the way to it leads through {node.name}; '
            "correct `jump` in the inventory",
        )
    if text in nodes:
        return nodes[text]
    user, _, place = text.rpartition("@")
    host, port = _split_port(place)
    access = SshAccess(user=user or node.ssh.user, port=port, identity=node.ssh.identity)
    return Node(name=text, address=host, cluster_address=host, server_id=host, ssh=access)


def _split_port(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    if port.isdigit() and (host.endswith("]") or (host and ":" not in host)):
        return host.strip("[]"), int(port)
    return place.strip("[]"), 22
