"""Sends the training code to the nodes."""

from __future__ import annotations

import os
import shlex
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath

from ascendboot.errors import CommandError, InventoryError, UsageError
from ascendboot.facts.container import tree_query
from ascendboot.facts.query import Fact
from ascendboot.model import files
from ascendboot.model.cluster import Cluster
from ascendboot.model.files import MOST_BYTES, MOST_FILES, CodeTree, Entry
from ascendboot.model.names import counted, path_here
from ascendboot.model.report import Outcome, StepResult
from ascendboot.templates import script
from ascendboot.transport.api import Command, Transport, write_script
from ascendboot.value import Value, field, replace

PIECE = 2 * 1024**2
"""So many bytes are in memory at once, for each node that is sent to."""
_READ = 1 << 18
_MOST_SHOWN = 10
_MOST_NAMED = 5
_MOST_LISTED = 500
"""Of files to be sent; files to be deleted are all listed."""
_SECONDS_A_FILE = 0.05
_SLOWEST_PER_S = 10**6
"""The primary sends at least so many bytes a second."""


class Source(Value):
    """The code to send: a folder on the control machine, or the primary's own tree."""

    folder: Path | None
    """None: the primary's tree is the source for all other nodes."""
    shown: str
    """The folder as the inventory names it, or the primary's name."""
    tree: CodeTree = field(default_factory=CodeTree)
    """That of the primary is empty until it was queried."""

    def pieces(self, paths: Sequence[str]) -> Iterator[bytes]:
        """The contents of these files of the folder, joined, in pieces of one size but the last.

        Raises:
            UsageError: a file has changed its size since it was read.
        """
        folder, waiting = self.folder or Path(), bytearray()
        for path in paths:
            entry = self.tree.entries[path]
            if entry.target is not None:
                continue
            left = entry.size
            with (folder / path).open("rb") as file:
                while left and (data := file.read(min(_READ, PIECE - len(waiting), left))):
                    left -= len(data)
                    waiting += data
                    if len(waiting) == PIECE:
                        yield bytes(waiting)
                        waiting.clear()
            if left:
                why = "it has changed since; run setup again"
                raise UsageError(f"{self.shown}/{path}: could not be sent: {why}")
        if waiting:
            yield bytes(waiting)


def read_source(cluster: Cluster) -> Source | None:
    """The code that the inventory wants to be sent; None where it wants none.

    Raises:
        InventoryError: it cannot be read, or holds what cannot be sent; carries all problems.
    """
    shown = cluster.code_folder
    if shown is None:
        is_primary = cluster.code_source == files.PRIMARY
        return Source(None, cluster.primary_name) if is_primary else None
    folder = path_here(shown, cluster.source)
    if not folder.is_dir():
        why = f'"{shown}" is not a folder here; correct it'
        raise InventoryError([f"{cluster.source}: code.source: {why}"])
    if any(map(files.holds_ca_keys, (folder, folder.parent))):
        why = "holds the keys of a cluster's CA, which no node may have; state another folder"
        raise InventoryError([f"{cluster.source}: code.source: {shown} {why}"])
    problems: list[str] = []
    entries = _read_tree(folder, cluster.code_exclude, problems)
    if problems:
        more = len(problems) - _MOST_SHOWN
        lines = [
            f"{shown}/{problem}; remove it, or leave it out with `code.exclude`"
            for problem in sorted(problems)[:_MOST_SHOWN]
        ]
        raise InventoryError([*lines, *([f"{shown}: {more} more like these"] if more > 0 else [])])
    size = sum(entry.size for entry in entries.values())
    if len(entries) > MOST_FILES or size > MOST_BYTES:
        seen = f"{len(entries)} files and {size // 1024**2} MiB"
        most = f"{MOST_FILES} files and {MOST_BYTES // 1024**2} MiB"
        why = f"it holds {seen}, of at most {most}; leave data out with `code.exclude`"
        raise InventoryError([f"{shown}: could not be taken as code: {why}"])
    return Source(folder, shown, CodeTree(entries=dict(sorted(entries.items()))))


