"""Opens transports: host keys, private keys and jump hosts that the nodes of a run share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import paramiko

from ascendboot.transport import reach
from ascendboot.transport.identity import Identities, ask_nobody
from ascendboot.transport.jumps import Shared, jump_has_no_way, jump_node, jump_unusable
from ascendboot.transport.keepalive import Keepalive
from ascendboot.transport.reach import Cause, ConnectError
from ascendboot.transport.session import SshTransport
from ascendboot.transport.ssh.keys import load_key
from ascendboot.transport.ssh.link import Link
from ascendboot.transport.ssh.login import ERRORS
from ascendboot.transport.trust import HostKeyCheck
from ascendboot.transport.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ascendboot.model.cluster import Node
    from ascendboot.transport.api import Result
    from ascendboot.transport.hostkeys import HostKeys
    from ascendboot.transport.identity import Ask
    from ascendboot.transport.keepalive import Socket


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
        link, tries = reach.retried(lambda: self._try(node, behind))
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
            found = reach.open_socket(
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
