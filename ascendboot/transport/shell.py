"""Bash that scripts of several rooms share; it starts no program."""

from __future__ import annotations

from typing import Final

UPTIME: Final = r"""
look_up() { read -r up _ </proc/uptime; up=${up%.*}; }
"""
"""Shell function: sets `up`, seconds that only pass. Bash's SECONDS follow the clock of the day:
one that is set would end a job, or put off what is due."""
