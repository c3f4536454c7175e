"""Servers that freeze while they are used, over a real sshd: they soon count as lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.transport.connection import Keepalive
from ascendboot.transport.login_session import SshTransport, Waits
from tests.integration.real_sshd import Bench, Sshd, bash, needs_bash
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

SOON = Keepalive(every_s=0.2, silent_s=1.0)
LOST = (
    r"^n1: could not try it: the connection was lost: the server answered no keepalive "
    r"within 1 s; is the node up\?"
)


FREEZES = "kill -STOP {session}; exec sleep 3600"
"""Stops the session's sshd; the kernel still acknowledges what is sent to it."""


@pytest.fixture
def server(bench: Bench) -> Iterator[Sshd]:
    found = bench.server()
    yield found
    for pid in found.sessions():
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(params=["direct", "behind a jump host"])
def transport(request: pytest.FixtureRequest, bench: Bench, server: Sshd) -> SshTransport:
    jump = None if request.param == "direct" else "gate"
    nodes = [] if jump is None else [bench.node(bench.server(), jump)]
    return bench.open(bench.node(server, jump=jump), keepalive=SOON, nodes=nodes)


def test_item_03_a_session_that_freezes_while_it_runs_counts_as_lost(
    transport: SshTransport, server: Sshd
) -> None:
    with pytest.raises(UnreachableError, match=LOST):
        transport.run(bash(FREEZES.format(session=server.sessions()[0]), timeout_s=3600.0))
    with pytest.raises(UnreachableError, match=LOST):
        transport.run(bash("true"))


@needs_bash
def test_item_03_a_session_that_takes_nothing_any_more_counts_as_lost(
    transport: SshTransport, server: Sshd
) -> None:
    (server.home / ".bashrc").write_text(FREEZES.format(session="$PPID"))
    with pytest.raises(UnreachableError, match=LOST):
        transport.run(bash("cat", stdin=bytes(20_000_000), timeout_s=3600.0))


def test_item_03_a_silent_session_is_not_lost(bench: Bench) -> None:
    transport = bench.open(bench.node(bench.server()), keepalive=SOON)
    assert transport.run(bash("sleep 4; echo late")).text == "late\n"


def test_item_03_a_job_is_followed_by_sessions_that_are_named_where_they_freeze(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, seen = Waits(), list[bytes]()
    transport = bench.open(bench.node(bench.server()), waits=waits)
    transport.stream(bash("echo $$; while :; do sleep 0.2; echo beat; done"), seen.append)
    wait_until(lambda: b"beat" in b"".join(seen))
    monkeypatch.setattr("ascendboot.transport.login_session.REPORT_AFTER_S", 3.0)
    assert waits.late() == {}
    pid = int(b"".join(seen).split()[0])
    os.kill(pid, signal.SIGSTOP)
    late: dict[tuple[str, str], list[str]] = {}

    def is_late() -> bool:
        late.update(waits.late())
        return bool(late)

    wait_until(is_late)
    os.kill(pid, signal.SIGCONT)
    [(purpose, advice)] = late
    assert (late[purpose, advice], purpose) == (["n1"], "try it")
    assert advice.startswith("the job does not need this connection")
