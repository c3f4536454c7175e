"""Guards for transports: read-only while planning, and no writes after the lock is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, cast

from ascendboot.errors import NodeError, PlanViolationError
from ascendboot.model.cluster import ContainerExec
from ascendboot.transport.api import Command, Effect, HostSide, Result, Stream, Transport

Allow: TypeAlias = "Callable[[str, Command], None]"
"""Raises an error if this command may not run on the node of this name."""


class Guarded:
    """Checks every command with `allow` before anything is sent; also guards its containers."""

    def __init__(self, transport: Transport, allow: Allow) -> None:
        self._transport = transport
        self._allow = allow

    @property
    def node(self) -> str:
        """The node's inventory name."""
        return self._transport.node

    @property
    def has_one_session(self) -> bool:
        """As of the guarded host side."""
        return cast("HostSide", self._transport).has_one_session

    def inside(self, way: ContainerExec) -> Guarded:
        """Return a container of the guarded host side."""
        return Guarded(cast("HostSide", self._transport).inside(way), self._allow)

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands, or none if one of them is not allowed."""
        for command in commands:
            self._allow(self.node, command)
        return self._transport.run_all(commands)

    def run(self, command: Command) -> Result:
        """Run one command."""
        return self.run_all((command,))[0]

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Stream:
        """As `Transport.stream`."""
        self._allow(self.node, command)
        return self._transport.stream(command, on_bytes)

    def close(self) -> None:
        """Close the connection; never raises."""
        self._transport.close()


class ReadOnly(Guarded):
    """Raises PlanViolationError for every command that writes."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, _only_reads)


def _only_reads(node: str, command: Command) -> None:
    if command.effect is not Effect.READ:
        bug = f"A read-only step tried to {command.purpose}; this is a bug in ascendboot"
        raise PlanViolationError(node, f"refused while planning: {command.shown()}. {bug}")


class LockHolder(Transport, Protocol):
    """A connection to a node that may hold the cluster's lock."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""


def _now() -> float:
    """Return seconds that also pass while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Fence:
    """Refuses writes after the connection that holds the cluster's lock has ended.

    If the primary has not answered for `lease_s`, the fence first queries who holds the lock: this
    process may have been stopped, or its machine suspended, until the lock expired.
    """

    def __init__(
        self, lock: Command, still_ours: Command, lease_s: float, now: Callable[[], float] = _now
    ) -> None:
        self._lock = lock
        self._primary = ""
        self._still_ours = still_ours
        self._lease_s = lease_s
        self._now = now
        self._connections: dict[str, LockHolder] = {}
        self._answered = now()
        self._turn = threading.Lock()

    def connected(self, connection: LockHolder) -> None:
        """Note a connection: one of them will hold the lock."""
        self._connections[connection.node] = connection

    def answered(self, result: Result) -> None:
        """Note a result of any node; the result of the lock command starts the fence."""
        if result.command is self._lock:
            self._primary = result.node
        if result.node == self._primary:
            self._answered = self._now()

    def allow(self, node: str, command: Command) -> None:
        """Check one command.

        Raises:
            NodeError: it writes, and the lock is lost.
        """
        holder = self._connections.get(self._primary)
        if command.effect is Effect.READ or holder is None:
            return
        if why := self._why_lost(holder):
            lost = f"the cluster's lock on {self._primary} is lost: {why}"
            remedy = "nothing more was written, repeat the command"
            raise NodeError(node, f"could not {command.purpose}: {lost}; {remedy}")

    def _why_lost(self, holder: LockHolder) -> str:
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
