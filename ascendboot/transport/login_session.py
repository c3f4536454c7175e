"""Runs commands in one login session of a node, each with a time limit and a size limit."""

from __future__ import annotations

import errno
import logging
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ascendboot.errors import CommandError, NodeError
from ascendboot.transport.api import HANGS, Command, Result
from ascendboot.transport.channel import (
    Channel,
    ChannelStream,
    FloodError,
    Limit,
    Raw,
    Reading,
    start,
)
from ascendboot.transport.connect import KEEPALIVE_S, PEER_SILENT_S, Cause, ConnectError, lost
from ascendboot.transport.script import (
    Reply,
    ReplyReader,
    Script,
    compile_open,
    compile_script,
    noisy,
    not_whole,
    not_whole_inside,
    parse_reply,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ascendboot.model.cluster import ContainerExec, Node

TOLD_AFTER_S = 30.0
"""How long something may take, without any progress, before it is told of."""


class Wait:
    """One node that is waited for."""

    def __init__(self, node: str, purpose: str, now: Callable[[], float]) -> None:
        self.node = node
        self._now = now
        self.goes_on(purpose)

    def goes_on(self, purpose: str) -> None:
        """Say that there was progress; what is waited for now completes "still waiting to …"."""
        self.purpose = purpose
        self.since = self._now()
        self.is_told = False


class Waits:
    """All that is waited for now, by the threads that work on the nodes."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._open: dict[Wait, None] = {}

    @contextmanager
    def of(self, node: str, purpose: str) -> Iterator[Wait]:
        """Waiting for one node, until the block ends."""
        wait = Wait(node, purpose, self._now)
        with self._lock:
            self._open[wait] = None
        try:
            yield wait
        finally:
            with self._lock:
                del self._open[wait]

    def late(self) -> Mapping[str, list[str]]:
        """By purpose: the nodes without progress for a while of which nobody was told yet."""
        found: dict[str, list[str]] = {}
        with self._lock:
            for wait in self._open:
                if not wait.is_told and self._now() - wait.since >= TOLD_AFTER_S:
                    wait.is_told = True
                    found.setdefault(wait.purpose, []).append(wait.node)
        return found


# TCP asks the other kernel, which answers for a frozen sshd too, and Paramiko's own keepalive
# wants no reply. What is asked here is OpenSSH's `keepalive@openssh.com`, which every server
# answers, be it that it does not know it. Any byte counts as an answer, as it does for
# `ServerAliveInterval`.

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

    def note_request(self) -> None:
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


_LOG = logging.getLogger(__name__)

_MARGIN_S = 30.0
"""What an execution may take beyond its commands: login shell, the way there and back."""

_LAST_WORDS_S = 2.0
"""How long a script whose reply is whole may take to end: what it left behind may hold that up."""

_ROUND_TRIPS = 20
"""So many a command may need, beyond its own time, to be told of its end."""

_PACKET = 1400
_SHORTEST_S = 0.02
"""What a packet may take on any link: 70 kB/s."""

_SLOW_S = 0.2


class Link(Protocol):
    """A connection that is logged in."""

    @property
    def node(self) -> Node:
        """Where to."""

    @property
    def connections(self) -> int:
        """How many TCP connections it took."""

    @property
    def keepalive(self) -> Keepalive:
        """How it is watched."""

    @property
    def is_open(self) -> bool:
        """Whether it is there, as far as is known at once."""

    @property
    def round_trip_s(self) -> float:
        """How long the server took to open the last session: one way there and back."""

    def why_ended(self) -> str | None:
        """Why the server is gone; None while it is there."""

    def session(self, purpose: str) -> Channel:
        """A channel to run something in; UnreachableError when there is none to be had."""

    def close(self) -> None:
        """End it; never raises."""


class SshTransport:
    """One side of a node over one SSH connection: its host side, or a container; see `HostSide`.

    `executions` and `connections` count what went over the network, for the bench.
    """

    def __init__(
        self,
        link: Link,
        on_result: Callable[[Result], None] | None = None,
        *,
        way: ContainerExec | None = None,
        waits: Waits | None = None,
    ) -> None:
        self.executions = 0
        self._waits = waits or Waits()
        self.has_one_session = False
        self._has_tried = False
        self._link = link
        self._on_result = on_result
        self._way = way
        self._lock = threading.Lock()
        self._held: list[Channel] = []
        self._streams: list[ChannelStream] = []
        self._insides: list[SshTransport] = []
        self._closed = threading.Event()

    def inside(self, way: ContainerExec) -> SshTransport:
        """The side behind `way`; its `close` ends what runs there and leaves the connection."""
        found = SshTransport(self._link, self._on_result, way=way, waits=self._waits)
        with self._lock:
            self._insides.append(found)
        return found

    @property
    def node(self) -> str:
        """The node's inventory name."""
        return self._link.node.name

    @property
    def connections(self) -> int:
        """How many TCP connections to the node it took, dropped ones included."""
        return self._link.connections

    @property
    def is_open(self) -> bool:
        """Whether the connection is there, and what is held through it, containers included."""
        with self._lock:
            held, insides = tuple(self._held), tuple(self._insides)
        sides_are_open = all(inside.is_open for inside in insides)
        return self._link.is_open and sides_are_open and not any(c.has_ended for c in held)

    def run(self, command: Command) -> Result:
        """Run one command."""
        return self.run_all((command,))[0]

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands in one execution."""
        if not commands:
            return ()
        script = compile_script(commands)
        reader = ReplyReader(self.node, script)
        with self._waits.of(self.node, script.purpose_after(0)) as wait:
            channel = self._session(script)
            try:
                with Limit(channel, self._start_s(script)) as limit:
                    raw = self._read(channel, script, reader, limit, wait)
            finally:
                _end(channel)
        reply = reader.reply
        if reply.noise:
            _LOG.debug("%s: the login said: %s", self.node, reply.noise.decode(errors="replace"))
        if not reply.ended:
            raise self._broken(script, reply, raw, limit)
        for result in reply.results:
            self._tell(result)
        return reply.results

    def _read(
        self, channel: Channel, script: Script, reader: ReplyReader, limit: Limit, wait: Wait
    ) -> Raw:
        """Run `script` until its reply is whole, or the channel has ended."""
        self._begin(channel, script)
        with suppress(OSError):
            channel.shutdown_write()
        reading, done = Reading(channel), -1
        while not reader.ended and (data := reading.some()):
            reader.feed(data)
            if reader.began and reader.finished > done:
                done = reader.finished
                limit.again(script.limit_of(done) + self._margin_s)
                wait.goes_on(script.purpose_after(done))
        if reader.ended:
            reading.rest(_LAST_WORDS_S)
            return Raw(b"", reading.stderr, 0)
        return Raw(b"", reading.stderr, channel.recv_exit_status())

    def hold(self, command: Command) -> Result:
        """Run a command that holds something until the connection ends; its first line.

        Its stdin hears an empty line as often as the server is asked whether it is there: where
        these stay away, the control machine is gone, which sshd itself may not see for hours.

        A command that ends without having said a line gives its exit code and its errors.
        """
        script = compile_open(command)
        began = time.monotonic()
        with ExitStack() as waiting:
            waiting.enter_context(self._waits.of(self.node, command.purpose))
            channel = self._session(script)
            limit = waiting.enter_context(Limit(channel, command.timeout_s + self._start_s(script)))
            reading, received = self._started(channel, script, limit)
            line = self._until(channel, reading, b"\n", command.purpose, received)
        if isinstance(line, Raw):
            _end(channel)
            if limit.expired or line.exit_code < 0:
                raise self._silent(command, limit)
            code, stdout, stderr = line.exit_code, line.stdout, line.stderr
        else:
            self._keep(channel)
            code, stdout, stderr = 0, line[: line.index(b"\n") + 1], b""
        result = Result(
            node=self.node,
            command=command,
            exit_code=code,
            stdout=stdout,
            stderr=stderr,
            duration_s=time.monotonic() - began,
        )
        self._tell(result)
        return result

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> ChannelStream:
        """Start one command and hand its output on as it comes."""
        script = compile_open(command)
        with ExitStack() as waiting:
            waiting.enter_context(self._waits.of(self.node, command.purpose))
            channel = self._session(script)
            limit = waiting.enter_context(Limit(channel, self._start_s(script)))
            _, received = self._started(channel, script, limit)
        stream = ChannelStream(self.node, channel, on_bytes, received=received)
        with self._lock:
            self._streams.append(stream)
        return stream

    def close(self) -> None:
        """End the streams, then what is held, then the connection; never raises."""
        self._closed.set()
        with self._lock:
            insides, self._insides = self._insides, []
            streams, self._streams = self._streams, []
            held, self._held = self._held, []
        for inside in insides:
            inside.close()
        for stream in streams:
            stream.close()
        for channel in held:
            _end(channel)
        if self._way is None:
            self._link.close()

    def _session(self, script: Script) -> Channel:
        channel = self._link.session(script.purpose_after(0))
        with self._lock:
            self.executions += 1
        return channel

    def _started(self, channel: Channel, script: Script, limit: Limit) -> tuple[Reading, bytes]:
        """Start `script` and wait for its begin marker; what came after the marker."""
        self._begin(channel, script)
        mark = script.begin + b"\n"
        reading = Reading(channel)
        received = self._until(channel, reading, mark, script.purpose_after(0))
        if isinstance(received, Raw):
            _end(channel)
            if limit.expired:
                raise self._silent(script.commands[0], limit)
            reply = parse_reply(self.node, script, received.stdout)
            raise self._broken(script, reply, received, limit)
        return reading, received.partition(mark)[2]

    def _until(
        self, channel: Channel, reading: Reading, mark: bytes, purpose: str, so_far: bytes = b""
    ) -> bytes | Raw:
        try:
            return reading.until(mark, so_far)
        except FloodError as error:
            _end(channel)
            raise CommandError(self.node, f"could not {purpose}: {noisy(str(error))}") from error

    def _begin(self, channel: Channel, script: Script) -> None:
        # A login that ends early refuses the rest of the script; what it said is still to be read.
        with suppress(OSError):
            start(channel, script, self._way)
        self._try_second_session(script)

    def _try_second_session(self, script: Script) -> None:
        """See once whether the server opens another session while this one is open."""
        with self._lock:
            is_known, self._has_tried = self._has_tried or self._way is not None, True
        if is_known:
            return
        try:
            _end(self._link.session(script.purpose_after(0)))
        except ConnectError as error:  # that the connection is gone is told where it is read
            self.has_one_session = error.cause is Cause.PROTOCOL

    @property
    def _margin_s(self) -> float:
        return _MARGIN_S + _ROUND_TRIPS * self._link.round_trip_s

    def _start_s(self, script: Script) -> float:
        """How long a script may take to be sent and to begin; a slow link may delay each packet."""
        packets = len(script.program) / _PACKET
        return self._margin_s + packets * max(self._link.round_trip_s, _SHORTEST_S)

    @property
    def _slow(self) -> str:
        """What to add to a message about time where the link is slow."""
        took = self._link.round_trip_s
        if took < _SLOW_S:
            return ""
        return f"; the link to {self.node} takes {took:.1f} s per round trip: a faster one would do"

    def _keep(self, channel: Channel) -> None:
        with self._lock:
            self._held.append(channel)
            is_first = len(self._held) == 1
        if is_first:
            threading.Thread(target=self._beat, name=f"held {self.node}", daemon=True).start()

    def _beat(self) -> None:
        while not self._closed.wait(self._link.keepalive.every_s):
            with self._lock:
                held = tuple(self._held)
            for channel in held:
                with suppress(OSError):  # it has ended; whoever runs the next command is told
                    channel.sendall(b"\n")

    def _tell(self, result: Result) -> None:
        if self._on_result is not None:
            self._on_result(result)

    def _silent(self, command: Command, limit: Limit) -> NodeError:
        """The error for a command that was to hold something and said no line."""
        ended = None if limit.expired else self._link.why_ended()
        if ended is not None:
            return lost(self.node, command.purpose, ended)
        seen = "was killed; is the node short of memory? Run again"
        if limit.expired:
            seen = f"said nothing within {limit.seconds:.0f} s; {HANGS}{self._slow}"
        return CommandError(self.node, f"could not {command.purpose}: {command.shown()} {seen}")

    def _broken(self, script: Script, reply: Reply, raw: Raw, limit: Limit) -> NodeError:
        """The error for a reply that is not whole."""
        purpose = script.purpose_after(len(reply.results))
        if limit.expired and not reply.left_running:
            return self._endless(purpose, limit, began=reply.began)
        ended = self._link.why_ended() if raw.exit_code < 0 else None
        if ended is not None:
            return lost(self.node, purpose, ended)
        if self._way is not None:
            return not_whole_inside(
                self.node, self._way, script, reply, exit_code=raw.exit_code, stderr=raw.stderr
            )
        user = self._link.node.ssh.user
        return not_whole(self.node, user, script, reply, exit_code=raw.exit_code, stderr=raw.stderr)

    def _endless(self, purpose: str, limit: Limit, *, began: bool) -> CommandError:
        """The error for an execution that outlasts the limits of all its commands."""
        way = self._way
        if way is not None and not began:
            seen = f"{way.engine_name} exec did not begin anything within {limit.seconds:.0f} s"
            ask = f"does the engine answer? {way.engine_name} ps{self._slow}"
            where = f"in the container {way.container}"
            return CommandError(self.node, f"could not {purpose} {where}: {seen}; {ask}")
        if not began:
            user = self._link.node.ssh.user
            return CommandError(
                self.node,
                f"could not {purpose}: the login began nothing within {limit.seconds:.0f} s; does "
                f"~/.bashrc of {user}, or a home folder on another server, wait for something?"
                f"{self._slow}",
            )
        stopped = f", or was the container {way.container} stopped or paused?" if way else "?"
        return CommandError(
            self.node,
            f"could not {purpose}: no end within {limit.seconds:.0f} s, although every command "
            f"has a limit; did it leave a process behind that holds its output{stopped}"
            f"{self._slow}",
        )


def _end(channel: Channel) -> None:
    with suppress(OSError):
        channel.close()
