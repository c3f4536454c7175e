"""The cluster's lock over a real sshd: it ends with its holder, for whatever reason."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ascendboot.errors import NodeError
from ascendboot.facts.query import Answer, Answered, Unanswered, answer_to
from ascendboot.setup.lock import Lock, locks
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.connection import Keepalive
from ascendboot.transport.guard import Fence, Guarded
from ascendboot.transport.login_session import SshTransport
from tests.integration.real_sshd import Bench, Sshd
from tests.unit.checks.well import value
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

THERE = Keepalive(every_s=0.5)
VANISHED = Keepalive(every_s=3600.0)
"""A client that sends nothing is like one that is gone."""
WRITE = Command(argv=("true",), purpose="write a file", effect=Effect.WRITE)
SINCE = r", since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


@pytest.fixture
def cluster() -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    yield name
    if os.geteuid() == 0:  # others have it in the home that the server gives them
        shutil.rmtree(Path("/var/lib/ascendboot", name))
        with suppress(OSError):  # not empty: others use it, too
            Path("/var/lib/ascendboot").rmdir()


@dataclass
class Taken:
    """A connection that requested the lock, its answer, and a guarded one to another node."""

    transport: SshTransport
    other: Guarded
    lock: Answer[Lock]


@pytest.fixture
def take(bench: Bench, server: Sshd, cluster: str) -> Callable[..., Taken]:
    node = bench.node(server)

    def take(who: str, keepalive: Keepalive = THERE, *, breaks: bool = False) -> Taken:
        transport = bench.open(node, keepalive=keepalive)
        wish = locks(cluster, who, breaks=breaks, silent_s=2)
        fact, result = wish.on_host, transport.run(wish.on_host.command)
        fence = Fence(fact.command, wish.still_held, 3600.0)
        fence.connected(transport)
        fence.answered(result)
        other = Guarded(bench.open(bench.node(bench.servers[0], "n2")), fence.allow)
        return Taken(transport, other, answer_to(fact, result))

    return take


def test_hostile_12_a_lock_ends_soon_after_nothing_is_heard_of_its_holder(
    take: Callable[..., Taken],
) -> None:
    first = take("ann", VANISHED)
    assert first.lock == Answered(Lock())
    assert first.other.run(WRITE).as_expected
    wait_until(lambda: not first.transport.is_open)
    with pytest.raises(NodeError, match=r"^n2: could not write a file: the cluster's lock on n1 "):
        first.other.run(WRITE)
    second = take("bob")
    assert value(second.lock).holder == ""
    time.sleep(8)  # longer than the silence that ends it, and than the pause between two looks
    assert second.other.run(WRITE).as_expected
    refused = take("cyd")
    assert re.fullmatch(f"bob{SINCE}", value(refused.lock).holder)


def test_hostile_12_a_lock_that_is_broken_says_whose_it_was_and_stops_its_holder(
    take: Callable[..., Taken],
) -> None:
    first = take("ann")
    assert first.other.run(WRITE).as_expected
    second = take("bob", breaks=True)
    assert re.fullmatch(f"ann{SINCE}", value(second.lock).broke)
    assert value(second.lock).was_waited_for
    wait_until(lambda: not first.transport.is_open)
    with pytest.raises(NodeError, match="the connection that held it has ended"):
        first.other.run(WRITE)
    assert second.other.run(WRITE).as_expected


@pytest.fixture
def lock_file(server: Sshd, cluster: str) -> Path:
    own = Path("/var/lib") if os.geteuid() == 0 else server.home
    folder = own / ("ascendboot" if os.geteuid() == 0 else ".ascendboot") / cluster
    folder.mkdir(parents=True)
    return folder / "lock"


def test_nobody_else_may_open_the_lock(take: Callable[..., Taken], lock_file: Path) -> None:
    """Who can read it can lock it and so block every setup."""
    lock_file.touch(0o644)
    assert take("ann").lock == Answered(Lock())
    assert lock_file.stat().st_mode & 0o777 == 0o600


def test_a_lock_that_is_a_link_is_not_written_to(
    take: Callable[..., Taken], lock_file: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    lock_file.symlink_to(victim)
    answer = take("ann").lock
    assert isinstance(answer, Unanswered)
    assert "is a link" in answer.message
    assert victim.read_text() == "precious\n"
