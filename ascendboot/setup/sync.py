"""Sends the training code to the nodes, and removes it."""

from __future__ import annotations

import os
import shlex
import stat
import threading
import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.errors import CommandError, InventoryError, NotUnderstoodError, UsageError
from ascendboot.facts.container import files_query
from ascendboot.facts.installed import base_script
from ascendboot.model.files import (
    MOST_BYTES,
    MOST_FILES,
    PRIMARY,
    CodeTree,
    Entry,
    is_left_out,
    is_program,
    unlike,
    why_not_sent,
)
from ascendboot.model.report import Outcome, StepResult
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result, Transport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.facts.query import Fact
    from ascendboot.model.cluster import Cluster

PIECE = 2 * 1024**2
"""So many bytes are in memory at once, for each node that is sent to."""
_READ = 1 << 18
_MOST_SHOWN = 10


@dataclass(frozen=True)
class Source:
    """A folder on the control machine and the code in it."""

    folder: Path
    shown: str
    """As the inventory names it."""
    tree: CodeTree

    def pieces(self, paths: Sequence[str]) -> Iterator[bytes]:
        """The contents of these files, one after the other, in pieces of one size but the last.

        Raises:
            UsageError: a file has changed its size since it was read.
        """
        waiting = bytearray()
        for path in paths:
            entry = self.tree.entries[path]
            if entry.target is not None:
                continue
            left = entry.size
            with (self.folder / path).open("rb") as file:
                while left and (data := file.read(min(_READ, PIECE - len(waiting), left))):
                    left -= len(data)
                    waiting += data
                    if len(waiting) == PIECE:
                        yield bytes(waiting)
                        waiting.clear()
            if left:
                raise UsageError(
                    f"{self.shown}/{path}: could not be sent: it changed meanwhile; run setup again"
                )
        if waiting:
            yield bytes(waiting)


@dataclass(frozen=True)
class OnPrimary:
    """The primary's own tree, as the source for all other nodes."""

    shown: str
    """The primary's name."""
    tree: CodeTree = field(default_factory=CodeTree)
    """Empty until the primary was queried."""


def read_source(cluster: Cluster) -> Source | OnPrimary | None:
    """The code that the inventory wants to be sent; None where it wants none.

    Raises:
        InventoryError: it cannot be read, or holds what cannot be sent; carries all problems.
    """
    if cluster.code_folder is None:
        return OnPrimary(cluster.primary_name) if cluster.code_source == PRIMARY else None
    shown = cluster.code_folder
    folder = Path(shown).expanduser()
    if not folder.is_dir():
        raise InventoryError(
            [f'{cluster.source}: code.source: "{shown}" is no folder here; correct it']
        )
    reader = _Reader(folder, cluster.code_exclude)
    entries = dict(sorted(reader.entries("")))
    if reader.problems:
        shown_problems = [f"{shown}/{problem}" for problem in sorted(reader.problems)[:_MOST_SHOWN]]
        more = len(reader.problems) - len(shown_problems)
        raise InventoryError(
            [*shown_problems, *([f"{shown}: {more} more like these"] if more > 0 else [])]
        )
    _refuse_too_much(shown, entries)
    return Source(folder, shown, CodeTree(entries=entries))


class _Reader:
    """Walks a folder; `problems` are what cannot be sent, each with its path first."""

    def __init__(self, folder: Path, exclude: Sequence[str]) -> None:
        self.problems: list[str] = []
        self._folder = folder
        self._exclude = exclude
        self._count = 0
        self._bytes = 0

    def entries(self, below: str) -> Iterator[tuple[str, Entry]]:
        """All files and links below a folder."""
        try:
            found = sorted(os.scandir(self._folder / below), key=lambda item: item.name)
        except OSError as error:
            self._refuse(below, f"cannot be read: {error.strerror}")
            return
        for item in found:
            path = f"{below}/{item.name}" if below else item.name
            if is_left_out(path, self._exclude):
                continue
            if why := why_not_sent(item.name, None):
                self._refuse(ascii(path)[1:-1], why)
            elif item.is_symlink():
                yield from self._link(path)
            elif item.is_dir():
                yield from self.entries(path)
            elif item.is_file():
                yield from self._file(path)
            else:
                self._refuse(path, "is neither file, folder nor link")

    def _link(self, path: str) -> Iterator[tuple[str, Entry]]:
        entry = Entry(target=str((self._folder / path).readlink()))
        if why := why_not_sent(path, entry):
            self._refuse(path, why)
        else:
            yield path, entry

    def _file(self, path: str) -> Iterator[tuple[str, Entry]]:
        try:
            with (self._folder / path).open("rb") as file:
                status = os.fstat(file.fileno())
                self._count += 1
                self._bytes += status.st_size
                digest = sha256()
                if self._count <= MOST_FILES and self._bytes <= MOST_BYTES:
                    while data := file.read(_READ):
                        digest.update(data)
        except OSError as error:
            self._refuse(path, f"cannot be read: {error.strerror}")
            return
        mode = stat.S_IMODE(status.st_mode) & 0o777
        yield path, Entry(digest.hexdigest(), mode, size=status.st_size)

    def _refuse(self, path: str, why: str) -> None:
        self.problems.append(f"{path}: {why}; remove it, or leave it out with `code.exclude`")


