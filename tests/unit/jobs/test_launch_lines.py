"""Bytes of a log become whole lines, in pieces of any size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ascendboot.jobs.output import MAX_BAR, MAX_LINE, Lines

PIECES = st.sampled_from([b"a", b"\n", b"\n\n", b"line\n", b"\xff\x00", b" | \n"])


@given(pieces=st.lists(PIECES))
def test_lines_are_whole_and_unchanged(pieces: list[bytes]) -> None:
    lines, written = Lines(b"n:0 | "), b"".join(pieces)
    shown = b"".join(lines.feed(data) for data in pieces) + lines.finish()
    assert shown.count(b"n:0 | ") == shown.count(b"\n")
    bare = b"".join(line.removeprefix(b"n:0 | ") + b"\n" for line in shown.split(b"\n")[:-1])
    assert bare in (written, written + b"\n")


def test_long_lines_are_split() -> None:
    lines = Lines(b"> ")
    whole = b"a\n" + b"x" * (MAX_LINE * 2 + 1) + b"\n"
    x = b"x" * MAX_LINE
    assert lines.feed(whole) == b"> a\n> " + x + b"\n> " + x + b"\n> x\n"
    assert lines.feed(b"y" * (MAX_LINE + 1)) == b"> " + b"y" * MAX_LINE + b"\n"
    assert lines.finish() == b"> y\n"


def test_a_line_that_goes_back_to_its_start_is_behind_its_node_and_rank_there_too() -> None:
    lines = Lines(b"> ")
    assert lines.feed(b"\r 10%\r 20%\r\r 30%\nof Windows\r\n") == (
        b"> \r>  10%\r>  20%\r\r>  30%\n> of Windows\r\n"
    )
    assert lines.feed(b"\r99%\r") + lines.finish() == b"> \r> 99%\r\n"


def test_a_progress_bar_is_shown_while_it_lasts() -> None:
    lines = Lines(b"> ")
    bar = b"".join(b"\r%4d of 9999" % n for n in range(MAX_BAR // 13))
    assert lines.feed(bar) == b""
    assert lines.feed(b"\r") == b""
    shown = lines.feed(b"new st")
    assert shown == b"> " + bar.replace(b"\r", b"\r> ") + b"\n"
    assert lines.feed(b"ate\n") == b"> new state\n"


def test_a_long_line_of_windows_ends_once() -> None:
    lines = Lines(b"> ")
    long = b"x" * MAX_BAR
    assert lines.feed(long + b"\r") == b""
    assert lines.feed(b"\n") == b"> " + long + b"\r\n"
