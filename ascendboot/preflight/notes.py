"""What the ranks of a preflight said: one Said per rank, read from its log."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ascendboot.errors import NotUnderstoodError
from ascendboot.launch.plan import rank_log
from ascendboot.preflight import program
from ascendboot.preflight.program import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ascendboot.model.placement import Placement

STAGES = ("", "start", *program.STAGES)
"""What a rank does, in this order; empty: nothing was heard of it."""


@dataclass(frozen=True)
class Place:
    """Where a rank should be."""

    rank: int
    node: str
    server_id: str
    device_id: int
    local_rank: int
    env: Mapping[str, str] = field(default_factory=dict)
    """What the inventory states for its node alone."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """One rank's words."""

    at: str = ""
    """The last of `STAGES` that it began."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """As the program on the nodes gives them; empty: it never came so far."""
    digest: str = ""
    """Of the facts as they were written."""
    library: str = ""
    """Through which it met the others, with its version."""
    digests: tuple[str, ...] = ()
    """What all ranks gave to this one, in the order of the collective."""
    wrong: tuple[float, ...] = ()
    """Place, value and right value of the first wrong number of the sum."""
    clock: float | None = None
    """The time of its node just after the sum."""
    failed: str = ""
    """Why it gave up, in the stage `at`."""
    after_s: float = 0.0
    """How long it had been in that stage when it gave up."""
    silent: int | None = None
    """The rank that it did not hear."""
    is_late: bool = False
    """It took too long for the stage, and so it ended itself."""
    others: tuple[str, ...] = ()
    """What else is in its log."""


def places(placement: Placement) -> tuple[Place, ...]:
    """Where every rank should be, in rank order."""
    return tuple(
        Place(
            rank,
            slot.node.name,
            slot.node.server_id,
            slot.device_id,
            slot.local_rank,
            slot.node.env,
        )
        for rank, slot in enumerate(placement.slots)
    )


def read(folder: Path, ranks: Sequence[int]) -> dict[int, Said]:
    """What each rank said, by the copies of the logs in a folder; a rank without one said nothing.

    Raises:
        NotUnderstoodError: a note has another form than the program on the nodes gives it.
    """
    return {rank: said(_text(folder / rank_log(rank))) for rank in ranks}


def said(text: str) -> Said:
    """What a rank said, by the text of its log; a last line that has no end yet does not count.

    Raises:
        NotUnderstoodError: as for `read`.
    """
    known: dict[str, Any] = {"at": ""}
    others = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        # What a library writes without an end of the line stands before.
        before, mark, rest = line.partition(MARK)
        if before.strip():
            others.append(before)
        if mark:
            try:
                known.update(_noted(json.loads(rest)))
            except (KeyError, TypeError, ValueError) as error:
                raise NotUnderstoodError(
                    "the preflight's notes", number, line[:200], "a stage and what belongs to it"
                ) from error
    is_late = any(line.startswith("Timeout (") for line in others)
    return Said(**known, is_late=is_late, others=tuple(others))


def _noted(note: Mapping[str, Any]) -> dict[str, Any]:
    """What a note adds to all before it."""
    if not note:
        raise ValueError(note)
    known = {name: _READ[name](value) for name, value in dict(note).items()}
    if "facts" in note:
        known["digest"] = sha256(note["facts"].encode()).hexdigest()
    return known


def _stage(name: str) -> str:
    if name not in STAGES:
        raise ValueError(name)
    return name


def _listed(values: Sequence[Any] | None) -> tuple[Any, ...]:
    return tuple(values or ())


def _as_it_is(value: Any) -> Any:  # noqa: ANN401 (a JSON value)
    return value


_READ: Mapping[str, Callable[[Any], Any]] = {
    "at": _stage,
    "facts": json.loads,
    "library": str,
    "digests": _listed,
    "wrong": _listed,
    "clock": float,
    "failed": str,
    "after_s": float,
    "silent": _as_it_is,
}
"""What a note may hold, and how it is read."""


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""
