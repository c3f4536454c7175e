"""A stream over a channel: whatever ends it, its reader hears of the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascendboot.transport.login_session import Session, SessionStream

if TYPE_CHECKING:
    from collections.abc import Callable


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
def test_the_reader_hears_of_the_end_whatever_it_is(end: bytes | OSError) -> None:
    heard: list[bytes] = []
    channel = Scripted(TimeoutError(), b"a line\n", end)
    SessionStream("n1", Session(channel), heard.append, b"before ").close()
    assert heard == [b"before ", b"a line\n", b""]
