"""What stands before each line of a rank, its node and number: plain, or in colours by node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""Codes of terminals (ECMA-48), none of red: errors and what `--grep` finds are red."""


def plain(node: str, rank: int) -> bytes:
    """As a file, a pipe and other programs get it."""
    return f"{node}:{rank} | ".encode()


def by_node(nodes: Sequence[str]) -> Callable[[str, int], bytes]:
    """The same in a colour for each node; one node of a job has the same colour at any time.

    A colour that a line of another rank left on ends there, and the rank's own words begin plain.
    """
    places = {node: place for place, node in enumerate(nodes)}

    def coloured(node: str, rank: int) -> bytes:
        colour = _COLOURS[places[node] % len(_COLOURS)]
        return f"\x1b[0;{colour}m{node}:{rank} |\x1b[0m ".encode()

    return coloured
