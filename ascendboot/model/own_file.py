"""OwnFile: a file of ours on a node, as it was seen or left there; and where they lie."""

from __future__ import annotations

from dataclasses import dataclass

FOLDER = "/var/lib/ascendboot"
"""Holds the folders of root's clusters on a node; other users have theirs in ~/.ascendboot."""


@dataclass(frozen=True)
class OwnFile:
    """SHA-256 of its content and its mode as in chmod."""

    sha256: str
    mode: int