def _refuse_too_much(shown: str, entries: dict[str, Entry]) -> None:
    size = sum(entry.size for entry in entries.values())
    if len(entries) > MOST_FILES or size > MOST_BYTES:
        raise InventoryError(
            [
                (
                    f"{shown}: could not be taken as code: it holds {len(entries)} files and "
                    f"{size // 1024**2} MiB, of at most {MOST_FILES} files and "
                    f"{MOST_BYTES // 1024**2} MiB; leave data out with `code.exclude`"
                )
            ]
        )


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
    """Files to send to and delete from one node, as paths below the root."""

    send: tuple[str, ...]
    delete: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.send or self.delete)


@dataclass(frozen=True)
class CodeSender:
    """Sends the code of the control machine, or of the primary, to the nodes."""

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
        """Queries that replace those of the nodes' whole trees; none where those are needed."""
        return {} if isinstance(self.source, OnPrimary) else {"code_tree": self.question()}

    def after(self, trees: Mapping[str, CodeTree]) -> CodeSender:
        """The same sender, with the primary's tree as source where it is one."""
        if not isinstance(self.source, OnPrimary):
            return self
        tree = trees.get(self.cluster.primary_name) or CodeTree()
        return replace(self, source=replace(self.source, tree=tree))

    def question(self) -> Fact[CodeTree]:
        """Queries which of the source's files a node has."""
        return files_query(
            self.path,
            self.cluster.code_exclude,
            self.source.tree.entries,
            with_others=self.deletes,
        )

    def work(self, there: CodeTree) -> Work:
        """What is missing or too much in a tree."""
        wanted = self.source.tree
        others = {*there.entries, *there.others} - {*wanted.entries} if self.deletes else set()
        # a name that a line cannot hold would be taken for two
        delete = tuple(sorted(path for path in others if not why_not_sent(path, None)))
        return Work(unlike(wanted, there), delete)

    def needed(self, there: CodeTree) -> tuple[str, ...]:
        """What a job must not start without; results in the primary's own tree do not count."""
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

    def sync(
        self, transport: Transport, there: CodeTree, base: PurePosixPath, primary: Transport
    ) -> StepResult:
        """Send a node the files that it lacks, and check it again.

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
            words = f"{transport.node}: the code did not converge: {names} is not as in the "
            words += "source; does a job or another tool write there? Run setup again"
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
        """The command by which the primary sends files to a node over the cluster's sshd."""
        notes = shlex.quote(str(base / "code"))
        there = f"umask 022; mkdir -p {notes}; umask 077; cat >{notes}/incoming"
        files = (path for path in work.send if self.source.tree.entries[path].target is None)
        address = self.cluster.node(name).cluster_address
        words = ("carry", str(base), self.path, address, f"bash -c {shlex.quote(there)}")
        return Command(
            argv=("bash", "-c", script("setup-code-carry.sh"), *words),
            purpose=f"send the code to {name}",
            effect=Effect.WRITE,
            timeout_s=60.0 + total / _SLOWEST_PER_S,
            stdin="".join(f"{path}\0" for path in files).encode(),
        )

    @staticmethod
    def _receive(base: PurePosixPath, offset: int, piece: bytes) -> Command:
        return Command(
            argv=("bash", "-c", script("setup-code-receive.sh"), "receive", str(base), str(offset)),
            purpose="send the code",
            effect=Effect.WRITE,
            timeout_s=120.0,
            stdin=piece,
        )

    def _unpack(self, base: PurePosixPath, total: int, work: Work) -> Command:
        return Command(
            argv=(
                "bash",
                "-c",
                script("setup-code-unpack.sh"),
                "unpack",
                str(base),
                str(total),
                self.path,
            ),
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


@dataclass(frozen=True)
class SentCode:
    """The sent code that is left on a node."""

    files: int
    """How many are as they were sent; files from before do not count."""
    changed: tuple[str, ...] = ()
    """Absolute paths of files changed since; they are never removed."""
    problems: tuple[str, ...] = ()
    """What could not be removed."""


def sent_code_query(cluster: str) -> Command:
    """Queries what there is to remove; `parse_sent_code` reads the answer."""
    return _command(cluster, "look", "look for the code that was sent", Effect.READ)


def sent_code_removal(cluster: str) -> Command:
    """Removes the files that were sent and are as they were, and folders that were made."""
    return _command(cluster, "remove", "remove the code that was sent", Effect.WRITE)


def parse_sent_code(result: Result) -> SentCode:
    """Parses the output of either command: what was there before.

    Raises:
        CommandError: the command failed on the node, or its answer was not understood.
    """
    files, values = 0, dict[str, list[str]](changed=[], problem=[])
    *lines, last = result.checked().lines or ("",)
    for number, line in enumerate(lines, 1):
        kind, _, rest = line.partition(" ")
        if kind == "files":
            files = int(rest)
        elif kind in values:
            values[kind].append(rest)
        else:
            problem = NotUnderstoodError("sent code", number, line, "files, changed or problem")
            raise CommandError(result.node, f"could not {result.command.purpose}: {problem}")
    if last != "end":
        raise CommandError(result.node, f"could not {result.command.purpose}: it did not end")
    return SentCode(files, tuple(values["changed"]), tuple(values["problem"]))


def _command(cluster: str, mode: str, purpose: str, effect: Effect) -> Command:
    text = base_script(cluster) + script("setup-code-remove.sh", mode=mode)
    return Command(argv=("bash", "-c", text), purpose=purpose, effect=effect, timeout_s=120.0)
