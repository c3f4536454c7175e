"""From clues to the cause: pure, and the same in whatever order the clues came."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from enum import IntEnum
from signal import SIGKILL
from typing import TYPE_CHECKING

from ascendboot.launch.cause.followers import followed_by
from ascendboot.launch.cause.known import known_end, known_words
from ascendboot.launch.cause.missing import missed_in
from ascendboot.launch.cause.said import alike
from ascendboot.launch.cause.view import View, views_of
from ascendboot.launch.ends import BY_LAUNCHER
from ascendboot.model.cause import CauseKind, JobCause
from ascendboot.model.names import fold, ranks_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Final

    from ascendboot.launch.cause.clues import Clue
    from ascendboot.launch.cause.missing import Missed
    from ascendboot.launch.plan import PlannedRank

_TOGETHER_S: Final = 2.0
"""Ranks that end without a word, with one code, within so long, end alike."""
_MISSED: Final = {
    "meaning": "",
    "remedy": "see the end of their logs, invoke check for the links between their devices, and"
    " dmesg on their nodes",
}
_FIRST_KILL_S: Final = 1.0
"""Sooner after the first failure no launcher sends SIGKILL."""


class _Blame(IntEnum):
    """How much points to a rank; the lower the more."""

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
    view: View
    blame: _Blame

    @property
    def order(self) -> tuple[int, float, int]:
        at = self.view.failed_at
        if at is None:
            # Of a rank that only the launcher saw die it knew before all others had ended.
            at = float("-inf" if self.view.is_killed_unseen else "inf")
        return (self.blame, at, self.view.rank)


def cause_of(
    ranks: Sequence[PlannedRank], clues: Iterable[Clue], *, uncertainty_s: float = 0.0
) -> JobCause | None:
    """Why a job with these ranks failed; None when no rank failed before it was ended.

    `uncertainty_s`: by so much the times of two nodes may be wrong against each other.
    """
    views = views_of(ranks, clues)
    suspects = sorted(
        (_Suspect(view, _blame(view, views)) for view in views.values()), key=lambda s: s.order
    )
    missed = missed_in(views)
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


def _named_besides(missed: Missed | None, chosen: set[int]) -> str:
    """That others name a rank which says nothing, and not one of those that were chosen."""
    if missed is None or missed.unsure or not missed.is_named or missed.ranks & chosen:
        return ""
    return f"{ranks_named(missed.ranks)} may have been first: {missed.why}"


def _blame(view: View, views: dict[int, View]) -> _Blame:
    others = [other for other in views.values() if other is not view]
    before = min((o.failed_at for o in others if o.failed_at is not None), default=None)
    if view.own is not None or view.is_killed_unseen:
        unknown = view.is_ended_by_us and view.failed_at is None
        return _Blame.OWN_WHEN_ENDED if unknown else _Blame.OWN
    if view.has_failed and view.peer is None:
        return _blame_of_silent(view, before)
    return _Blame.NONE


def _blame_of_silent(view: View, before: float | None) -> _Blame:
    """Of a rank that failed without a word: launchers end the others by signals, not at once."""
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
        words = alike(head.words)
        said = ((s, s.view.own or s.view.late) for s in suspects)
        equal = [s for s, own in said if own is not None and alike(own.words) == words]
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


def _explained(head: View) -> dict[str, str]:
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
