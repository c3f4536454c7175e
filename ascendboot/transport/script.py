"""One bash script for many commands, and the reader of its reply."""

from __future__ import annotations

import base64
import secrets
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import CommandError
from ascendboot.transport.api import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.model.container import Inside
    from ascendboot.transport.api import Command

KILL_AFTER_S = 5.0
"""How long a command that ignores SIGTERM lives on after its timeout."""

# SHLVL: a bash that was started by sshd and takes itself for the first one (as after `exec`) reads
# ~/.bashrc even with -c, and what that prints would be taken for output of the command.
_HEAD = """\
exec 3>&1
unset BASH_ENV
export LC_ALL=C SHLVL=3 PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
if [ -n "${{EPOCHREALTIME-}}" ]; then now() {{ t=${{EPOCHREALTIME/[^0-9]/}}; }}
else now() {{ t=$(date +%s%6N); }}; fi
printf '\\n%s\\n' {begin}"""

# Standard output goes straight to the reply, standard error through a variable, so that neither
# needs a file. A command must not keep descriptor 3, or a daemon it starts would hold the reply.
_COMMAND = """\
now; b=$t; printf '%s ' {index}
e=$( {{ {feed}{timeout} {argv} {stdin}3>&- | base64 -w0 >&3; exit "${{PIPESTATUS[{place}]}}"; }} \
2>&1 | base64 -w0; exit "${{PIPESTATUS[0]}}" ); c=$?
now; printf ' %s %s %s\\n' "$e" "$c" "$((t - b))\""""


# It writes into a pipe of its own until its turn comes: descriptors from 10 on are those pipes.
_BEGIN_ASIDE = "exec {descriptor}< <(exec 3>&1\n{command})"
_END_ASIDE = "cat <&{descriptor}; exec {descriptor}<&-"
_FIRST_ASIDE = 10


@dataclass(frozen=True)
class Script:
    """Commands compiled for one execution; `program` runs under `LAUNCH`."""

    commands: tuple[Command, ...]
    program: bytes
    begin: bytes
    end: bytes

    @property
    def longest_s(self) -> float:
        """How long the commands can take before each of them has been ended."""
        return sum(command.timeout_s + KILL_AFTER_S for command in self.commands)


def launch_line(program: bytes, inside: Inside | None = None) -> str:
    """What to execute on the host side so that `program`, sent over stdin, runs, and nothing else.

    It runs there, or in a container. Exactly the program is read: what follows on stdin belongs to
    the commands.
    """
    shell = ("bash", "--noprofile", "--norc", "-c", f'eval "$(head -c {len(program)})"')
    return f"exec {shlex.join(inside.argv(*shell) if inside else shell)}"


def compile_script(commands: Sequence[Command]) -> Script:
    """One script that runs all `commands` in order and frames what each gives back."""
    nonce = secrets.token_hex(12)
    begin, end = f"ascendboot-begin-{nonce}", f"ascendboot-end-{nonce}"
    lines = [_HEAD.format(begin=begin)]
    compiled = [_compiled(index, command) for index, command in enumerate(commands)]
    aside = [index for index, command in enumerate(commands) if command.aside]
    for descriptor, index in enumerate(aside, _FIRST_ASIDE):
        lines.append(_BEGIN_ASIDE.format(descriptor=descriptor, command=compiled[index]))
        compiled[index] = _END_ASIDE.format(descriptor=descriptor)
    lines += compiled
    lines.append(f"printf '%s\\n' {end}")
    return Script(tuple(commands), _whole(lines), begin.encode(), end.encode())


def compile_open(command: Command) -> Script:
    """A script that becomes `command`, whose stdin and stdout are then those of the channel."""
    begin = f"ascendboot-begin-{secrets.token_hex(12)}"
    lines = [_HEAD.format(begin=begin), f"exec 3>&-; exec {shlex.join(command.argv)}"]
    return Script((command,), _whole(lines), begin.encode(), b"")


def _whole(lines: Sequence[str]) -> bytes:
    # In braces bash reads all of it before it runs any: a connection lost halfway runs nothing.
    return "\n".join(("{", *lines, "}\n")).encode(errors="surrogateescape")


