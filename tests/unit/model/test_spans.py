"""Spans of time as they are read and written."""

from __future__ import annotations

import pytest

from ascendboot.model.names import parse_span, span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.9, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (11520, "3 h 12 min"),
        (86400, "1 d"),
        (187_300, "2 d 4 h"),
    ],
)
def test_in_words(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1 d", 86400)],
)
def test_as_read(text: str, seconds: float) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5", "5 weeks", "1e9", "nan", "10m30s", "1" * 10, "٣"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as 90s, 10m, 2h or 1d"):
        parse_span(text)