def _read_tree(folder: Path, exclude: Sequence[str], problems: list[str]) -> dict[str, Entry]:
    """All files and links of a folder; `problems` gets what cannot be sent, its path first.

    Beyond the limits files are only counted.
    """
    entries: dict[str, Entry] = {}
    folders, size = [""], 0
    while folders:
        below = folders.pop()
        try:
            items = list(os.scandir(folder / below))
        except OSError as error:
            problems.append(f"{below}: cannot be read: {error.strerror}")
            continue
        for item in items:
            path = f"{below}/{item.name}" if below else item.name
            if files.is_left_out(path, exclude):
                continue
            if item.is_dir(follow_symlinks=False) and not files.why_not_sent(item.name, None):
                if not files.holds_ca_keys(Path(item.path)):
                    folders.append(path)
                continue
            room = MOST_BYTES - size if len(entries) < MOST_FILES else -1
            entry = _read_entry(item, path, room)
            if isinstance(entry, str):
                problems.append(entry)
            else:
                entries[path] = entry
                size += entry.size
    return entries


def _read_entry(item: os.DirEntry[str], path: str, room: int) -> Entry | str:
    """A file or link, or its path and why it cannot be sent.

    The content of a file of more than `room` bytes is not read.
    """
    if why := files.why_not_sent(item.name, None):
        return f"{ascii(path)[1:-1]}: {why}"
    try:
        if item.is_symlink():
            link = Entry(target=str(Path(item.path).readlink()))
            why = files.why_not_sent(path, link)
            return f"{path}: {why}" if why else link
        if not item.is_file():
            return f"{path}: is neither file, folder nor link"
        with Path(item.path).open("rb") as file:
            status, digest = os.fstat(file.fileno()), sha256()
            while status.st_size <= room and (data := file.read(_READ)):
                digest.update(data)
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"
    mode = stat.S_IMODE(status.st_mode) & 0o777
    return Entry(digest.hexdigest(), mode, size=status.st_size)


class Work(Value):
    """Files to send to and delete from one node, as paths below the root."""

    send: tuple[str, ...]
    delete: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.send or self.delete)


