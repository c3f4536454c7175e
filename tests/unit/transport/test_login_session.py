"""Sessions without a server: streams, waits, and links that are slow."""

from __future__ import annotations

import os
import pty
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import pytest
from paramiko import SSHException

from ascendboot.errors import CommandError
from ascendboot.model.cluster import Node
from ascendboot.transport import login_session
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.connection import Channel, Connection, Keepalive
from ascendboot.transport.login_session import (
    REPORT_AFTER_S,
    Session,
    SessionStream,
    SshTransport,
    Waits,
)
from tests.unit.transport.builders import node


def test_item_03_waits_are_reported_and_silent_servers_are_lost_after_30_s() -> None:
    assert (REPORT_AFTER_S, Keepalive().silent_s) == (30.0, 30.0)


def test_item_03_a_wait_without_progress_is_reported_once() -> None:
    at = [0.0]
    waits = Waits(now=lambda: at[0])
    with waits.of("n1", "list the NPUs", "wait") as first, waits.of("n2", "list the NPUs", "wait"):
        at[0] = REPORT_AFTER_S - 1
        assert waits.late() == {}
        first("read the clock")
        at[0] += 1
        assert waits.late() == {("list the NPUs", "wait"): ["n2"]}
        assert waits.late() == {}
        first(None)
        at[0] += REPORT_AFTER_S
        assert waits.late() == {}
        first("read the clock")
        at[0] += REPORT_AFTER_S
        assert waits.late() == {("read the clock", "wait"): ["n1"]}
    at[0] += REPORT_AFTER_S
    assert waits.late() == {}


class Scripted:
    """A channel whose `recv` gives these one after the other; an error is raised."""

    def __init__(self, *received: bytes | OSError) -> None:
        self._received = iter(received)

    def recv(self, _size: int) -> bytes:
        found = next(self._received)
        if isinstance(found, OSError):
            raise found
        return found

    def recv_stderr_ready(self) -> bool:
        return False

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None


@pytest.mark.parametrize("end", [b"", ConnectionError("the connection ended")])
def test_the_reader_gets_the_end_whatever_it_is(end: bytes | OSError) -> None:
    heard: list[bytes] = []
    channel = Scripted(TimeoutError(), b"a line\n", end)
    SessionStream("n1", Session(channel), heard.append, b"before ").close()
    assert heard == [b"before ", b"a line\n", b""]


ASK = Command(argv=("npu-smi",), purpose="list the NPUs", effect=Effect.READ, timeout_s=3600.0)


class MuteChannel:
    """Nothing arrives on it until it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def __getattr__(self, _name: str) -> Callable[..., bool]:
        return lambda *_: False

    def recv(self, _size: int) -> bytes:
        assert self._closed.wait(60)
        return b""

    def recv_exit_status(self) -> int:
        return -1

    def close(self) -> None:
        self._closed.set()


@dataclass
class SlowConnection:
    round_trip_s: float
    node: Node = field(default_factory=node)
    channel: type[MuteChannel] = MuteChannel

    def open_session(self, _purpose: str) -> MuteChannel:
        return self.channel()


@pytest.mark.parametrize(
    ("round_trip_s", "end"),
    [
        (0.001, "wait for something?"),
        (1.0, "; the link to n1 takes 1.0 s per round trip: use a faster one"),
    ],
)
def test_item_25_a_slow_link_is_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch, round_trip_s: float, end: str
) -> None:
    monkeypatch.setattr(login_session, "_MARGIN_S", 0.2)
    monkeypatch.setattr(login_session, "_ROUND_TRIPS", 1)
    transport = SshTransport(cast("Connection", SlowConnection(round_trip_s)))
    with pytest.raises(CommandError) as caught:
        transport.run(ASK)
    assert "could not list the NPUs: the login started nothing within" in str(caught.value)
    assert str(caught.value).endswith(end)


class NoTerminal(MuteChannel):
    def get_pty(self, *_: object) -> None:
        raise SSHException("Channel closed.")


def test_a_server_that_gives_no_terminal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    transport = SshTransport(cast("Connection", SlowConnection(0.1, channel=NoTerminal)))
    with pytest.raises(CommandError, match=r"could not open a shell: .*PermitTTY"):
        transport.terminal()


class Busy(NoTerminal):
    """The terminal changes its size while keys are sent."""

    def __init__(self, reads: int) -> None:
        super().__init__()
        self.lock, self.told, self.fileno = threading.Lock(), threading.Event(), lambda: reads

    def sendall(self, _keys: bytes) -> None:
        with self.lock:
            signal.raise_signal(signal.SIGWINCH)
        assert self.told.wait(10)

    def resize_pty(self, *_: int) -> None:
        if self.lock.acquire(timeout=1):
            self.told.set()

    def recv(self, _size: int) -> bytes:
        return b""


def test_a_resize_while_keys_are_sent_does_not_wait_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (ours, theirs), (ends, begins) = pty.openpty(), os.pipe()
    with open(theirs, "w") as terminal:  # noqa: PTH123 - a descriptor
        for name in ("stdin", "stdout"):
            monkeypatch.setattr(sys, name, terminal)
        monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((80, 24)))
        channel = Busy(ends)
        os.write(ours, b"k")
        threading.Timer(0.5, os.close, [begins]).start()
        login_session.relay(cast("Channel", channel))
    assert channel.told.is_set()


class Wrong(Busy):
    """Sudo asks again, after the answer to its prompt."""

    def __init__(self, reads: int) -> None:
        super().__init__(reads)
        self.sent = b""
        prompts = (b"[sudo 1f%]", b" password: ", b"\r\nSorry, try again.\r\n")
        self._output = iter((*prompts, b"[sudo 1f%] password: ", b"no", b""))

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def recv(self, _size: int) -> bytes:
        return next(self._output)


def test_after_a_wrong_password_the_prompt_is_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    (ours, theirs), (ends, begins) = pty.openpty(), os.pipe()
    os.close(begins)
    with open(theirs, "w") as terminal:  # noqa: PTH123 - a descriptor
        for name in ("stdin", "stdout"):
            monkeypatch.setattr(sys, name, terminal)
        channel = Wrong(ends)
        login_session.relay(cast("Channel", channel), b"[sudo 1f%] password: ", b"secret\n")
    shown = b""
    with suppress(OSError):  # nobody has the terminal any more
        while block := os.read(ours, 1000):
            shown += block
    os.close(ours)
    assert channel.sent == b"secret\n"
    assert shown.endswith(b"Sorry, try again.\r\n[sudo] password: no")
