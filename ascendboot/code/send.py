"""Making `code.path` on the nodes equal to a source: what is missing, and how it gets there."""

from __future__ import annotations

import shlex
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ascendboot.code.scripts import CARRY, RECEIVE, UNPACK
from ascendboot.code.source import OnPrimary
from ascendboot.errors import CommandError
from ascendboot.facts.code import files_question
from ascendboot.model.code import CodeTree, is_program, unlike, why_not_sent
from ascendboot.model.report import Outcome, StepResult
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import PurePosixPath

    from ascendboot.code.source import Source
    from ascendboot.facts.api import Fact
    from ascendboot.model.cluster import Cluster
    from ascendboot.transport.api import Transport

PHASE = "code"
STEP = "files"
_MOST_NAMED = 5
_MOST_LISTED = 500
"""Of files to be sent; what would be deleted is always listed whole."""
_SECONDS_A_FILE = 0.05
_SLOWEST_PER_S = 10**6
"""So many bytes a second the primary sends at least."""


@dataclass(frozen=True)
class Work:
    """What is to be done on one node, as paths below the root."""

    send: tuple[str, ...]
    delete: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.send or self.delete)


@dataclass(frozen=True)
class Sending:
    """The wish that the nodes have the code of this side, or that of the primary."""

    cluster: Cluster
    source: Source | OnPrimary
    deletes: bool = False
    """What the source has not is to go from the nodes as well."""
    interrupted: threading.Event = field(default_factory=threading.Event)

    @property
    def path(self) -> str:
        """Where the code lies on the nodes."""
        return self.cluster.code_path or ""

    def questions(self) -> dict[str, Fact[CodeTree]]:
        """What is asked in place of the nodes' whole trees; nothing where those are needed."""
        return {} if isinstance(self.source, OnPrimary) else {"code_tree": self.question()}

    def after(self, trees: Mapping[str, CodeTree]) -> Sending:
        """The same wish, once every node has told what it has."""
        if not isinstance(self.source, OnPrimary):
            return self
        tree = trees.get(self.cluster.primary_name) or CodeTree()
        return replace(self, source=replace(self.source, tree=tree))

    def question(self) -> Fact[CodeTree]:
        """Asks a node for what it has of the source's files."""
        return files_question(
            self.path,
            self.cluster.code_exclude,
            self.source.tree.entries,
            with_others=self.deletes,
        )

    def work(self, there: CodeTree) -> Work:
        """What is to be done where this is there."""
        wanted = self.source.tree
        others = {*there.entries, *there.others} - {*wanted.entries} if self.deletes else set()
        # a name that a line cannot hold would be taken for two
        delete = tuple(sorted(path for path in others if not why_not_sent(path, None)))
        return Work(unlike(wanted, there), delete)

    def needed(self, there: CodeTree) -> tuple[str, ...]:
        """What a job must not start without; of the primary's own tree its results are not."""
        entries, send = self.source.tree.entries, self.work(there).send
        if isinstance(self.source, OnPrimary):
            return tuple(path for path in send if is_program(path, entries[path]))
        return send

    def planned(self, node: str, there: CodeTree) -> StepResult:
        """What would be sent to a node, and all that would be deleted there, by name."""
        work = self.work(there)
        if work.is_done:
            return self._result(node, Outcome.OK, self._as_is)
        words = " and ".join(
            part for part in (self._to_send(work, "send"), _deleted(work, "delete")) if part
        )
        lines = [f"{self._how(path, there)} {path}" for path in work.send[:_MOST_LISTED]]
        if len(work.send) > _MOST_LISTED:
            lines.append(f"and {len(work.send) - _MOST_LISTED} more to send")
        lines += [f"delete {path}" for path in work.delete]
        return self._result(node, Outcome.WOULD_CHANGE, f"would {words}", diff="\n".join(lines))

    def settle(
        self, transport: Transport, there: CodeTree, base: PurePosixPath, primary: Transport
    ) -> StepResult:
        """Send a node what it lacks, and look again.

        Raises:
            NodeError: it could not be sent or put in place.
        """
        work = self.work(there)
        if work.is_done:
            return self._result(transport.node, Outcome.OK, self._as_is)
        began = time.monotonic()
        total = sum(self.source.tree.entries[path].size for path in work.send)
        waiting = []
        if isinstance(self.source, OnPrimary):
            primary.run(self._carry(transport.node, base, total, work)).checked()
        else:
            waiting = self._deliver(self.source, transport, base, work)
        question = self.question()
        *done, last = transport.run_all(
            [*waiting, self._unpack(base, total, work), question.command]
        )
        for result in done:
            result.checked()
        left = self.work(question.parse(last.checked()))
        took = time.monotonic() - began
        if not left.is_done:
            names = _named((*left.send, *left.delete))
            words = f"{transport.node}: the code did not settle: {names} is not as in the source; "
            words += "does a job or another tool write there? Run setup again"
            return self._result(transport.node, Outcome.FAILED, words, took)
        words = ", ".join(
            part for part in (self._to_send(work, "sent"), _deleted(work, "deleted")) if part
        )
        return self._result(transport.node, Outcome.CHANGED, words, took)

    @property
    def _as_is(self) -> str:
        return f"{self.path} has the {len(self.source.tree.entries)} files of {self.source.shown}"

    def _deliver(
        self, source: Source, transport: Transport, base: PurePosixPath, work: Work
    ) -> list[Command]:
        """Send all pieces but the last, which goes together with what follows."""
        waiting: list[Command] = []
        offset = 0
        for piece in source.pieces(work.send):
            for command in waiting:
                if self.interrupted.is_set():
                    raise CommandError(transport.node, "could not send the code: interrupted")
                transport.run(command).checked()
            waiting = [self._receive(base, offset, piece)]
            offset += len(piece)
        return waiting

    def _carry(self, name: str, base: PurePosixPath, total: int, work: Work) -> Command:
        """Has the primary send a node the contents of files, by the cluster's own trust."""
        notes = shlex.quote(str(base / "code"))
        there = f"umask 022; mkdir -p {notes}; umask 077; cat >{notes}/incoming"
        files = (path for path in work.send if self.source.tree.entries[path].target is None)
        address = self.cluster.node(name).cluster_address
        words = ("carry", str(base), self.path, address, f"bash -c {shlex.quote(there)}")
        return Command(
            argv=("bash", "-c", CARRY, *words),
            purpose=f"send the code to {name}",
            effect=Effect.WRITE,
            timeout_s=60.0 + total / _SLOWEST_PER_S,
            stdin="".join(f"{path}\0" for path in files).encode(),
        )

    @staticmethod
    def _receive(base: PurePosixPath, offset: int, piece: bytes) -> Command:
        return Command(
            argv=("bash", "-c", RECEIVE, "receive", str(base), str(offset)),
            purpose="send the code",
            effect=Effect.WRITE,
            timeout_s=120.0,
            stdin=piece,
        )

    def _unpack(self, base: PurePosixPath, total: int, work: Work) -> Command:
        return Command(
            argv=("bash", "-c", UNPACK, "unpack", str(base), str(total), self.path),
            purpose="put the code in place",
            effect=Effect.WRITE,
            timeout_s=60.0 + _SECONDS_A_FILE * len(work.send),
            stdin="".join(self._lines(work)).encode(),
        )

    def _lines(self, work: Work) -> Iterator[str]:
        for path in work.send:
            entry = self.source.tree.entries[path]
            if entry.target is not None:
                yield f"l\t-\t-\t{entry.target}\t{path}\n"
            else:
                yield f"f\t{entry.size}\t{entry.mode:04o}\t{entry.sha256}\t{path}\n"
        for path in work.delete:
            yield f"d\t-\t-\t-\t{path}\n"

    def _to_send(self, work: Work, verb: str) -> str:
        if not work.send:
            return ""
        size = sum(self.source.tree.entries[path].size for path in work.send)
        many = "file" if len(work.send) == 1 else "files"
        return f"{verb} {len(work.send)} {many}, {_amount(size)}: {_named(work.send)}"

    def _how(self, path: str, there: CodeTree) -> str:
        before, wanted = there.entries.get(path), self.source.tree.entries[path]
        if before is None:
            return "new"
        return "mode" if before.has_content_of(wanted) else "changed"

    @staticmethod
    def _result(
        node: str, outcome: Outcome, detail: str, duration_s: float = 0.0, diff: str = ""
    ) -> StepResult:
        return StepResult(
            node=node,
            phase=PHASE,
            step=STEP,
            outcome=outcome,
            detail=detail,
            duration_s=duration_s,
            diff=diff,
        )


def _deleted(work: Work, verb: str) -> str:
    return f"{verb} {_named(work.delete)}" if work.delete else ""


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f", {more} more" if more > 0 else "")


def _amount(size: int) -> str:
    for unit, bytes_ in (("MB", 10**6), ("kB", 10**3)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size} bytes"
