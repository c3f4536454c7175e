"""What the command line of `train` asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendboot.tasks.hangs import HangWish
    from ascendboot.tasks.start_rules import StartRules


@dataclass(frozen=True, kw_only=True)
class Order:
    """One job, and how it is to be started."""

    script: str
    grace_s: float
    min_nodes: int | None
    """With fewer nodes an elastic job ends; None: it needs all of them."""
    hangs: HangWish
    rules: StartRules
    plan: bool
    preflight: bool
    detach: bool
    json: bool
