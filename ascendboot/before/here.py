"""What is free on this side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ascendboot.parse.disk import FileSystem

if TYPE_CHECKING:
    from pathlib import Path


def file_system(path: Path) -> FileSystem:
    """The file system that holds a path; `path` stands for its mount point."""
    found = os.statvfs(path)
    return FileSystem(
        mount_point=str(path),
        free_bytes=found.f_bavail * found.f_frsize,
        free_inodes=found.f_favail if found.f_files else None,
    )
