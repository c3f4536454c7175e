"""Rule: one thing that a rank table is judged by, and the words that rules are told with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["error", "warning"]
Product: TypeAlias = Literal["910", "a2", "a3", "a5", "310p"]
Job: TypeAlias = Literal["rec-sdk-tf", "mindspore", "torch"]

PRODUCTS: tuple[Product, ...] = ("910", "a2", "a3", "a5", "310p")
JOBS: tuple[Job, ...] = ("rec-sdk-tf", "mindspore", "torch")

ANY, STRINGS, GROUPS = "all", "1.x, group list", "group list"
V1, V12, V2 = "1.x", "1.2", "2.0"
"""Which tables a rule is about."""

CALLED: dict[Product, str] = {
    "910": "910",
    "a2": "A2",
    "a3": "A3",
    "a5": "950",
    "310p": "300I Duo",
}
"""What operators call a product."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule; `hccl` holds what HCCL prints where it refuses, with what it fills in in braces."""

    id: str
    about: str
    meaning: str
    remedy: str
    hccl: str = ""
    hccl_v2: str | None = None
    """The words of the reader of version 2.0, where they are others."""
    level: Level = "error"
