"""What goes over one open channel: a script and its reply, or a stream that lasts."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ascendboot.errors import excerpt
from ascendboot.transport.api import MOST_OF_ERRORS
from ascendboot.transport.script import MOST_NOISE, Script, launch_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ascendboot.model.cluster import ContainerExec

_LOG = logging.getLogger(__name__)

_READ = 1 << 18
_WRITE = 1 << 20
_DRAIN_EVERY_S = 1.0
_SOON_S = 0.01
_LOOK_EVERY_S = 1.0
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

    @property
    def has_ended(self) -> bool:
        """Whether no more output comes."""

    def recv_exit_status(self) -> int:
        """The exit code; -1 if the server sends none."""

    def close(self) -> None:
        """End the channel and wake its readers."""


class Limit:
    """While entered: closes the channel once its time is over, which ends every wait on it."""

    def __init__(self, channel: Channel, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._channel = channel
        self._until = 0.0
        self._over = threading.Event()

    def again(self, seconds: float) -> None:
        """From now on it is so long, whatever has passed."""
        self.seconds = seconds
        self._until = time.monotonic() + seconds

    def _watch(self) -> None:
        while not self._over.wait(min(_LOOK_EVERY_S, max(0.0, self._until - time.monotonic()))):
            if time.monotonic() >= self._until:
                self.expired = True
                with suppress(OSError):
                    self._channel.close()
                return

    def __enter__(self) -> Limit:
        self.again(self.seconds)
        threading.Thread(target=self._watch, name="limit", daemon=True).start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._over.set()


@dataclass(frozen=True)
class Raw:
    """What came out of a channel until its end."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    """-1 if the server sent none."""


class FloodError(Exception):
    """A channel printed more than anything is waited for in; the text is how it began."""


def start(channel: Channel, script: Script, inside: ContainerExec | None = None) -> None:
    """Start `script`, in a container where one is given; stdin then belongs to its commands."""
    channel.exec_command(launch_line(script.program, inside))
    for at in range(0, len(script.program), _WRITE):
        channel.sendall(script.program[at : at + _WRITE])


class Reading:
    """What comes out of a channel, as it comes; of standard error the last is kept."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.stderr = b""

    def some(self) -> bytes:
        """Some bytes of stdout; empty at its end, for any reason."""
        while True:
            # Where much comes on stderr, more is on its way.
            self._channel.settimeout(_SOON_S if self.drain() else _DRAIN_EVERY_S)
            try:
                data = self._channel.recv(_READ)
            except TimeoutError:
                continue
            except OSError as error:
                _LOG.debug("a channel ended: %s", error)
                data = b""
            if not data:
                self.drain()
            return data

    def rest(self, within_s: float) -> None:
        """Let the command end, which has nothing more to say; what it leaves behind may not."""
        until = time.monotonic() + within_s
        self._channel.settimeout(within_s)
        with suppress(OSError):
            while time.monotonic() < until and self._channel.recv(_READ):
                self.drain()

    def drain(self) -> bool:
        """Take what there is of stderr: what is not read would in the end hold up stdout, too."""
        some = False
        while self._channel.recv_stderr_ready():
            self.stderr = (self.stderr + self._channel.recv_stderr(_READ))[-MOST_OF_ERRORS:]
            some = True
        return some

    def until(self, mark: bytes, so_far: bytes = b"") -> bytes | Raw:
        """All bytes as soon as `mark` is among them; a Raw when the command ended without it.

        Raises:
            FloodError: it is not among the first that came, and they were many.
        """
        received = bytearray(so_far)
        looked = 0
        while received.find(mark, looked) < 0:
            if len(received) > MOST_NOISE:
                raise FloodError(excerpt(received[:MOST_OF_ERRORS].decode(errors="replace")))
            looked = max(0, len(received) - len(mark))
            data = self.some()
            if not data:
                return Raw(bytes(received), self.stderr, self._channel.recv_exit_status())
            received += data
        return bytes(received)


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
        self._reading = Reading(channel)
        self._thread = threading.Thread(
            target=self._read, args=(received,), name=f"stream {node}", daemon=True
        )
        self._thread.start()

    @property
    def stderr(self) -> bytes:
        """The last of what the command wrote to standard error."""
        return self._reading.stderr

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
        while data := self._reading.some():
            self._on_bytes(data)
        if self.stderr:
            _LOG.debug("%s: stream said: %s", self._node, self.stderr.decode(errors="replace"))
        self._on_bytes(b"")
