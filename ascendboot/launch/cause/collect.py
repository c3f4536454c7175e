"""Collecting the clues of a job: from its events, error files, logs and its launcher's words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ascendboot.launch.arrivals import PRECISION_S
from ascendboot.launch.cause.clues import Clue, Kind
from ascendboot.launch.cause.known import is_of_a_peer
from ascendboot.launch.cause.peers import Peers, names_a_peer
from ascendboot.launch.cause.said import said_in
from ascendboot.launch.cause.times import time_in
from ascendboot.launch.plan import rank_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Final

    from ascendboot.launch.cause.said import Said
    from ascendboot.launch.course import Course
    from ascendboot.launch.events import RankEnded
    from ascendboot.launch.plan import LaunchPlan, PlannedRank
    from ascendboot.launch.record import JobRecord
    from ascendboot.model.clocks import NodeClocks
    from ascendboot.model.job import RankEnd

TAIL_BYTES: Final = 65_536
"""Of each log so much of its end is read: wherever a job is judged, it is the same."""
_SECOND: Final = 1.0


class Collector:
    """What is known of one job, as clues."""

    def __init__(
        self,
        plan: LaunchPlan | JobRecord,
        course: Course,
        *,
        folder: Path,
        clocks: NodeClocks,
    ) -> None:
        self._plan = plan
        self._course = course
        self._folder = folder
        self._clocks = clocks
        self._peers = Peers(plan)
        self._zones = {
            rank.node: end.zone_s
            for rank in plan.ranks
            if (end := course.ended.get(rank.rank)) is not None and end.zone_s is not None
        }

    def clues(self, ends: tuple[RankEnd, ...]) -> Iterator[Clue]:
        """All clues; `ends` with what only the launcher saw."""
        for rank, end in zip(self._plan.ranks, ends, strict=True):
            seen = self._course.ended.get(rank.rank)
            if seen is not None:
                yield self._ended(rank, seen)
            elif end.exit_code:
                yield Clue(
                    kind=Kind.KILLED, rank=rank.rank, exit_code=end.exit_code, source="launcher.log"
                )
            if seen is None or seen.exit_code:
                yield from self._words(rank, seen)

    def _ended(self, rank: PlannedRank, seen: RankEnded) -> Clue:
        by_us = self._course.was_ended(rank.rank, self._plan.nodes.index(rank.node))
        return Clue(
            kind=Kind.ENDED_BY_US if by_us else Kind.ENDED,
            rank=rank.rank,
            at=self._common(rank, seen.at),
            exit_code=seen.exit_code,
            source="events",
            out_of_memory=seen.out_of_memory,
        )

    def _words(self, rank: PlannedRank, seen: RankEnded | None) -> Iterator[Clue]:
        filed = self._error_file(rank)
        said = self._said(rank)
        if said is not None:
            at, precision_s = self._time(rank, seen, said)
            late = at is not None and at - precision_s >= self._began_to_end(rank)
            if at is None and filed is not None:
                at, precision_s = filed.at, filed.precision_s
            yield Clue(
                kind=Kind.PEER if said.of_a_peer else Kind.LATE if late else Kind.OWN,
                rank=rank.rank,
                at=at,
                precision_s=precision_s,
                words=said.words,
                source=rank_log(rank.rank),
                **self._blames(said.trouble, rank) if said.of_a_peer else {},
            )
        elif filed is not None:
            yield filed

    def _said(self, rank: PlannedRank) -> Said | None:
        path = self._folder / rank_log(rank.rank)
        tail, begins_at = tail_of(path, since=self._course.log_begins.get(rank.rank, 0))
        return said_in(tail, begins_at=begins_at)

    def _time(
        self, rank: PlannedRank, seen: RankEnded | None, said: Said
    ) -> tuple[float | None, float]:
        """When it was said, and by how much that may be too late."""
        ended = None if seen is None else self._common(rank, seen.at)
        zone_s = self._zones.get(rank.node)
        told = time_in(said.line, zone_s=zone_s, until=None if seen is None else seen.at)
        if told is not None:
            whole = _SECOND if told.is_integer() else 0.0  # then it was within that second
            return _not_after(self._common(rank, told + whole), ended), whole
        arrivals = self._course.arrivals.get(rank_log(rank.rank))
        came = None if arrivals is None else arrivals.of(said.offset)
        return (None, 0.0) if came is None else (_not_after(came, ended), PRECISION_S)

    def _error_file(self, rank: PlannedRank) -> Clue | None:
        """What torchelastic's `@record` wrote; its time is a whole second."""
        try:
            message = json.loads(self._course.told[rank.rank])["message"]
            at = float(message["extraInfo"]["timestamp"]) + _SECOND
            words = str(message["message"])
        except (KeyError, TypeError, ValueError):
            return None
        seen = self._course.ended.get(rank.rank)
        ended = None if seen is None else self._common(rank, seen.at)
        return Clue(
            kind=Kind.PEER if is_of_a_peer(words) or names_a_peer(words) else Kind.OWN,
            rank=rank.rank,
            at=_not_after(self._common(rank, at), ended),
            precision_s=_SECOND,
            words=words.strip().partition("\n")[0],
            source="error file",
            **self._blames(words, rank),
        )

    def _blames(self, text: str, rank: PlannedRank) -> dict[str, Any]:
        named = self._peers.named_in(text, rank)
        return {"blames": named.ranks, "blamed_nodes": named.nodes}

    def _began_to_end(self, rank: PlannedRank) -> float:
        """When it was ended on purpose: what it says from then on is no cause."""
        node_rank = self._plan.nodes.index(rank.node)
        return self._common(rank, self._course.ending_began(rank.rank, node_rank))

    def _common(self, rank: PlannedRank, at: float) -> float:
        return self._clocks.here(rank.node, at)


def tail_of(path: Path, *, since: int = 0) -> tuple[bytes, int]:
    """The end of a log from the beginning of a line on, and where it begins.

    `since` is where the rank began for the last time: what stands before is not read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            begins_at = max(since, size - TAIL_BYTES)
            file.seek(begins_at)
            tail = file.read(TAIL_BYTES)
    except FileNotFoundError:
        return b"", 0
    if begins_at == since:
        return tail, begins_at
    first, newline, rest = tail.partition(b"\n")
    return (rest, begins_at + len(first) + 1) if newline else (tail, begins_at)


def _not_after(at: float, ended: float | None) -> float:
    return at if ended is None else min(at, ended)
