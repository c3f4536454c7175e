"""Whom the others miss, where no rank tells of an error of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.model.names import ranks_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.launch.cause.view import View


@dataclass(frozen=True)
class Missed:
    """The ranks that the others miss, and why it is these."""

    ranks: frozenset[int]
    why: str
    unsure: str = ""
    """Not empty: it is one of `ranks`, and what would decide which is not there."""
    is_named: bool = False
    """Others name it, in a number or an address."""


def missed_in(views: Mapping[int, View]) -> Missed | None:
    """Whom the ranks that lost a peer miss; None where no rank failed for that.

    A rank that is named and says nothing itself counts first, then one that ended well too early,
    then the only one that says nothing.
    """
    losers = [view for view in views.values() if view.peer is not None and view.own is None]
    quiet = [view for view in views.values() if view.peer is None and view.own is None]
    named = _named(losers, quiet) or _left(views, losers, quiet)
    if named or not any(view.has_failed for view in losers):
        return named
    silent = frozenset(view.rank for view in quiet if not view.ended_well)
    if len(silent) == 1:
        return Missed(silent, "all others lost a peer, and it alone says nothing")
    if silent:
        why = f"{ranks_named([v.rank for v in losers])} lost a peer and named none that is silent"
        return Missed(silent, why, "nothing says which of them was lost, and these say nothing")
    return _among_losers(losers)


def _named(losers: list[View], quiet: list[View]) -> Missed | None:
    """Those that are named and say nothing; by number or device before by node."""
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
            return Missed(chosen, f"{who} {it} missing", is_named=True)
        what = "them, each another one" if are_all_meant else "their node, and no rank of it"
        return Missed(chosen, f"{who} {what}", "nothing says which of them the others lost")
    return None


def _left(views: Mapping[int, View], losers: list[View], quiet: list[View]) -> Missed | None:
    """Those that ended well before anybody failed for missing somebody."""
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
    return Missed(left, why) if left and losers else None


def _among_losers(losers: list[View]) -> Missed:
    """Where every rank lost a peer: the one that all others name, if there is one."""
    for view in losers:
        naming = [other for other in losers if other is not view and other.blames]
        if len(naming) > 1 and all(view.rank in other.blames for other in naming):
            meant = {rank for other in naming for rank in other.blames}
            if meant == {view.rank}:
                who = ranks_named([other.rank for other in naming])
                return Missed(frozenset(meant), f"{who} name it as the one that is missing")
    timed = [view for view in losers if view.failed_at is not None]
    first = min(timed, key=lambda view: (view.failed_at or 0.0, view.rank), default=None)
    said = "" if first is None else f"; {first.node}:{first.rank} said so first"
    ranks = frozenset(view.rank for view in losers)
    why = "every rank only says that it lost another"
    return Missed(ranks, why, f"nothing says which of them was first{said}")
