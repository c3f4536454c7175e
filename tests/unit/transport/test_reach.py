"""When to try again, and what the errors say."""

from __future__ import annotations

import pytest

from ascendboot.transport.connect import Cause, ConnectError, retried


class Server:
    """Refuses for the given causes, one per try, and then lets in."""

    def __init__(self, *causes: Cause) -> None:
        self.causes = list(causes)
        self.slept: list[float] = []

    def connect(self) -> str:
        if self.causes:
            raise ConnectError("n1", self.causes.pop(0), "unreachable: no")
        return "in"


def test_a_server_that_drops_us_is_tried_again() -> None:
    server = Server(*[Cause.DROPPED] * 7)
    assert retried(server.connect, sleep=server.slept.append) == ("in", 8)
    assert len(server.slept) == 7


def test_it_is_given_up_after_eight_tries() -> None:
    server = Server(*[Cause.DROPPED] * 99)
    with pytest.raises(ConnectError) as caught:
        retried(server.connect, sleep=server.slept.append)
    assert str(caught.value) == "n1: unreachable: no (tried 8 times)"
    assert caught.value.cause is Cause.DROPPED
    assert len(server.causes) == 99 - 8


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.DROPPED])
def test_nothing_else_is_tried_again(cause: Cause) -> None:
    server = Server(Cause.DROPPED, cause, Cause.DROPPED)
    with pytest.raises(ConnectError) as caught:
        retried(server.connect, sleep=server.slept.append)
    assert (caught.value.cause, str(caught.value)) == (cause, "n1: unreachable: no")
    assert (len(server.slept), len(server.causes)) == (1, 1)


def test_the_pauses_grow_are_jittered_and_take_about_five_seconds() -> None:
    drawn = [Server(*[Cause.DROPPED] * 7) for _ in range(50)]
    for server in drawn:
        retried(server.connect, sleep=server.slept.append)
        assert len(server.slept) == 7
        assert 0.025 <= server.slept[0] <= 0.075
        assert 2.3 <= sum(server.slept) <= 7.2
        assert max(server.slept) <= 2.4
    assert len({server.slept[0] for server in drawn}) > 1
