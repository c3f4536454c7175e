"""Finds the first cause of a failure from the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Final

from ascendboot.jobs.error_codes import known_end, known_words
from ascendboot.jobs.evidence import Evidence, Kind, without_numbers
from ascendboot.jobs.progress import BY_LAUNCHER, signal_of
from ascendboot.model.job import CauseKind, Followed, JobCause
from ascendboot.model.names import fold, ranks_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ascendboot.launch.plan import PlannedRank


@dataclass(frozen=True, kw_only=True)
class RankEvidence:
    """What is known of one rank."""

    rank: int
    node: str
    device: int
    end: Evidence | None
    """None: its end was not recorded."""
    own: Evidence | None
    """Its first error of its own."""
    late: Evidence | None
    """An error while it was being ended: no cause, but maybe the same error."""
    peer: Evidence | None
    """Its first error about another rank, where it had no own error before."""

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
        """Whether only the launcher recorded its end."""
        return self.end is not None and self.end.kind is Kind.KILLED

    @property
    def is_ended_by_others(self) -> bool:
        """Whether it had an error and was ended later: then its end does not date the failure."""
        return self.is_ended_by_us or (self.own is not None and self.signal == SIGTERM)

    @property
    def ended_well(self) -> bool:
        """Whether it ended with exit code 0."""
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
        """When it failed: its first error or its end, whichever came first; None: unknown."""
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
        """The text of its error."""
        clue = self.own or self.peer
        return "" if clue is None else clue.words

    @property
    def source(self) -> str:
        """Where the error stands."""
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


def evidence_by_rank(
    ranks: Sequence[PlannedRank], evidence: Iterable[Evidence]
) -> dict[int, RankEvidence]:
    """The evidence by rank, in rank order; the order of `evidence` does not matter."""
    by_rank: dict[int, list[Evidence]] = {rank.rank: [] for rank in ranks}
    for item in evidence:
        by_rank[item.rank].append(item)
    return {
        rank.rank: RankEvidence(
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


def _first(clues: list[Evidence], *kinds: Kind) -> Evidence | None:
    def order(clue: Evidence) -> tuple[float, str]:
        return (float("inf") if clue.at is None else clue.at, repr(clue))

    return min((clue for clue in clues if clue.kind in kinds), key=order, default=None)


@dataclass(frozen=True)
class MissingRanks:
    """The ranks that the others miss, and why it is these."""

    ranks: frozenset[int]
    why: str
    unsure: str = ""
    """Not empty: it is one of `ranks`, and what would decide which is not there."""
    is_named: bool = False
    """Others name it, in a number or an address."""


def missing_ranks(views: Mapping[int, RankEvidence]) -> MissingRanks | None:
    """The ranks that others miss; None where no rank failed because it lost a peer.

    In this order: a rank that others name and that has no error; one that ended well too early;
    the only one without an error.
    """
    losers = [view for view in views.values() if view.peer is not None and view.own is None]
    quiet = [view for view in views.values() if view.peer is None and view.own is None]
    named = _named(losers, quiet) or _left(views, losers, quiet)
    if named or not any(view.has_failed for view in losers):
        return named
    silent = frozenset(view.rank for view in quiet if not view.ended_well)
    if len(silent) == 1:
        return MissingRanks(silent, "all others lost a peer, and it alone says nothing")
    if silent:
        why = f"{ranks_named([v.rank for v in losers])} lost a peer and named none that is silent"
        return MissingRanks(
            silent, why, "nothing says which of them was lost, and these say nothing"
        )
    return _among_losers(losers)


def _named(losers: list[RankEvidence], quiet: list[RankEvidence]) -> MissingRanks | None:
    """Ranks that others name and that have no error; by number or device before by node."""
    by_rank = {v.rank: {q.rank for q in quiet if q.rank in v.blames} for v in losers}
    by_node = {v.rank: {q.rank for q in quiet if q.node in v.blamed_nodes} for v in losers}
    for names, are_all_meant in ((by_rank, True), (by_node, False)):
        namers = [rank for rank, ranks in names.items() if ranks]
        if not namers:
            continue
        common = set.intersection(*(names[rank] for rank in namers))
        chosen = frozenset(common or set.union(*(names[rank] for rank in namers)))
        who = f"{ranks_named(namers)} name{'s' if len(namers) == 1 else ''}"
        if len(chosen) == 1 or (common and are_all_meant):
            it = "it as the one that is" if len(chosen) == 1 else "them as those that are"
            return MissingRanks(chosen, f"{who} {it} missing", is_named=True)
        what = "them, each another one" if are_all_meant else "their node, and no rank of it"
        return MissingRanks(chosen, f"{who} {what}", "nothing says which of them the others lost")
    return None


def _left(
    views: Mapping[int, RankEvidence], losers: list[RankEvidence], quiet: list[RankEvidence]
) -> MissingRanks | None:
    """Ranks that ended well before any other rank failed as it lost a peer."""
    failed_at = (view.failed_at for view in views.values())
    before = min((at for at in failed_at if at is not None), default=None)
    left = frozenset(
        view.rank
        for view in quiet
        if view.ended_well
        and before is not None
        and view.end is not None
        and view.end.at is not None
        and view.end.at < before
    )
    why = "all others failed only as they lost a peer, and it had ended before"
    return MissingRanks(left, why) if left and losers else None


def _among_losers(losers: list[RankEvidence]) -> MissingRanks:
    """Where every rank lost a peer: the one that all others name, if there is one."""
    for view in losers:
        naming = [other for other in losers if other is not view and other.blames]
        if len(naming) > 1 and all(view.rank in other.blames for other in naming):
            meant = {rank for other in naming for rank in other.blames}
            if meant == {view.rank}:
                who = ranks_named([other.rank for other in naming])
                return MissingRanks(frozenset(meant), f"{who} name it as the one that is missing")
    timed = [view for view in losers if view.failed_at is not None]
    first = min(timed, key=lambda view: (view.failed_at or 0.0, view.rank), default=None)
    said = "" if first is None else f"; {first.node}:{first.rank} said so first"
    ranks = frozenset(view.rank for view in losers)
    why = "every rank only says that it lost another"
    return MissingRanks(ranks, why, f"nothing says which of them was first{said}")


_MOST_GROUPS: Final = 4


def followed_by(others: Iterable[RankEvidence]) -> tuple[Followed, ...]:
    """The ranks that ended after the cause, in groups; those that ended well are none of them."""
    groups: dict[str, list[int]] = {}
    for view in others:
        how = _how(view)
        if how:
            groups.setdefault(how, []).append(view.rank)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1]))
    shown = [Followed(tuple(ranks), how) for how, ranks in ordered[:_MOST_GROUPS]]
    rest = tuple(sorted(rank for _, ranks in ordered[_MOST_GROUPS:] for rank in ranks))
    return (*shown, Followed(rest, "failed later")) if rest else tuple(shown)


def _how(view: RankEvidence) -> str:
    if view.ended_well:
        return ""
    if view.peer is not None:
        known = known_words(view.words)
        return "lost a peer" if known is None else known.meaning
    if view.is_ended_by_us or (view.signal in BY_LAUNCHER and view.own is None):
        return "ended with the job"
    if view.exit_code is None:
        return "no end was seen"
    return f"failed later, {view.ending}"


_TOGETHER_S: Final = 2.0
"""Ranks that end without an error, with one exit code, within so long, failed alike."""
_MISSED: Final = {
    "meaning": "",
    "remedy": "see the end of their logs, invoke check for the links between their devices, and"
    " dmesg on their nodes",
}
_FIRST_KILL_S: Final = 1.0
"""Sooner after the first failure no launcher sends SIGKILL."""


class _Blame(IntEnum):
    """How likely a rank is the cause; lower is likelier."""

    OWN = 0
    """It failed, and not by another rank's failure as far as it says."""
    OWN_WHEN_ENDED = 1
    """It says so, but when is not known, and it was ended on purpose."""
    KILLED = 2
    """Something killed it, about when others failed by missing it."""
    NONE = 3


