"""Jump hosts: how they are written, and the one connection to each that nodes share."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ascendboot.errors import NodeError
from ascendboot.model.cluster import Node, SshAccess
from ascendboot.transport.reach import Cause, ConnectError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def jump_node(node: Node, nodes: Mapping[str, Node], behind: Sequence[str] = ()) -> Node:
    """The server through which `node` is reached: another node by name, or `user@host:port`.

    A host that is no node is logged in to with the node's own identity. `behind` are the nodes
    that are being reached through this one.

    Raises:
        ConnectError: the way leads in a circle.
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


def jump_unusable(node: Node, jump: Node, error: ConnectError) -> ConnectError:
    """The error for a node whose jump host could not be reached."""
    message = f"could not use the jump host {jump.name}: {error.message}"
    return ConnectError(node.name, Cause.JUMP, message)


def jump_has_no_way(node: Node, jump: Node, seen: str) -> ConnectError:
    """The error for a node that its jump host does not reach."""
    return ConnectError(
        node.name,
        Cause.JUMP,
        f"unreachable: the jump host {jump.name} has no way to port {node.ssh.port} of "
        f"{node.address}: {seen}; is sshd running there, and may the jump host forward "
        "(AllowTcpForwarding)?",
    )


def _split_port(place: str) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if colon and port.isdigit() and (host.endswith("]") or ":" not in host):
        return host.strip("[]"), int(port)
    return place.strip("[]"), 22


class Closes(Protocol):
    """Something that is closed when nobody uses it any more."""

    def close(self) -> None:
        """End it; never raises."""


C = TypeVar("C", bound=Closes)


@dataclass
class Shared(Generic[C]):
    """One connection per jump host: opened by whoever comes first, closed after the last.

    A jump host that could not be reached is not tried again for every node behind it.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[str, Future[C]] = field(default_factory=dict)
    _users: dict[str, int] = field(default_factory=dict)

    def take(self, key: str, opener: Callable[[], C]) -> C:
        """The connection called `key`; `give_back` it once.

        Raises:
            NodeError: it could not be opened, now or when it was tried before.
        """
        with self._lock:
            future = self._open.get(key)
            mine = future is None
            if future is None:
                future = self._open[key] = Future()
            self._users[key] = self._users.get(key, 0) + 1
        if mine:
            try:
                future.set_result(opener())
            except NodeError as error:
                future.set_exception(error)
            finally:
                future.cancel()  # does nothing once it has ended; else nobody waits for ever
        return future.result()

    def give_back(self, key: str) -> None:
        """Say that one user of `key` has ended."""
        with self._lock:
            self._users[key] -= 1
            if self._users[key]:
                return
            future = self._open.pop(key)
        if future.exception() is None:
            future.result().close()
