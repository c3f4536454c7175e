"""Reads how far each rank of a collective run has got, from the notes in its log."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ascendboot.checks.collective import rank as rank_module
from ascendboot.errors import NotUnderstoodError
from ascendboot.launch.plan import rank_log
from ascendboot.model.cluster import Slot
from ascendboot.model.names import ranks_named

STAGES = ("", "start", *rank_module.STAGES)
"""What a rank does, in this order; empty: it has noted nothing."""
DOING = {
    "start": "before it loaded the library of the collective",
    "load": "while it loaded the library of the collective",
    "meet": "while it met the others",
    "neighbours": "while it talked with the next node",
    "gather": "in the gather",
    "sum": "in the allreduce",
    "done": "at the very end",
}
"""What a rank was doing in each stage."""


@dataclass(frozen=True, kw_only=True)
class RankNotes:
    """The notes of one rank."""

    at: str = ""
    """The last of `STAGES` that it began."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """As the program on the nodes gives them; empty: it did not get so far."""
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
    """The rank that did not answer it."""
    is_late: bool = False
    """It took too long for the stage, and ended itself."""
    others: tuple[str, ...] = ()
    """What else is in its log."""


def read(folder: Path, ranks: Iterable[int]) -> dict[int, RankNotes]:
    """The notes of each rank, by the copies of the logs in a folder; none without a log.

    Raises:
        NotUnderstoodError: a note has another form than the program on the nodes gives it.
    """
    paths = {rank: folder / rank_log(rank) for rank in ranks}
    return {
        rank: rank_notes(path.read_bytes().decode(errors="replace") if path.exists() else "")
        for rank, path in paths.items()
    }


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "at": lambda name: STAGES[STAGES.index(name)],
    "facts": json.loads,
    "library": str,
    "digests": lambda values: tuple(values or ()),
    "wrong": lambda values: tuple(values or ()),
    "clock": float,
    "failed": str,
    "after_s": float,
    "silent": lambda rank: rank,
}
"""What a note may hold, and how it is read."""


def rank_notes(text: str) -> RankNotes:
    """The notes in the text of a log; a last line that has no end yet does not count.

    Raises:
        NotUnderstoodError: as for `read`.
    """
    known: dict[str, Any] = {}
    others = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        # What a library writes without an end of the line stands before.
        before, mark, rest = line.partition(rank_module.MARK)
        if before.strip():
            others.append(before)
        if not mark:
            continue
        try:
            note = dict(json.loads(rest))
            known |= {name: _READERS[name](value) for name, value in note.items()}
            if "facts" in note:
                known["digest"] = sha256(note["facts"].encode()).hexdigest()
        except (KeyError, TypeError, ValueError) as error:
            raise _not_understood(number, line) from error
        if not note:
            raise _not_understood(number, line)
    is_late = any(line.startswith("Timeout (") for line in others)
    return RankNotes(**known, is_late=is_late, others=tuple(others))


def _not_understood(number: int, line: str) -> NotUnderstoodError:
    wanted = "a stage and what belongs to it"
    return NotUnderstoodError("the preflight's notes", number, line[:200], wanted)


def ranks_shown(ranks: Collection[int], slots: Sequence[Slot]) -> str:
    """`ranks 8-15`; of one alone also the device."""
    if len(ranks) == 1:
        [rank] = ranks
        return f"rank {rank} on device {slots[rank].device_id}"
    return ranks_named(ranks)


def nodes_of(ranks: Collection[int], slots: Sequence[Slot]) -> tuple[str, ...]:
    """Names of the nodes of some ranks, in rank order."""
    return tuple(dict.fromkeys(slots[rank].node.name for rank in sorted(ranks)))
