"""OwnFile: a file of ours on a node, as it was seen or left there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnFile:
    """SHA-256 of its content and its mode as in chmod."""

    sha256: str
    mode: int
