"""The files of one supervised job: its state, its events, and the lock of its supervisor."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.files import held, write_atomically
from ascendboot.supervise.requests import Inbox
from ascendboot.value import Value


class SupervisedError(UsageError):
    """Another process supervises the job."""


class Store(Value):
    """The folder of a supervised job; any number of readers, one writer."""

    folder: Path

    @property
    def state(self) -> Path:
        """The state file, readable only by its owner."""
        return self.folder / "state.json"

    @property
    def events(self) -> Path:
        """One event per line, oldest first."""
        return self.folder / "events.jsonl"

    @property
    def inbox(self) -> Inbox:
        """The requests to the process that supervises the job."""
        return Inbox(self.folder / "requests")

    @property
    def is_supervised(self) -> bool:
        """Whether a process supervises the job now."""
        try:
            with (self.folder / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def writing(self, since: str) -> Iterator[Writer]:
        """Be the one writer, since `since`; SupervisedError if another process supervises it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        holder = f"host {socket.gethostname()}, pid {os.getpid()}, since {since}"
        with held(self.folder / "lock", holder) as other:
            if other is not None:
                raise SupervisedError(
                    f"{self.folder}: could not be supervised: another process does that already "
                    f"({other}); wait until it has ended, or end that process"
                )
            if self.events.exists():
                # Else the next event would continue the line of a supervisor that was killed.
                os.truncate(self.events, self.events.read_bytes().rfind(b"\n") + 1)
            yield Writer(self)

    def read_state(self) -> dict[str, Any] | None:
        """Read the state file; None if there is none."""
        if not self.state.exists():
            return None
        return _parsed(self.state.read_bytes(), str(self.state))

    def read_events(self) -> list[dict[str, Any]]:
        """Read all complete events; a last line without its end is left out."""
        return self.events_from(0)[0]

    def events_from(self, place: int) -> tuple[list[dict[str, Any]], int]:
        """Read the complete events from a byte of the file on; return where the next one begins."""
        if not self.events.exists():
            return [], place
        with self.events.open("rb") as file:
            file.seek(place)
            *lines, torn = (content := file.read()).split(b"\n")
        found = [_parsed(line, f"{self.events}:{n}") for n, line in enumerate(lines, 1)]
        return found, place + len(content) - len(torn)


class Writer(Value):
    """The right to write, held by `Store.writing`."""

    store: Store

    def state(self, document: Mapping[str, object]) -> None:
        """Replace the state file in one step; it survives a loss of power."""
        text = json.dumps(document, indent=1) + "\n"
        write_atomically(self.store.state, text.encode(), synced=True)

    def event(self, event: Mapping[str, object]) -> None:
        """Append one event; it is in the file when this returns."""
        line = json.dumps(event) + "\n"
        handle = os.open(self.store.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(line)


def _parsed(content: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AscendbootError(f"{where}: is not JSON: {error}; remove the file") from error
    if not isinstance(document, dict):
        raise AscendbootError(f"{where}: is not a JSON object; remove the file")
    return document
