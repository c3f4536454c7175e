"""The scripts run by the bash of this machine, without a network."""

from __future__ import annotations

import shutil
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.transport.api import Command, Effect
from ascendboot.transport.script import (
    Script,
    compile_open,
    compile_script,
    launch_line,
    parse_reply,
)

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


def test_what_follows_the_program_belongs_to_the_command() -> None:
    script = compile_open(command("cat"))
    assert run(script, b"for cat\0").partition(script.begin + b"\n")[2] == b"for cat\0"


def test_without_the_clock_of_bash_5_durations_are_still_told() -> None:
    script = compile_script([command("sleep", "0.2")])
    old = script.program.replace(b"${EPOCHREALTIME-}", b"")
    reply = parse_reply("n1", script, run(Script(script.commands, old, script.begin, script.end)))
    assert 0.2 <= reply.results[0].duration_s < 20
