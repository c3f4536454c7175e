"""The script of one execution, and its reply; some scripts run in bash on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.errors import CommandError
from ascendboot.model.cluster import ContainerExec
from ascendboot.transport.api import Command, Effect, Result
from ascendboot.transport.script import (
    HostAndContainer,
    Reply,
    Script,
    compile_open,
    compile_script,
    launch_line,
    sudo_head,
)
from ascendboot.value import replace
from tests import here
from tests.fake_transport import Answer, FakeTransport

LIST = Command(argv=("npu-smi", "info", "-m"), purpose="list the NPUs", effect=Effect.READ)
DATE = Command(argv=("date",), purpose="read the clock", effect=Effect.READ, timeout_s=2.5)
OUT = b"1\nMARK\n 0 0 0\0\xff\n\n"
SCRIPT = Script((LIST, DATE), b"program", b"BEGIN", b"MARK", b"END")


def part(index: int, out: bytes = b"", err: bytes = b"", code: int = 0, micros: int = 0) -> bytes:
    return out + f"\nMARK {index} {code} {micros} {b64encode(err).decode()}\n".encode()


WHOLE = b"\nBEGIN\n" + part(0, OUT, b"err", 3, 1_500_000) + part(1) + b"END\n"
RESULTS = (Answer(OUT, "err", 3, duration_s=1.5).to(LIST), Answer().to(DATE))


def parsed(reply: Reply) -> tuple[tuple[Result, ...], bytes, bool, bool]:
    return tuple(reply.results), reply.noise, reply.began, reply.ended


@pytest.mark.parametrize("size", [1, 2, 7, len(WHOLE)])
def test_a_reply_gives_every_result_in_whatever_pieces_it_comes(size: int) -> None:
    reader = Reply("n1", SCRIPT)
    for at in range(0, len(WHOLE), size):
        assert not reader.ended
        assert tuple(reader.results) == RESULTS[: len(reader.results)]
        reader.feed(WHOLE[at : at + size])
    assert parsed(reader) == (RESULTS, b"", True, True)


def test_item_02_a_mark_without_an_end_is_refused() -> None:
    reader = Reply("n1", SCRIPT)
    reader.feed(b"\nBEGIN\n\nMARK 0 0 0 ")
    with pytest.raises(CommandError, match="line 1 of the reply has no end"):
        reader.feed(b"A" * 200_000)


def test_output_of_start_up_files_is_kept_apart() -> None:
    reply = Reply("n1", SCRIPT, b"Welcome\n0 a b c d\n" + WHOLE + b"bye\n")
    assert parsed(reply) == (RESULTS, b"Welcome\n0 a b c d", True, True)


@pytest.mark.parametrize(
    "bad", [b"0 0 1", b"1 0 0 ", b"0 0 0 *", b"0 x 0 ", b"0 0 x ", b"words", b""]
)
def test_a_line_that_the_script_does_not_write_is_refused(bad: bytes) -> None:
    with pytest.raises(CommandError, match=r"^n1: could not list the NPUs: line 1 of the reply"):
        Reply("n1", SCRIPT, b"\nBEGIN\n\nMARK " + bad + b"\nEND\n")


def test_too_few_or_too_many_sections_are_refused() -> None:
    with pytest.raises(CommandError, match="the reply has 1 sections for 2 commands"):
        Reply("n1", SCRIPT, b"\nBEGIN\n" + part(0) + b"END\n")
    for more in (b"more", part(2)):
        with pytest.raises(CommandError, match="the reply goes on after its last command"):
            Reply("n1", SCRIPT, b"\nBEGIN\n" + part(0) + part(1) + more + b"END\n")


def test_a_login_that_ends_early_is_explained() -> None:
    reply = Reply("n1", SCRIPT, b"Welcome to\n  node 1\n")
    error = reply.incomplete(0, b"and more", "ops")
    assert str(error) == (
        "n1: could not list the NPUs: the login ended before the script did: exit 0 after "
        '"Welcome to node 1 and more"; one of these: ~/.bashrc or another start-up file of ops '
        "exits (make it return for non-interactive shells); a command is forced (remove "
        "ForceCommand from its sshd_config, or command= before the key in authorized_keys); or the "
        "shell of the account runs nothing (usermod -s /bin/bash ops)"
    )


@pytest.mark.parametrize(
    "broken", [WHOLE.removesuffix(b"END\n"), b"\nBEGIN\n" + part(0) + b"output"]
)
def test_a_reply_that_breaks_off_names_the_command_that_ran(broken: bytes) -> None:
    reply = Reply("n1", SCRIPT, broken)
    assert (reply.began, reply.ended) == (True, False)
    assert str(reply.incomplete(-1, b"", "ops")) == (
        "n1: could not read the clock: the reply broke off while it ran: no exit code "
        "without output; was it killed, or the session ended there? Run again"
    )


def test_a_long_error_of_an_engine_keeps_its_reason() -> None:
    folder = f"/var/lib/containers/storage/overlay-containers/{'5d' * 32}/userdata/{'f9' * 32}"
    said = f"Error: mkdir {folder}: no space left on device"
    error = Reply("n1", SCRIPT).incomplete_inside(255, said.encode(), ContainerExec("podman", "c"))
    assert str(error) == (
        "n1: could not list the NPUs in the container c: podman exec ended with exit 255: "
        f"{said[:99]}…{said[-100:]}; free space on the node (df -h shows the full disk)"
    )


def test_two_scripts_never_have_the_same_marks() -> None:
    assert compile_script([LIST]).begin != compile_script([LIST]).begin


def test_the_line_runs_the_program_in_bash_here_or_inside() -> None:
    shell = "bash --noprofile --norc -c 'eval \"$(head -c 5)\"'"
    assert launch_line(b"true\n") == f"exec {shell}"
    inside = f"exec /usr/bin/podman exec -i -e BASH_ENV= rec-sdk {shell}"
    assert launch_line(b"true\n", ContainerExec("/usr/bin/podman", "rec-sdk")) == inside
    assert launch_line(b"true\n", None, "") == f"exec env LC_ALL=C sudo -nH -- {shell}"
    assert "hidden" not in launch_line(b"true\n", None, "hidden")
    assert sudo_head("hidden").endswith(b"\nhidden\n")
    assert sudo_head("") == sudo_head(None) == b""


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("sudo: a password is required", "give ops NOPASSWD in sudoers, or state `sudo: ask`"),
        ("sudo: sorry, you must have a tty to run sudo", "add `Defaults:ops !requiretty` to"),
        ("bash: line 1: exec: sudo: not found", "install sudo there, or log in as root"),
        ("env: 'sudo': No such file or directory", "install sudo there, or log in as root"),
        ("ops is not in the sudoers file. sudo: x", "allow ops to run all commands as root in"),
    ],
)
def test_what_sudo_refuses_has_its_remedy(said: str, remedy: str) -> None:
    reply = Reply("n1", compile_script([LIST]))
    error = str(reply.incomplete(1, said.encode(), "ops", sudo=True))
    assert f"sudo refused: {said}; {remedy}" in error
    assert "sudo refused" not in str(reply.incomplete(1, said.encode(), "ops"))


def test_a_wrong_password_is_named_without_the_words_of_sudo() -> None:
    said = "Sorry, try again.\nsudo: no password was provided\nsudo: 1 incorrect password attempt\n"
    error = Reply("n1", compile_script([LIST])).incomplete(1, said.encode(), "ops", sudo=True)
    assert str(error).endswith(": sudo refused the password of ops; give the right one")
    assert "Sorry" not in str(error)


@pytest.mark.parametrize(
    ("said", "is_sudo"),
    [
        ("Sorry, try again.\nsudo: no password was provided", True),
        ("Sorry, user ops is not allowed to execute '/usr/bin/bash' as root on n1.", True),
        ("sudo: unable to resolve host n1\nError: No such container: sudo-1", False),
        ("sudo: /usr/bin/docker: command not found", False),
        ('To run a command as administrator (user "root"), use "sudo <command>".', False),
    ],
)
def test_what_sudo_refuses_is_told_from_what_the_engine_refuses(
    said: str, *, is_sudo: bool
) -> None:
    reply = Reply("n1", compile_script([LIST]))
    assert reply.is_refused_by_sudo(said.encode()) is is_sudo


# Run by bash

BASH = shutil.which("bash") or "bash"


def run(script: Script, more: bytes = b"", *, length: int | None = None) -> bytes:
    sent = script.program[:length] + more
    done = subprocess.run(
        [BASH, "-c", launch_line(script.program)], input=sent, capture_output=True, check=False
    )
    return done.stdout


def command(*argv: str, stdin: bytes = b"") -> Command:
    return Command(argv=argv, purpose="try", effect=Effect.READ, stdin=stdin)


words = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4
)


@settings(max_examples=25)
@given(st.lists(words, min_size=1, max_size=8), st.binary(max_size=300))
def test_any_arguments_and_any_stdin_arrive(arguments: list[list[str]], stdin: bytes) -> None:
    commands = [command("printf", "%s\\0", "_", *args) for args in arguments]
    script = compile_script([*commands, command("cat", stdin=stdin)])
    *printed, echoed = Reply("n1", script, run(script)).results
    assert [r.stdout for r in printed] == [
        "".join(f"{word}\0" for word in ["_", *args]).encode() for args in arguments
    ]
    assert echoed.stdout == stdin


def test_a_program_cut_short_runs_nothing() -> None:
    script = compile_script([command("echo", str(n)) for n in range(3)])
    assert Reply("n1", script, run(script)).ended
    for length in range(0, len(script.program) - 2, 97):
        assert run(script, length=length) == b""


def test_commands_aside_run_in_parallel(tmp_path: Path) -> None:
    """Both wait for a file that only a later command creates."""
    wait = "until [ -e {0} ]; do sleep 0.02; done; echo {1}; echo {1} >&2; exit 3"
    both = [
        replace(command("bash", "-c", wait.format(tmp_path / "go", name)), aside=True)
        for name in ("one", "two")
    ]
    goes = command("bash", "-c", f"touch {tmp_path}/go; echo go")
    script = compile_script([goes, *both])
    results = Reply("n1", script, run(script)).results
    assert [(r.stdout, r.stderr, r.exit_code) for r in results] == [
        (b"go\n", b"", 0),
        (b"one\n", b"one\n", 3),
        (b"two\n", b"two\n", 3),
    ]


class Here(FakeTransport):
    """This machine; it runs the script of an execution."""

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        self.executions.append(tuple(commands))
        script = compile_script(commands)
        return tuple(Reply(self.node, script, run(script)).results)


def test_both_sides_answer_in_one_execution(tmp_path: Path) -> None:
    programs, host = here.Here(tmp_path), Here("n1")
    engine = programs.put("podman", 'while [ "$1" != box ]; do shift; done; shift; exec "$@"')
    asks = [command("echo", "host"), replace(command("echo", "aside"), aside=True)]
    both = HostAndContainer(host, ContainerExec(engine, "box"), asks)
    inside = both.run_all([command("echo", "in it"), command("cat", stdin=b"a\0b")])
    assert [result.stdout for result in both.on_host] == [b"host\n", b"aside\n"]
    assert [result.stdout for result in inside] == [b"in it\n", b"a\0b"]
    [(execution, *_)] = host.executions
    assert execution.timeout_s == 2 * (30 + 5), "the sum of the limits of its commands"
    programs.put("podman", "echo 'Error: no such container' >&2; exit 125")
    with pytest.raises(CommandError, match="could not try in the container box: podman exec"):
        both.run_all([command("true")])


def test_processes_of_start_up_files_may_end_first() -> None:
    script = compile_script([command("sleep", "0.6"), command("echo", "ours")])
    start_up = "(sleep 0.3; echo not ours) & sleep 2 >/dev/null 2>&1 & "
    line = f"{start_up}{launch_line(script.program)}"
    done = subprocess.run([BASH, "-c", line], input=script.program, capture_output=True, check=True)
    reply = Reply("n1", script, done.stdout)
    assert reply.noise == b"not ours"
    assert [result.stdout for result in reply.results] == [b"", b"ours\n"]


@pytest.mark.parametrize(
    "compiled", [compile_script([command("echo")]), compile_open(command("id"))]
)
def test_a_process_that_does_not_end_is_named(compiled: Script) -> None:
    patient = compiled.program.replace(b"-lt 50", b"-lt 2")
    line = f"sleep 1.5 & {launch_line(patient)}"
    done = subprocess.run([BASH, "-c", line], input=patient, capture_output=True, check=False)
    reply = Reply("n1", compiled, done.stdout)
    assert not reply.began
    error = reply.incomplete(1, b"", "root")
    assert re.fullmatch(
        r"n1: could not try: process \d+ \(sleep\) still writes into the session: "
        r"~/\.bashrc or another start-up file of root has left it running; make it return for "
        r"non-interactive shells",
        str(error),
    )


def test_bytes_after_the_program_are_stdin_of_the_command() -> None:
    script = compile_open(command("cat"))
    assert run(script, b"for cat\0").partition(script.begin + b"\n")[2] == b"for cat\0"


def test_without_the_clock_of_bash_5_durations_are_reported() -> None:
    script = compile_script([command("sleep", "0.2")])
    old = script.program.replace(b"${EPOCHREALTIME-}", b"")
    reply = Reply("n1", script, run(replace(script, program=old)))
    assert 0.2 <= reply.results[0].duration_s < 20
