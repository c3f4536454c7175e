"""Output that is passed on as it arrives, over a real sshd."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from ascendboot.errors import CommandError
from ascendboot.transport.login_session import SessionStream, SshTransport
from tests.integration.launch_cluster import Screenful
from tests.integration.real_sshd import Bench, Sshd, bash, read
from tests.waiting import wait_until

pytestmark = pytest.mark.integration


def has_ended(stream: SessionStream) -> bool:
    stream._thread.join(60)
    return not stream._thread.is_alive()


def test_output_comes_while_the_command_runs_and_the_close_ends_it(
    transport: SshTransport, server: Sshd
) -> None:
    (server.home / ".bashrc").write_text("echo noise from a start-up file\n")
    end = server.folder / "ended"
    sink = Screenful()
    stream = transport.stream(bash(f"echo one; cat >/dev/null; echo two; echo >{end}"), sink)
    sink.wait_for(b"one\n")
    assert transport.run(bash("echo meanwhile")).text == "meanwhile\n"
    stream.close()
    assert sink.shown == b"one\ntwo\n"
    assert end.exists()
    assert transport.executions == 2


FILLS = """\
import os, pathlib, select
os.set_blocking(1, False)
written, block = 0, bytes(1 << 16)
while select.select([], [1], [], 2)[1]:
    written += os.write(1, block)
pathlib.Path(os.environ["TOLD"]).write_text(str(written))
"""
"""Writes until nothing was read for two seconds, and records how much it wrote."""


def test_unread_output_stays_on_the_node(transport: SshTransport, server: Sshd) -> None:
    told = server.folder / "told"
    sizes: list[int] = []

    def slow(data: bytes) -> None:
        wait_until(lambda: told.exists() and told.read_text() != "")
        sizes.append(len(data))

    stream = transport.stream(bash(f"TOLD={told} exec python3 -c '{FILLS}'"), slow)
    assert has_ended(stream)
    assert sum(sizes) == int(told.read_text()) < 4 << 20


def test_the_close_of_a_connection_ends_its_streams(transport: SshTransport, server: Sshd) -> None:
    end = server.folder / "ended"
    transport.stream(bash(f"cat >/dev/null; echo >{end}"), Screenful())
    transport.close()
    wait_until(end.exists)


def test_large_output_arrives_complete_and_fast(transport: SshTransport) -> None:
    digest, size = hashlib.sha256(), 0

    def take(data: bytes) -> None:
        nonlocal size
        digest.update(data)
        size += len(data)

    began = time.monotonic()
    made = "import sys; [sys.stdout.buffer.write(bytes([i % 256]) * 100000) for i in range(500)]"
    stream = transport.stream(read("python3", "-c", made), take)
    assert has_ended(stream)
    seconds = time.monotonic() - began
    expected = hashlib.sha256(b"".join(bytes([i % 256]) * 100_000 for i in range(500)))
    assert (size, digest.hexdigest()) == (50_000_000, expected.hexdigest())
    # A hundredth of the usual rate on an idle machine: only pauses in the code are slower.
    assert size / seconds > 2e6


def test_stderr_does_not_delay_stdout(transport: SshTransport) -> None:
    sink = Screenful()
    noisy = bash("head -c 20000000 /dev/zero >&2; echo last words >&2; echo done")
    stream = transport.stream(noisy, sink)
    assert has_ended(stream)
    assert sink.shown == b"done\n"
    assert stream._session.stderr.endswith(b"\0last words\n")


def test_a_stream_ends_when_its_server_dies(transport: SshTransport, server: Sshd) -> None:
    heard: list[bytes] = []
    stream = transport.stream(bash("echo one; cat"), heard.append)
    wait_until(lambda: heard == [b"one\n"])
    for pid in server.sessions():
        os.kill(pid, 9)
    assert has_ended(stream)
    assert heard == [b"one\n", b""]


def test_a_login_that_ends_early_gives_no_stream(bench: Bench) -> None:
    transport = bench.open(bench.node(bench.server("ForceCommand echo no; exit 4")))
    with pytest.raises(CommandError, match=r'n1: could not try it: .*exit 4 after "no"'):
        transport.stream(bash("echo one"), Screenful())
