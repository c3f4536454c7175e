"""A link that is slow: its commands get more time, and what is given up says why."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from ascendboot.errors import CommandError
from ascendboot.model.cluster import Node, SshAccess
from ascendboot.transport import login_session
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.login_session import Keepalive, SshTransport

ASK = Command(argv=("npu-smi",), purpose="list the NPUs", effect=Effect.READ, timeout_s=3600.0)


class Mute:
    """A channel on which nothing comes before somebody closes it."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    @property
    def has_ended(self) -> bool:
        return self.closed.is_set()

    def exec_command(self, command: str) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        pass

    def shutdown_write(self) -> None:
        pass

    def settimeout(self, timeout: float | None) -> None:
        pass

    def recv(self, _size: int) -> bytes:
        assert self.closed.wait(60)
        return b""

    def recv_stderr(self, _size: int) -> bytes:
        return b""

    def recv_stderr_ready(self) -> bool:
        return False

    def recv_exit_status(self) -> int:
        return -1

    def close(self) -> None:
        self.closed.set()


@dataclass
class SlowLink:
    round_trip_s: float
    connections: int = 1
    is_open: bool = True
    keepalive: Keepalive = field(default_factory=Keepalive)
    node: Node = field(
        default_factory=lambda: Node(
            name="n1",
            address="192.0.2.1",
            cluster_address="192.0.2.1",
            server_id="n1",
            ssh=SshAccess(user="root"),
        )
    )

    def why_ended(self) -> str | None:
        return None

    def session(self, _purpose: str) -> Mute:
        return Mute()

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("round_trip_s", "end"),
    [
        (0.001, "wait for something?"),
        (1.0, "; the link to n1 takes 1.0 s per round trip: a faster one would do"),
    ],
)
def test_item_25_what_a_slow_link_costs_is_said(
    monkeypatch: pytest.MonkeyPatch, round_trip_s: float, end: str
) -> None:
    monkeypatch.setattr(login_session, "_MARGIN_S", 0.2)
    monkeypatch.setattr(login_session, "_ROUND_TRIPS", 1)
    transport = SshTransport(SlowLink(round_trip_s))
    with pytest.raises(CommandError) as caught:
        transport.run(ASK)
    assert "could not list the NPUs: the login began nothing within" in str(caught.value)
    assert str(caught.value).endswith(end)
