"""`train --on-event`, `--metrics`: pass what happens to a supervised job to other programs."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ascendboot.cli.common import event_target
from ascendboot.errors import AscendbootError
from ascendboot.model.files import write_atomically
from ascendboot.supervise.core import Core
from ascendboot.supervise.history import generations, metrics_text
from ascendboot.supervise.store import Store

_COMMAND_S: Final = 10.0
_WEBHOOK_S: Final = 5.0
_END_S: Final = 15.0
"""After the end of a job, for the events that are left."""
_MOST_WAITING: Final = 100
_METRICS_S: Final = 10.0


class HookError(AscendbootError):
    """An event could not be passed on."""


@contextmanager
def hook(
    target: str, warn: Callable[[str], None]
) -> Iterator[Callable[[Mapping[str, object]], None]]:
    """Yield a function that passes events on, in a thread of its own; it never waits.

    `target` is a command line or an http(s) URL; UsageError if it is neither. The first problem is
    passed to `warn`.
    """
    where = event_target(target)
    send = partial(_post, where) if isinstance(where, str) else partial(_run, where)
    sender = _Sender(send, warn)
    worker = threading.Thread(target=sender.run, name="on-event", daemon=True)
    worker.start()
    try:
        yield sender.put
    finally:
        with suppress(queue.Full):
            sender.waiting.put(None, timeout=_END_S)
        worker.join(_END_S)
        if worker.is_alive():
            sender.problem(f"events were left when the job had ended ({sender.waiting.qsize()})")


class _Sender:
    """A bounded queue of events, and what passes them on."""

    def __init__(self, send: Callable[[bytes], None], warn: Callable[[str], None]) -> None:
        self._send, self._warn, self._has_warned = send, warn, False
        self.waiting: queue.Queue[bytes | None] = queue.Queue(_MOST_WAITING)

    def put(self, event: Mapping[str, object]) -> None:
        """Pass an event on later; it is dropped if too many wait."""
        try:
            self.waiting.put_nowait(json.dumps(event).encode())
        except queue.Full:
            self.problem(f"{_MOST_WAITING} events wait, and newer ones are dropped")

    def run(self) -> None:
        """Pass events on until None comes."""
        while (document := self.waiting.get()) is not None:
            try:
                self._send(document)
            except (OSError, HookError) as error:  # noqa: PERF203 - those that follow are sent
                self.problem(str(error))

    def problem(self, words: str) -> None:
        """Print the first problem; those that follow would repeat it."""
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"warning: --on-event: {words}; the job continues, later ones are not shown")


def _run(argv: list[str], document: bytes, *, timeout_s: float = _COMMAND_S) -> None:
    """Run a command without a shell, with an event on its standard input; end all of it in time."""
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
    ) as process:
        try:
            process.communicate(document, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise HookError(f"{argv[0]}: ran for {timeout_s:g} s and was ended") from error
    if process.returncode:
        raise HookError(f"{argv[0]}: ended with exit code {process.returncode}")


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: they would send the event elsewhere, or without its body."""

    def redirect_request(self, *_: object) -> NoReturn:
        """Refuse."""
        raise HookError("the URL redirects; state the URL that it leads to")


def _post(url: str, document: bytes) -> None:
    """Send an event to a URL as JSON; the answer is not read."""
    headers = {"Content-Type": "application/json"}
    request = Request(url, data=document, headers=headers, method="POST")  # noqa: S310 - http(s)
    host = urlsplit(url).hostname
    try:
        build_opener(_NoRedirects).open(request, timeout=_WEBHOOK_S).close()
    except (OSError, HTTPException) as error:
        raise HookError(f"{host}: {error}") from error


class MetricsFile:
    """A file with the figures of a job, replaced after each event and every few seconds."""

    def __init__(self, path: Path, job: str, store: Store, warn: Callable[[str], None]) -> None:
        self._path, self._job, self._store, self._warn = path, job, store, warn
        self._changed, self._over, self._has_warned = threading.Event(), False, False

    def changed(self, _event: Mapping[str, object]) -> None:
        """Replace the file soon."""
        self._changed.set()

    @contextmanager
    def of(self, core: Core) -> Iterator[None]:
        """Replace the file in a thread of its own until the block ends, and once more then."""
        self.write(core)
        worker = threading.Thread(target=self._run, args=(core,), name="metrics", daemon=True)
        worker.start()
        try:
            yield
        finally:
            self._over = True
            self._changed.set()
            worker.join(_END_S)
            self._write_or_warn(core)

    def write(self, core: Core) -> None:
        """Replace the file, which every user may read; OSError if it could not be written."""
        events, now = self._store.read_events(), time.time()
        times = (datetime.fromisoformat(e["time"]).timestamp() for e in events if "time" in e)
        text = metrics_text(
            self._job, core, generations(events), last_event=max(times, default=now), now=now
        )
        write_atomically(self._path, text.encode(), mode=0o644)

    def _run(self, core: Core) -> None:
        while True:
            self._changed.wait(_METRICS_S)
            self._changed.clear()
            if self._over:
                return
            self._write_or_warn(core)

    def _write_or_warn(self, core: Core) -> None:
        try:
            self.write(core)
        except OSError as error:
            if not self._has_warned:
                self._warn(f"warning: --metrics: {error}; the job continues")
            self._has_warned = True
