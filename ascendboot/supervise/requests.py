"""Requests of the operator to the supervisor of a job: small files that it reads and answers."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import DecodeError, json

from ascendboot.errors import UsageError
from ascendboot.model.files import write_atomically
from ascendboot.model.names import counted, fold
from ascendboot.supervise.core import Action, Core
from ascendboot.value import Value


class Request(Value, kw_only=True):
    """What the operator asks for."""

    verb: Literal["quarantine", "release", "resize", "stop"]
    nodes: tuple[str, ...] = ()
    count: int = 0
    reason: str = ""


class Answer(Value):
    """What was decided, or why a request was refused."""

    words: str
    is_refused: bool = False


class Inbox(Value):
    """The requests to one supervisor: any number of processes write, one answers."""

    folder: Path

    def hand_over(self, request: Request) -> str:
        """Write a request; return its id."""
        request_id = secrets.token_hex(8)
        write_atomically(self.folder / f"{request_id}.json", json.encode(request))
        return request_id

    def withdraw(self, request_id: str) -> bool:
        """Take a request back; False: the supervisor has already taken it."""
        try:
            (self.folder / f"{request_id}.json").unlink()
        except FileNotFoundError:
            return False
        return True

    def answer(self, request_id: str) -> Answer | None:
        """Return the answer to a request, once; None: there is none yet."""
        path = self.folder / f"{request_id}.answer"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        path.unlink()
        return json.decode(content, type=Answer)

    def carry_out(self, core: Core, at: float, done: Callable[[str], None]) -> tuple[Action, ...]:
        """Carry out and answer the oldest request, if there is one; return what is to be done.

        `done` gets what was decided and saves the state; then the answer is written.
        """
        found = sorted((path.stat().st_mtime_ns, path) for path in self.folder.glob("*.json"))
        if not found:
            return ()
        path, actions = found[0][1], tuple[Action, ...]()
        content = path.read_bytes()
        path.unlink()
        try:
            actions, words = carry_out(core, at, json.decode(content, type=Request))
            done(words)
            answer = Answer(words)
        except UsageError as error:
            answer = Answer(str(error), is_refused=True)
        except DecodeError:
            words = "the request is not of this version; use the version of ascendboot that trains"
            answer = Answer(words, is_refused=True)
        write_atomically(path.with_suffix(".answer"), json.encode(answer))
        return actions


def carry_out(core: Core, at: float, request: Request) -> tuple[tuple[Action, ...], str]:
    """Pass a request to the core; return what is to be done, and in words what was decided."""
    if request.verb == "stop":
        words = "stop was requested; nothing is started again"
        return core.interrupt(at, "the job was stopped with stop"), words
    if core.end or core.is_interrupted:
        why = core.end.words if core.end else "it was interrupted"
        raise UsageError(f"{request.verb}: the job has ended or is being ended: {why}")
    if request.verb == "resize":
        return core.resize(at, request.count), f"at most {counted(request.count, 'node')}"
    if request.verb == "release":
        return core.release(at, *request.nodes), f"released {fold(request.nodes)}"
    words = f"quarantined {fold(request.nodes)}"
    return core.quarantine(at, request.nodes, request.reason), words
