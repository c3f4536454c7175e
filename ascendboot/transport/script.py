"""Compiles commands into one script and reads its reply."""

from __future__ import annotations

import base64
import secrets
import shlex
from collections.abc import Sequence

from ascendboot import templates
from ascendboot.errors import CommandError, excerpt
from ascendboot.model.cluster import ContainerExec
from ascendboot.transport.api import MOST_OF_ERRORS, Command, Effect, HostSide, Result, amount
from ascendboot.value import Value

KILL_AFTER_S = 5.0
"""How long after its timeout a command that ignores SIGTERM gets SIGKILL."""

_NOT_BASH = "ascendboot: this is not bash but"
_REFUSE = f"sh -c 'echo \"{_NOT_BASH} $(readlink /proc/$PPID/exe)\"; kill -KILL $PPID'"
# A start-up file that ends in `exec zsh` makes zsh read the script, and zsh understands much of
# bash. In csh `$?name` is 0 for an unset variable; csh would continue after an error elsewhere.
# fish prints its own name when it refuses the first line.
_GUARD = f"""\
test "$?ascendboot" != 0 || {_REFUSE}
test -n "$BASH_VERSION" || {_REFUSE}
"""

# A command that runs aside writes into a pipe of its own, which is read when its turn comes.
_BEGIN_ASIDE = "exec {descriptor}< <(exec 3>&1\n{command})"
_END_ASIDE = "cat <&{descriptor}; exec {descriptor}<&-"
_FIRST_ASIDE = 10
_LEFT_RUNNING = "ascendboot: a start-up file has left running:"

_NOISE_KEPT = 1 << 14
MOST_NOISE = 1 << 20
"""How many bytes start-up files may print before the script begins."""

_LONGEST_MARK = 2 * MOST_OF_ERRORS
"""The line after a command's output: its standard error in base64, and some numbers."""


class Script(Value):
    """Commands compiled for one execution; `launch_line` starts `program`."""

    commands: tuple[Command, ...]
    program: bytes
    begin: bytes
    mark: bytes
    """Starts the line after each command's output. It is random, so no output contains it."""
    end: bytes

    def limit_of(self, index: int) -> float:
        """Return the time limit of one command; 0 after the last one."""
        if index >= len(self.commands):
            return 0.0
        return self.commands[index].timeout_s + KILL_AFTER_S

    def purpose_after(self, results: int) -> str:
        """Return the purpose of the command that runs after so many results."""
        return self.commands[min(results, len(self.commands) - 1)].purpose


def _shell(program: bytes) -> tuple[str, ...]:
    """Return the bash that reads exactly `program` from stdin; the rest is for the commands."""
    return ("bash", "--noprofile", "--norc", "-c", f'eval "$(head -c {len(program)})"')


def launch_line(
    program: bytes, inside: ContainerExec | None = None, password: str | None = None
) -> str:
    """Return the shell line that runs `program` from stdin, on the host or in a container.

    With a password, which may be empty, it is run by sudo; stdin then begins with `sudo_head`.
    """
    argv = inside.argv(*_shell(program)) if inside else _shell(program)
    if password:
        argv = (*_shell(_sudo_script().encode()), "sudo", *argv)
    elif password is not None:
        argv = ("env", "LC_ALL=C", "sudo", "-nH", "--", *argv)
    return f"exec {shlex.join(argv)}"


def sudo_head(password: str | None) -> bytes:
    """Return what stdin begins with, before the program: a password is never in an argument."""
    return f"{_sudo_script()}{password}\n".encode() if password else b""


def _sudo_script() -> str:
    return _GUARD + templates.script("sudo.sh")


_SUDO = {
    "a password is required": "give {user} NOPASSWD in sudoers, or state `sudo: ask`",
    "must have a tty": "add `Defaults:{user} !requiretty` to its sudoers",
    "not found": "install sudo there, or log in as root",
    "No such file": "install sudo there, or log in as root",
}
_BY_SUDO = ("sudo: ", "'sudo'", "sudoers", "Sorry, user ")
_NOT_BY_SUDO = ("unable to resolve", "command not found")
"""Of its own lines: a warning, and that a program, such as the engine, is not there."""
_WRONG_PASSWORD = ("Sorry, try again", "incorrect password", "no password was provided")
_NO_SUDO = "allow {user} to run all commands as root in its sudoers"


def compile_script(commands: Sequence[Command]) -> Script:
    """Compile one script that runs all `commands` in order and frames their results."""
    nonce = secrets.token_hex(12)
    begin, mark, end = (f"ascendboot-{word}-{nonce}" for word in ("begin", "mark", "end"))
    first, lines, descriptor = [], [], _FIRST_ASIDE
    for index, command in enumerate(commands):
        # A call of `step` in transport.sh.
        limits = (f"{command.most_bytes + 1}", f"{MOST_OF_ERRORS}")
        timeout = ("timeout", "-k", f"{KILL_AFTER_S:g}", f"{command.timeout_s:.3f}")
        stdin = base64.b64encode(command.stdin).decode()
        step = shlex.join(("step", mark, f"{index}", *limits, stdin, *timeout, *command.argv))
        if command.aside:
            first.append(_BEGIN_ASIDE.format(descriptor=descriptor, command=step))
            step = _END_ASIDE.format(descriptor=descriptor)
            descriptor += 1
        lines.append(step)
    program = _program(begin, *first, *lines, f"printf '%s\\n' {end}")
    return Script(tuple(commands), program, begin.encode(), mark.encode(), end.encode())


