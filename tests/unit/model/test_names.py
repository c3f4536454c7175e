"""Names in short form, and spans of time."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.errors import UsageError
from ascendboot.model.names import (
    counted,
    expand,
    expand_list,
    fold,
    local_time,
    names_among,
    parse_span,
    ranks_named,
    runs,
    span,
)


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["lab-2", "lab-1", "lab-3"], "lab-[1-3]"),
        (["a"], "a"),
        (["n01", "n02", "n10"], "n[01-02,10]"),
        (["b", "a"], "a,b"),
        ([], ""),
    ],
)
def test_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a",)),
        ("a-[1]", ("a-1",)),
        ("atlas-[08-11]", ("atlas-08", "atlas-09", "atlas-10", "atlas-11")),
        ("192.0.2.[9-10]", ("192.0.2.9", "192.0.2.10")),
        ("2001:db8::1", ("2001:db8::1",)),
        ("a[0,2-3]b", ("a0b", "a2b", "a3b")),
        ("[1-2][1-2]", ("11", "12", "21", "22")),
        ("n-[3, 1]", ("n-3", "n-1")),
        ("n-[1-6/2,08-12/04]", ("n-1", "n-3", "n-5", "n-08", "n-12")),
    ],
)
def test_a_range_stands_for_names_in_its_order(text: str, expected: tuple[str, ...]) -> None:
    assert expand(text) == expected


def test_a_broken_range_is_an_error() -> None:
    with pytest.raises(ValueError, match="its brackets do not pair up"):
        expand("atlas-[1-")
    with pytest.raises(ValueError, match=r'"a,b\[1-4/0\]": \[1-4/0\] is not a range'):
        expand_list("a,b[1-4/0]")


@given(st.sets(st.from_regex(r"[a-z]{1,2}[0-9]{0,14}(-[0-9]{1,3}){0,2}", fullmatch=True)))
def test_what_is_folded_can_be_expanded(names: set[str]) -> None:
    found = expand_list(fold(names))
    assert (set(found), len(found)) == (names, len(names))


def test_things_and_ranks_are_named_as_people_count_them() -> None:
    assert [counted(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    named = [ranks_named(ranks) for ranks in ((3,), (1, 0, 2, 9), [0, 1])]
    assert named == ["rank 3", "ranks 0-2,9", "ranks 0-1"]


@given(st.sets(st.integers(0, 60)))
def test_runs_stand_for_their_numbers(numbers: set[int]) -> None:
    found: set[int] = set()
    for part in filter(None, runs(numbers).split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((-1, "0 s"), (0.9, "0 s"), (119.9, "119 s"), (120, "2 min"), (3599, "59 min")),
        *((3600, "1 h"), (11520, "3 h 12 min"), (86400, "1 d"), (187_300, "2 d 4 h")),
    ],
)
def test_a_span_in_words(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("iso", "words"),
    [
        ("2026-01-02T03:04:05.678+00:00", "11:04:05"),
        ("2026-01-01T15:59:58+00:00", "2026-01-01 23:59:58"),
    ],
)
def test_a_time_of_day_here(monkeypatch: pytest.MonkeyPatch, iso: str, words: str) -> None:
    now = datetime(2026, 1, 2, 3, 30, tzinfo=timezone.utc)
    with monkeypatch.context() as there:
        there.setenv("TZ", "HERE-8")
        time.tzset()
        assert local_time(iso, now) == words
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1 d", 86400)],
)
def test_a_span_as_read(text: str, seconds: float) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5", "5 weeks", "1e9", "nan", "10m30s", "1" * 10, "٣"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as 90s, 10m, 2h or 1d"):
        parse_span(text)


KNOWN, GROUPS = ["a-1", "a-2", "a-3", "b-1"], {"rack1": ["a-1", "a-2"], "rack2": ["a-3"]}
GROUPS |= {"part": ["c-9", "a-1"], "other": ["c-9"]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a-3,a-1, a-3", "a-3 a-1"),
        ("@*", "a-1 a-2 a-3 b-1"),
        ("b-1,@rack[1-2]!a-2", "b-1 a-1 a-3"),
        ("@rack1&a-[2-3]", "a-2"),
        ("a-3 ^ @rack1^a-[1,3], b-1\n", "a-2 b-1"),
        (" b-1\ta-[1-3/2] ", "b-1 a-1 a-3"),
        ("a-*!?-[2 , 1]", "a-3"),
        ("@part", "a-1"),
    ],
)
def test_a_set_of_nodes(text: str, names: str) -> None:
    assert " ".join(names_among("--nodes", text, KNOWN, GROUPS)) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a-[1-3!2]", '"a-[1-3!2]": [1-3!2] is not a range; '),
        ("a-4,c", 'there is no "a-4,c", only a-[1-3],b-1; groups: rack1, rack2, part, other'),
        ("@rack3", 'there is no "@rack3", only '),
        ("a-1!@*", '"a-1!@*" names none of a-[1-3],b-1'),
        ("@other", '"@other" names none of a-'),
        ("", '"" names none of '),
        ("a-1^", '"a-1^": ^ stands between two sets; one is missing'),
        ("a-1,!a-2", '"a-1,!a-2": ! stands between two sets; one is missing'),
        ("a-1^a-4", 'there is no "a-4", only a-'),
        ("c-*", 'there is no "c-*", only a-'),
        ("a-1 b-[1-2]%", 'there is no "a-1 b-[1-2]%", only a-'),
        ("a-[1-9999]/2", "there is no "),
        ("a-[1-20000/1]", '"a-[1-20000/1]": it stands for more than 10,000'),
    ],
)
def test_what_is_no_set_of_nodes(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--nodes: {message}")):
        names_among("--nodes", text, KNOWN, GROUPS)
