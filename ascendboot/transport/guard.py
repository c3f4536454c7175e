"""A transport for planning: it looks and does not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import PlanViolationError
from ascendboot.transport.api import Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ascendboot.model.container import Inside
    from ascendboot.transport.api import Command, HostSide, Result, Stream, Transport


class ReadOnly:
    """Passes on what reads; what writes is refused before anything is sent."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def node(self) -> str:
        """The node's inventory name."""
        return self._transport.node

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands, if none of them writes.

        Raises:
            PlanViolationError: one does; none was sent.
        """
        return self._transport.run_all([self._allowed(command) for command in commands])

    def run(self, command: Command) -> Result:
        """Run one command that reads."""
        return self._transport.run(self._allowed(command))

    def hold(self, command: Command) -> Result:
        """Hold something that changes nothing."""
        return self._transport.hold(self._allowed(command))

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Stream:
        """Follow something that changes nothing."""
        return self._transport.stream(self._allowed(command), on_bytes)

    def close(self) -> None:
        """End the connection; never raises."""
        self._transport.close()

    def _allowed(self, command: Command) -> Command:
        if command.effect is Effect.READ:
            return command
        raise PlanViolationError(
            self.node,
            f"refused while planning: {command.shown()}. Something that may only look tried to "
            f"{command.purpose}; this is a bug in ascendboot",
        )


class ReadOnlyHost(ReadOnly):
    """The same for a host side; what is reached through it is guarded as well."""

    def __init__(self, host: HostSide) -> None:
        super().__init__(host)
        self._host = host

    @property
    def has_one_session(self) -> bool:
        """As its host side found."""
        return self._host.has_one_session

    def inside(self, way: Inside) -> ReadOnly:
        """The side behind `way`, for looking alone."""
        return ReadOnly(self._host.inside(way))