def _compiled(index: int, command: Command) -> str:
    payload = base64.b64encode(command.stdin).decode()
    return _COMMAND.format(
        index=index,
        timeout=f"timeout -k {KILL_AFTER_S:g} {command.timeout_s:.3f}",
        argv=shlex.join(command.argv),
        # printf is a builtin: it takes what no argv takes, and needs no file as `<<` does.
        # A command that does not read all of its stdin is no error: hence 2>/dev/null.
        feed=f"{{ printf %s {payload} | base64 -d; }} 2>/dev/null | " if payload else "",
        stdin="" if payload else "</dev/null ",
        place=1 if payload else 0,
    )


@dataclass(frozen=True)
class Reply:
    """What came back: the results that are whole, and what was said around them."""

    results: tuple[Result, ...]
    noise: bytes
    """Whatever start-up files printed before the script began."""
    began: bool
    ended: bool


def parse_reply(node: str, script: Script, stdout: bytes) -> Reply:
    """Read the reply to `script`, as far as it came.

    Raises:
        CommandError: the reply has a line that the script does not write.
    """
    noise, found, framed = stdout.partition(script.begin + b"\n")
    body, ended, _ = framed.partition(script.end + b"\n")
    whole = body if ended else body[: body.rfind(b"\n") + 1]
    lines = whole.splitlines()
    results = tuple(_result(node, script.commands, index, line) for index, line in enumerate(lines))
    if ended and len(results) != len(script.commands):
        raise CommandError(
            node,
            f"could not {script.commands[0].purpose}: the reply has {len(results)} sections "
            f"for {len(script.commands)} commands",
        )
    return Reply(results, noise.strip(b"\n"), bool(found), bool(ended))


def _result(node: str, commands: Sequence[Command], index: int, line: bytes) -> Result:
    try:
        number, stdout, stderr, code, duration = line.split(b" ")
        return Result(
            node=node,
            command={index: commands[index]}[int(number)],
            exit_code=int(code),
            stdout=base64.b64decode(stdout, validate=True),
            stderr=base64.b64decode(stderr, validate=True),
            duration_s=int(duration) / 1e6,
        )
    except (ValueError, LookupError) as error:
        purpose = commands[min(index, len(commands) - 1)].purpose
        said = line[:80].decode(errors="replace")
        raise CommandError(
            node, f'could not {purpose}: line {index + 1} of the reply not understood: "{said}"'
        ) from error


def not_whole(
    node: str, user: str, script: Script, reply: Reply, *, exit_code: int | None, stderr: bytes
) -> CommandError:
    """The error for a reply without its end marker; names the likely cause."""
    purpose = script.commands[len(reply.results)].purpose if reply.began else _purpose(script)
    code = "no exit code" if exit_code is None or exit_code < 0 else f"exit {exit_code}"
    said = (reply.noise + b"\n" + stderr).strip().decode(errors="replace")
    first = " ".join(said.split())[:120]
    seen = f'{code} after "{first}"' if first else f"{code}, and it said nothing"
    if reply.began:
        return CommandError(node, f"could not {purpose}: the reply broke off while it ran: {seen}")
    return CommandError(
        node,
        f"could not {purpose}: the login ended before the script did: {seen}; something in "
        f"~/.bashrc or another start-up file of {user} exits or prints and exits; "
        "make it return for non-interactive shells",
    )


def _purpose(script: Script) -> str:
    return script.commands[0].purpose


def not_whole_inside(
    node: str, inside: Inside, script: Script, reply: Reply, *, exit_code: int, stderr: bytes
) -> CommandError:
    """The error for a reply from a container that has no end marker."""
    where = f"the container {inside.container}"
    said = " ".join((reply.noise + b"\n" + stderr).decode(errors="replace").split())[:300]
    code = f"exit {exit_code}" if exit_code >= 0 else "no exit code"
    if reply.began:
        purpose = script.commands[len(reply.results)].purpose
        seen = f'{code}, "{said}"' if said else code
        return CommandError(
            node,
            f"could not {purpose}: the reply from {where} broke off while it ran: {seen}; "
            f"was it stopped? {inside.engine_name} ps -a tells",
        )
    seen = f"{inside.engine_name} exec ended with {code}: {said or 'nothing was said'}"
    remedy = inside.remedy(said)
    return CommandError(
        node, f"could not {_purpose(script)} in {where}: {seen.rstrip('.')}; {remedy}"
    )
