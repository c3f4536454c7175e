"""The script of one execution and the reader of its reply."""

from __future__ import annotations

from base64 import b64encode

import pytest

from ascendboot.errors import CommandError
from ascendboot.transport.api import Command, Effect, Result
from ascendboot.transport.script import (
    Reply,
    Script,
    compile_open,
    compile_script,
    launch_line,
    parse_reply,
)

LIST = Command(argv=("npu-smi", "info", "-m"), purpose="list the NPUs", effect=Effect.READ)
DATE = Command(argv=("date",), purpose="read the clock", effect=Effect.READ, timeout_s=2.5)
OUT = b"1\nMARK\n 0 0 0\0\xff\n\n"
SCRIPT = Script((LIST, DATE), b"program", b"BEGIN", b"MARK", b"END")


def part(index: int, out: bytes = b"", err: bytes = b"", code: int = 0, micros: int = 0) -> bytes:
    return out + f"\nMARK {index} {code} {micros} {b64encode(err).decode()}\n".encode()


def result(command: Command, **given: object) -> Result:
    values: dict[str, object] = {
        "exit_code": 0,
        "stdout": b"",
        "stderr": b"",
        "duration_s": 0.0,
        **given,
    }
    return Result(node="n1", command=command, **values)  # type: ignore[arg-type]


WHOLE = b"\nBEGIN\n" + part(0, OUT, b"err", 3, 1_500_000) + part(1) + b"END\n"
RESULTS = (
    result(LIST, exit_code=3, stdout=OUT, stderr=b"err", duration_s=1.5),
    result(DATE),
)


def parsed(reply: Reply) -> tuple[tuple[Result, ...], bytes, bool, bool]:
    return tuple(reply.results), reply.noise, reply.began, reply.ended


def test_a_whole_reply_gives_every_result() -> None:
    assert parsed(parse_reply("n1", SCRIPT, WHOLE)) == (RESULTS, b"", True, True)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_reply_that_comes_in_pieces_is_the_same(size: int) -> None:
    reader = Reply("n1", SCRIPT)
    for at in range(0, len(WHOLE), size):
        reader.feed(WHOLE[at : at + size])
    assert parsed(reader) == (RESULTS, b"", True, True)


def test_item_02_a_mark_without_an_end_is_refused() -> None:
    reader = Reply("n1", SCRIPT)
    reader.feed(b"\nBEGIN\n\nMARK 0 0 0 ")
    with pytest.raises(CommandError, match="line 1 of the reply has no end"):
        reader.feed(b"A" * 200_000)


def test_what_start_up_files_say_is_kept_apart() -> None:
    reply = parse_reply("n1", SCRIPT, b"Welcome\n0 a b c d\n" + WHOLE + b"bye\n")
    assert parsed(reply) == (RESULTS, b"Welcome\n0 a b c d", True, True)


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_a_reply_that_breaks_off_anywhere_is_never_whole(length: int) -> None:
    reply = parse_reply("n1", SCRIPT, WHOLE[:length])
    assert not reply.ended
    assert tuple(reply.results) == RESULTS[: len(reply.results)]


def test_a_reply_that_breaks_off_behind_its_last_section_names_the_last_command() -> None:
    reply = parse_reply("n1", SCRIPT, WHOLE.removesuffix(b"END\n"))
    assert parsed(reply) == (RESULTS, b"", True, False)
    error = reply.incomplete(-1, b"", "root")
    assert str(error) == (
        "n1: could not read the clock: the reply broke off while it ran: "
        "no exit code, and it said nothing; was it killed, or the session ended there? Run again"
    )


@pytest.mark.parametrize(
    "bad",
    [b"0 0 1", b"1 0 0 ", b"0 0 0 *", b"0 x 0 ", b"0 0 x ", b"words", b""],
)
def test_a_line_that_the_script_does_not_write_is_refused(bad: bytes) -> None:
    with pytest.raises(CommandError, match=r"^n1: could not list the NPUs: line 1 of the reply"):
        parse_reply("n1", SCRIPT, b"\nBEGIN\n\nMARK " + bad + b"\nEND\n")


def test_too_few_or_too_many_sections_are_refused() -> None:
    with pytest.raises(CommandError, match="the reply has 1 sections for 2 commands"):
        parse_reply("n1", SCRIPT, b"\nBEGIN\n" + part(0) + b"END\n")
    for more in (b"more", part(2)):
        with pytest.raises(CommandError, match="the reply goes on after its last command"):
            parse_reply("n1", SCRIPT, b"\nBEGIN\n" + part(0) + part(1) + more + b"END\n")


def test_a_login_that_ends_early_is_explained() -> None:
    reply = parse_reply("n1", SCRIPT, b"Welcome to\n  node 1\n")
    error = reply.incomplete(0, b"and more", "ops")
    assert str(error) == (
        "n1: could not list the NPUs: the login ended before the script did: exit 0 after "
        '"Welcome to node 1 and more"; one of these: ~/.bashrc or another start-up file of ops '
        "exits (make it return for non-interactive shells); a command is forced (take away "
        "ForceCommand in its sshd_config, or command= before the key in authorized_keys); or the "
        "shell of the account runs nothing (usermod -s /bin/bash ops)"
    )


def test_a_reply_that_breaks_off_names_the_command_that_ran() -> None:
    reply = parse_reply("n1", SCRIPT, b"\nBEGIN\n" + part(0) + b"output")
    error = reply.incomplete(-1, b"", "ops")
    assert str(error) == (
        "n1: could not read the clock: the reply broke off while it ran: no exit code, and it "
        "said nothing; was it killed, or the session ended there? Run again"
    )


def test_two_scripts_never_have_the_same_marks() -> None:
    assert compile_script([LIST]).begin != compile_script([LIST]).begin


def test_the_commands_bound_the_script() -> None:
    assert compile_script([LIST, DATE]).longest_s == 30 + 5 + 2.5 + 5


def test_a_script_is_one_group_so_that_half_of_it_runs_nothing() -> None:
    for script in (compile_script([LIST]), compile_open(LIST)):
        for_csh, guard, rest = script.program.split(b"\n", 2)
        assert for_csh.startswith(b'test "$?ascendboot" != 0 || ')
        assert guard.startswith(b'test -n "$BASH_VERSION" || ')
        assert rest.startswith(b"{\n")
        assert script.program.endswith(b"\n}\n")


def test_the_launch_line_reads_the_program_and_not_a_byte_more() -> None:
    assert launch_line(b"12345") == ("exec bash --noprofile --norc -c 'eval \"$(head -c 5)\"'")
