"""The ports that Linux gives to outgoing connections, and those that it is told to leave alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.parse.reading import lines_of, only_line_of

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
RESERVED = "/proc/sys/net/ipv4/ip_local_reserved_ports"
_RANGE = re.compile(r"\s*([0-9]{1,5})\s+([0-9]{1,5})\s*")
_RESERVED = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(frozen=True)
class KernelPorts:
    """`first` to `last` go to outgoing connections, except those in `reserved` (from, to)."""

    first: int
    last: int
    reserved: tuple[tuple[int, int], ...] = ()

    def may_take(self, port: int) -> bool:
        """Whether any outgoing connection may happen to get `port`."""
        is_reserved = any(first <= port <= last for first, last in self.reserved)
        return self.first <= port <= self.last and not is_reserved


def parse(port_range: str, reserved: str) -> KernelPorts:
    """From the content of both files.

    Raises:
        NotUnderstoodError: one of them has another form.
    """
    line = only_line_of(port_range, RANGE, "two numbers")
    ends = _RANGE.fullmatch(line.text)
    if ends is None:
        raise line.not_understood(RANGE, "two numbers")
    kept = []
    for row in lines_of(reserved)[:1]:
        for word in row.text.strip().split(","):
            match = _RESERVED.fullmatch(word)
            if match is None:
                raise row.not_understood(RESERVED, "ports and ranges of ports with commas")
            kept.append((int(match[1]), int(match[2] or match[1])))
    return KernelPorts(int(ends[1]), int(ends[2]), tuple(kept))
