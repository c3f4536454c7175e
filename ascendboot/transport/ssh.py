"""Opens transports to nodes over SSH, also through jump hosts."""

from __future__ import annotations

import getpass
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.model.cluster import NO_PROXY_COMMAND, SSH_PORT, Node, SshAccess
from ascendboot.transport.api import Result
from ascendboot.transport.connection import Connection, DroppedError, Keepalive, ProtocolError
from ascendboot.transport.hostkeys import HostKeyChangedError, HostKeyCheck, HostKeys
from ascendboot.transport.login import Ask, KeyFiles
from ascendboot.transport.login_session import SshTransport, Waits
from ascendboot.transport.ssh_config import ProxyCommandError, configured
from ascendboot.value import replace

T = TypeVar("T")

_TRIES = 8
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.6
_NO_JUMP = "could not use the jump host "


class JumpHosts:
    """One connection per jump host: its first user opens it, its last user closes it.

    A jump host that could not be reached is not tried again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Future[Connection]] = {}
        self._users: dict[str, int] = {}

    def take(self, key: str, opener: Callable[[], Connection]) -> Connection:
        """Return the connection named `key`; call `give_back` once for it.

        Raises:
            NodeError: it could not be opened, now or earlier.
        """
        with self._lock:
            is_first = key not in self._open
            future = self._open.setdefault(key, Future())
            self._users[key] = self._users.get(key, 0) + 1
        if is_first:
            try:
                future.set_result(opener())
            except NodeError as error:
                future.set_exception(error)
            finally:
                future.cancel()  # after another error, so that nobody waits forever
        return future.result()

    def give_back(self, key: str) -> None:
        """End one use of a connection."""
        with self._lock:
            self._users[key] -= 1
            if self._users[key]:
                return
            future = self._open.pop(key)
        future.result().close()


class SshOpener:
    """Opens the transports of one run, which share host keys, private keys and jump hosts."""

    def __init__(
        self,
        host_keys: HostKeys,
        *,
        nodes: Iterable[Node] = (),
        connect_timeout_s: float = 10.0,
        ask: Ask = lambda _file: None,
        on_result: Callable[[Result], None] | None = None,
        keepalive: Keepalive | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._host_keys = host_keys
        self._nodes = {node.name: node for node in nodes}
        self._timeout_s = connect_timeout_s
        self.key_files = KeyFiles(ask)
        self._on_result = on_result
        self._keepalive = keepalive or Keepalive()
        self._waits = waits or Waits()
        self._jumps = JumpHosts()
        # Paramiko writes a traceback for every failed connection.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)

    def __call__(self, node: Node) -> SshTransport:
        """Connect to a node and log in.

        Raises:
            UnreachableError: with the cause and a remedy.
        """
        with self._waits.of(node.name, "connect and log in"):
            connection = self._open(node, ())
        password = None if node.ssh.sudo == "none" else ""
        if node.ssh.sudo == "ask":
            password = self.key_files.sudo_password()
        return SshTransport(connection, self._on_result, waits=self._waits, password=password)

    def _open(self, node: Node, behind: Sequence[str]) -> Connection:
        return retried(lambda: self._try(node, behind))

    def _try(self, node: Node, behind: Sequence[str]) -> Connection:
        """Connect once, or once per type of host key if the inventory has a fingerprint."""
        check = HostKeyCheck(node, self._host_keys)
        changed: HostKeyChangedError | None = None
        while True:
            connection = self._connection(node, behind)
            try:
                connection.login(check, self.key_files)
            except HostKeyChangedError as error:
                if node.ssh.fingerprint is None:
                    raise  # else it may have a key of another type
                changed = error
            except ProtocolError as error:
                if changed is None:
                    raise
                raise changed from error  # it has none
            else:
                return connection

    def _connection(self, node: Node, behind: Sequence[str]) -> Connection:
        """Return a connection over a socket, or over a channel of a jump host; not logged in."""
        if node.ssh.jump is None:
            sock = _open_socket(node, self._timeout_s)
            return Connection(node, sock, sock.close, self._keepalive)
        jump = jump_node(node, self._nodes, behind)
        key = f"{jump.ssh.user}@{jump.address}:{jump.ssh.port}"
        try:
            gate = self._jumps.take(key, lambda: self._open(jump, (*behind, node.name)))
        except UnreachableError as error:
            # It may be behind another one, which is named then, once.
            message = error.message.removeprefix(_NO_JUMP)
            named = "" if message != error.message else f"{jump.name}: "
            raise UnreachableError(node.name, f"{_NO_JUMP}{named}{message}") from error
        try:
            channel = gate.forward_to(node, self._timeout_s)
        except UnreachableError:
            self._jumps.give_back(key)
            raise
        return Connection(node, channel, lambda: self._jumps.give_back(key), self._keepalive)


def retried(connect: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Call `connect` again while the server drops the connection.

    With many connections at once sshd drops some (MaxStartups). The pauses grow, about 5 s in all,
    and are random, because equal pauses would collide again.

    Raises:
        UnreachableError: the last DroppedError, or the first error of another kind.
    """
    pause, tries = _FIRST_PAUSE_S, 1
    while True:
        try:
            return connect()
        except DroppedError as error:
            if tries == _TRIES:
                message = f"{error.message} (tried {tries} times)"
                raise DroppedError(error.node, message) from error
        sleep(pause * random.SystemRandom().uniform(0.5, 1.5))
        pause, tries = min(2 * pause, _LONGEST_PAUSE_S), tries + 1


