"""Commands over a real sshd: any input and output arrives unchanged."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.errors import CommandError, UnreachableError
from ascendboot.facts.installed import Installed
from ascendboot.setup import steps
from ascendboot.transport import script
from ascendboot.transport.api import HANGS, Result
from ascendboot.transport.login_session import SshTransport
from tests.integration.real_sshd import SSHD, USER, Bench, Sshd, bash, keygen, needs_bash, read
from tests.needs import missing
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def test_both_streams_are_kept_apart_and_whole(transport: SshTransport) -> None:
    every_byte = "".join(f"\\x{value:02x}" for value in range(256))
    result = transport.run(bash(f"printf '{every_byte}'; printf 'e\\xff\\0\\n\\nr\\n' >&2; exit 7"))
    assert result.stdout == bytes(range(256))
    assert result.stderr == b"e\xff\n\nr\n"  # without the NUL bytes, which bash cannot hold
    assert result.exit_code == 7


def test_many_commands_are_one_execution_and_one_connection(bench: Bench, server: Sshd) -> None:
    kept: list[Result] = []
    transport = bench.open(bench.node(server), on_result=kept.append)
    results = transport.run_all([bash(f"echo {n}; exit {n}") for n in range(20)])
    assert [(r.text, r.exit_code) for r in results] == [(f"{n}\n", n) for n in range(20)]
    assert kept == list(results)
    assert transport.executions == 1


def test_no_commands_are_no_execution(transport: SshTransport) -> None:
    assert transport.run_all([]) == ()
    assert transport.executions == 0


def test_stdin_is_given_or_empty(transport: SshTransport) -> None:
    content = bytes(range(256)) * 8000
    with_it, without, unread = transport.run_all(
        [read("cat", stdin=content), read("cat"), read("true", stdin=content)]
    )
    assert with_it.stdout == content
    assert without.stdout == b""
    assert (unread.exit_code, unread.stderr) == (0, b"")


def test_four_megabytes_come_back_and_the_last_errors(transport: SshTransport) -> None:
    errors = "head -c 1000000 /dev/zero | tr '\\0' e >&2"
    result = transport.run(bash(f"head -c 4000000 /dev/zero; {errors}"))
    assert (result.stdout, result.stderr) == (bytes(4_000_000), b"e" * 65_536)


def test_a_missing_program_is_reported(transport: SshTransport) -> None:
    result = transport.run(read("npu-smi-of-nowhere", "info"))
    assert result.outcome() == "npu-smi-of-nowhere info exited 127: No such file or directory"
    with pytest.raises(CommandError, match=r"^n1: could not try it: npu-smi-of-nowhere info"):
        result.checked()


def test_a_program_in_sbin_is_found_and_the_language_is_plain(transport: SshTransport) -> None:
    result = transport.run(bash('echo "$LC_ALL $PATH"'))
    assert result.text.startswith("C ")
    assert result.text.strip().endswith(":/usr/local/sbin:/usr/sbin:/sbin")


def process_is_gone(pid: int) -> bool:
    """Whether it has ended, even if it is a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_timeout_ends_the_remote_process(transport: SshTransport) -> None:
    late, after = transport.run_all(
        [bash("echo $$; exec sleep 4321", timeout_s=1.5), bash("echo still here")]
    )
    assert late.exit_code == 124
    assert late.outcome() == f"a script gave no answer within 1.5 s; {HANGS}"
    assert after.text == "still here\n"
    assert process_is_gone(int(late.text))


def test_a_process_that_ignores_the_timeout_is_killed(
    transport: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "KILL_AFTER_S", 0.3)
    late = transport.run(bash("trap '' TERM; echo $$; while :; do sleep 0.1; done", timeout_s=1.5))
    assert late.exit_code == 137
    assert late.outcome() == f"a script gave no answer within 1.5 s; {HANGS}"
    assert process_is_gone(int(late.text))


def test_a_daemon_that_is_left_behind_does_not_hold_the_reply(transport: SshTransport) -> None:
    started = transport.run(bash("sleep 60 >/dev/null 2>&1 </dev/null & echo $!"))
    try:
        assert started.exit_code == 0
        assert not process_is_gone(int(started.text))
    finally:
        os.kill(int(started.text), 9)


