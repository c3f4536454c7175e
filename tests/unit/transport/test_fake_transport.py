"""The fake: what tests of other rooms rely on."""

from __future__ import annotations

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.transport.api import Command, Effect
from tests.fake_transport import FakeTransport


def read(*argv: str) -> Command:
    return Command(argv=argv, purpose=f"run {argv[0]}", effect=Effect.READ)


def test_an_unforeseen_command_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="n1: no answer for surprise"):
        FakeTransport().run(read("surprise"))


def test_a_lost_connection_is_played() -> None:
    for fake in (FakeTransport(unreachable="no answer"), FakeTransport()):
        fake.close()
        with pytest.raises(UnreachableError):
            fake.run(read("cat", "/x"))
        assert fake.commands == []