def compile_open(command: Command) -> Script:
    """Compile a script that becomes `command`, which then owns stdin and stdout."""
    begin = f"ascendboot-begin-{secrets.token_hex(12)}"
    program = _program(begin, f"exec 3>&-; exec {shlex.join(command.argv)}")
    return Script((command,), program, begin.encode(), b"", b"")


def _program(begin: str, *lines: str) -> bytes:
    head = templates.script("transport.sh") + shlex.join(("start", begin, _LEFT_RUNNING))
    # Bash reads all of a group before it runs any of it: a half-sent script runs nothing.
    return (_GUARD + "\n".join(("{", head, *lines, "}\n"))).encode(errors="surrogateescape")


class Reply:
    """The reply to a script, parsed as it arrives; it keeps only results and some noise."""

    def __init__(self, node: str, script: Script, output: bytes = b"") -> None:
        self.node = node
        self.script = script
        self.results: list[Result] = []
        self.began = False
        self.ended = False
        """Whether the reply is complete."""
        self._noise = b""
        self._buffer = bytearray()
        self._searched = 0
        """How much of the buffer was searched for the next mark."""
        self.feed(output)

    @property
    def purpose(self) -> str:
        """The purpose of the command that runs now."""
        return self.script.purpose_after(len(self.results))

    @property
    def noise(self) -> bytes:
        """What start-up files printed before the script began."""
        return (self._noise if self.began else bytes(self._buffer[-_NOISE_KEPT:])).strip(b"\n")

    @property
    def left_running(self) -> str:
        """The process that a start-up file left running, which kept the script from starting."""
        _, _, left = self.noise.decode(errors="replace").partition(_LEFT_RUNNING)
        return "" if self.began else left.partition("\n")[0].strip()

    def feed(self, data: bytes) -> None:
        """Parse the next bytes.

        Raises:
            CommandError: the script does not write that, or not so much.
        """
        if self.ended:
            return
        self._buffer += data
        if not self.began:
            self._read_noise()
        while self.began and self._read_section():
            pass

    def _read_noise(self) -> None:
        begin = self.script.begin + b"\n"
        at = self._find(begin)
        if at >= 0:
            self._noise = bytes(self._buffer[max(0, at - _NOISE_KEPT) : at])
            self._drop(at + len(begin))
            self.began = True
        elif len(self._buffer) > MOST_NOISE:
            seen = excerpt(self._buffer[:_NOISE_KEPT].decode(errors="replace"))
            raise self._error(
                f"the login printed more than {amount(MOST_NOISE)} before the script of ascendboot "
                f'began: "{seen}"; make ~/.bashrc, or whatever it calls, print nothing for '
                "non-interactive shells"
            )

    def _read_section(self) -> bool:
        """Read the next result, or the end; return False if it is incomplete."""
        index, commands, end = len(self.results), self.script.commands, self.script.end + b"\n"
        if index == len(commands):
            self.ended = self._buffer.startswith(end)
            if not self.ended and not end.startswith(self._buffer):
                raise self._error("the reply goes on after its last command")
            return False
        if self._buffer.startswith(end):
            raise self._error(f"the reply has {index} sections for {len(commands)} commands")
        mark = b"\n" + self.script.mark + b" "
        at = self._find(mark)
        if (at if at >= 0 else len(self._buffer) - len(mark)) > commands[index].most_bytes + 1:
            raise self._error(commands[index].flood())
        line_end = self._buffer.find(b"\n", at + len(mark)) if at >= 0 else -1
        if line_end < 0:
            if at >= 0 and len(self._buffer) > at + _LONGEST_MARK:
                raise self._error(f"line {index + 1} of the reply has no end")
            return False
        line = bytes(self._buffer[at + len(mark) : line_end])
        self.results.append(self._result(commands[index], bytes(self._buffer[:at]), line))
        self._drop(line_end + 1)
        return True

    def _result(self, command: Command, stdout: bytes, line: bytes) -> Result:
        index = len(self.results)
        try:
            number, code, duration, stderr = line.split(b" ")
            return Result(
                node=self.node,
                command={index: command}[int(number)],
                exit_code=int(code),
                stdout=stdout,
                stderr=base64.b64decode(stderr, validate=True),
                duration_s=int(duration) / 1e6,
            )
        except (ValueError, LookupError) as error:
            seen = excerpt(line.decode(errors="replace"))
            why = f'line {index + 1} of the reply not understood: "{seen}"'
            raise self._error(why) from error

    def _find(self, mark: bytes) -> int:
        """Return where `mark` begins, or -1; nothing is searched twice."""
        at = self._buffer.find(mark, self._searched)
        self._searched = max(0, len(self._buffer) - len(mark)) if at < 0 else at
        return at

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._searched = 0

    def _error(self, seen: str) -> CommandError:
        return CommandError(self.node, f"could not {self.purpose}: {seen}")

    def is_refused_by_sudo(self, stderr: bytes) -> bool:
        """Whether sudo did not start the script, which may be one in a container."""
        lines = (self.noise + b"\n" + stderr).decode(errors="replace").splitlines()
        own = [
            line
            for line in lines
            if not (line.startswith("sudo: ") and any(words in line for words in _NOT_BY_SUDO))
        ]
        return not self.began and any(words in line for line in own for words in _BY_SUDO)

    def incomplete(
        self, exit_code: int, stderr: bytes, user: str, *, sudo: bool = False
    ) -> CommandError:
        """Return the error for a reply without its end; names the likely cause."""
        output = (self.noise + b"\n" + stderr).strip().decode(errors="replace")
        first = excerpt(" ".join(output.split()))
        code = f"exit {exit_code}" if exit_code >= 0 else "no exit code"
        seen = f'{code} after "{first}"' if first else f"{code} without output"
        start_up = f"~/.bashrc or another start-up file of {user}"
        shell = output.partition(_NOT_BASH)[2].strip().split("\n")[0]
        if "fish: " in output:
            shell = "fish"
        if self.began:
            return self._error(
                f"the reply broke off while it ran: {seen}; was it killed, or the session ended "
                "there? Run again"
            )
        if shell:
            return self._error(
                f"{shell} runs the commands of the login, not bash: {start_up} replaces the shell "
                "(exec); make it do so only in interactive shells: [[ $- != *i* ]] || exec …"
            )
        if sudo and self.is_refused_by_sudo(stderr):
            if any(words in output for words in _WRONG_PASSWORD):
                return self._error(f"sudo refused the password of {user}; give the right one")
            remedy = next((words for seen, words in _SUDO.items() if seen in output), _NO_SUDO)
            seen = first.removesuffix(".")
            return self._error(f"sudo refused: {seen}; {remedy.format(user=user)}")
        if self.left_running:
            return self._error(
                f"process {self.left_running} still writes into the session: {start_up} "
                "has left it running; make it return for non-interactive shells"
            )
        if "This account is currently not available" in output:
            remedy = (
                f"the account {user} may not log in (its shell is nologin): give it a shell, "
                f"usermod -s /bin/bash {user}, or state another `user`"
            )
        elif "This service allows sftp connections only" in output:
            remedy = (
                f"the server allows {user} only sftp (ForceCommand internal-sftp): exempt {user} "
                "in its sshd_config, or state another `user`"
            )
        else:
            remedy = (
                f"one of these: {start_up} exits (make it return for non-interactive shells); a "
                "command is forced (remove ForceCommand from its sshd_config, or command= before "
                "the key in authorized_keys); or the shell of the account runs nothing "
                f"(usermod -s /bin/bash {user})"
            )
        return self._error(f"the login ended before the script did: {seen}; {remedy}")

    def incomplete_inside(self, exit_code: int, stderr: bytes, way: ContainerExec) -> CommandError:
        """Return the error for a reply of a container without its end."""
        where = f"the container {way.container}"
        output = excerpt(" ".join((self.noise + b"\n" + stderr).decode(errors="replace").split()))
        code = f"exit {exit_code}" if exit_code >= 0 else "no exit code"
        if self.began:
            seen = f'{code}, "{output}"' if output else code
            return self._error(
                f"the reply from {where} broke off while it ran: {seen}; was it stopped? "
                f"Check with {way.engine_name} ps -a"
            )
        seen = f"{way.engine_name} exec ended with {code}: {output or 'no output'}"
        why = f"in {where}: {seen.rstrip('.')}; {way.remedy(output)}"
        return CommandError(self.node, f"could not {self.purpose} {why}")