class CodeSender(Value):
    """Sends the code of the control machine, or of the primary, to the nodes."""

    cluster: Cluster
    source: Source
    deletes: bool = False
    """Files that the source does not have are deleted from the nodes."""
    interrupted: threading.Event = field(default_factory=threading.Event)

    @property
    def path(self) -> str:
        """The place of the code on the nodes."""
        return self.cluster.code_path or ""

    def questions(self) -> dict[str, Fact[CodeTree]]:
        """Queries that replace those of the nodes' whole trees; none where those are needed."""
        return {} if self.source.folder is None else {"code_tree": self.question()}

    def after(self, trees: Mapping[str, CodeTree]) -> CodeSender:
        """The same sender, with the primary's tree as source where it is one."""
        if self.source.folder is not None:
            return self
        tree = trees.get(self.cluster.primary_name) or CodeTree()
        return replace(self, source=replace(self.source, tree=tree))

    def question(self) -> Fact[CodeTree]:
        """Queries which of the source's files a node has."""
        wanted, exclude = self.source.tree.entries, self.cluster.code_exclude
        return tree_query("names" if self.deletes else "listed", self.path, exclude, wanted)

    def work(self, there: CodeTree) -> Work:
        """What is missing or too much in a tree."""
        wanted = self.source.tree
        others = {*there.entries, *there.others} - {*wanted.entries} if self.deletes else set()
        # A name that a line cannot hold would be taken for two.
        delete = tuple(sorted(path for path in others if not files.why_not_sent(path, None)))
        return Work(files.unlike(wanted, there), delete)

    def needed(self, there: CodeTree) -> tuple[str, ...]:
        """What a job must not start without; results in the primary's own tree do not count."""
        entries, send = self.source.tree.entries, self.work(there).send
        if self.source.folder is None:
            return tuple(path for path in send if files.is_program(path, entries[path]))
        return send

    def planned(self, node: str, there: CodeTree) -> StepResult:
        """What would be sent to a node, and all that would be deleted there, by name."""
        work = self.work(there)
        if work.is_done:
            return self._unchanged(node)
        lines = []
        for path in work.send[:_MOST_LISTED]:
            before, how = there.entries.get(path), "new"
            if before is not None:
                is_same = before.has_content_of(self.source.tree.entries[path])
                how = "mode" if is_same else "changed"
            lines.append(f"{how} {path}")
        if len(work.send) > _MOST_LISTED:
            lines.append(f"and {len(work.send) - _MOST_LISTED} more to send")
        lines += [f"delete {path}" for path in work.delete]
        words = " and ".join(self._words(work, "send", "delete"))
        diff = "\n".join(lines)
        return StepResult(node, "code", "files", Outcome.WOULD_CHANGE, f"would {words}", diff=diff)

    def sync(
        self, transport: Transport, there: CodeTree, base: PurePosixPath, primary: Transport
    ) -> StepResult:
        """Send a node the files that it lacks, and check it again.

        Raises:
            NodeError: it could not be sent or put in place.
        """
        node, work = transport.node, self.work(there)
        if work.is_done:
            return self._unchanged(node)
        began = time.monotonic()
        waiting = []
        if self.source.folder is None:
            primary.run(self._carry(node, base, work)).checked()
        else:
            waiting = self._deliver(transport, base, work)
        question = self.question()
        *done, last = transport.run_all([*waiting, self._unpack(base, work), question.command])
        for result in done:
            result.checked()
        left = self.work(question.parse(last.checked()))
        took = time.monotonic() - began
        if not left.is_done:
            words = (
                f"{node}: the code did not converge: {_named((*left.send, *left.delete))} is not "
                "as in the source; does a job or another tool write there? Run setup again"
            )
            return StepResult(node, "code", "files", Outcome.FAILED, words, took)
        words = ", ".join(self._words(work, "sent", "deleted"))
        return StepResult(node, "code", "files", Outcome.CHANGED, words, took)

    def _unchanged(self, node: str) -> StepResult:
        count = len(self.source.tree.entries)
        words = f"{self.path} has the {count} files of {self.source.shown}"
        return StepResult(node, "code", "files", Outcome.OK, words)

    def _deliver(self, transport: Transport, base: PurePosixPath, work: Work) -> list[Command]:
        """Send all pieces but the last. Returns the command for it, to run with the next ones."""
        waiting: list[Command] = []
        text, purpose, offset = script("setup-code-receive.sh"), "send the code", 0
        for piece in self.source.pieces(work.send):
            for command in waiting:
                if self.interrupted.is_set():
                    raise CommandError(transport.node, "could not send the code: interrupted")
                transport.run(command).checked()
            receive = write_script(
                text, str(base), str(offset), purpose=purpose, stdin=piece, timeout_s=120.0
            )
            waiting, offset = [receive], offset + len(piece)
        return waiting

    def _bytes(self, work: Work) -> int:
        return sum(self.source.tree.entries[path].size for path in work.send)

    def _carry(self, name: str, base: PurePosixPath, work: Work) -> Command:
        """The command by which the primary sends files to a node over the cluster's sshd."""
        notes = shlex.quote(str(base / "code"))
        there = f"umask 022; mkdir -p {notes}; umask 077; cat >{notes}/incoming"
        entries = self.source.tree.entries
        paths = (f"{path}\0" for path in work.send if entries[path].target is None)
        address = self.cluster.node(name).cluster_address
        return write_script(
            script("setup-code-carry.sh"),
            *(str(base), self.path, address, f"bash -c {shlex.quote(there)}"),
            purpose=f"send the code to {name}",
            timeout_s=60.0 + self._bytes(work) / _SLOWEST_PER_S,
            stdin="".join(paths).encode(),
        )

    def _unpack(self, base: PurePosixPath, work: Work) -> Command:
        """The command that puts files in place, once all their bytes have arrived."""
        lines = []
        for path in work.send:
            entry = self.source.tree.entries[path]
            if entry.target is not None:
                lines.append(f"l\t-\t-\t{entry.target}\t{path}\n")
            else:
                lines.append(f"f\t{entry.size}\t{entry.mode:04o}\t{entry.sha256}\t{path}\n")
        lines += [f"d\t-\t-\t-\t{path}\n" for path in work.delete]
        return write_script(
            script("setup-code-unpack.sh"),
            *(str(base), str(self._bytes(work)), self.path),
            purpose="put the code in place",
            timeout_s=60.0 + _SECONDS_A_FILE * len(work.send),
            stdin="".join(lines).encode(),
        )

    def _words(self, work: Work, send: str, delete: str) -> Iterator[str]:
        """What is sent and what is deleted: `send 3 files, 1.2 MB: a, b, c`."""
        if work.send:
            size, count = self._bytes(work), len(work.send)
            units = ((10**6, "MB"), (10**3, "kB"))
            sizes = (f"{size / unit:.1f} {name}" for unit, name in units if size >= unit)
            amount = next(sizes, f"{size} bytes")
            yield f"{send} {counted(count, 'file')}, {amount}: {_named(work.send)}"
        if work.delete:
            yield f"{delete} {_named(work.delete)}"


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f", {more} more" if more > 0 else "")
