"""The fake: what tests of other rooms rely on."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.transport.api import Command, Effect, FileWrite, write_files
from ascendboot.transport.fake import FakeFile, FakeTransport


def read(*argv: str) -> Command:
    return Command(argv=argv, purpose=f"run {argv[0]}", effect=Effect.READ)


def test_an_unforeseen_command_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="n1: no answer for surprise"):
        FakeTransport().run(read("surprise"))


def test_files_that_are_written_can_be_read() -> None:
    fake = FakeTransport(files={"/old": FakeFile(b"old")})
    files = [
        FileWrite(PurePosixPath("/a b"), b"one\0", 0o600),
        FileWrite(PurePosixPath("/c"), b"", 0o644),
    ]
    fake.run(write_files(files, purpose="write")).checked()
    assert fake.files == {
        "/old": FakeFile(b"old", 0o644),
        "/a b": FakeFile(b"one\0", 0o600),
        "/c": FakeFile(b"", 0o644),
    }
    assert fake.run(read("cat", "/a b")).stdout == b"one\0"
    assert fake.run(read("cat", "--", "/absent")).exit_code == 1


def test_a_lost_connection_is_played() -> None:
    for fake in (FakeTransport(unreachable="no answer"), FakeTransport()):
        fake.close()
        with pytest.raises(UnreachableError):
            fake.run(read("cat", "/x"))
        assert fake.commands == []


def test_streams_and_holds_are_remembered() -> None:
    fake = FakeTransport(answers={("a",): "out", ("b",): ""})
    taken: list[bytes] = []
    stream = fake.stream(read("a"), taken.append)
    fake.hold(read("b"))
    assert (taken, stream.is_closed) == ([b"out"], False)
    assert [command.argv for command in fake.commands] == [("a",), ("b",)]
    fake.close()
    assert stream.is_closed