_WHY: Final = {
    _Blame.OWN_WHEN_ENDED: "no other rank tells of an error of its own; its time is not known",
    _Blame.KILLED: "all others only lost a peer; this one was killed, and says nothing",
}


@dataclass(frozen=True)
class _Suspect:
    view: RankEvidence
    blame: _Blame

    @property
    def order(self) -> tuple[int, float, int]:
        at = self.view.failed_at
        if at is None:
            # Of a rank that only the launcher saw die it knew before all others had ended.
            at = float("-inf" if self.view.is_killed_unseen else "inf")
        return (self.blame, at, self.view.rank)


def first_cause(
    ranks: Sequence[PlannedRank], evidence: Iterable[Evidence], *, uncertainty_s: float = 0.0
) -> JobCause | None:
    """Why a job with these ranks failed; None when no rank failed before it was ended.

    `uncertainty_s`: by so much the times of two nodes may be wrong against each other.
    """
    views = evidence_by_rank(ranks, evidence)
    suspects = sorted(
        (_Suspect(view, _blame(view, views)) for view in views.values()), key=lambda s: s.order
    )
    missed = missing_ranks(views)
    first = suspects[0]
    if first.blame is not _Blame.NONE:
        same = _alike(first, suspects, len(views))
        kind = CauseKind.ALIKE if len(same) > 1 else CauseKind.RANK
        chosen = {suspect.view.rank for suspect in same}
        why = _why(first, suspects, chosen)
        unsure = _unsure(first, suspects, chosen, uncertainty_s) or _named_besides(missed, chosen)
    elif missed is not None:
        same = [suspect for suspect in suspects if suspect.view.rank in missed.ranks]
        kind = CauseKind.ONE_OF if missed.unsure else CauseKind.LEFT
        chosen, why, unsure = set(missed.ranks), missed.why, missed.unsure
    else:
        return None
    head = same[0].view
    return JobCause(
        kind=kind,
        title=_title(kind, same, len(views)),
        ranks=tuple(sorted(chosen)),
        nodes=tuple(dict.fromkeys(views[rank].node for rank in sorted(chosen))),
        device=head.device if len(chosen) == 1 else None,
        at=None if head.failed_at is None else _iso(head.failed_at),
        words=head.words,
        source=head.source,
        **(_explained(head) if kind in (CauseKind.RANK, CauseKind.ALIKE) else _MISSED),
        why=why,
        unsure=unsure,
        followed=followed_by(v for v in views.values() if v.rank not in chosen),
    )


