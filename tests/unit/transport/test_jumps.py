"""How jump hosts are written, and how connections to them are shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import Node, SshAccess
from ascendboot.transport.connect import jump_node
from ascendboot.transport.ssh import JumpHosts

if TYPE_CHECKING:
    from ascendboot.transport.connection import Connection


def node(name: str, **access: str) -> Node:
    ssh = SshAccess(user="ops", port=2200, identity="~/.ssh/cluster", **access)
    return Node(name=name, address=name, cluster_address=name, server_id=name, ssh=ssh)


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
    jump = jump_node(node("n1", jump=text), {})
    assert (jump.ssh.user, jump.address, jump.ssh.port) == expected
    assert (jump.name, jump.ssh.identity, jump.ssh.jump) == (text, "~/.ssh/cluster", None)


def test_another_node_serves_under_its_own_name() -> None:
    gate = node("gate")
    assert jump_node(node("n1", jump="gate"), {"gate": gate}) == gate


@pytest.mark.parametrize(("jump", "behind"), [("n1", ()), ("n0", ("n0",))])
def test_a_circle_is_refused(jump: str, behind: tuple[str, ...]) -> None:
    with pytest.raises(UnreachableError, match="correct `jump` in the inventory"):
        jump_node(node("n1", jump=jump), {}, behind)


class Opened:
    """A connection that counts how often it is closed."""

    closes = 0

    def close(self) -> None:
        self.closes += 1


def open_one() -> Connection:
    return cast("Connection", Opened())


def closes(connection: Connection) -> int:
    return cast("Opened", connection).closes


def test_the_first_opens_and_the_last_closes() -> None:
    jumps = JumpHosts()
    first = jumps.take("gate", open_one)
    assert jumps.take("gate", open_one) is first
    jumps.give_back("gate")
    assert closes(first) == 0
    jumps.give_back("gate")
    assert closes(first) == 1
    assert jumps.take("gate", open_one) is not first


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
