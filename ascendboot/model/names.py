"""Sets of names and numbers, folded and counted: `lab-[01-03,07]`, `4 nodes`, `ranks 0-7,9`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# ClusterShell is imported where it is used: a job that goes well has no names to fold.


def fold(names: Iterable[str]) -> str:
    """One short text for a set of names, `lab-[1-3]`; the order of the input does not matter."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # noqa: PLC0415

    return str(NodeSet.fromlist(sorted(names), resolver=RESOLVER_NOGROUP))


def counted(number: int, kind: str) -> str:
    """`1 node`, `2 nodes`; `kind` is the word for one."""
    return f"{number} {kind}" if number == 1 else f"{number} {kind}s"


def runs(numbers: Iterable[int]) -> str:
    """`0-3,5`; the order of the input does not matter."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ",".join("-".join(map(str, run)) for run in found)


def ranks_named(ranks: Collection[int]) -> str:
    """`rank 3`, or `ranks 0-7,9`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {runs(ranks)}"


def expand(pattern: str) -> tuple[str, ...]:
    """The names that `pattern` stands for, in counting order; a plain name stands for itself.

    Raises:
        ValueError: the pattern is not a name or a range such as `atlas-[01-16]`.
    """
    if "[" not in pattern and "]" not in pattern:
        return (pattern,)
    from ClusterShell.NodeSet import (  # noqa: PLC0415
        RESOLVER_NOGROUP,
        NodeSet,
        NodeSetParseError,
    )

    try:
        return tuple(NodeSet(pattern, resolver=RESOLVER_NOGROUP))
    except NodeSetParseError as error:
        raise ValueError(str(error)) from error


def names_file_here(script: str) -> bool:
    """Whether a script's name means a file on the control machine, whatever the nodes have."""
    return script.startswith(("./", "../", "/"))
