"""How a node is reached: address, port, jump hosts, user, private keys."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.model.cluster import Node, SshAccess

T = TypeVar("T")

KEEPALIVE_S = 10
"""How often an idle connection is used, so that a dead peer is noticed."""

PEER_SILENT_S = 30
"""How long data may stay unacknowledged before the connection is given up."""

HANDSHAKE_S = 20.0
"""How long a server that took our connection may need to greet and agree on keys."""

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
    """A node could not be reached, for one cause; the text says what was seen and what to do."""

    def __init__(self, node: str, cause: Cause, message: str) -> None:
        super().__init__(node, message)
        self.cause = cause


def pauses() -> Iterator[float]:
    """Seconds to wait before each further try: exponential, jittered, about 5 s in all.

    With many at once the server drops some (MaxStartups); equal pauses would collide again.
    """
    jitter = random.SystemRandom()
    for turn in range(_TRIES - 1):
        yield min(_FIRST_PAUSE_S * 2**turn, _LONGEST_PAUSE_S) * jitter.uniform(0.5, 1.5)


def retried(
    connect: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep
) -> tuple[T, int]:
    """What `connect` gives, tried again only where the server dropped us; and the tries it took.

    Raises:
        ConnectError: the last one, or the first one with another cause.
    """
    later = pauses()
    tries = 1
    while True:
        try:
            return connect(), tries
        except ConnectError as error:
            if error.cause is not Cause.DROPPED:
                raise
            pause = next(later, None)
            if pause is None:
                message = f"{error.message} (tried {tries} times)"
                raise ConnectError(error.node, error.cause, message) from error
        sleep(pause)
        tries += 1


def open_socket(node: str, address: str, port: int, *, timeout_s: float) -> socket.socket:
    """A connected TCP socket that sends at once and notices a dead peer.

    Raises:
        ConnectError: with the cause and a remedy.
    """
    try:
        found = socket.create_connection((address, port), timeout=timeout_s)
    except OSError as error:
        raise _explained(node, address, port, timeout_s, error) from error
    set_options(found)
    return found


def set_options(sock: socket.socket) -> None:
    """Send small packets at once (5 times faster per execution), and notice a dead peer."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_S),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", PEER_SILENT_S * 1000),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            with suppress(OSError):  # not every kernel has every one of them
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _explained(
    node: str, address: str, port: int, timeout_s: float, error: OSError
) -> ConnectError:
    if isinstance(error, socket.gaierror):
        return ConnectError(
            node,
            Cause.NAME,
            f'unreachable: the name "{address}" does not resolve: {error.strerror}; '
            "correct `address` in the inventory",
        )
    if isinstance(error, ConnectionRefusedError):
        return ConnectError(
            node,
            Cause.REFUSED,
            f"unreachable: no sshd answers on port {port} of {address}: connection refused; "
            "is sshd running?",
        )
    if isinstance(error, TimeoutError):
        return ConnectError(
            node,
            Cause.TIMEOUT,
            f"unreachable: no answer on port {port} of {address} within {timeout_s:g} s; "
            "is the node up, and does no firewall stand between?",
        )
    if isinstance(error, ConnectionResetError):
        return ConnectError(node, Cause.DROPPED, f"unreachable: port {port} of {address}: {error}")
    return ConnectError(
        node,
        Cause.NO_ROUTE,
        f"unreachable: no way to {address} port {port}: {error.strerror or error}; "
        "check `address` in the inventory and the network of this machine",
    )


def not_greeted(
    node: Node, seen: str, *, incompatible: bool, slow: bool, dropped: bool
) -> ConnectError:
    """The error for a connection that ended between TCP and login."""
    place = f"port {node.ssh.port} of {node.address}"
    cause, why = Cause.PROTOCOL, f"{place}: {seen}; is that an SSH server?"
    if incompatible:
        why = (
            f"{place} speaks no SSH that we do: {seen}; update its sshd, or allow one of ours there"
        )
    elif slow:
        cause = Cause.TIMEOUT
        why = (
            f"{place} is open but no SSH server greets within {HANDSHAKE_S:g} s; "
            "is the node overloaded, or is something else on that port?"
        )
    elif dropped:
        cause = Cause.DROPPED
        why = (
            f"{place} closed the connection before the login; too many logins at once "
            "(MaxStartups), a rule that shuts this machine out, or no SSH server?"
        )
    return ConnectError(node.name, cause, f"unreachable: {why}")


