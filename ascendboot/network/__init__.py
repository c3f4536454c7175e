"""Whether nodes and NPUs really reach each other: what is tried, and what follows from it."""

from __future__ import annotations

from ascendboot.network.attempts import Attempts, Coverage, Ends, attempts
from ascendboot.network.script import Tried, command, read
from ascendboot.network.verdict import verdict

__all__ = ["Attempts", "Coverage", "Ends", "Tried", "attempts", "command", "read", "verdict"]
