"""Several commands in one script, run on a host, in its container, or in both."""

from __future__ import annotations

import base64
import secrets
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot import templates
from ascendboot.errors import CommandError, excerpt
from ascendboot.transport.api import (
    MOST_OF_ERRORS,
    Command,
    Effect,
    HostSide,
    Result,
    amount,
    flood,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.model.cluster import ContainerExec

KILL_AFTER_S = 5.0
"""How long after its timeout a command that ignores SIGTERM gets SIGKILL."""

_NOT_BASH = "ascendboot: this is not bash but"
_REFUSE = f"sh -c 'echo \"{_NOT_BASH} $(readlink /proc/$PPID/exe)\"; kill -KILL $PPID'"
# A start-up file that ends in `exec zsh` has zsh read the script, which understands much of it
# otherwise. In csh `$?name` is 0 for an unset variable; after an error it would read on somewhere
# else. fish names itself when it refuses the first line.
_GUARD = f"""\
test "$?ascendboot" != 0 || {_REFUSE}
test -n "$BASH_VERSION" || {_REFUSE}
"""

# It writes into a pipe of its own until its turn comes: descriptors from 10 on are those pipes.
_BEGIN_ASIDE = "exec {descriptor}< <(exec 3>&1\n{command})"
_END_ASIDE = "cat <&{descriptor}; exec {descriptor}<&-"
_FIRST_ASIDE = 10
_LEFT_RUNNING = "ascendboot: a start-up file has left running:"

_NOISE_KEPT = 1 << 14
MOST_NOISE = 1 << 20
"""What start-up files may print before a script begins; more is no greeting."""

_LONGEST_MARK = 2 * MOST_OF_ERRORS
"""Of the line after a command's output: its standard error, in base64, and some numbers."""


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

    def limit_of(self, index: int) -> float:
        """How long the command of this number can take; what comes after the last, nothing."""
        if index >= len(self.commands):
            return 0.0
        return self.commands[index].timeout_s + KILL_AFTER_S

    @property
    def most_bytes(self) -> int:
        """The largest size of the reply."""
        return MOST_NOISE + sum(c.most_bytes + _LONGEST_MARK for c in self.commands)

    def purpose_after(self, results: int) -> str:
        """The purpose of the command that was running after so many results."""
        return self.commands[min(results, len(self.commands) - 1)].purpose


def launch_line(program: bytes, inside: ContainerExec | None = None) -> str:
    """The shell line that runs `program` from stdin, on the host or in a container.

    It reads exactly the program: the rest of stdin belongs to the commands.
    """
    shell = ("bash", "--noprofile", "--norc", "-c", f'eval "$(head -c {len(program)})"')
    return f"exec {shlex.join(inside.argv(*shell) if inside else shell)}"


def compile_script(commands: Sequence[Command]) -> Script:
    """Compiles one script that runs all `commands` in order and frames their results."""
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
    return templates.script("transport.sh") + shlex.join(("start", begin, _LEFT_RUNNING))


def _whole(lines: Sequence[str]) -> bytes:
    # In braces bash reads all of it before it runs any: a connection lost halfway runs nothing.
    text = "\n".join(("{", *lines, "}\n"))
    return (_GUARD + text).encode(errors="surrogateescape")


def _compiled(mark: str, index: int, command: Command) -> str:
    """A call of `step` in transport.sh."""
    limits = (f"{command.most_bytes + 1}", f"{MOST_OF_ERRORS}")
    timeout = ("timeout", "-k", f"{KILL_AFTER_S:g}", f"{command.timeout_s:.3f}")
    stdin = base64.b64encode(command.stdin).decode()
    return shlex.join(("step", mark, f"{index}", *limits, stdin, *timeout, *command.argv))


@dataclass(frozen=True)
class Reply:
    """The complete results of a reply, and the output around them."""

    results: tuple[Result, ...]
    noise: bytes
    """Whatever start-up files printed before the script began."""
    began: bool
    ended: bool

    @property
    def left_running(self) -> str:
        """The process that a start-up file left running, so that the script did not begin."""
        _, _, left = self.noise.decode(errors="replace").partition(_LEFT_RUNNING)
        return "" if self.began else left.partition("\n")[0].strip()


class ReplyReader:
    """Parses the reply to `script` as it arrives and keeps only what it needs."""

    def __init__(self, node: str, script: Script) -> None:
        self._node = node
        self._script = script
        self._results: list[Result] = []
        self._kept = bytearray()
        """What has come and is not read yet."""
        self._seen = 0
        """So much of it has been looked through."""
        self._noise = b""
        self._began = False
        self._ended = False

    @property
    def began(self) -> bool:
        """Whether the script has begun."""
        return self._began

    @property
    def ended(self) -> bool:
        """Whether the reply is whole; what comes after it is of no use."""
        return self._ended

    @property
    def finished(self) -> int:
        """How many commands have given their result."""
        return len(self._results)

    @property
    def reply(self) -> Reply:
        """What has come so far.

        Raises:
            CommandError: the reply ended before its last command.
        """
        if self._began and not self._ended and self._kept.startswith(self._script.end + b"\n"):
            given, wanted = len(self._results), len(self._script.commands)
            raise self._refused(0, f"the reply has {given} sections for {wanted} commands")
        noise = self._noise if self._began else bytes(self._kept[-_NOISE_KEPT:])
        return Reply(tuple(self._results), noise.strip(b"\n"), self._began, self._ended)

    def feed(self, data: bytes) -> None:
        """Take what came next.

        Raises:
            CommandError: the script does not write that, or not so much of it.
        """
        if self._ended:
            return
        self._kept += data
        if not self._began:
            self._read_noise()
        while self.began and not self.ended and self._read_section():
            pass

    def _read_noise(self) -> None:
        at = self._find(self._script.begin + b"\n")
        if at >= 0:
            self._noise = bytes(self._kept[:at])[-_NOISE_KEPT:]
            self._drop(at + len(self._script.begin) + 1)
            self._began = True
        elif len(self._kept) > MOST_NOISE:
            raise self._refused(0, noisy(self._kept[:_NOISE_KEPT].decode(errors="replace")))

    def _read_section(self) -> bool:
        """Take the next result, or the end; False where it has not come whole."""
        index, commands = len(self._results), self._script.commands
        if index == len(commands):
            return self._read_end()
        mark = b"\n" + self._script.mark + b" "
        at = self._find(mark)
        if (at if at >= 0 else len(self._kept) - len(mark)) > commands[index].most_bytes + 1:
            raise self._refused(index, flood(commands[index]))
        end = self._kept.find(b"\n", at + len(mark)) if at >= 0 else -1
        if end < 0:
            if at >= 0 and len(self._kept) > at + _LONGEST_MARK:
                raise self._refused(index, f"line {index + 1} of the reply has no end")
            return False
        stdout, line = bytes(self._kept[:at]), bytes(self._kept[at + len(mark) : end])
        self._drop(end + 1)
        self._results.append(_result(self._node, self._script, index, stdout, line))
        return True

    def _read_end(self) -> bool:
        end = self._script.end + b"\n"
        self._ended = self._kept.startswith(end)
        if not self._ended and not end.startswith(self._kept):
            raise self._refused(0, "the reply goes on after its last command")
        return False

    def _find(self, what: bytes) -> int:
        """Where it begins; looks through nothing twice."""
        at = self._kept.find(what, self._seen)
        self._seen = max(0, len(self._kept) - len(what)) if at < 0 else at
        return at

    def _drop(self, count: int) -> None:
        del self._kept[:count]
        self._seen = 0

    def _refused(self, index: int, seen: str) -> CommandError:
        return CommandError(self._node, f"could not {self._script.purpose_after(index)}: {seen}")


def _other_shell(said: str) -> str:
    """The shell that read the script in place of bash; empty if bash did."""
    if "fish: " in said:
        return "fish"
    return said.partition(_NOT_BASH)[2].strip().partition("\n")[0]


def parse_reply(node: str, script: Script, stdout: bytes) -> Reply:
    """Read the reply to `script`, as far as it came.

    Raises:
        CommandError: the reply has a line that the script does not write.
    """
    reader = ReplyReader(node, script)
    reader.feed(stdout)
    return reader.reply


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
        said = excerpt(line.decode(errors="replace"))
        raise CommandError(
            node, f'could not {purpose}: line {index + 1} of the reply not understood: "{said}"'
        ) from error


def noisy(first: str) -> str:
    """The message about a login that prints without end; `first` is the beginning."""
    return (
        f"the login printed more than {amount(MOST_NOISE)} before anything of ours began: "
        f'"{excerpt(first)}"; make ~/.bashrc, or whatever it calls, print nothing for '
        "non-interactive shells"
    )


def not_whole(
    node: str, user: str, script: Script, reply: Reply, *, exit_code: int | None, stderr: bytes
) -> CommandError:
    """The error for a reply without its end marker; names the likely cause."""
    purpose = script.purpose_after(len(reply.results))
    code = "no exit code" if exit_code is None or exit_code < 0 else f"exit {exit_code}"
    said = (reply.noise + b"\n" + stderr).strip().decode(errors="replace")
    first = excerpt(" ".join(said.split()))
    seen = f'{code} after "{first}"' if first else f"{code}, and it said nothing"
    if reply.began:
        why = "was it killed, or the session ended there? Run again"
        return CommandError(
            node, f"could not {purpose}: the reply broke off while it ran: {seen}; {why}"
        )
    if shell := _other_shell(said):
        return CommandError(
            node,
            f"could not {purpose}: {shell} runs the commands of the login, not bash: ~/.bashrc or "
            f"another start-up file of {user} replaces the shell (exec); make it do so in "
            "interactive shells alone: [[ $- != *i* ]] || exec …",
        )
    if reply.left_running:
        return CommandError(
            node,
            f"could not {purpose}: process {reply.left_running} goes on writing where the answer "
            f"comes: ~/.bashrc or another start-up file of {user} has left it running; make it "
            "return for non-interactive shells",
        )
    return CommandError(
        node,
        f"could not {purpose}: the login ended before the script did: {seen}; "
        f"{_why_nothing_ran(said, user)}",
    )


def _why_nothing_ran(said: str, user: str) -> str:
    """The cause and its remedy if the output shows it, else all possible causes."""
    if "This account is currently not available" in said:
        return (
            f"the account {user} may not log in (its shell is nologin): give it a shell, "
            f"usermod -s /bin/bash {user}, or state another `user`"
        )
    if "This service allows sftp connections only" in said:
        return (
            f"the server gives {user} sftp alone (ForceCommand internal-sftp): except {user} from "
            "that in its sshd_config, or state another `user`"
        )
    return (
        f"one of these: ~/.bashrc or another start-up file of {user} exits (make it return for "
        "non-interactive shells); a command is forced (take away ForceCommand in its sshd_config, "
        "or command= before the key in authorized_keys); or the shell of the account runs nothing "
        f"(usermod -s /bin/bash {user})"
    )


def not_whole_inside(
    node: str, inside: ContainerExec, script: Script, reply: Reply, *, exit_code: int, stderr: bytes
) -> CommandError:
    """The error for a reply from a container that has no end marker."""
    where = f"the container {inside.container}"
    said = excerpt(" ".join((reply.noise + b"\n" + stderr).decode(errors="replace").split()))
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


class HostAndContainer:
    """The workload side behind `way`; each execution on it also runs the host's `commands`."""

    def __init__(self, host: HostSide, way: ContainerExec, commands: Sequence[Command]) -> None:
        self.on_host: tuple[Result, ...] = ()
        """The results of the host side, after `run_all`."""
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
