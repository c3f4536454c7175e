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
# ~/.bashrc even with -c, and what that prints would be taken for output of the command. So would be
# what a process prints that a start-up file has left running: it is let end first.
_HEAD = """\
exec 3>&1
unset BASH_ENV
export LC_ALL=C SHLVL=3 PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
if [ -n "${{EPOCHREALTIME-}}" ]; then now() {{ t=${{EPOCHREALTIME/[^0-9]/}}; }}
else now() {{ t=$(date +%s%6N); }}; fi
for ((i = 0; ; i++)); do
  h= p=; read -r p </proc/$$/task/$$/children
  for p in $p; do [ ! "/proc/$p/fd/1" -ef /proc/$$/fd/1 ] || h=$p; done
  [ "$h" ] || break
  [ "$i" -lt 50 ] || {{ read -r p </proc/$h/comm; echo "{left_running} $h ($p)"; exit 1; }}
  sleep 0.1
done 2>/dev/null
printf '\\n%s\\n' {begin}"""

# Standard output goes straight to the reply, standard error through a variable, so that neither
# needs a file, nor a program beside the command's own. A command must not keep descriptor 3, or a
# daemon it starts would hold the reply.
_COMMAND = """\
now; b=$t
e=$( {feed}{timeout} {argv} {stdin}2>&1 >&3 3>&-; c=$?; printf .; exit "$c" ); c=$?
now; e=${{e%.}}; [ -z "$e" ] || e=$(printf %s "$e" | base64 -w0)
printf '\\n%s %s %s %s %s\\n' {mark} {index} "$c" "$((t - b))" "$e\""""

# It writes into a pipe of its own until its turn comes: descriptors from 10 on are those pipes.
_BEGIN_ASIDE = "exec {descriptor}< <(exec 3>&1\n{command})"
_END_ASIDE = "cat <&{descriptor}; exec {descriptor}<&-"
_FIRST_ASIDE = 10
_LEFT_RUNNING = "ascendboot: a start-up file has left running:"


@dataclass(frozen=True)
class Script:
    """Commands compiled for one execution; `launch_line` says how `program` is started."""

    commands: tuple[Command, ...]
    program: bytes
    begin: bytes
    mark: bytes
    """Begins the line after the output of each command; no output holds it, being random."""
    end: bytes

    @property
    def longest_s(self) -> float:
        """How long the commands can take before each of them has been ended."""
        return sum(command.timeout_s + KILL_AFTER_S for command in self.commands)

    def purpose_after(self, results: int) -> str:
        """What was going on when so many results had come; the last command, when all had."""
        return self.commands[min(results, len(self.commands) - 1)].purpose


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
    begin, mark, end = (f"ascendboot-{word}-{nonce}" for word in ("begin", "mark", "end"))
    lines = [_head(begin)]
    compiled = [_compiled(mark, index, command) for index, command in enumerate(commands)]
    aside = [index for index, command in enumerate(commands) if command.aside]
    for descriptor, index in enumerate(aside, _FIRST_ASIDE):
        lines.append(_BEGIN_ASIDE.format(descriptor=descriptor, command=compiled[index]))
        compiled[index] = _END_ASIDE.format(descriptor=descriptor)
    lines += compiled
    lines.append(f"printf '%s\\n' {end}")
    return Script(tuple(commands), _whole(lines), begin.encode(), mark.encode(), end.encode())


def compile_open(command: Command) -> Script:
    """A script that becomes `command`, whose stdin and stdout are then those of the channel."""
    begin = f"ascendboot-begin-{secrets.token_hex(12)}"
    lines = [_head(begin), f"exec 3>&-; exec {shlex.join(command.argv)}"]
    return Script((command,), _whole(lines), begin.encode(), b"", b"")


def _head(begin: str) -> str:
    return _HEAD.format(begin=begin, left_running=_LEFT_RUNNING)


def _whole(lines: Sequence[str]) -> bytes:
    # In braces bash reads all of it before it runs any: a connection lost halfway runs nothing.
    return "\n".join(("{", *lines, "}\n")).encode(errors="surrogateescape")


def _compiled(mark: str, index: int, command: Command) -> str:
    payload = base64.b64encode(command.stdin).decode()
    return _COMMAND.format(
        mark=mark,
        index=index,
        timeout=f"timeout -k {KILL_AFTER_S:g} {command.timeout_s:.3f}",
        argv=shlex.join(command.argv),
        # printf is a builtin: it takes what no argv takes, and needs no file as `<<` does.
        # A command that does not read all of its stdin is no error: hence 2>/dev/null.
        feed=f"{{ printf %s {payload} | base64 -d; }} 2>/dev/null | " if payload else "",
        stdin="" if payload else "</dev/null ",
    )


