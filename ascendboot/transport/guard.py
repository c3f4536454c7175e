"""Transports that refuse commands: while planning what writes, and later once the lock is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ascendboot.errors import NodeError, PlanViolationError
from ascendboot.transport.api import Command, Effect, HostSide, Result, Stream, Transport

if TYPE_CHECKING:
    from ascendboot.model.cluster import ContainerExec

Allow: TypeAlias = Callable[[str, Command], None]
"""Takes a node's name and a command, and raises where it may not run."""


def _now() -> float:
    """Seconds that pass while the machine is suspended, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Guarded:
    """Passes on what `allow` lets pass; it raises for the rest, before anything is sent."""

    def __init__(self, transport: Transport, allow: Allow) -> None:
        self._transport = transport
        self._allow = allow

    @property
    def node(self) -> str:
        """The node's inventory name."""
        return self._transport.node

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands, if all of them may run; else none is sent."""
        return self._transport.run_all([self._allowed(command) for command in commands])

    def run(self, command: Command) -> Result:
        """Run one command."""
        return self._transport.run(self._allowed(command))

    def hold(self, command: Command) -> Result:
        """Hold something."""
        return self._transport.hold(self._allowed(command))

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Stream:
        """Follow something."""
        return self._transport.stream(self._allowed(command), on_bytes)

    def close(self) -> None:
        """End the connection; never raises."""
        self._transport.close()

    def _allowed(self, command: Command) -> Command:
        self._allow(self.node, command)
        return command


class GuardedHost(Guarded):
    """The same for a host side; what is reached through it is guarded as well."""

    def __init__(self, host: HostSide, allow: Allow) -> None:
        super().__init__(host, allow)
        self._host = host

    @property
    def has_one_session(self) -> bool:
        """As its host side found."""
        return self._host.has_one_session

    def inside(self, way: ContainerExec) -> Guarded:
        """The side behind `way`."""
        return Guarded(self._host.inside(way), self._allow)


class ReadOnly(Guarded):
    """Passes on what reads; what writes is a PlanViolationError."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, _only_reads)


class ReadOnlyHost(GuardedHost):
    """The same for a host side."""

    def __init__(self, host: HostSide) -> None:
        super().__init__(host, _only_reads)


def _only_reads(node: str, command: Command) -> None:
    if command.effect is not Effect.READ:
        raise PlanViolationError(
            node,
            f"refused while planning: {command.shown()}. Something that may only look tried to "
            f"{command.purpose}; this is a bug in ascendboot",
        )


class Holds(Protocol):
    """The connection that holds the cluster's lock."""

    @property
    def is_open(self) -> bool:
        """Whether it is there, and what is held through it."""

    def run(self, command: Command) -> Result:
        """Run one command."""


class Fence:
    """Lets nothing be written once the connection that holds the cluster's lock has ended.

    Where the primary has not answered for `lease_s`, it is asked first: this process may have been
    stopped, or its machine suspended, for so long that the lock has ended.
    """

    def __init__(
        self,
        lock: Command,
        still_ours: Command,
        lease_s: float,
        now: Callable[[], float] = _now,
    ) -> None:
        self._lock = lock
        self._primary = ""
        self._still_ours = still_ours
        self._lease_s = lease_s
        self._now = now
        self._holder: Holds | None = None
        self._answered = now()
        self._turn = threading.Lock()

    def held_by(self, holder: Holds) -> None:
        """The lock will be taken through this."""
        self._holder = holder

    def answered(self, result: Result) -> None:
        """A node has answered; with the answer to the command that takes the lock this begins."""
        if result.command is self._lock:
            self._primary = result.node
        if result.node == self._primary:
            self._answered = self._now()

    def allow(self, node: str, command: Command) -> None:
        """Let a command pass.

        Raises:
            NodeError: it writes, and the lock is lost.
        """
        if command.effect is Effect.READ or self._holder is None or not self._primary:
            return
        if why := self._why_lost(self._holder):
            raise NodeError(
                node,
                f"could not {command.purpose}: the cluster's lock on {self._primary} is lost: "
                f"{why}; nothing more was written, repeat the command",
            )

    def _why_lost(self, holder: Holds) -> str:
        with self._turn:
            if holder.is_open and self._now() - self._answered > self._lease_s:
                try:
                    answer = holder.run(self._still_ours)
                except NodeError as error:
                    return error.message
                if not answer.as_expected:
                    return f"it is now held by {answer.text.strip() or 'another run'}"
                self._answered = self._now()
            return "" if holder.is_open else "the connection that held it has ended"