@needs_bash
def test_what_start_up_files_print_is_tolerated(transport: SshTransport, server: Sshd) -> None:
    (server.home / ".bashrc").write_text("echo Welcome to node 1; echo oh >&2; printf 'no newline'")
    assert transport.run(read("echo", "x")).text == "x\n"
    assert transport.run(bash("echo x")).text == "x\n"


@needs_bash
def test_a_start_up_file_that_exits_is_named(transport: SshTransport, server: Sshd) -> None:
    (server.home / ".bashrc").write_text("echo Welcome to node 1\nexit 0\n")
    with pytest.raises(CommandError) as caught:
        transport.run(read("echo", "x", stdin=bytes(3_000_000)))
    early = (
        'the login ended before the script did: exit 0 after "Welcome to node 1"; one of these: '
    )
    assert early in str(caught.value)


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh", "dash"])
def test_hostile_16_a_start_up_file_that_becomes_another_shell_is_named(
    transport: SshTransport, server: Sshd, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shutil.which(shell)
    if found is None:
        missing(f"there is no {shell}")
    (server.home / ".bashrc").write_text(f"exec {shell}\n")
    program = "fish" if shell == "fish" else str(Path(found).resolve())
    for password in (None, "", "that sudo wants"):
        monkeypatch.setattr(transport, "_password", password)
        with pytest.raises(CommandError) as caught:
            transport.run(read("echo", "x", stdin=bytes(300_000)))
        assert str(caught.value) == (
            f"n1: could not try it: {program} runs the commands of the login, not bash: ~/.bashrc "
            f"or another start-up file of {USER} replaces the shell (exec); make it do so only in "
            "interactive shells: [[ $- != *i* ]] || exec …"
        )


def test_a_killed_session_is_a_lost_connection(transport: SshTransport, server: Sshd) -> None:
    with pytest.raises(UnreachableError, match=r"^n1: could not try it: the connection was lost"):
        transport.run(bash(f"{server.kill_sessions()}; sleep 60"))
    with pytest.raises(UnreachableError, match=r"^n1: could not try it: the connection was lost"):
        transport.run(read("true"))


def test_a_reply_that_does_not_end_is_given_up(
    transport: SshTransport, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendboot.transport.login_session._MARGIN_S", 2.0)
    pid_file = server.folder / "left"
    left = f"setsid bash -c 'echo $$ >{pid_file}; exec sleep 1000' & sleep 0.3"
    with pytest.raises(CommandError, match=r"no end within \d+ s.*leave a process"):
        transport.run_all([bash(left, timeout_s=1.0), bash("true", timeout_s=3600.0)])
    wait_until(lambda: pid_file.exists() and bool(pid_file.read_text()))
    os.kill(int(pid_file.read_text()), 9)


@pytest.mark.parametrize("most", [1, 2])
def test_hostile_16_a_server_that_opens_one_session_is_known_by_the_first(
    bench: Bench, most: int
) -> None:
    transport = bench.open(bench.node(bench.server(f"MaxSessions {most}")))
    for number in range(most):
        assert transport.run(read("echo", f"{number}")).text == f"{number}\n"
    assert transport.has_one_session is (most == 1)
    assert transport.executions == most


def test_a_server_with_one_session_is_explained(bench: Bench) -> None:
    transport = bench.open(bench.node(bench.server("MaxSessions 1")))
    transport.stream(bash("echo open; cat"), lambda _: None)
    with pytest.raises(UnreachableError, match=r"no further session.*raise MaxSessions"):
        transport.run(read("true"))


def test_19_an_sshd_that_does_not_start_is_quoted_with_its_reason(
    transport: SshTransport, tmp_path: Path
) -> None:
    folder = tmp_path / "sshd"
    folder.mkdir()
    keygen(folder / "host_key")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = (
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\n"
            f"PidFile {folder}/sshd.pid\nUsePAM no\n"
        )
        (folder / "sshd_config").write_text(config)
        start = steps.Sshd(sshd=SSHD or "", config=config).start(
            Installed(base=PurePosixPath(tmp_path))
        )
        said = transport.run(start).outcome()
    assert f"Bind to port {port} on 127.0.0.1 failed: Address already in use" in said
    assert "Cannot bind any address" in said
