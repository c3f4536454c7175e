"""`ss -Hltnp`: the TCP ports on which a node listens, and who does."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ascendboot.parse.reading import Line, lines_of

TOOL = "ss -Hltnp"
_LINE = re.compile(r"LISTEN\s+[0-9]+\s+[0-9]+\s+(\S+):([0-9]+)\s+\S+:\*(?:\s+users:\((.*)\))?\s*")
_USER = re.compile(r'\("(.*?)",pid=([0-9]+),fd=[0-9]+\)')
_EXPECTED = "LISTEN RECV-Q SEND-Q ADDRESS:PORT PEER:* [users:((PROGRAM,pid=N,fd=N))]"
_HIGHEST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Listener:
    """One listening TCP socket; program and pid are None where we may not see them."""

    address: str
    """`*` where it listens on all addresses of both families."""
    port: int
    pid: int | None = None
    program: str | None = None

    @property
    def holder(self) -> str:
        """Who has the port, for messages: `nginx (pid 9)`."""
        pid = f" (pid {self.pid})" if self.pid else ""
        return f"{self.program or 'a program of another user'}{pid}"


def parse(text: str) -> tuple[Listener, ...]:
    """The listeners in the tool's order; none is a good answer.

    Raises:
        NotUnderstoodError: a line is not in the known form.
    """
    return tuple(_listener(line) for line in lines_of(text))


def _listener(line: Line) -> Listener:
    match = _LINE.fullmatch(line.text)
    if match is None or int(match[2]) > _HIGHEST_PORT:
        raise line.not_understood(TOOL, _EXPECTED)
    user = _USER.match(match[3]) if match[3] else None
    if match[3] and user is None:
        raise line.not_understood(TOOL, _EXPECTED)
    return Listener(
        address=_address(line, match[1]),
        port=int(match[2]),
        pid=int(user[2]) if user else None,
        program=user[1] if user else None,
    )


def _address(line: Line, text: str) -> str:
    if text == "*":
        return text
    # 127.0.0.53%lo and [fe80::1]%eth0: bound to one interface
    bare = text.partition("%")[0].strip("[]")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        raise line.not_understood(TOOL, _EXPECTED) from None
