"""A transport without a machine, for tests: it answers by rule and records the commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ascendboot.errors import CommandError, UnreachableError
from ascendboot.transport.api import WRITE_SCRIPT, Command, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ascendboot.model.cluster import ContainerExec


@dataclass(frozen=True)
class Answer:
    """What a fake command gives back."""

    stdout: str | bytes = b""
    stderr: str | bytes = b""
    exit_code: int = 0
    duration_s: float = 0.0


Rule: TypeAlias = "Callable[[Command], Answer | str | None]"
"""Answers a command, or leaves it to the next rule with None."""


@dataclass
class FakeFile:
    """A file on the fake node."""

    content: bytes
    mode: int = 0o644


@dataclass
class FakeStream:
    """A stream whose output was all there at once."""

    is_closed: bool = False

    def close(self) -> None:
        """Remember that it was closed."""
        self.is_closed = True


@dataclass
class FakeTransport:
    """Answers by argv, then by rule, then as `cat` and `write_files` on its own few files do.

    A command that nothing answers is an error of the test: AssertionError.
    """

    node: str = "n1"
    answers: Mapping[tuple[str, ...], Answer | str] = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    files: dict[str, FakeFile] = field(default_factory=dict)
    unreachable: str = ""
    """When not empty: the connection is gone, for this reason."""
    cut_after: int | None = None
    """When set: the reply breaks off after so many sections, as when the login ends early."""
    executions: list[tuple[Command, ...]] = field(default_factory=list)
    held: list[Command] = field(default_factory=list)
    streams: list[FakeStream] = field(default_factory=list)
    is_closed: bool = False
    containers: dict[str, FakeTransport] = field(default_factory=dict)
    """What is behind this host side, by name."""
    entered: list[ContainerExec] = field(default_factory=list)
    has_one_session: bool = False

    def inside(self, way: ContainerExec) -> FakeTransport:
        """The container that `way` names."""
        self.entered.append(way)
        return self.containers[way.container]

    @property
    def commands(self) -> list[Command]:
        """Every command that was run, in order."""
        return [command for execution in self.executions for command in execution]

    def run(self, command: Command) -> Result:
        """Run one command."""
        return self.run_all((command,))[0]

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands in one execution.

        Raises:
            UnreachableError: as set by `unreachable`.
            CommandError: as set by `cut_after`.
        """
        if not commands:
            return ()
        self._reached(commands)
        kept = commands if self.cut_after is None else commands[: self.cut_after]
        results = tuple(self._result(command) for command in kept)
        if len(kept) < len(commands):
            purpose = commands[len(kept)].purpose
            raise CommandError(self.node, f"could not {purpose}: the login ended before it did")
        return results

    def hold(self, command: Command) -> Result:
        """Run a command and remember that it is held."""
        self._reached((command,))
        self.held.append(command)
        return self._result(command)

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> FakeStream:
        """Hand over all output at once, in this thread."""
        self._reached((command,))
        result = self._result(command)
        if result.stdout:
            on_bytes(result.stdout)
        self.streams.append(FakeStream())
        return self.streams[-1]

    def close(self) -> None:
        """End all streams and let go of what is held."""
        for stream in self.streams:
            stream.close()
        self.is_closed = True

    def _reached(self, commands: Sequence[Command]) -> None:
        if self.unreachable or self.is_closed:
            raise UnreachableError(self.node, self.unreachable or "the connection was closed")
        self.executions.append(tuple(commands))

    def _result(self, command: Command) -> Result:
        answer = self._answer(command)
        if isinstance(answer, str):
            answer = Answer(answer)
        return Result(
            node=self.node,
            command=command,
            exit_code=answer.exit_code,
            stdout=_bytes(answer.stdout),
            stderr=_bytes(answer.stderr),
            duration_s=answer.duration_s,
        )

    def _answer(self, command: Command) -> Answer | str:
        if command.argv in self.answers:
            return self.answers[command.argv]
        for rule in (*self.rules, self._read, self._write):
            answer = rule(command)
            if answer is not None:
                return answer
        raise AssertionError(f"{self.node}: no answer for {command.shown()} {command.argv}")

    def _read(self, command: Command) -> Answer | None:
        match command.argv:
            case ("cat", path) | ("cat", "--", path):
                if path in self.files:
                    return Answer(self.files[path].content)
                return Answer(stderr=f"cat: {path}: No such file or directory\n", exit_code=1)
            case _:
                return None

    def _write(self, command: Command) -> Answer | None:
        match command.argv:
            case ("bash", "-c", script, _, *arguments) if script == WRITE_SCRIPT:
                content = command.stdin
                for size, mode, path in zip(*[iter(arguments)] * 3, strict=True):
                    self.files[path] = FakeFile(content[: int(size)], int(mode, 8))
                    content = content[int(size) :]
                return Answer()
            case _:
                return None


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
