"""Equal outcomes of many nodes as one line."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.model.names import fold
from ascendboot.model.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ascendboot.model.report import StepResult

_TOLD_BY_DETAIL = {
    "reach",
    "ask",
    "judge",
    "compare",
    "code",
    "network",
    "prove",
    "reset",
    "collective",
}
"""Phases without wishes: what was seen says more than the name of a step."""


def folded(results: Iterable[StepResult]) -> list[tuple[str, StepResult]]:
    """Equal outcomes under one name for their nodes; problems first, the majority last."""
    groups: dict[tuple[Outcome, str, str, str], list[StepResult]] = defaultdict(list)
    for result in _satisfied_together(results):
        step = "" if result.outcome is Outcome.OK else result.step
        detail = _own_words(result)
        groups[result.outcome, step, detail, result.diff].append(result)
    order = list(Outcome)[::-1]
    lines = [
        (
            order.index(key[0]),
            not group[0].is_warning,
            len({r.node for r in group}),
            position,
            group,
        )
        for position, (key, group) in enumerate(groups.items())
    ]
    lines.sort(key=lambda line: line[:4])
    named = [(fold({r.node for r in group}), group[0]) for *_, group in lines]
    return [(who, replace(first, detail=_own_words(first, who))) for who, first in named]


def _satisfied_together(results: Iterable[StepResult]) -> list[StepResult]:
    """The wishes of a phase that were true already, as one result per node that names them."""
    told: list[StepResult] = []
    wishes: dict[tuple[str, str], list[StepResult]] = defaultdict(list)
    for result in results:
        is_wish = result.phase not in _TOLD_BY_DETAIL and result.cause is None
        if result.outcome is Outcome.OK and is_wish:
            wishes[result.node, result.phase].append(result)
        else:
            told.append(result)
    return told + [
        replace(group[0], detail=", ".join(_satisfied(result) for result in group))
        for group in wishes.values()
    ]


def _satisfied(result: StepResult) -> str:
    """A wish that was true already; with the detail where its truth comes to an end."""
    ends = result.detail.startswith("expires in ")
    return f"{result.step} ({result.detail})" if ends else result.step


def _own_words(result: StepResult, who: str = "") -> str:
    """The detail without what stands before it on the line: node or nodes, and outcome."""
    words = result.detail
    if result.is_warning:
        words = words.removeprefix("warning: ")
    words = words.removeprefix(f"{result.node}: ").removeprefix(f"{who}: ")
    return words.removeprefix(f"{result.outcome.value}: ")
