"""Runs commands over one connection to a node, each with a time limit and a size limit."""

from __future__ import annotations

import logging
import os
import secrets
import select
import shlex
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

from ascendboot.errors import CommandError, NodeError, UnreachableError
from ascendboot.model.cluster import ContainerExec
from ascendboot.transport import script
from ascendboot.transport.api import MOST_OF_ERRORS, Command, Result, Stream
from ascendboot.transport.connection import Channel, Connection, ProtocolError, lost
from ascendboot.transport.login import ERRORS
from ascendboot.value import Struct

_LOG = logging.getLogger(__name__)

REPORT_AFTER_S = 30.0
"""How long a node may make no progress before it is reported."""

_MARGIN_S = 30.0
"""What an execution may take beyond its commands: the login shell, and the network."""

_END_S = 2.0
"""How long a script may take to end after its reply; a process left behind may hold its output."""

_CLOSE_S = 5.0

_ROUND_TRIPS = 20
"""How many round trips a command may need beyond its own time."""

_PACKET = 1400
_SHORTEST_S = 0.02
"""What a packet may take on any link: 70 kB/s."""

_SLOW_S = 0.2

_READ = 1 << 18
_WRITE = 1 << 20
_POLL_S = 1.0
_POLL_SOON_S = 0.01

_LIMITED = "every wait has a timeout; Ctrl-C interrupts it now"
_UNLIMITED = "it goes on when the node does; Ctrl-C interrupts it now"
_FOLLOWED = "the job does not need this connection; ascendboot reconnects when it is lost"


class Wait(Struct):
    """A wait for one node; `purpose` completes "still waiting to …"."""

    node: str
    purpose: str
    advice: str
    since: float
    is_reported: bool = False


class Waits:
    """The current waits of all threads that work on nodes."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._open: dict[object, Wait] = {}

    @contextmanager
    def of(
        self, node: str, purpose: str, advice: str = _LIMITED
    ) -> Iterator[Callable[[str | None], None]]:
        """Register a wait; call the yielded function with the next purpose after progress.

        With None, the node does not have to answer until the next call.
        """
        key = object()

        def progress(next_purpose: str | None) -> None:
            with self._lock:
                if next_purpose is None:
                    self._open.pop(key, None)
                else:
                    self._open[key] = Wait(node, next_purpose, advice, self._now())

        progress(purpose)
        try:
            yield progress
        finally:
            progress(None)

    def late(self) -> Mapping[tuple[str, str], list[str]]:
        """Return nodes without progress by purpose and advice, each of them once."""
        found: dict[tuple[str, str], list[str]] = {}
        with self._lock:
            for wait in self._open.values():
                if not wait.is_reported and self._now() - wait.since >= REPORT_AFTER_S:
                    wait.is_reported = True
                    found.setdefault((wait.purpose, wait.advice), []).append(wait.node)
        return found


class Session:
    """One SSH session; its time limit closes the channel, which ends every wait on it."""

    def __init__(self, channel: Channel) -> None:
        self.stderr = b""
        """The end of standard error."""
        self.limit_s = 0.0
        self.is_expired = False
        self._channel = channel
        self._timer: threading.Timer | None = None

    def limit(self, seconds: float) -> None:
        """Set a new time limit that starts now."""
        self.unlimit()
        self.limit_s = seconds
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def unlimit(self) -> None:
        """Remove the time limit."""
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.is_expired = True
        self.close()

    def start(self, program: bytes, way: ContainerExec | None, password: str | None) -> None:
        """Start a script, in a container if there is one; then stdin belongs to its commands.

        With a password, which may be empty, it is run by sudo.
        """
        line = script.launch_line(program, way, password)
        program = script.sudo_head(password) + program
        # A login that ends early refuses the rest of the script; its output is still read.
        with suppress(*ERRORS):
            self._channel.exec_command(line)
            for at in range(0, len(program), _WRITE):
                self._channel.sendall(program[at : at + _WRITE])

    def send(self, data: bytes) -> None:
        """Write to stdin; BrokenPipeError once the command has ended."""
        self._channel.settimeout(None)
        try:
            self._channel.sendall(data)
        except ERRORS as error:
            raise BrokenPipeError from error

    def end_stdin(self) -> None:
        """Close stdin; never raises."""
        with suppress(*ERRORS):
            self._channel.shutdown_write()

    def read(self) -> bytes:
        """Return some bytes of stdout; empty at its end, whatever the reason."""
        while True:
            # While stderr has data, more of it is likely to follow soon.
            self._channel.settimeout(_POLL_SOON_S if self._read_stderr() else _POLL_S)
            try:
                data: bytes = self._channel.recv(_READ)
            except TimeoutError:
                continue
            except ERRORS as error:
                _LOG.debug("a channel ended: %s", error)
                data = b""
            if not data:
                self._read_stderr()
            return data

    def _read_stderr(self) -> bool:
        """Read what there is of stderr, because unread data would block stdout as well."""
        found = False
        while self._channel.recv_stderr_ready():
            with suppress(*ERRORS):
                self.stderr = (self.stderr + self._channel.recv_stderr(_READ))[-MOST_OF_ERRORS:]
            found = True
        return found

    def wait_for_end(self) -> None:
        """Wait a moment for the end of a script whose reply is complete."""
        until = time.monotonic() + _END_S
        self._channel.settimeout(_END_S)
        with suppress(*ERRORS):
            while time.monotonic() < until and self._channel.recv(_READ):
                self._read_stderr()

    def exit_code(self) -> int:
        """Wait for the exit code; -1 if the server sends none."""
        return int(self._channel.recv_exit_status())

    def close(self) -> None:
        """Close the channel; never raises."""
        self.unlimit()
        with suppress(*ERRORS):
            self._channel.close()


class SessionStream:
    """Passes on the output of a session, in a thread."""

    def __init__(
        self, node: str, session: Session, on_bytes: Callable[[bytes], None], received: bytes
    ) -> None:
        self._session = session
        self._on_bytes = on_bytes
        self._thread = threading.Thread(
            target=self._read, args=(received,), name=f"stream {node}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the command's stdin, give it a moment to end, close; never raises."""
        for end in (self._session.end_stdin, self._session.close):
            end()
            if self._thread is not threading.current_thread():
                self._thread.join(_CLOSE_S)

    def _read(self, data: bytes) -> None:
        """Pass on `data` and all further output; empty bytes mean its end."""
        data = data or self._session.read()
        while data:
            self._on_bytes(data)
            data = self._session.read()
        if stderr := self._session.stderr:
            _LOG.debug("%s: %s", self._thread.name, stderr.decode(errors="replace"))
        self._on_bytes(b"")


