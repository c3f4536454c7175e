"""Values that must be unique in the cluster, and those given to more than one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from ascendboot.inventory.sheet import Sheet, Spot

_SHOWN = 3
"""So many are named; the rest is counted."""


@dataclass(frozen=True)
class Given:
    """A value, to whom it is given, and where."""

    value: str
    node: str
    spot: Spot
    identity: Hashable
    """Equal for two ways to write the same."""
    device_id: int | None = None

    @property
    def holder(self) -> str:
        """`node02`, or `node02 device 3`."""
        return self.node if self.device_id is None else f"{self.node} device {self.device_id}"


class Doubles:
    """Reports what is given twice; what follows from something already reported is left out."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._reported: set[frozenset[str]] = set()

    def report(self, what: str, given: Iterable[Given]) -> None:
        """One problem for each set of lines that share values."""
        by_identity: dict[Hashable, list[Given]] = {}
        for one in given:
            by_identity.setdefault(one.identity, []).append(one)
        by_lines: dict[tuple[int, ...], list[list[Given]]] = {}
        for same in by_identity.values():
            holders = frozenset(one.holder for one in same)
            if len(holders) > 1 and holders not in self._reported:
                self._reported.add(holders)
                by_lines.setdefault(tuple(id(one.spot) for one in same), []).append(same)
        for groups in by_lines.values():
            self._sheet.report(groups[0][-1].spot, _sentence(what, groups))


def _sentence(what: str, groups: Sequence[Sequence[Given]]) -> str:
    values = _some([same[0].value for same in groups])
    first, last = groups[0][0], groups[0][-1]
    times = f"{len(groups[0])} times" if groups[0][2:] else "twice"
    where = f" (line {first.spot.line})" if first.spot.line != last.spot.line else ""
    if len(groups) == 1 and not groups[0][2:]:
        text = f"is given twice: {first.holder}{where} and {last.holder}"
    elif len(groups) == 1:
        text = f"is given {times}: {_holders(groups[0])}"
    else:
        everyone = [one for same in groups for one in same]
        text = f"are each given {times}: {_holders(everyone)}{where}"
    return f"{what} {values} {text}; give each its own"


def _holders(given: Sequence[Given]) -> str:
    if any(one.device_id is not None for one in given):
        return _some([one.holder for one in given])
    return fold({one.node for one in given})


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown} and {len(texts) - _SHOWN} more"
