"""The scripts run by the bash of this machine, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.errors import CommandError
from ascendboot.model.cluster import ContainerExec
from ascendboot.transport.api import Command, Effect, Result
from ascendboot.transport.fake import FakeTransport
from ascendboot.transport.script import (
    HostAndContainer,
    Script,
    compile_open,
    compile_script,
    launch_line,
    parse_reply,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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


@settings(max_examples=25, deadline=None)
@given(st.lists(words, min_size=1, max_size=8), st.binary(max_size=300))
def test_any_arguments_and_any_stdin_arrive(arguments: list[list[str]], stdin: bytes) -> None:
    commands = [command("printf", "%s\\0", "_", *args) for args in arguments]
    script = compile_script([*commands, command("cat", stdin=stdin)])
    *printed, echoed = parse_reply("n1", script, run(script)).results
    assert [r.stdout for r in printed] == [
        "".join(f"{word}\0" for word in ["_", *args]).encode() for args in arguments
    ]
    assert echoed.stdout == stdin


def test_a_program_cut_short_runs_nothing() -> None:
    script = compile_script([command("echo", str(n)) for n in range(3)])
    assert parse_reply("n1", script, run(script)).ended
    for length in range(0, len(script.program) - 2, 97):
        assert run(script, length=length) == b""


def test_what_runs_aside_runs_while_the_others_do(tmp_path: Path) -> None:
    """Each of the two waits for a file that only a later command makes."""
    wait = "until [ -e {0} ]; do sleep 0.02; done; echo {1}; echo {1} >&2; exit 3"
    both = [
        replace(command("bash", "-c", wait.format(tmp_path / "go", name)), aside=True)
        for name in ("one", "two")
    ]
    goes = command("bash", "-c", f"touch {tmp_path}/go; echo go")
    script = compile_script([goes, *both])
    results = parse_reply("n1", script, run(script)).results
    assert [(r.stdout, r.stderr, r.exit_code) for r in results] == [
        (b"go\n", b"", 0),
        (b"one\n", b"one\n", 3),
        (b"two\n", b"two\n", 3),
    ]


class Here(FakeTransport):
    """This machine, by the script of one execution."""

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        self.executions.append(tuple(commands))
        script = compile_script(commands)
        return tuple(parse_reply(self.node, script, run(script)).results)


def test_both_sides_answer_in_one_execution(tmp_path: Path) -> None:
    engine = tmp_path / "podman"
    engine.write_text('#!/bin/bash\nwhile [ "$1" != box ]; do shift; done; shift; exec "$@"\n')
    engine.chmod(0o755)
    host = Here("n1")
    asks = [command("echo", "host"), replace(command("echo", "aside"), aside=True)]
    both = HostAndContainer(host, ContainerExec(str(engine), "box"), asks)
    inside = both.run_all([command("echo", "in it"), command("cat", stdin=b"a\0b")])
    assert [result.stdout for result in both.on_host] == [b"host\n", b"aside\n"]
    assert [result.stdout for result in inside] == [b"in it\n", b"a\0b"]
    assert len(host.executions) == 1
    engine.write_text("#!/bin/bash\necho 'Error: no such container' >&2; exit 125\n")
    with pytest.raises(CommandError, match="could not try in the container box: podman exec"):
        both.run_all([command("true")])


def test_what_a_start_up_file_has_left_running_is_let_end_first() -> None:
    script = compile_script([command("sleep", "0.6"), command("echo", "ours")])
    start_up = "(sleep 0.3; echo not ours) & sleep 2 >/dev/null 2>&1 & "
    line = f"{start_up}{launch_line(script.program)}"
    done = subprocess.run([BASH, "-c", line], input=script.program, capture_output=True, check=True)
    reply = parse_reply("n1", script, done.stdout)
    assert reply.noise == b"not ours"
    assert [result.stdout for result in reply.results] == [b"", b"ours\n"]


@pytest.mark.parametrize(
    "compiled", [compile_script([command("echo")]), compile_open(command("id"))]
)
def test_what_does_not_end_is_named(compiled: Script) -> None:
    patient = compiled.program.replace(b"-lt 50", b"-lt 2")
    line = f"sleep 1.5 & {launch_line(patient)}"
    done = subprocess.run([BASH, "-c", line], input=patient, capture_output=True, check=False)
    reply = parse_reply("n1", compiled, done.stdout)
    assert not reply.began
    error = reply.incomplete(1, b"", "root")
    assert re.fullmatch(
        r"n1: could not try: process \d+ \(sleep\) goes on writing where the answer comes: "
        r"~/\.bashrc or another start-up file of root has left it running; make it return for "
        r"non-interactive shells",
        str(error),
    )


def test_what_follows_the_program_belongs_to_the_command() -> None:
    script = compile_open(command("cat"))
    assert run(script, b"for cat\0").partition(script.begin + b"\n")[2] == b"for cat\0"


def test_without_the_clock_of_bash_5_durations_are_still_told() -> None:
    script = compile_script([command("sleep", "0.2")])
    old = script.program.replace(b"${EPOCHREALTIME-}", b"")
    reply = parse_reply("n1", script, run(replace(script, program=old)))
    assert 0.2 <= reply.results[0].duration_s < 20
