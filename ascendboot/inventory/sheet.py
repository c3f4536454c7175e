"""An inventory file as plain values, each with the line on which it stands."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from ascendboot.errors import InventoryError
from ascendboot.model.secrets import without_secrets

_SHOWN = 60
"""So many characters of a value are shown in messages."""

_PASSWORD = re.compile(r":[^@]*@")
"""As in root:PASSWORD@host; messages do not repeat it."""


@dataclass(frozen=True)
class Raw:
    """A value that YAML reads as something other than a text or a plain whole number."""

    text: str
    """As written in the file."""
    reading: str
    """What YAML makes of it: "the octal number 10"."""


Value: TypeAlias = "str | int | Raw | list[Value] | dict[str, Value]"
Location: TypeAlias = "tuple[str | int, ...]"


@dataclass
class Spot:
    """Where a value stands, and where the values inside it stand."""

    line: int
    path: str = ""
    keys: dict[str, Spot] = field(default_factory=dict)
    items: list[Spot] = field(default_factory=list)

    def at(self, *location: str | int) -> Spot:
        """The spot of the value at `location`, or of the last one on the way that exists."""
        spot = self
        for step in location:
            inner = spot._step(step)
            if inner is None:
                break
            spot = inner
        return spot

    def _step(self, step: str | int) -> Spot | None:
        if isinstance(step, str):
            return self.keys.get(step)
        return self.items[step] if step < len(self.items) else None

    def of_key(self, key: str, line: int) -> Spot:
        """A new spot for a key of this mapping."""
        shown = key if key.isprintable() and key.strip() == key != "" else json.dumps(key)
        return Spot(line, f"{self.path}.{shown}" if self.path else shown)


@dataclass(frozen=True, order=True)
class Problem:
    """Something to be put right in the inventory."""

    line: int
    path: str
    text: str
    column: int | None = None

    def shown(self, file: str) -> str:
        """`file:line: key.path: what was seen; what to do`."""
        place = ":".join(str(p) for p in (file, self.line, self.column) if p is not None)
        message = ": ".join(part for part in (place, self.path, self.text) if part)
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in message)


@dataclass
class Sheet:
    """A file that was read: its values, their spots, and the problems seen so far."""

    file: str
    data: dict[str, Value]
    spot: Spot
    problems: list[Problem]
    compared: int = 0
    """With how many words others were compared, in search of what was meant."""

    def report(self, spot: Spot, text: str) -> None:
        """Note a problem with the value at `spot`."""
        self.problems.append(Problem(spot.line, spot.path, text))

    def refuse_if_problems(self) -> None:
        """Raise them all, sorted by line.

        Raises:
            InventoryError: there are problems.
        """
        if self.problems:
            raise InventoryError([p.shown(self.file) for p in sorted(set(self.problems))])


def seen(value: object) -> str:
    """A value as it is called in messages: `"abc"`, `12`, `a list`."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, Raw):
        return value.text
    if not isinstance(value, str):
        return str(value)
    lines = value.splitlines()
    if lines[1:]:
        return f"a text of {len(lines)} lines"
    shown = _PASSWORD.sub(":***@", without_secrets(value))
    return f'"{shown}"' if len(shown) <= _SHOWN else f'"{shown[: _SHOWN - 1]}…"'
