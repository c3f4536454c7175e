"""Who only followed the cause, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.launch.cause.known import known_words
from ascendboot.launch.ends import BY_LAUNCHER
from ascendboot.model.cause import Followed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from ascendboot.launch.cause.view import View

_MOST_GROUPS: Final = 4


def followed_by(others: Iterable[View]) -> tuple[Followed, ...]:
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


def _how(view: View) -> str:
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
