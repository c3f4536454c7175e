"""`df -B1 --output=…`: free space and free inodes of file systems."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.parse.reading import lines_of, nothing_printed

TOOL = "df -B1 --output=avail,itotal,iavail,target"
_HEADER = re.compile(r"\s*Avail\s+Inodes\s+IFree\s+Mounted on\s*")
_ROW = re.compile(r"\s*(-?[0-9]+)\s+(-|[0-9]+)\s+(-|[0-9]+)\s+(/.*)")


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """What is free on the file system that holds a path."""

    mount_point: str
    free_bytes: int
    free_inodes: int | None
    """None: this kind of file system has no fixed number of them."""


def parse(text: str) -> tuple[FileSystem, ...]:
    """One entry per path asked for, in that order.

    Raises:
        NotUnderstoodError: a line is not in the known form, or there is no row.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(TOOL, "a header")
    if not _HEADER.fullmatch(lines[0].text):
        raise lines[0].not_understood(TOOL, "Avail, Inodes, IFree, Mounted on")
    found = []
    for line in lines[1:]:
        match = _ROW.fullmatch(line.text)
        if match is None:
            raise line.not_understood(TOOL, "free bytes, inodes, free inodes, mount point")
        has_inodes = match[2] not in ("-", "0") and match[3] != "-"
        found.append(
            FileSystem(
                mount_point=match[4],
                free_bytes=int(match[1]),
                free_inodes=int(match[3]) if has_inodes else None,
            )
        )
    if not found:
        raise lines[0].not_understood(TOOL, "a row below the header")
    return tuple(found)
