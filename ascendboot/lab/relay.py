"""Delays frames between two TAP interfaces, in both directions.

Many kernels lack `tc … netem`; this needs TUN/TAP alone. `python -m ascendboot.lab.relay A B MS`
makes the interfaces in the network namespace where it is started, prints `PID STARTED` when frames
can flow, closes its output, and runs until a signal ends it; the interfaces end with it.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

from ascendboot.lab.host import ProcessId

_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
_FRAME = 65536
_AT_ONCE = 64


def main(one: str, other: str, delay_ms: str) -> None:
    """Make the interfaces and forward frames for ever."""
    first, second = _tap(one), _tap(other)
    process = ProcessId.own()
    sys.stdout.write(f"{process.pid} {process.started}\n")
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir("/")
    carry(first, second, int(delay_ms) / 1000)


def carry(first: int, second: int, delay_s: float) -> None:
    """Write to each what was read from the other `delay_s` before."""
    far_end = {first: second, second: first}
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for near in select.select([first, second], [], [], patience)[0]:
            due = time.monotonic() + delay_s
            waiting.extend((due, far_end[near], frame) for frame in _frames(near))
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, frame = waiting.popleft()
            # If the interface is down, or its queue full: a real wire loses the frame, too.
            with suppress(OSError):
                os.write(end, frame)


def _frames(tap: int) -> list[bytes]:
    frames: list[bytes] = []
    with suppress(BlockingIOError):
        while len(frames) < _AT_ONCE:
            frames.append(os.read(tap, _FRAME))
    return frames


def _tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH", name.encode(), _TAP_WITHOUT_HEADER))
    return tap


if __name__ == "__main__":
    main(*sys.argv[1:])
