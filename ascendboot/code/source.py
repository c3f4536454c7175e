"""The code on the operator's side: what it holds, and its bytes piece by piece."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.errors import InventoryError, UsageError
from ascendboot.model.code import (
    MOST_BYTES,
    MOST_FILES,
    PRIMARY,
    CodeTree,
    Entry,
    is_left_out,
    why_not_sent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ascendboot.model.cluster import Cluster

PIECE = 2 * 1024**2
"""So many bytes are in memory at once, for each node that is sent to."""
_READ = 1 << 18
_MOST_TOLD = 10


@dataclass(frozen=True)
class Source:
    """A folder of this side and what it holds of code."""

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
    """Empty until the primary was asked."""


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
        told = [f"{shown}/{problem}" for problem in sorted(reader.problems)[:_MOST_TOLD]]
        more = len(reader.problems) - len(told)
        raise InventoryError([*told, *([f"{shown}: {more} more like these"] if more > 0 else [])])
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