class HostAndContainer:
    """A container; each execution in it also runs the given commands on the host side."""

    def __init__(self, host: HostSide, way: ContainerExec, commands: Sequence[Command]) -> None:
        self.on_host: tuple[Result, ...] = ()
        """The results of the host side, after `run_all`."""
        self._host = host
        self._way = way
        self._commands = tuple(commands)

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run all commands in the container, and those of the host side, in one execution.

        Raises:
            UnreachableError: the connection is lost.
            CommandError: a reply is incomplete.
        """
        script = compile_script(commands)
        reads = all(command.effect is Effect.READ for command in commands)
        command = Command(
            argv=self._way.argv(*_shell(script.program)),
            purpose=commands[0].purpose,
            effect=Effect.READ if reads else Effect.WRITE,
            timeout_s=sum(map(script.limit_of, range(len(commands)))),
            most_bytes=MOST_NOISE + sum(c.most_bytes + _LONGEST_MARK for c in commands),
            stdin=script.program,
        )
        framed, *on_host = self._host.run_all((command, *self._commands))
        self.on_host = tuple(on_host)
        reply = Reply(framed.node, script, framed.stdout)
        if not reply.ended:
            raise reply.incomplete_inside(framed.exit_code, framed.stderr, self._way)
        return tuple(reply.results)