def _named_besides(missed: MissingRanks | None, chosen: set[int]) -> str:
    """Others name a rank without an error that is not one of the chosen ranks."""
    if missed is None or missed.unsure or not missed.is_named or missed.ranks & chosen:
        return ""
    return f"{ranks_named(missed.ranks)} may have been first: {missed.why}"


def _blame(view: RankEvidence, views: dict[int, RankEvidence]) -> _Blame:
    others = [other for other in views.values() if other is not view]
    before = min((o.failed_at for o in others if o.failed_at is not None), default=None)
    if view.own is not None or view.is_killed_unseen:
        unknown = view.is_ended_by_us and view.failed_at is None
        return _Blame.OWN_WHEN_ENDED if unknown else _Blame.OWN
    if view.has_failed and view.peer is None:
        return _blame_of_silent(view, before)
    return _Blame.NONE


def _blame_of_silent(view: RankEvidence, before: float | None) -> _Blame:
    """Of a rank that failed without an error: launchers end others by signals, not at once."""
    ended = None if view.end is None else view.end.at
    by_itself = view.signal not in BY_LAUNCHER
    if by_itself or before is None or ended is None or ended < before:
        return _Blame.OWN
    at_once = view.signal == SIGKILL and ended < before + _FIRST_KILL_S
    return _Blame.KILLED if at_once else _Blame.NONE


