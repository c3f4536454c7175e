"""Whether the server at the other end still answers.

TCP asks the other kernel, which answers for a frozen sshd too, and Paramiko's own keepalive wants
no reply. What is asked here is OpenSSH's `keepalive@openssh.com`, which every server answers, be it
that it does not know it. Any byte counts as an answer, as it does for `ServerAliveInterval`.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ascendboot.transport.reach import KEEPALIVE_S, PEER_SILENT_S

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = "keepalive@openssh.com"


@dataclass(frozen=True, kw_only=True)
class Keepalive:
    """How a connection is watched, in seconds."""

    every_s: float = KEEPALIVE_S
    """How long nothing is sent before the server is asked whether it is there; what is held hears
    an empty line as often."""
    silent_s: float = PEER_SILENT_S
    """How long the server may leave that unanswered before the connection counts as lost."""


class Socket(Protocol):
    """A socket, or what is as good as one."""

    def recv(self, size: int, /) -> bytes:
        """Some bytes; TimeoutError when none came in time."""

    def send(self, data: bytes, /) -> int:
        """How many bytes went; TimeoutError when none did in time."""

    def close(self) -> None:
        """End it."""


class Watched:
    """A socket whose peer has to answer what it is asked; without a question it may be silent.

    `recv` and `send` raise ConnectionError once it has not, which ends the connection.
    """

    def __init__(
        self, sock: Socket, silent_s: float, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._sock = sock
        self._silent_s = silent_s
        self._now = now
        self._asked: float | None = None

    def asked(self) -> None:
        """Say that from now on there is something to be answered."""
        if self._asked is None:
            self._asked = self._now()

    def recv(self, size: int) -> bytes:
        """As a socket's."""
        try:
            data = self._sock.recv(size)
        except TimeoutError:
            self._refuse_silence()
            raise
        self._asked = None
        return data

    def send(self, data: bytes) -> int:
        """As a socket's."""
        try:
            return self._sock.send(data)
        except TimeoutError:
            self._refuse_silence()
            raise

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a socket has
        return getattr(self._sock, name)

    def _refuse_silence(self) -> None:
        if self._asked is not None and self._now() - self._asked > self._silent_s:
            seen = f"the server answered no keepalive within {self._silent_s:g} s"
            raise ConnectionError(errno.ETIMEDOUT, seen)
