"""Laying out files for a node, whatever the umask is."""

from __future__ import annotations

import stat
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def ours(name: str) -> str:
    """The text of one of the files that go onto nodes as they are."""
    return resources.files("ascendboot.lab").joinpath("node", name).read_text()


def put(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file, and the directories that it lies in."""
    directory(path.parent)
    path.write_text(text)
    path.chmod(mode)


def directory(path: Path, *, mode: int = 0o755) -> None:
    """Make the directory and its missing parents."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for place in reversed(missing):
        place.mkdir()
        place.chmod(0o755)
    if stat.S_IMODE(path.stat().st_mode) != mode and path in missing:
        path.chmod(mode)
