"""View: all clues about one rank together."""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGTERM
from typing import TYPE_CHECKING

from ascendboot.launch.cause.clues import Kind
from ascendboot.launch.ends import signal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ascendboot.launch.cause.clues import Clue
    from ascendboot.launch.plan import PlannedRank


@dataclass(frozen=True, kw_only=True)
class View:
    """What is known of one rank."""

    rank: int
    node: str
    device: int
    end: Clue | None
    """None: nobody saw its end."""
    own: Clue | None
    """Its first words about an error of its own."""
    late: Clue | None
    """What it wrote when it was being ended already: no cause, but maybe the same error."""
    peer: Clue | None
    """Its first words about another rank, where it says nothing of its own before."""

    @property
    def exit_code(self) -> int | None:
        """As a shell reports it."""
        return None if self.end is None else self.end.exit_code

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return None if self.exit_code is None else signal_of(self.exit_code)

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.exit_code is None:
            return "with no end that was seen"
        words = f"with signal {self.signal}" if self.signal else f"with exit code {self.exit_code}"
        return f"and was ended later, {words}" if self.is_ended_by_others else words

    @property
    def is_ended_by_us(self) -> bool:
        """Whether the ranks of its node were being ended on purpose when it ended."""
        return self.end is not None and self.end.kind is Kind.ENDED_BY_US

    @property
    def is_killed_unseen(self) -> bool:
        """Whether only the launcher saw its end."""
        return self.end is not None and self.end.kind is Kind.KILLED

    @property
    def is_ended_by_others(self) -> bool:
        """Whether its end says nothing of when it failed: it had an error, and was ended later."""
        return self.is_ended_by_us or (self.own is not None and self.signal == SIGTERM)

    @property
    def ended_well(self) -> bool:
        """Whether it did all that it was to do."""
        return self.exit_code == 0

    @property
    def has_failed(self) -> bool:
        """Whether it failed, and not because it was ended on purpose."""
        return bool(self.exit_code) and not self.is_ended_by_us

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel ran out of memory on its node meanwhile."""
        return self.end is not None and self.end.out_of_memory

    @property
    def failed_at(self) -> float | None:
        """When it failed: its first words or its end, whichever came first; None: not known."""
        said = [clue.at for clue in (self.own, self.peer) if clue is not None]
        its_own = self.end is not None and self.exit_code and not self.is_ended_by_others
        times = [
            at for at in (*said, self.end.at if self.end and its_own else None) if at is not None
        ]
        return min(times, default=None)

    @property
    def precision_s(self) -> float:
        """By how much it may have failed earlier than that."""
        clue = self.own or self.peer or self.end
        return 0.0 if clue is None else clue.precision_s

    @property
    def words(self) -> str:
        """The words that count."""
        clue = self.own or self.peer
        return "" if clue is None else clue.words

    @property
    def source(self) -> str:
        """Where they stand."""
        clue = self.own or self.peer or self.end
        return "" if clue is None else clue.source

    @property
    def blames(self) -> tuple[int, ...]:
        """The ranks that it names as missing."""
        return () if self.peer is None else self.peer.blames

    @property
    def blamed_nodes(self) -> tuple[str, ...]:
        """The nodes on which it misses some rank."""
        return () if self.peer is None else self.peer.blamed_nodes


def views_of(ranks: Sequence[PlannedRank], clues: Iterable[Clue]) -> dict[int, View]:
    """The clues by rank, in rank order, whatever order they came in."""
    by_rank: dict[int, list[Clue]] = {rank.rank: [] for rank in ranks}
    for clue in clues:
        by_rank[clue.rank].append(clue)
    return {
        rank.rank: View(
            rank=rank.rank,
            node=rank.node,
            device=rank.device_id,
            end=_first(by_rank[rank.rank], Kind.ENDED, Kind.ENDED_BY_US, Kind.KILLED),
            own=_first(by_rank[rank.rank], Kind.OWN),
            late=_first(by_rank[rank.rank], Kind.LATE),
            peer=_first(by_rank[rank.rank], Kind.PEER),
        )
        for rank in ranks
    }


def _first(clues: list[Clue], *kinds: Kind) -> Clue | None:
    def order(clue: Clue) -> tuple[float, str]:
        return (float("inf") if clue.at is None else clue.at, repr(clue))

    return min((clue for clue in clues if clue.kind in kinds), key=order, default=None)
