"""Reaches servers: retries, TCP sockets and jump hosts."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import Node, SshAccess

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


class DroppedError(UnreachableError):
    """The server closed the connection before the login, as sshd does when it has too many."""


class ProtocolError(UnreachableError):
    """The server does not offer what is needed."""


class HostKeyChangedError(UnreachableError):
    """The server shows a host key other than the known one."""


def retried(
    connect: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep
) -> tuple[T, int]:
    """Call `connect` again while the server drops the connection; return the number of tries.

    With many connections at once sshd drops some (MaxStartups). The pauses grow, about 5 s in all,
    and are random, because equal pauses would collide again.

    Raises:
        UnreachableError: the last DroppedError, or the first error of another kind.
    """
    pause, tries = _FIRST_PAUSE_S, 1
    while True:
        try:
            return connect(), tries
        except DroppedError as error:
            if tries == _TRIES:
                message = f"{error.message} (tried {tries} times)"
                raise DroppedError(error.node, message) from error
        sleep(pause * random.SystemRandom().uniform(0.5, 1.5))
        pause, tries = min(2 * pause, _LONGEST_PAUSE_S), tries + 1


def open_socket(node: str, address: str, port: int, *, timeout_s: float) -> socket.socket:
    """Open a TCP connection that sends small packets at once.

    Raises:
        UnreachableError: with the cause and a remedy.
    """
    try:
        sock = socket.create_connection((address, port), timeout=timeout_s)
    except OSError as error:
        is_reset = isinstance(error, ConnectionResetError)
        why = f"unreachable: {_explained(address, port, timeout_s, error)}"
        raise (DroppedError if is_reset else UnreachableError)(node, why) from error
    # Without it an execution takes five times as long.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _explained(address: str, port: int, timeout_s: float, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return (
            f'the name "{address}" does not resolve: {error.strerror}; '
            "correct `address` in the inventory"
        )
    if isinstance(error, ConnectionRefusedError):
        return f"no sshd answers on port {port} of {address}: connection refused; is sshd running?"
    if isinstance(error, TimeoutError):
        return (
            f"no answer on port {port} of {address} within {timeout_s:g} s; "
            "is the node up, and does a firewall block the port?"
        )
    if isinstance(error, ConnectionResetError):
        return f"port {port} of {address}: {error}"
    return (
        f"no route to {address} port {port}: {error.strerror or error}; "
        "check `address` in the inventory and the network of this machine"
    )


def lost(node: str, purpose: str, seen: str) -> UnreachableError:
    """Return the error for a connection that ended while it was in use."""
    return UnreachableError(
        node,
        f"could not {purpose}: the connection was lost: {seen}; "
        "is the node up? Run again: what is done stays done",
    )


def jump_node(node: Node, nodes: Mapping[str, Node], behind: Sequence[str] = ()) -> Node:
    """Return the jump host of a node: another node by name, or `user@host:port`.

    A host that is no node uses the identity of `node`. `behind` are the nodes that are being
    reached through `node`.

    Raises:
        UnreachableError: jump hosts form a circle.
    """
    text = node.ssh.jump or ""
    if text in (*behind, node.name):
        raise UnreachableError(
            node.name,
            f'could not use the jump host "{text}": it is reached through {node.name} itself; '
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
