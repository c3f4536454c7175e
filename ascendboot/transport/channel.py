"""What goes over one open channel: a script and its reply, or a stream that lasts."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ascendboot.transport.script import launch_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ascendboot.model.container import Inside
    from ascendboot.transport.script import Script

_LOG = logging.getLogger(__name__)

_READ = 1 << 18
_WRITE = 1 << 20
_STDERR_KEPT = 1 << 16
_DRAIN_EVERY_S = 1.0
_CLOSE_S = 5.0


class Channel(Protocol):
    """An SSH session; its methods raise OSError when the connection does not do its part."""

    def exec_command(self, command: str) -> None:
        """Start a command; waits for the server's consent without a limit of its own."""

    def sendall(self, data: bytes) -> None:
        """Write to the command's stdin."""

    def shutdown_write(self) -> None:
        """End the command's stdin."""

    def settimeout(self, timeout: float | None) -> None:
        """Limit each wait in `recv`."""

    def recv(self, size: int) -> bytes:
        """Some bytes of stdout; none at its end or when the channel is closed."""

    def recv_stderr(self, size: int) -> bytes:
        """Some bytes of stderr."""

    def recv_stderr_ready(self) -> bool:
        """Whether stderr has some."""

    def recv_exit_status(self) -> int:
        """The exit code; -1 when the server tells none."""

    def close(self) -> None:
        """End the channel; whoever waits on it is woken."""


class Limit:
    """While entered: closes the channel after some seconds, which ends every wait on it."""

    def __init__(self, channel: Channel, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._channel = channel
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def _expire(self) -> None:
        self.expired = True
        with suppress(OSError):
            self._channel.close()

    def __enter__(self) -> Limit:
        self._timer.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()


@dataclass(frozen=True)
class Raw:
    """What came out of a channel until its end."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    """-1 when the server told none."""


def start(channel: Channel, script: Script, inside: Inside | None = None) -> None:
    """Start `script`, in a container where one is given; stdin then belongs to its commands."""
    channel.exec_command(launch_line(script.program, inside))
    for at in range(0, len(script.program), _WRITE):
        channel.sendall(script.program[at : at + _WRITE])


def read_all(channel: Channel) -> Raw:
    """Everything until the command ends."""
    return _finished(channel, b"")


def read_until(channel: Channel, mark: bytes, so_far: bytes = b"") -> bytes | Raw:
    """All bytes as soon as `mark` is among them; a Raw when the command ended without it."""
    received = so_far
    while mark not in received:
        data = channel.recv(_READ)
        if not data:
            return _finished(channel, received)
        received += data
    return received


def _finished(channel: Channel, received: bytes) -> Raw:
    parts, errors = [received], []
    with suppress(OSError):  # then it ends here, and the exit code says so
        while data := channel.recv(_READ):
            parts.append(data)
        while data := channel.recv_stderr(_READ):
            errors.append(data)
    return Raw(b"".join(parts), b"".join(errors), channel.recv_exit_status())


class ChannelStream:
    """The output of a running command, handed on as it comes by a thread of its own."""

    def __init__(
        self,
        node: str,
        channel: Channel,
        on_bytes: Callable[[bytes], None],
        *,
        received: bytes,
    ) -> None:
        self._node = node
        self._channel = channel
        self._on_bytes = on_bytes
        self._stderr = b""
        self._thread = threading.Thread(
            target=self._read, args=(received,), name=f"stream {node}", daemon=True
        )
        self._thread.start()

    @property
    def stderr(self) -> bytes:
        """The last of what the command wrote to standard error."""
        return self._stderr

    def wait(self, timeout_s: float) -> bool:
        """Wait until the output has ended; whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """End the command's stdin, give it a moment to end, close; never raises."""
        with suppress(OSError):
            self._channel.shutdown_write()
        self._join()
        with suppress(OSError):
            self._channel.close()
        self._join()

    def _join(self) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)

    def _read(self, received: bytes) -> None:
        if received:
            self._on_bytes(received)
        self._channel.settimeout(_DRAIN_EVERY_S)
        while True:
            try:
                data = self._channel.recv(_READ)
            except TimeoutError:
                self._drain()
                continue
            except OSError as error:
                _LOG.debug("%s: stream ended: %s", self._node, error)
                break
            if not data:
                break
            self._on_bytes(data)
            self._drain()
        self._drain()
        if self._stderr:
            _LOG.debug("%s: stream said: %s", self._node, self._stderr.decode(errors="replace"))
        self._on_bytes(b"")

    def _drain(self) -> None:
        # What is not read here would in the end hold up standard output too.
        while self._channel.recv_stderr_ready():
            self._stderr = (self._stderr + self._channel.recv_stderr(_READ))[-_STDERR_KEPT:]
