"""The only room that prints."""

from __future__ import annotations

from ascendboot.console.controls import legible
from ascendboot.console.folding import folded
from ascendboot.console.screen import Screen

__all__ = ["Screen", "folded", "legible"]
