"""Commands, results and the protocol of a transport, the one way to a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, Final, Protocol

from ascendboot.errors import CommandError, excerpt
from ascendboot.model.cluster import ContainerExec
from ascendboot.templates import script
from ascendboot.value import Value, replace

MOST_OF_ERRORS = 1 << 16
"""How many bytes of a command's standard error are kept."""

HANGS = "is the node overloaded, or does it hang? Run it there by hand"
"""The remedy for a program on the node that gave no answer."""


class Effect(Enum):
    """Whether a command changes the node."""

    READ = "read"
    WRITE = "write"


class Command(Value, kw_only=True):
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
    aside: bool = False
    """Runs in parallel with the other commands of its execution. For slow commands; put it last,
    because the commands after it wait for its end."""

    def shown(self) -> str:
        """Return the command for messages: a script only as `a script`."""
        return "a script" if self.argv[:2] == ("bash", "-c") else " ".join(self.argv)

    def flood(self) -> str:
        """Return the message about too much output."""
        most = amount(self.most_bytes)
        return f"{self.shown()} printed more than {most}; run it on the node to see what it prints"


class Result(Value, kw_only=True):
    """The result of a command on a node."""

    node: str
    command: Command
    exit_code: int
    stdout: bytes
    stderr: bytes
    """Without NUL bytes, which bash cannot hold."""
    duration_s: float

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode(errors="replace")

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of `text`; only a newline ends one, unlike in `splitlines`."""
        return tuple(self.text.removesuffix("\n").split("\n")) if self.stdout else ()

    @property
    def error_text(self) -> str:
        """Standard error as text, without surrounding white space."""
        return self.stderr.decode(errors="replace").strip()

    @property
    def as_expected(self) -> bool:
        """Whether the exit code is expected and the output is complete."""
        return self.exit_code in self.command.expect and not self.is_cut

    @property
    def is_cut(self) -> bool:
        """Whether the output exceeds its limit; `stdout` is then only the beginning."""
        return len(self.stdout) > self.command.most_bytes

    def checked(self) -> Result:
        """Return this result.

        Raises:
            CommandError: it is not as expected.
        """
        if self.as_expected:
            return self
        raise self.failed(self.outcome())

    def failed(self, why: object) -> CommandError:
        """Return the error that the command's purpose was not reached."""
        return CommandError(self.node, f"could not {self.command.purpose}: {why}")

    def outcome(self) -> str:
        """Return the outcome for messages: `npu-smi info -m exited 127: command not found`."""
        shown = self.command.shown()
        if self.is_cut:
            return self.command.flood()
        if self.exit_code in (124, 137) and self.duration_s >= self.command.timeout_s:
            return f"{shown} gave no answer within {self.command.timeout_s:g} s; {HANGS}"
        lines = (self.error_text or self.text.strip()).splitlines()
        last = excerpt(lines[-1]) if lines else ""
        if last.startswith("timeout: failed to run command "):
            last = last.rpartition(": ")[2]  # the program is missing or not executable
        return f"{shown} exited {self.exit_code}" + (f": {last}" if last else "")


def amount(size: int) -> str:
    """Return `64 KiB` or `4 MiB`."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


class Stream(Protocol):
    """A running command whose output is passed on as it arrives."""

    def close(self) -> None:
        """Close the command's stdin and wait for its end; never raises."""


class RunsAll(Protocol):
    """One side of a node that can run commands."""

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands in order, in one execution; unexpected exit codes are returned.

        Raises:
            UnreachableError: the connection is lost.
            CommandError: the reply is incomplete.
        """


class Transport(RunsAll, Protocol):
    """One side of one node, over one connection."""

    @property
    def node(self) -> str:
        """The node's inventory name."""

    def run(self, command: Command) -> Result:
        """Run one command; an unexpected exit code is returned."""

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Stream:
        """Start one command; a thread passes its output to `on_bytes` as it arrives.

        Empty bytes mean the end of the output, whatever the reason.
        The command's stdin ends when the stream or the connection closes.
        """

    def close(self) -> None:
        """Close the connection; never raises."""


class HostSide(Transport, Protocol):
    """The host side of a node, which leads to its containers."""

    @property
    def has_one_session(self) -> bool:
        """Whether its sshd allows only one session per connection (`MaxSessions 1`)."""

    def inside(self, way: ContainerExec) -> Transport:
        """Return a container, over the same connection; `close` of the host closes it, too."""


class Sides(Value):
    """Both sides of a node; the same transport twice if ranks run on the host."""

    host: HostSide
    work: Transport

    @property
    def is_one(self) -> bool:
        """Whether ranks run on the host."""
        return self.host is self.work


class FileWrite(Value):
    """A file to write on a node, atomically; `mode` as in chmod."""

    path: PurePosixPath
    content: bytes
    mode: int
    secret: bool = False
    """Neither the old nor the new content is read or shown."""


def read_script(text: str, *words: str, purpose: str, **more: Any) -> Command:  # noqa: ANN401 - fields of Command
    """Return a command that runs a bash script with arguments; the script only reads."""
    argv = ("bash", "-c", text, "ascendboot", *words)
    return Command(argv=argv, purpose=purpose, effect=Effect.READ, **more)


def write_script(text: str, *words: str, purpose: str, **more: Any) -> Command:  # noqa: ANN401 - fields of Command
    """Return a command that runs a bash script with arguments; the script changes the node."""
    return replace(read_script(text, *words, purpose=purpose, **more), effect=Effect.WRITE)


def write_files(files: Sequence[FileWrite], *, purpose: str) -> Command:
    """Return a command that writes each file atomically and creates parents with mode 0755."""
    triples = ((f"{len(f.content)}", f"{f.mode:04o}", str(f.path)) for f in files)
    content = b"".join(file.content for file in files)
    words = chain.from_iterable(triples)
    return write_script(WRITE_SCRIPT, *words, purpose=purpose, timeout_s=60.0, stdin=content)


WRITE_SCRIPT: Final = script("write-files.sh")
"""Arguments: size, mode and path of each file. Stdin: their contents, joined."""
