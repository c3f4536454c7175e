"""Spans of time as a person writes and reads them: `90s`, `10m`; `3 h 12 min`."""

from __future__ import annotations

import re

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhd]?)", re.ASCII)
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_LONGEST_IN_SECONDS = 120


def span(seconds: float) -> str:
    """A span with at most two units, rounded down: `45 s`, `12 min`, `3 h 12 min`, `2 d 4 h`."""
    whole = max(0, int(seconds))
    if whole < _LONGEST_IN_SECONDS:
        return f"{whole} s"
    minutes = whole // _MINUTE_S
    if whole < _HOUR_S:
        return f"{minutes} min"
    hours = whole // _HOUR_S
    if whole < _DAY_S:
        return _both(f"{hours} h", minutes % 60, "min")
    return _both(f"{whole // _DAY_S} d", hours % 24, "h")


def parse_span(text: str) -> float:
    """Seconds; without a unit it is seconds already.

    Raises:
        ValueError: it is no span.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is not a time such as 90s, 10m, 2h or 1d')
    return float(match[1]) * _UNITS[match[2]]


def _both(first: str, rest: int, unit: str) -> str:
    return f"{first} {rest} {unit}" if rest else first
