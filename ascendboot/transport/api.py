"""Commands, results and the protocol of a transport: how the rest of the code talks to a node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from ascendboot.errors import CommandError, excerpt
from ascendboot.templates import script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import PurePosixPath

    from ascendboot.model.cluster import ContainerExec

MOST_OF_ERRORS = 1 << 16
"""How many bytes of a command's standard error are kept."""


HANGS = "is the node overloaded, or does it hang? Run it there by hand"
"""The remedy for a program on the node that gave no answer."""


class Effect(Enum):
    """Whether a command changes the node."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One program to run on a node; never a shell string."""

    argv: tuple[str, ...]
    purpose: str
    """Completes "could not …": "list the NPUs"."""
    effect: Effect
    timeout_s: float = 30.0
    expect: frozenset[int] = frozenset({0})
    stdin: bytes = b""
    most_bytes: int = 4 << 20
    """A command that prints more on standard output is ended on the node and counts as failed."""
    secrets: tuple[str, ...] = ()
    aside: bool = False
    """It starts with the execution and runs beside the other commands. For slow commands; put it
    last, because the commands after it wait for its end."""

    def shown(self) -> str:
        """The command as a person would read it: a script by its kind, secrets masked."""
        text = "a script" if self.argv[:2] == ("bash", "-c") else " ".join(self.argv)
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a command on a node."""

    node: str
    command: Command
    exit_code: int
    stdout: bytes
    stderr: bytes
    """For people to read: bash carries it, without NUL bytes."""
    duration_s: float

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode(errors="replace")

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of `text`: a name in it may hold what `splitlines` takes for an end."""
        return tuple(self.text.removesuffix("\n").split("\n")) if self.stdout else ()

    @property
    def error_text(self) -> str:
        """Standard error as text, without surrounding white space."""
        return self.stderr.decode(errors="replace").strip()

    @property
    def as_expected(self) -> bool:
        """Whether the exit code is one that the caller expected, and the output is whole."""
        return self.exit_code in self.command.expect and not self.is_cut

    @property
    def is_cut(self) -> bool:
        """Whether it printed more than it may; what stands here is the beginning."""
        return len(self.stdout) > self.command.most_bytes

    def checked(self) -> Result:
        """This result.

        Raises:
            CommandError: the exit code is not one of `command.expect`.
        """
        if self.as_expected:
            return self
        raise CommandError(self.node, f"could not {self.command.purpose}: {self.outcome()}")

    def outcome(self) -> str:
        """`npu-smi info -m exited 127: command not found`, for messages."""
        if self.is_cut:
            return flood(self.command)
        if self.exit_code in (124, 137) and self.duration_s >= self.command.timeout_s:
            return f"{self.shown()} gave no answer within {self.command.timeout_s:g} s; {HANGS}"
        words = [excerpt(line) for line in (self.error_text or self.text.strip()).splitlines()]
        if words and words[-1].startswith("timeout: failed to run command "):
            words.append(words[-1].rpartition(": ")[2])  # the program is not there, or may not run
        tail = f": {words[-1]}" if words else ""
        return f"{self.shown()} exited {self.exit_code}{tail}"

    def shown(self) -> str:
        """The command as a person would read it."""
        return self.command.shown()


def flood(command: Command) -> str:
    """The message about a command that printed more than it may."""
    most = amount(command.most_bytes)
    return f"{command.shown()} printed more than {most}; run it on the node to see what it prints"


def amount(size: int) -> str:
    """`64 KiB`, `4 MiB`."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


class Stream(Protocol):
    """A running command whose output arrives as it comes; `close` ends it."""

    def close(self) -> None:
        """End the command (its stdin closes) and wait for the reader; never raises."""
        ...


class RunsAll(Protocol):
    """One side of a node that can run commands."""

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """As `Transport.run_all`."""
        ...


class Transport(Protocol):
    """Exactly one side of one node, over one connection."""

    @property
    def node(self) -> str:
        """The node's inventory name."""
        ...

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands, one after the other, in ONE execution; unexpected codes are returned.

        Raises:
            UnreachableError: the connection is gone or never came about.
            CommandError: the reply is not whole (something in the login ended it).
        """
        ...

    def run(self, command: Command) -> Result:
        """Run one command; an unexpected exit code is returned, not raised."""
        ...

    def hold(self, command: Command) -> Result:
        """Run a command that ends by waiting for the end of its stdin; return its first line.

        What it holds (a lock) lasts until this transport is closed. Its stdin hears an empty line
        every `Keepalive.every_s` seconds for as long as the control machine is there.
        """
        ...

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Stream:
        """Start one command and hand its output to `on_bytes` (another thread) as it comes.

        Empty bytes mean that the output has ended, for any reason.
        The command sees the end of its stdin when the stream or the connection closes.
        """
        ...

    def close(self) -> None:
        """End the connection; never raises."""
        ...


class HostSide(Transport, Protocol):
    """A node's host side, through which its containers are reached."""

    @property
    def has_one_session(self) -> bool:
        """Whether its sshd refused a second session on the connection (`MaxSessions 1`)."""
        ...

    def inside(self, way: ContainerExec) -> Transport:
        """The side behind `way`, over the same connection; closing this one closes it, too."""
        ...


@dataclass(frozen=True)
class Sides:
    """Both sides of one node; the same one twice where ranks run on the host itself."""

    host: HostSide
    work: Transport

    @property
    def is_one(self) -> bool:
        """Whether ranks run on the host itself."""
        return self.host is self.work


@dataclass(frozen=True)
class FileWrite:
    """A file to be put on a node: written beside, then renamed; `mode` as in chmod."""

    path: PurePosixPath
    content: bytes
    mode: int
    secret: bool = False
    """Neither it nor what it replaces is shown, or read to be shown."""


def write_files(files: Sequence[FileWrite], *, purpose: str) -> Command:
    """One command that puts all `files` in place, each atomically, parents made with mode 0755."""
    triples = ((f"{len(f.content)}", f"{f.mode:04o}", str(f.path)) for f in files)
    return Command(
        argv=("bash", "-c", WRITE_SCRIPT, "write_files", *chain.from_iterable(triples)),
        purpose=purpose,
        effect=Effect.WRITE,
        timeout_s=60.0,
        stdin=b"".join(file.content for file in files),
    )


WRITE_SCRIPT: Final = script("write-files.sh")
"""Takes size, mode and path of each file as arguments and their contents, joined, on stdin."""
