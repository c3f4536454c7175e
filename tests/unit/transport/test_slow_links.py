"""A link that is slow: its commands get more time, and what is given up says why."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from ascendboot.errors import CommandError
from ascendboot.model.cluster import Node, SshAccess
from ascendboot.transport import login_session
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.login_session import SshTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from ascendboot.transport.connection import Connection

NODE = Node(
    name="n1",
    address="192.0.2.1",
    cluster_address="192.0.2.1",
    server_id="n1",
    ssh=SshAccess(user="root"),
)
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
    node: Node = NODE

    def open_session(self, _purpose: str) -> MuteChannel:
        return MuteChannel()


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
    transport = SshTransport(cast("Connection", SlowConnection(round_trip_s)))
    with pytest.raises(CommandError) as caught:
        transport.run(ASK)
    assert "could not list the NPUs: the login began nothing within" in str(caught.value)
    assert str(caught.value).endswith(end)