def login_refused(
    node: Node,
    tried: Sequence[str],
    unusable: Sequence[str],
    allowed: Sequence[str],
    *,
    taken: str = "",
    ended: bool = False,
) -> ConnectError:
    """The error for a server that did not let us in; `allowed` is what it would take.

    `taken`: a key that it took and that was not enough. `ended`: it did not even say so, but ended
    the connection, as after too many keys.
    """
    user, keys = node.ssh.user, ", ".join(tried)
    methods = ", ".join(allowed)
    remedy = (
        f"put the public key into ~{user}/.ssh/authorized_keys there, or correct `user` or "
        "`identity`"
    )
    if taken:
        seen = f"the server took {taken} and wants {methods or 'something'} as well"
        remedy = (
            "ascendboot logs in by a key alone: in its sshd_config allow that for "
            f"{user} from here (Match User {user} Address …, then AuthenticationMethods publickey)"
        )
    elif allowed and "publickey" not in allowed:
        seen = f"the server takes no keys, only {methods}"
        remedy = (
            "ascendboot logs in by a key alone: in its sshd_config state PubkeyAuthentication yes, "
            f"and AuthenticationMethods publickey where that is stated for {user}"
        )
    elif ended and len(tried) > 1:
        seen = f"the server ended the connection after {len(tried)} keys (MaxAuthTries): {keys}"
        remedy = (
            "state as `identity` the key that it knows; of one that ssh-agent holds name the .pub"
        )
    elif tried:
        answer = "ended the connection when offered" if ended else "refused"
        seen = f"the server {answer} {keys}" + (f" and allows {methods}" if methods else "")
    else:
        seen = "there is no key to try" + (f" ({'; '.join(unusable)})" if unusable else "")
    return ConnectError(
        node.name, Cause.AUTHENTICATION, f"could not log in as {user}: {seen}; {remedy}"
    )


def lost(node: str, purpose: str, seen: str) -> ConnectError:
    """The error for a connection that went away while it was in use."""
    return ConnectError(
        node,
        Cause.LOST,
        f"could not {purpose}: the connection was lost: {seen}; "
        "is the node up? Run again: what is done stays done",
    )


def no_session(node: str, purpose: str, seen: str) -> ConnectError:
    """The error for a server that lets us in but opens no session (`MaxSessions`)."""
    return ConnectError(
        node,
        Cause.PROTOCOL,
        f"could not {purpose}: the server opens no further session on this connection: {seen}; "
        "raise MaxSessions in its sshd_config",
    )


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
    """Something that closes after its last use."""

    def close(self) -> None:
        """End it; never raises."""


C = TypeVar("C", bound=Closes)


@dataclass
class Shared(Generic[C]):
    """One connection per jump host: opened by its first user, closed after the last.

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


PASSPHRASE_VARIABLE = "ASCENDBOOT_PASSPHRASE"  # noqa: S105  # the name of a variable

DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")

K = TypeVar("K")

Ask: TypeAlias = Callable[[str], "str | None"]
"""Prompts for the passphrase of a file; None: there is no terminal."""


class IdentityError(Exception):
    """A private key that cannot be used; the text is `FILE: what was seen; what to do`."""


class EncryptedError(Exception):
    """The loader's: this file needs a passphrase."""


class UnreadableError(Exception):
    """The loader's: this is no private key, or the passphrase is wrong."""


Load: TypeAlias = Callable[[Path, "str | None"], K]
"""Reads a private key; raises EncryptedError, UnreadableError or OSError."""


def ask_nobody(_file: str) -> str | None:
    """For runs without a person: the passphrase comes from the environment or not at all."""
    return None


@dataclass
class Identities(Generic[K]):
    """The private keys of one run; reads each file and prompts for its passphrase once."""

    load: Load[K]
    ask: Ask = ask_nobody
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[str, K | IdentityError] = field(default_factory=dict)

    def get(self, file: str) -> K:
        """The key in `file`.

        Raises:
            IdentityError: it cannot be used.
        """
        with self._lock:
            if file not in self._known:
                try:
                    self._known[file] = self._read(file)
                except IdentityError as error:
                    self._known[file] = error
            found = self._known[file]
        if isinstance(found, IdentityError):
            raise found
        return found

    def _read(self, file: str) -> K:
        path = Path(file).expanduser()
        try:
            mode = path.stat().st_mode
            if mode & 0o077:
                raise IdentityError(
                    f"{file}: others may read it (mode {mode & 0o777:04o}); chmod 600 {file}"
                )
            return self._decrypted(path, file)
        except FileNotFoundError as error:
            raise IdentityError(f"{file}: there is no such file; correct `identity`") from error
        except OSError as error:
            raise IdentityError(f"{file}: not readable: {error.strerror}") from error

    def _decrypted(self, path: Path, file: str) -> K:
        try:
            return self.load(path, None)
        except UnreadableError as error:
            raise IdentityError(
                f"{file}: not a private key that is understood; "
                "`identity` names the private key in OpenSSH or PEM format, or the .pub of a key "
                "that ssh-agent holds"
            ) from error
        except EncryptedError:
            pass
        passphrase = os.environ.get(PASSPHRASE_VARIABLE) or self.ask(file)
        if not passphrase:
            raise IdentityError(
                f"{file}: it is encrypted; set ${PASSPHRASE_VARIABLE}, or load it into ssh-agent "
                f"and state `identity: {file}.pub`"
            )
        try:
            return self.load(path, passphrase)
        except (UnreadableError, EncryptedError) as error:
            raise IdentityError(f"{file}: the passphrase does not open it") from error
