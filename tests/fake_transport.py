"""A transport for tests: it answers by rule and records the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import ContainerExec
from ascendboot.transport.api import WRITE_SCRIPT, Command, Result


@dataclass(frozen=True)
class Answer:
    """The result of a fake command."""

    stdout: str | bytes = b""
    stderr: str | bytes = b""
    exit_code: int = 0
    duration_s: float = 0.0

    def to(self, command: Command, node: str = "n1") -> Result:
        """Return it as the result of `command`."""
        stdout, stderr = (
            text.encode() if isinstance(text, str) else text for text in (self.stdout, self.stderr)
        )
        return Result(
            node=node,
            command=command,
            exit_code=self.exit_code,
            stdout=stdout,
            stderr=stderr,
            duration_s=self.duration_s,
        )


def framed(sections: Mapping[str, tuple[int, bytes] | str]) -> bytes:
    """Return the output of a script: by section its exit code and content, or only its text."""
    parts = {name: (0, it.encode()) if isinstance(it, str) else it for name, it in sections.items()}
    return b"".join(
        b"@@ %s %d %d\n%s\n" % (name.encode(), code, len(content), content)
        for name, (code, content) in {**parts, "end": (0, b"")}.items()
    )


Rule: TypeAlias = "Callable[[Command], Answer | str | None]"
"""Answers a command; None leaves it to the next rule."""


@dataclass
class FakeFile:
    """A file on the fake node."""

    content: bytes
    mode: int = 0o644


@dataclass
class FakeTransport:
    """Answers by argv, then by rule, then as `cat` and `write_files` on its own few files.

    A command without an answer is an error of the test: AssertionError.
    """

    node: str = "n1"
    answers: Mapping[tuple[str, ...], Answer | str] = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    files: dict[str, FakeFile] = field(default_factory=dict)
    unreachable: str = ""
    """If not empty: why the connection is lost."""
    executions: list[tuple[Command, ...]] = field(default_factory=list)
    is_closed: bool = False
    containers: dict[str, FakeTransport] = field(default_factory=dict)
    """The containers of this host side, by name."""
    entered: list[ContainerExec] = field(default_factory=list)
    has_one_session: bool = False

    def inside(self, way: ContainerExec) -> FakeTransport:
        """Return a container."""
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
        """
        if not commands:
            return ()
        if self.unreachable or self.is_closed:
            raise UnreachableError(self.node, self.unreachable or "the connection was closed")
        self.executions.append(tuple(commands))
        return tuple(map(self._result, commands))

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> FakeTransport:
        """Pass on all output at once, in this thread; the stream has then ended."""
        if output := self.run(command).stdout:
            on_bytes(output)
        return FakeTransport(self.node)

    def close(self) -> None:
        """Close the connection."""
        self.is_closed = True

    def _result(self, command: Command) -> Result:
        answer = self._answer(command)
        return (Answer(answer) if isinstance(answer, str) else answer).to(command, self.node)

    def _answer(self, command: Command) -> Answer | str:
        if command.argv in self.answers:
            return self.answers[command.argv]
        for rule in self.rules:
            answer = rule(command)
            if answer is not None:
                return answer
        if command.argv[:2] == ("cat", "--") and command.argv[2] in self.files:
            return Answer(self.files[command.argv[2]].content)
        if command.argv[2:3] == (WRITE_SCRIPT,):
            content = command.stdin
            for size, mode, path in zip(*[iter(command.argv[4:])] * 3, strict=True):
                self.files[path] = FakeFile(content[: int(size)], int(mode, 8))
                content = content[int(size) :]
            return Answer()
        raise AssertionError(f"{self.node}: no answer for {command.shown()} {command.argv}")
