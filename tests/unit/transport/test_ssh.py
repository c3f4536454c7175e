"""How servers are reached: tries, and jump hosts that are shared."""

from __future__ import annotations

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import Node
from ascendboot.transport.connection import Connection, DroppedError, ProtocolError
from ascendboot.transport.hostkeys import HostKeyChangedError
from ascendboot.transport.login import SUDO_VARIABLE, KeyFiles
from ascendboot.transport.ssh import JumpHosts, jump_node, retried
from tests.unit.transport.builders import node


class Server:
    """Refuses with the given errors, one per try, and then lets in."""

    def __init__(self, *errors: type[UnreachableError]) -> None:
        self.errors = list(errors)
        self.slept: list[float] = []

    def connect(self) -> str:
        if self.errors:
            raise self.errors.pop(0)("n1", "unreachable: no")
        return "in"


def test_connecting_fails_after_eight_tries() -> None:
    server = Server(*[DroppedError] * 99)
    with pytest.raises(DroppedError) as caught:
        retried(server.connect, sleep=server.slept.append)
    assert str(caught.value) == "n1: unreachable: no (tried 8 times)"
    assert len(server.errors) == 99 - 8


@pytest.mark.parametrize("error", [UnreachableError, ProtocolError, HostKeyChangedError])
def test_other_errors_are_not_retried(error: type[UnreachableError]) -> None:
    server = Server(DroppedError, error, DroppedError)
    with pytest.raises(error) as caught:
        retried(server.connect, sleep=server.slept.append)
    assert (type(caught.value), str(caught.value)) == (error, "n1: unreachable: no")
    assert (len(server.slept), len(server.errors)) == (1, 1)


def test_dropped_connections_are_retried_for_about_five_seconds() -> None:
    drawn = [Server(*[DroppedError] * 7) for _ in range(50)]
    for server in drawn:
        assert retried(server.connect, sleep=server.slept.append) == "in"
        assert len(server.slept) == 7
        assert 0.025 <= server.slept[0] <= 0.075
        assert 2.3 <= sum(server.slept) <= 7.2
        assert max(server.slept) <= 2.4
    assert len({server.slept[0] for server in drawn}) > 1


def behind(jump: str) -> Node:
    return node(user="ops", port=2200, identity="~/.ssh/cluster", jump=jump)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bastion", ("ops", "bastion", 22)),
        ("me@bastion", ("me", "bastion", 22)),
        ("me@bastion:2222", ("me", "bastion", 2222)),
        ("192.0.2.9:2222", ("ops", "192.0.2.9", 2222)),
        ("[2001:db8::9]:2222", ("ops", "2001:db8::9", 2222)),
        ("me@2001:db8::9", ("me", "2001:db8::9", 22)),
    ],
)
def test_a_jump_host_is_user_host_and_port(text: str, expected: tuple[str, str, int]) -> None:
    jump = jump_node(behind(text), {})
    assert (jump.ssh.user, jump.address, jump.ssh.port) == expected
    assert (jump.name, jump.ssh.identity, jump.ssh.jump) == (text, "~/.ssh/cluster", None)


@pytest.mark.parametrize(("jump", "others"), [("n1", ()), ("n0", ("n0",))])
def test_a_circle_is_refused(jump: str, others: tuple[str, ...]) -> None:
    with pytest.raises(UnreachableError, match="correct `jump` in the inventory"):
        jump_node(behind(jump), {}, others)


def test_a_jump_host_that_is_down_is_tried_once_for_all() -> None:
    jumps = JumpHosts()
    tries: list[str] = []

    def opener() -> Connection:
        tries.append("try")
        raise UnreachableError("gate", "no answer")

    for _ in range(3):
        with pytest.raises(UnreachableError, match="gate: no answer"):
            jumps.take("gate", opener)
    assert tries == ["try"]


def test_only_the_first_line_is_a_password_for_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUDO_VARIABLE, "hidden\nid\n")
    assert KeyFiles(lambda _text: None).sudo_password() == "hidden"
