"""Logs that outgrow their limit, and what is shown of a log from some line or moment on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascendboot.jobs.output import (
    Lines,
    LogCopy,
    RankOutput,
    drop,
    dropped_range,
    show_copy,
    size_at,
    split_at_gaps,
    start_of_last_lines,
    start_of_line,
)

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
LIMIT = 16 * MIB
WORDS = b"x" * 1023 + b"\n"


def test_a_quarter_stays_at_the_beginning_and_half_at_the_end() -> None:
    assert dropped_range(100 * MIB + 5, LIMIT) == (4 * MIB, 92 * MIB)


def test_a_copy_keeps_its_beginning_and_its_end_and_every_byte_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rank.0.log"
    copy = LogCopy(path, None, RankOutput(lambda _: None), limit=LIMIT)
    if not _has_holes(tmp_path):
        pytest.skip("no holes in files of this file system")
    numbered = [b"%07d " % n + b"x" * 1015 + b"\n" for n in range(40 * 1024)]
    for at in range(0, len(numbered), 64):
        copy.give(b"".join(numbered[at : at + 64]))
        assert path.stat().st_blocks * 512 <= LIMIT + MIB
    copy.close()
    assert path.stat().st_size == copy.size == 40 * MIB
    shown: list[bytes] = []
    show_copy(path, Lines(b"n:0 | "), RankOutput(shown.append))
    lines = b"".join(shown).splitlines(keepends=True)
    [gap] = [n for n, line in enumerate(lines) if b"ascendboot" in line]
    assert lines[:gap] == [b"n:0 | " + line for line in numbered[: 4 * 1024]]
    kept = len(lines) - gap - 1
    assert lines[gap + 1 :] == [b"n:0 | " + line for line in numbered[-kept:]]
    assert lines[gap] == (
        b"n:0 | [ascendboot: %d bytes are missing here: the log outgrew logs.max_size]\n"
        % (40 * MIB - 4 * MIB - kept * 1024)
    )
    assert kept >= LIMIT / 2 / 1024


def test_what_a_node_has_dropped_is_a_hole_here_too(tmp_path: Path) -> None:
    path = tmp_path / "rank.0.log"
    path.write_bytes(b"one\ntw")
    shown: list[bytes] = []
    copy = LogCopy(path, Lines(b"n:0 | "), RankOutput(shown.append), resumes=True)
    copy.skip(10 * MIB)
    copy.give(b"\0" * 8192 + b"o\nend\n")
    copy.close()
    assert copy.size == 6 + 10 * MIB + 8192 + 6
    assert path.read_bytes() == b"one\ntw" + bytes(10 * MIB + 8192) + b"o\nend\n"
    assert b"".join(shown) == (
        b"n:0 | one\nn:0 | tw\n"
        b"n:0 | [ascendboot: 10493952 bytes are missing here: the log outgrew logs.max_size]\n"
        b"n:0 | o\nn:0 | end\n"
    )


def test_zero_bytes_of_a_rank_are_its_own_unless_they_are_many() -> None:
    assert list(split_at_gaps(b"a\0b")) == [b"a\0b"]
    row = bytes(5000)
    assert list(split_at_gaps(row + b"a" + row + b"b\0")) == [5000, b"a", 5000, b"b\0"]


@pytest.mark.parametrize(
    ("text", "count", "start"),
    [
        (b"", 3, 0),
        (b"one\ntwo\nthree\n", 1, 8),
        (b"one\ntwo\nthree\n", 2, 4),
        (b"one\ntwo\nthree\n", 3, 0),
        (b"one\ntwo\nthree\n", 9, 0),
        (b"one\ntwo\nthr", 1, 8),
        (b"one\n\n", 1, 4),
        (WORDS * 3000, 2000, 1000 * 1024),
        (b"one\n" + bytes(4 * MIB) + b"two\nthree\n", 1, 4 * MIB + 8),
    ],
)
def test_where_the_last_lines_begin(tmp_path: Path, text: bytes, count: int, start: int) -> None:
    path = tmp_path / "rank.0.log"
    path.write_bytes(text)
    assert start_of_last_lines(path, count) == start


def test_the_last_lines_are_not_looked_for_before_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "rank.0.log"
    path.write_bytes(b"one\n" + bytes(4 * MIB) + b"two\n")
    assert 4 <= start_of_last_lines(path, 5) <= 4 + 4 * MIB


def test_where_a_line_begins(tmp_path: Path) -> None:
    path = tmp_path / "rank.0.log"
    path.write_bytes(b"one\ntwo\n")
    assert [start_of_line(path, at) for at in (0, 2, 4, 6, 8)] == [0, 0, 4, 4, 8]


def test_how_long_a_log_was_at_a_moment() -> None:
    marks = b"10.5 0 0 0\n15.5 70 0 0\ndamaged\n20.5 90 5 70\n25.5 9"
    assert [size_at(marks, at) for at in (3.0, 10.5, 17.0, 20.5, 99.0)] == [0, 0, 70, 90, 90]
    assert size_at(b"", 3.0) is None


def _has_holes(folder: Path) -> bool:
    (folder / "holes").write_bytes(bytes(2 * MIB))
    return drop(folder / "holes", 0, MIB)
