"""A stream over a channel: whatever ends it, its reader hears of the end."""

from __future__ import annotations

import pytest

from ascendboot.transport.login_session import Session, SessionStream


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

    def recv_stderr(self, _size: int) -> bytes:
        return b""

    def recv_exit_status(self) -> int:
        return -1

    def exec_command(self, command: str) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        pass

    def shutdown_write(self) -> None:
        pass

    def settimeout(self, timeout: float | None) -> None:
        pass

    @property
    def has_ended(self) -> bool:
        return False

    def close(self) -> None:
        pass


@pytest.mark.parametrize("end", [b"", ConnectionError("the connection ended")])
def test_the_reader_hears_of_the_end_whatever_it_is(end: bytes | OSError) -> None:
    heard: list[bytes] = []
    channel = Scripted(TimeoutError(), b"a line\n", end)
    stream = SessionStream("n1", Session(channel), heard.append, b"before ")
    assert stream.wait(5.0)
    assert heard == [b"before ", b"a line\n", b""]