class Pipe:
    """A command as a file: its standard output to read, its standard input to write."""

    def __init__(self, session: Session, received: bytes, moved: Callable[[int], None]) -> None:
        self.is_over = False
        """Whether all of the output was read."""
        self._session = session
        self._received = received
        self._moved = moved

    def read(self, _size: int = -1) -> bytes:
        """Return some bytes, however many; empty at the end."""
        data, self._received = self._received or self._session.read(), b""
        self.is_over = not data
        self._moved(len(data))
        return data

    def write(self, data: bytes) -> int:
        """Write all bytes; BrokenPipeError once the command has ended."""
        self._session.send(data)
        self._moved(len(data))
        return len(data)

    def ended(self) -> tuple[int, bytes, str]:
        """Wait for the end: exit code, -1 without one, the last output, and that of errors."""
        self._session.end_stdin()
        output = b""
        while len(output) < MOST_OF_ERRORS and (data := self.read()):
            output += data
        if not self.is_over:
            self._session.close()
        self._session.limit(_MARGIN_S)  # for an exit code that does not come
        return self._session.exit_code(), output, self._session.stderr.decode(errors="replace")


class SshTransport:
    """One side of a node over one SSH connection; `way` leads to a container.

    `executions` counts what went over the network.
    """

    def __init__(
        self,
        connection: Connection,
        on_result: Callable[[Result], None] | None = None,
        *,
        way: ContainerExec | None = None,
        waits: Waits | None = None,
        password: str | None = None,
    ) -> None:
        self.node = connection.node.name
        self.executions = 0
        self.has_one_session = False
        self._connection = connection
        self._on_result = on_result or (lambda _result: None)
        self._way = way
        self._password = password
        """Of sudo: None without sudo, empty if it wants none."""
        self._waits = waits or Waits()
        self._has_tried = way is not None
        """Whether it was tried if the server opens a second session."""
        self._lock = threading.Lock()
        self._streams: list[SessionStream] = []
        self._insides: list[SshTransport] = []

    def inside(self, way: ContainerExec) -> SshTransport:
        """Return a container; its `close` does not close the connection."""
        found = SshTransport(
            self._connection, self._on_result, way=way, waits=self._waits, password=self._password
        )
        with self._lock:
            self._insides.append(found)
        return found

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self._connection.is_open

    def run(self, command: Command) -> Result:
        """Run one command."""
        return self.run_all((command,))[0]

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands in one execution."""
        if not commands:
            return ()
        compiled = script.compile_script(commands)
        reply, finished = script.Reply(self.node, compiled), -1
        with (
            self._waits.of(self.node, commands[0].purpose) as progress,
            closing(self._start(compiled)) as session,
        ):
            session.end_stdin()
            while not reply.ended and (data := session.read()):
                reply.feed(data)
                if reply.began and len(reply.results) > finished:
                    finished = len(reply.results)
                    session.limit(compiled.limit_of(finished) + self._margin_s)
                    progress(reply.purpose)
            if not reply.ended:
                raise self._incomplete(reply, session)
            session.wait_for_end()
        if reply.noise:
            noise = reply.noise.decode(errors="replace")
            _LOG.debug("%s: output of start-up files: %s", self.node, noise)
        for result in reply.results:
            self._on_result(result)
        return tuple(reply.results)

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> SessionStream:
        """Start one command and pass on its output as it arrives."""
        with self._waits.of(self.node, command.purpose):
            session, received = self._open(command)
        session.unlimit()
        following = ExitStack()
        progress = following.enter_context(self._waits.of(self.node, command.purpose, _FOLLOWED))

        def take(data: bytes) -> None:
            progress(None)
            on_bytes(data)
            progress(command.purpose)
            if not data:
                following.close()

        stream = SessionStream(self.node, session, take, received)
        with self._lock:
            self._streams.append(stream)
        return stream

    @contextmanager
    def pipe(self, command: Command, moved: Callable[[int], None]) -> Iterator[Pipe]:
        """Start one command and use it as a file; it has no time limit. `moved` counts bytes."""
        with self._waits.of(self.node, command.purpose, _UNLIMITED) as progress:
            session, received = self._open(command)

            def note(count: int) -> None:
                progress(command.purpose)
                moved(count)

            with closing(session):
                session.unlimit()
                yield Pipe(session, received, note)

    def terminal(self) -> int:
        """Connect this terminal with a shell there until it ends; its exit code.

        Raises:
            CommandError: the server gives none.
            UnreachableError: the connection was lost.
        """
        purpose, size = "open a shell", os.get_terminal_size()
        channel, way = self._connection.open_session(purpose), self._way
        kind = os.environ.get("TERM", "dumb")
        sudo: tuple[str, ...] = () if self._password is None else ("sudo",)
        prompt = f"[sudo {secrets.token_hex(4)}%] password: " if self._password else ""
        if prompt:  # what `ps` shows there differs from it: only sudo's prompt is answered
            sudo = ("sudo", "-p", prompt.replace("%", "%%"))
        try:
            channel.get_pty(kind, size.columns, size.lines)
            if way is not None:
                words = ("exec", "-it", "-e", f"TERM={kind}", way.container, "bash")
                channel.exec_command(f"exec {shlex.join((*sudo, way.engine, *words))}")
            elif sudo:
                channel.exec_command(f"exec {shlex.join(sudo)} -i")
            else:
                channel.invoke_shell()
        except ERRORS as error:
            user = self._connection.node.ssh.user
            remedy = f"its sshd_config needs PermitTTY yes for {user}; exec needs no terminal"
            why = f"the server gives no terminal ({error}); {remedy}"
            raise CommandError(self.node, f"could not {purpose}: {why}") from error
        relay(channel, prompt.encode(), f"{self._password}\n".encode())
        if (code := int(channel.recv_exit_status())) < 0:
            if (reason := self._connection.why_ended()) is None:
                raise CommandError(self.node, "the shell was killed, and left no exit code")
            raise lost(self.node, purpose, reason)
        return code

    def close(self) -> None:
        """Close the streams, then the connection; never raises."""
        with self._lock:
            ends: tuple[Stream, ...] = (*self._insides, *self._streams)
            self._insides, self._streams = [], []
        for end in ends:
            end.close()
        if self._way is None:
            self._connection.close()

    def _start(self, compiled: script.Script) -> Session:
        """Start a script."""
        purpose = compiled.purpose_after(0)
        session = Session(self._connection.open_session(purpose))
        # A slow link may delay each packet.
        packet_s = max(self._connection.round_trip_s, _SHORTEST_S)
        session.limit(self._margin_s + len(compiled.program) / _PACKET * packet_s)
        session.start(compiled.program, self._way, self._password)
        with self._lock:
            self.executions += 1
            has_tried, self._has_tried = self._has_tried, True
        if not has_tried:
            try:
                Session(self._connection.open_session(purpose)).close()
            except UnreachableError as error:  # a lost connection is reported by the first session
                self.has_one_session = isinstance(error, ProtocolError)
        return session

    def _open(self, command: Command) -> tuple[Session, bytes]:
        """Start a command that owns its session; return the first output, which may be empty."""
        compiled = script.compile_open(command)
        session = self._start(compiled)
        mark, received = compiled.begin + b"\n", b""
        while mark not in received and len(received) <= script.MOST_NOISE:
            if not (data := session.read()):
                break
            received += data
        noise, begin, output = received.partition(mark)
        if begin:
            return session, output
        with closing(session):  # Reply itself refuses too much noise
            raise self._incomplete(script.Reply(self.node, compiled, noise), session)

    @property
    def _margin_s(self) -> float:
        return _MARGIN_S + _ROUND_TRIPS * self._connection.round_trip_s

    def _incomplete(self, reply: script.Reply, session: Session) -> NodeError:
        """Return the error for an incomplete reply."""
        code = session.exit_code()
        if session.is_expired and not reply.left_running:
            return self._endless(reply.purpose, session.limit_s, began=reply.began)
        if code < 0 and (ended := self._connection.why_ended()) is not None:
            return lost(self.node, reply.purpose, ended)
        user, sudo = self._connection.node.ssh.user, self._password is not None
        if self._way is not None and not (sudo and reply.is_refused_by_sudo(session.stderr)):
            return reply.incomplete_inside(code, session.stderr, self._way)
        return reply.incomplete(code, session.stderr, user, sudo=sudo)

    def _endless(self, purpose: str, limit_s: float, *, began: bool) -> CommandError:
        """Return the error for an execution that exceeds the limits of all its commands."""
        way = self._way
        if began:
            stopped = f", or was the container {way.container} stopped or paused?" if way else "?"
            why = (
                f"no end within {limit_s:.0f} s, although every command has a limit; did it leave "
                f"a process behind that holds its output{stopped}"
            )
        elif way is not None:
            purpose += f" in the container {way.container}"
            why = (
                f"{way.engine_name} exec started nothing within {limit_s:.0f} s; "
                f"does the engine answer? {way.engine_name} ps"
            )
        else:
            why = (
                f"the login started nothing within {limit_s:.0f} s; does ~/.bashrc of "
                f"{self._connection.node.ssh.user}, or a home folder on another server, wait for "
                "something?"
            )
        if (took := self._connection.round_trip_s) >= _SLOW_S:
            why += f"; the link to {self.node} takes {took:.1f} s per round trip: use a faster one"
        return CommandError(self.node, f"could not {purpose}: {why}")


def relay(channel: Channel, prompt: bytes = b"", answer: bytes = b"") -> None:
    """Pass keys, output and the size of this terminal on until the channel ends.

    The prompt is answered instead of shown; once, as the answer may be wrong. A later one is shown
    as sudo's own.
    """
    keyboard, screen = sys.stdin.fileno(), sys.stdout.buffer

    def resize() -> None:
        with suppress(*ERRORS):
            channel.resize_pty(*os.get_terminal_size())

    def note(_signal: int, _frame: object) -> None:
        # The signal may come while this thread sends keys, and holds Paramiko's lock.
        threading.Thread(target=resize, name="resize", daemon=True).start()

    modes, handler = termios.tcgetattr(keyboard), signal.signal(signal.SIGWINCH, note)
    try:
        tty.setraw(keyboard, termios.TCSADRAIN)  # keeps what was typed ahead
        inputs: list[Channel | int] = [channel, keyboard]
        before = b""
        while True:
            ready, _, _ = select.select(inputs, [], [])
            if keyboard in ready:
                if data := os.read(keyboard, _READ):
                    channel.sendall(data)
                else:
                    inputs.remove(keyboard)
                    channel.shutdown_write()
            if channel in ready:
                output = channel.recv(_READ)
                if not output:
                    return
                if prompt and prompt in (before := before[-len(prompt) :] + output):
                    channel.sendall(answer)
                    output = output.replace(prompt, b"" if answer else b"[sudo] password: ")
                    before = answer = b""
                screen.write(output)
                screen.flush()
    except ERRORS as error:
        _LOG.debug("the terminal ended: %s", error)
    finally:
        signal.signal(signal.SIGWINCH, handler)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, modes)
