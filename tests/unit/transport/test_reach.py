"""When to try again, and what the errors say."""

from __future__ import annotations

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.transport.connect import (
    DroppedError,
    HostKeyChangedError,
    ProtocolError,
    retried,
)


class Server:
    """Refuses with the given errors, one per try, and then lets in."""

    def __init__(self, *errors: type[UnreachableError]) -> None:
        self.errors = list(errors)
        self.slept: list[float] = []

    def connect(self) -> str:
        if self.errors:
            raise self.errors.pop(0)("n1", "unreachable: no")
        return "in"


def test_a_server_that_drops_us_is_tried_again() -> None:
    server = Server(*[DroppedError] * 7)
    assert retried(server.connect, sleep=server.slept.append) == ("in", 8)
    assert len(server.slept) == 7


def test_it_is_given_up_after_eight_tries() -> None:
    server = Server(*[DroppedError] * 99)
    with pytest.raises(DroppedError) as caught:
        retried(server.connect, sleep=server.slept.append)
    assert str(caught.value) == "n1: unreachable: no (tried 8 times)"
    assert len(server.errors) == 99 - 8


@pytest.mark.parametrize("error", [UnreachableError, ProtocolError, HostKeyChangedError])
def test_nothing_else_is_tried_again(error: type[UnreachableError]) -> None:
    server = Server(DroppedError, error, DroppedError)
    with pytest.raises(error) as caught:
        retried(server.connect, sleep=server.slept.append)
    assert (type(caught.value), str(caught.value)) == (error, "n1: unreachable: no")
    assert (len(server.slept), len(server.errors)) == (1, 1)


def test_the_pauses_grow_are_jittered_and_take_about_five_seconds() -> None:
    drawn = [Server(*[DroppedError] * 7) for _ in range(50)]
    for server in drawn:
        retried(server.connect, sleep=server.slept.append)
        assert len(server.slept) == 7
        assert 0.025 <= server.slept[0] <= 0.075
        assert 2.3 <= sum(server.slept) <= 7.2
        assert max(server.slept) <= 2.4
    assert len({server.slept[0] for server in drawn}) > 1
