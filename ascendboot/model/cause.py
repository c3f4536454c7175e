"""JobCause: why a job failed, in one verdict over all ranks and nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ascendboot.model.names import ranks_named

if TYPE_CHECKING:
    from collections.abc import Mapping


class CauseKind(str, Enum):
    """What a job failed of."""

    RANK = "rank"
    """One rank failed before all others."""
    ALIKE = "alike"
    """Several ranks failed in the same way, none because of another."""
    LEFT = "left"
    """Ranks that ended well, or were not there, while others still needed them."""
    ONE_OF = "one_of"
    """One of several ranks; what was seen does not decide which."""
    NODE = "node"
    """Nodes that were lost with all their ranks."""
    LAUNCHER = "launcher"
    """What starts the ranks; no rank failed by itself."""


@dataclass(frozen=True)
class Followed:
    """Ranks that ended only because of the cause, and how."""

    ranks: tuple[int, ...]
    how: str

    def __str__(self) -> str:
        return f"{ranks_named(self.ranks)}: {self.how}"


@dataclass(frozen=True, kw_only=True)
class JobCause:
    """Why a job failed: who was first, its words, why it was chosen, who only followed."""

    kind: CauseKind
    title: str
    """Who failed, where and how, in one line."""
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    device: int | None = None
    """None where it is not of one rank."""
    at: str | None = None
    """When it was first seen, ISO 8601, UTC, by the operator's clock; None: unknown."""
    words: str = ""
    """What says so, as it stands in `source`."""
    source: str = ""
    """Where the words stand: `rank.3.log`, `launcher.log`, `error file`."""
    meaning: str = ""
    remedy: str = ""
    why: str = ""
    """Why this one and no other."""
    unsure: str = ""
    """What could make it another one; empty when nothing could."""
    followed: tuple[Followed, ...] = ()

    @property
    def rank(self) -> int | None:
        """The one rank; None where there are several."""
        return self.ranks[0] if len(self.ranks) == 1 else None

    def lines(self) -> list[str]:
        """The verdict for a person, its title first."""
        told = {
            "it says": self.words,
            "it means": self.meaning,
            "to do": self.remedy,
            "chosen, as": self.why,
            "not certain": self.unsure,
            "only followed": "; ".join(map(str, self.followed)),
        }
        return [self.title, *(f"  {name}: {text}" for name, text in told.items() if text)]

    def to_json(self) -> dict[str, object]:
        """This cause as documented in the reference of `--json`."""
        return {
            "kind": self.kind.value,
            "title": self.title,
            "rank": self.rank,
            "node": self.nodes[0] if len(self.nodes) == 1 else None,
            "device": self.device,
            "ranks": list(self.ranks),
            "nodes": list(self.nodes),
            "at": self.at,
            "words": self.words,
            "source": self.source,
            "meaning": self.meaning,
            "remedy": self.remedy,
            "why": self.why,
            "unsure": self.unsure,
            "followed": [{"ranks": list(f.ranks), "how": f.how} for f in self.followed],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JobCause:
        """What `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the document has another form.
        """
        texts = ("title", "words", "source", "meaning", "remedy", "why", "unsure")
        return cls(
            kind=CauseKind(document["kind"]),
            ranks=tuple(document["ranks"]),
            nodes=tuple(document["nodes"]),
            device=document["device"],
            at=document["at"],
            followed=tuple(Followed(tuple(f["ranks"]), f["how"]) for f in document["followed"]),
            **{name: document[name] for name in texts},
        )
