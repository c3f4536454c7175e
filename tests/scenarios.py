"""The table of failures in `tests/data/scenarios`, for unit tests and for the practice cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).parent / "data/scenarios/scenarios.yaml"
SIZE = 4
_STAYS_S = 0.3
"""How long a rank lives after its words."""


@dataclass(frozen=True)
class Place:
    """Where a rank runs, by the names that messages use."""

    rank: int
    node: str
    host: str
    device: int
    ip: str


@dataclass(frozen=True)
class Part:
    """What one rank does."""

    text: str
    """Its output; `<t>` stands for the time."""
    at: float
    exit_code: int | None
    """As a shell reports it; None: it stays until it is ended."""
    ends_at: float


@dataclass(frozen=True)
class Scenario:
    """One row."""

    name: str
    row: dict[str, Any]
    words: dict[str, str] = field(repr=False)

    @property
    def is_long(self) -> bool:
        """Whether CI does not run it on the practice cluster."""
        return bool(self.row.get("long"))

    def cause(self, *, of_logs: bool = False) -> dict[str, Any] | None:
        """Return what is expected; None: logs alone show no cause."""
        expected = {"known": None, "certainty": "certain", "meaning": "", **self.row["cause"]}
        if not of_logs:
            return expected
        differs = self.row.get("logs", {})
        return None if differs is None else expected | differs

    def parts(self, places: list[Place]) -> list[Part]:
        """Return what each rank does, with all names filled in."""
        return [self._part(place, places) for place in places]

    def _part(self, place: Place, places: list[Place]) -> Part:
        ranks = self.row["ranks"]
        row = ranks.get(place.rank, ranks.get("others", {}))
        peer = places[row.get("peer", 0)]
        names = {f"<{name}{p.rank}>": value for p in places for name, value in vars(p).items()}
        names |= {f"<{name}>": str(value) for name, value in vars(place).items()}
        names |= {f"<peer-{name}>": str(value) for name, value in vars(peer).items()}
        names["<peer>"] = str(peer.rank)
        text = "".join(f"{self.words[name].rstrip()}\n" for name in row.get("prints", ()))
        for name, value in names.items():
            text = text.replace(name, str(value))
        code = 128 + row["signal"] if "signal" in row else row.get("exit")
        at = float(row.get("at", 0.2))
        return Part(text, at, code, at + row.get("stays", _STAYS_S))


def scenarios() -> list[Scenario]:
    """Return all rows."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    assert all(entry["source"] for entry in table["words"].values())
    words = {name: entry["text"] for name, entry in table["words"].items()}
    return [Scenario(row["name"], row, words) for row in table["scenarios"]]


def wrong_parts(found: dict[str, Any] | None, expected: dict[str, Any] | None) -> dict[str, Any]:
    """Return what of a verdict, as `doctor --json` has it, is not as expected."""
    if found is None or expected is None:
        return {} if found is expected else {"verdict": found}
    of = {"known": "known_error"}
    wrong = {
        name: found[of.get(name, name)]
        for name, value in expected.items()
        if name != "meaning" and found[of.get(name, name)] != value
    }
    if expected["meaning"] not in found["meaning"]:
        wrong["meaning"] = found["meaning"]
    return wrong
