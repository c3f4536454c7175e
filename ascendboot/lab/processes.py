"""Processes known by number and start time, so that a reused number is never taken for ours."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_STATE, _STARTED = 0, 19
"""Places in /proc/PID/stat, counted behind the command's name."""


@dataclass(frozen=True)
class ProcessId:
    """One process of this machine, for as long as the machine runs."""

    pid: int
    started: int
    """Clock ticks from the machine's boot to the start of the process."""

    @classmethod
    def parsed(cls, text: str) -> ProcessId | None:
        """What `PID STARTED` says; None when that is not what the text holds."""
        words = text.split()
        if len(words) != 2 or not all(word.isdecimal() for word in words):  # noqa: PLR2004
            return None
        return cls(int(words[0]), int(words[1]))

    @classmethod
    def own(cls) -> ProcessId:
        """The process that asks."""
        return cls(os.getpid(), int(_stat(os.getpid())[_STARTED]))

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        fields = _stat(self.pid)
        return bool(fields) and int(fields[_STARTED]) == self.started and fields[_STATE] not in "ZX"


def kill_all(processes: Iterable[ProcessId], *, timeout_s: float) -> tuple[ProcessId, ...]:
    """End the processes at once and wait until they are gone; those that are not are returned."""
    with ExitStack() as stack:
        waiting: dict[int, ProcessId] = {}
        for process in processes:
            handle = _handle(process)
            if handle is None:
                continue
            stack.callback(os.close, handle)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            waiting[handle] = process
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        for handle in waiting:
            poll.register(handle, select.POLLIN)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for handle, _ in poll.poll(left * 1000):
                poll.unregister(handle)
                del waiting[handle]
        return tuple(waiting.values())


def _handle(process: ProcessId) -> int | None:
    """A pidfd of the process, or None when it is gone; what it names cannot change any more."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if process.alive:
        return handle
    os.close(handle)
    return None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