def _open_socket(node: Node, timeout_s: float) -> socket.socket:
    """Open a TCP connection that sends small packets at once."""
    address, port = node.address, node.ssh.port
    kind = UnreachableError
    try:
        sock = socket.create_connection((address, port), timeout=timeout_s)
    except OSError as error:
        why = (
            f"no route to {address} port {port}: {error.strerror or error}; "
            "check `address` in the inventory and the network of this machine"
        )
        if isinstance(error, socket.gaierror):
            why = (
                f'the name "{address}" does not resolve: {error.strerror}; '
                "correct `address` in the inventory"
            )
        elif isinstance(error, ConnectionRefusedError):
            why = (
                f"no sshd answers on port {port} of {address}: connection refused; is sshd running?"
            )
        elif isinstance(error, TimeoutError):
            why = (
                f"no answer on port {port} of {address} within {timeout_s:g} s; "
                "is the node up, and does a firewall block the port?"
            )
        elif isinstance(error, ConnectionResetError):
            kind, why = DroppedError, f"port {port} of {address}: {error}"
        raise kind(node.name, f"unreachable: {why}") from error
    # Without it an execution takes five times as long.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def jump_node(
    node: Node, nodes: Mapping[str, Node], behind: Sequence[str] = (), file: str = ""
) -> Node:
    """Return the jump host of a node: another node by name, or `user@host:port`.

    A host that is no node uses the identity of `node`. `behind` are the nodes that are being
    reached through `node`.

    Raises:
        UnreachableError: jump hosts form a circle.
    """
    text = node.ssh.jump or ""
    *before, hop = text.split(",")
    if text in (*behind, node.name):
        why = f"it is reached through {node.name} itself; correct `jump` in the inventory"
        raise UnreachableError(node.name, f'{_NO_JUMP}"{text}": {why}')
    if text in nodes:
        return nodes[text]
    user, _, place = hop.removeprefix("ssh://").rpartition("@")
    host, _, last = place.rpartition(":")
    has_port = last.isdigit() and (host.endswith("]") or (host and ":" not in host))
    host, port = (host, int(last)) if has_port else (place, SSH_PORT)
    host, stated = host.strip("[]"), {"user": user, "port": has_port}
    access = replace(
        node.ssh,
        user=user or node.ssh.user,
        port=port,
        jump=",".join(before) or None,
        fingerprint=None,
        unstated=("identity", *(key for key, is_in in stated.items() if not is_in)),
    )
    gate = Node(name=text, address=host, cluster_address=host, server_id=host, ssh=access)
    return configured(gate, file)


def keys_of_alias(file: str, alias: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the keys of a node that an ssh config states for an alias, and why others have none.

    Raises:
        UsageError: ssh does not understand the file.
    """
    access = SshAccess(user="", unstated=("user", "port", "identity"))
    plain = Node(name=alias, address=alias, cluster_address=alias, server_id=alias, ssh=access)
    left_out: dict[str, str] = {}
    jump = ""
    try:
        node = configured(plain, file)
        if node.ssh.jump:
            jump = _jump_of_alias(file, node, left_out)
    except ProxyCommandError:
        node = configured(replace(plain, ssh=replace(access, jump="none")), file)
        left_out["ProxyCommand"] = NO_PROXY_COMMAND
    identity, *more = (each for each in (*node.ssh.files, "") if each != "none")
    left_out |= {f"IdentityFile {each}": "a node has one `identity`" for each in more if each}
    if node.ssh.known_as:
        left_out["HostKeyAlias"] = f"state it for {node.address} in ~/.ssh/config"
    port = "" if node.ssh.port == SSH_PORT else str(node.ssh.port)
    stated = {"user": node.ssh.user, "port": port, "identity": identity, "jump": jump}
    return {"address": node.address} | {key: v for key, v in stated.items() if v}, left_out


def _jump_of_alias(file: str, node: Node, left_out: dict[str, str]) -> str:
    """Return the jump host as USER@HOST:PORT; empty if there are several, which have no key."""
    # As in ssh, the login name at a jump host is not that at the node.
    gate = jump_node(replace(node, ssh=replace(node.ssh, user="")), {}, (), file)
    if gate.ssh.jump:
        left_out[f"ProxyJump {node.ssh.jump}"] = (
            f"a node has one `jump`, and {gate.address} is itself reached through {gate.ssh.jump}; "
            f"state both for {node.address} in ~/.ssh/config"
        )
        return ""
    if gate.ssh.files not in ((), node.ssh.files):
        left_out[f"IdentityFile of {node.ssh.jump}"] = (
            f"the `identity` of the node is used; state it for {gate.address} in ~/.ssh/config"
        )
    host = f"[{gate.address}]" if ":" in gate.address else gate.address
    return f"{gate.ssh.user or getpass.getuser()}@{host}:{gate.ssh.port}"