@dataclass(frozen=True)
class Reply:
    """What came back: the results that are whole, and what was said around them."""

    results: tuple[Result, ...]
    noise: bytes
    """Whatever start-up files printed before the script began."""
    began: bool
    ended: bool

    @property
    def left_running(self) -> str:
        """What a start-up file has left running, so that the script did not begin."""
        _, _, left = self.noise.decode(errors="replace").partition(_LEFT_RUNNING)
        return "" if self.began else left.partition("\n")[0].strip()


def parse_reply(node: str, script: Script, stdout: bytes) -> Reply:
    """Read the reply to `script`, as far as it came.

    Raises:
        CommandError: the reply has a line that the script does not write.
    """
    noise, found, framed = stdout.partition(script.begin + b"\n")
    body, ended, _ = framed.partition(script.end + b"\n")
    results: list[Result] = []
    stdout, *rest = body.split(b"\n" + script.mark + b" ")
    for piece in rest:
        line, is_whole, following = piece.partition(b"\n")
        if not is_whole:
            break
        results.append(_result(node, script, len(results), stdout, line))
        stdout = following
    if ended and (stdout or len(results) != len(script.commands)):
        told = f"the reply has {len(results)} sections for {len(script.commands)} commands"
        if stdout:
            told = "the reply goes on after its last command"
        raise CommandError(node, f"could not {script.purpose_after(0)}: {told}")
    return Reply(tuple(results), noise.strip(b"\n"), bool(found), bool(ended))


def _result(node: str, script: Script, index: int, stdout: bytes, line: bytes) -> Result:
    try:
        number, code, duration, stderr = line.split(b" ")
        return Result(
            node=node,
            command={index: script.commands[index]}[int(number)],
            exit_code=int(code),
            stdout=stdout,
            stderr=base64.b64decode(stderr, validate=True),
            duration_s=int(duration) / 1e6,
        )
    except (ValueError, LookupError) as error:
        purpose = script.purpose_after(index)
        said = line[:80].decode(errors="replace")
        raise CommandError(
            node, f'could not {purpose}: line {index + 1} of the reply not understood: "{said}"'
        ) from error


def not_whole(
    node: str, user: str, script: Script, reply: Reply, *, exit_code: int | None, stderr: bytes
) -> CommandError:
    """The error for a reply without its end marker; names the likely cause."""
    purpose = script.purpose_after(len(reply.results))
    code = "no exit code" if exit_code is None or exit_code < 0 else f"exit {exit_code}"
    said = (reply.noise + b"\n" + stderr).strip().decode(errors="replace")
    first = " ".join(said.split())[:120]
    seen = f'{code} after "{first}"' if first else f"{code}, and it said nothing"
    if reply.began:
        return CommandError(node, f"could not {purpose}: the reply broke off while it ran: {seen}")
    if reply.left_running:
        return CommandError(
            node,
            f"could not {purpose}: process {reply.left_running} goes on writing where the answer "
            f"comes: ~/.bashrc or another start-up file of {user} has left it running; make it "
            "return for non-interactive shells",
        )
    return CommandError(
        node,
        f"could not {purpose}: the login ended before the script did: {seen}; something in "
        f"~/.bashrc or another start-up file of {user} exits or prints and exits; "
        "make it return for non-interactive shells",
    )


def not_whole_inside(
    node: str, inside: Inside, script: Script, reply: Reply, *, exit_code: int, stderr: bytes
) -> CommandError:
    """The error for a reply from a container that has no end marker."""
    where = f"the container {inside.container}"
    said = " ".join((reply.noise + b"\n" + stderr).decode(errors="replace").split())[:300]
    code = f"exit {exit_code}" if exit_code >= 0 else "no exit code"
    if reply.began:
        purpose = script.purpose_after(len(reply.results))
        seen = f'{code}, "{said}"' if said else code
        return CommandError(
            node,
            f"could not {purpose}: the reply from {where} broke off while it ran: {seen}; "
            f"was it stopped? {inside.engine_name} ps -a tells",
        )
    seen = f"{inside.engine_name} exec ended with {code}: {said or 'nothing was said'}"
    remedy = inside.remedy(said)
    return CommandError(
        node, f"could not {script.purpose_after(0)} in {where}: {seen.rstrip('.')}; {remedy}"
    )