def _alike(first: _Suspect, suspects: list[_Suspect], size: int) -> list[_Suspect]:
    """Those that failed as the first did."""
    equal = [s for s in suspects if s.blame is first.blame]
    if first.blame not in (_Blame.OWN, _Blame.OWN_WHEN_ENDED):
        return [first]
    head = first.view
    if head.own is not None:
        words = without_numbers(head.words)
        said = ((s, s.view.own or s.view.late) for s in suspects)
        equal = [s for s, own in said if own is not None and without_numbers(own.words) == words]
        return equal if len(equal) > 1 else [first]
    at = head.failed_at
    silent = [
        s
        for s in equal
        if s.view.own is None
        and s.view.exit_code == head.exit_code
        and None not in (at, s.view.failed_at)
        and (s.view.failed_at or 0.0) - (at or 0.0) <= _TOGETHER_S
    ]
    return silent if len(silent) == size > 1 else [first]


def _title(kind: CauseKind, same: list[_Suspect], size: int) -> str:
    views = [suspect.view for suspect in same]
    names = ranks_named(tuple(view.rank for view in views))
    nodes = fold({view.node for view in views})
    head = views[0]
    at = "" if head.failed_at is None else f", at {_clock(head.failed_at)}"
    if kind is CauseKind.ONE_OF:
        return f"{nodes}: not certain which rank failed first: one of {names}{at}"
    if kind is CauseKind.LEFT:
        well = "ended well" if all(v.ended_well for v in views) else "not there"
        if any(v.peer is not None for v in views):
            well = "did not answer"
        return f"{nodes}: {names} {well} while others waited for it{at}"
    if kind is CauseKind.ALIKE:
        if len(views) == size:
            by_itself = next((f", {v.ending}" for v in views if not v.is_ended_by_others), "")
            return f"{nodes}: all {size} ranks failed alike{by_itself}{at}"
        return f"{nodes}: {len(views)} of {size} ranks failed alike ({names}){at}"
    return f"{nodes}: {names} on device {head.device} failed first, {head.ending}{at}"


def _explained(head: RankEvidence) -> dict[str, str]:
    known = known_words(head.words) if head.words else None
    if head.own is None and (known is None or known.of_a_peer):
        known = known_end(head.exit_code, out_of_memory=head.out_of_memory) or known
    if known is None:
        return {"meaning": "", "remedy": ""}
    return {"meaning": known.meaning, "remedy": known.remedy}


def _why(first: _Suspect, suspects: list[_Suspect], chosen: set[int]) -> str:
    head, second = first.view, _next(suspects, chosen)
    if first.blame in _WHY:
        return _WHY[first.blame]
    if len(chosen) > 1:
        return "they tell of one error, and no rank failed of another before them"
    if head.is_killed_unseen:
        return "the launcher saw it die, together with what would have recorded its end"
    if second is None:
        return "no other rank failed by itself"
    if head.failed_at is None or second.view.failed_at is None:
        return f"it tells of an error; when that of rank {second.view.rank} came is not known"
    gap = second.view.failed_at - head.failed_at
    return (
        f"{gap:.3f} s before {second.view.node}:{second.view.rank}, the next that failed by itself"
    )


def _unsure(
    first: _Suspect, suspects: list[_Suspect], chosen: set[int], uncertainty_s: float
) -> str:
    second = _next(suspects, chosen)
    if second is None or first.blame is not _Blame.OWN or first.view.is_killed_unseen:
        return ""
    head, other = first.view, second.view
    name = f"{other.node}:{other.rank}"
    if head.failed_at is None:
        return f"when its error came is not known; {name} may have been first"
    if other.failed_at is None:
        return f"when the error of {name} came is not known"
    within = other.precision_s + (uncertainty_s if other.node != head.node else 0.0)
    if other.failed_at - head.failed_at > within:
        return ""
    return f"{name} may have been first: their times are only known within {within:.3g} s"


def _next(suspects: list[_Suspect], chosen: set[int]) -> _Suspect | None:
    """The next that failed by itself."""
    return next((s for s in suspects if s.blame is _Blame.OWN and s.view.rank not in chosen), None)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, timezone.utc):%H:%M:%S.%f}"[:-3] + " UTC"
