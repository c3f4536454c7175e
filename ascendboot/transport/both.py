"""Both sides of a node asked in one execution: the host side goes on into the container."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.transport.api import Command, Effect
from ascendboot.transport.script import compile_script, not_whole_inside, parse_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.model.container import Inside
    from ascendboot.transport.api import HostSide, Result


class Both:
    """The workload side behind `way`; what is asked of it takes the host's `commands` along."""

    def __init__(self, host: HostSide, way: Inside, commands: Sequence[Command]) -> None:
        self.on_host: tuple[Result, ...] = ()
        """What the host side said, once the workload side was asked."""
        self._host = host
        self._way = way
        self._commands = tuple(commands)

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands in the container, and the host's beside it, in one execution.

        Raises:
            UnreachableError: the connection is gone.
            CommandError: a reply is not whole.
        """
        script = compile_script(commands)
        shell = f'eval "$(head -c {len(script.program)})"'
        reads = all(command.effect is Effect.READ for command in commands)
        way_in = Command(
            argv=self._way.argv("bash", "--noprofile", "--norc", "-c", shell),
            purpose=commands[0].purpose,
            effect=Effect.READ if reads else Effect.WRITE,
            timeout_s=script.longest_s,
            most_bytes=script.most_bytes,
            stdin=script.program,
        )
        framed, *said = self._host.run_all((way_in, *self._commands))
        self.on_host = tuple(said)
        reply = parse_reply(framed.node, script, framed.stdout)
        if not reply.ended:
            raise not_whole_inside(
                framed.node,
                self._way,
                script,
                reply,
                exit_code=framed.exit_code,
                stderr=framed.stderr,
            )
        return reply.results
