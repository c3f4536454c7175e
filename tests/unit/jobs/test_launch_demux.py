"""The stream of a follower back into files and lines, however it is cut into pieces."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ascendboot.jobs.output import MAX_BAR, MAX_LINE, Demux, Lines

NONCE = "0123456789abcdef"
NAMES = ("rank.0.log", "rank.1.log", "events")


def as_tail_writes(parts: list[tuple[str, bytes]]) -> bytes:
    """What `tail -v -f` writes: a header whenever the file changes, an empty line before it."""
    stream, last = b"", ""
    for name, data in parts:
        if name != last:
            stream += b"\n" if stream else b""
            stream += f"==> {NONCE}/../{name} <==\n".encode()
        stream, last = stream + data, name
    return stream


PIECES = st.sampled_from(
    [b"a", b"\n", b"\n\n", b"line\n", b"==> ", f"\n==> {NONCE}".encode(), b"\xff\x00", b" <==\n"]
)
PARTS = st.lists(st.tuples(st.sampled_from(NAMES), st.lists(PIECES).map(b"".join)), max_size=8)


@given(parts=PARTS, cuts=st.lists(st.integers(0, 300), max_size=12))
def test_every_file_gets_exactly_its_bytes(parts: list[tuple[str, bytes]], cuts: list[int]) -> None:
    got = dict.fromkeys(NAMES, b"")

    def give(name: str, data: bytes) -> None:
        got[name] += data

    demux = Demux(NONCE, give, lambda _: None)
    stream = as_tail_writes(parts)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for start, end in itertools.pairwise(edges):
        demux.feed(stream[start:end])
    waiting = {name: len(got[name]) + demux.held(name) for name in NAMES}
    demux.finish()

    expected = {name: b"".join(data for n, data in parts if n == name) for name in NAMES}
    assert got == expected
    assert waiting == {name: len(data) for name, data in expected.items()}


def test_the_header_of_another_follower_is_data() -> None:
    got: list[tuple[str, bytes]] = []
    demux = Demux(NONCE, lambda name, data: got.append((name, data)), lambda _: None)
    false = b"x\n==> ffffffffffffffff/../events <==\ny"
    demux.feed(as_tail_writes([("rank.0.log", false)]))
    demux.finish()
    assert b"".join(data for _, data in got) == false
    assert {name for name, _ in got} == {"rank.0.log"}


def test_a_line_is_announced_before_its_newline_is_certain() -> None:
    told: list[str] = []
    demux = Demux(NONCE, lambda *_: None, told.append)
    demux.feed(as_tail_writes([("rank.0.log", b"step 1\n")]))
    assert told == ["rank.0.log"]
    demux.feed(b"step 2")
    assert told == ["rank.0.log"]


@given(pieces=st.lists(st.tuples(PIECES, st.booleans())))
def test_lines_are_whole_and_unchanged(pieces: list[tuple[bytes, bool]]) -> None:
    """Also when the newline of a line was announced and came, or came to nothing."""
    lines, shown, written = Lines(b"n:0 | "), b"", b""
    announced = False
    for data, announce in pieces:
        if announced and not data.startswith(b"\n"):
            shown += lines.feed(b"\n")
            written += b"\n"
        shown += lines.feed(data)
        written += data
        announced = announce
        if announce:
            shown += lines.end_line()
    shown += lines.finish()
    assert shown.count(b"n:0 | ") == shown.count(b"\n")
    bare = b"".join(line.removeprefix(b"n:0 | ") + b"\n" for line in shown.split(b"\n")[:-1])
    assert bare in (written, written + b"\n")


def test_a_line_that_goes_on_after_it_was_announced_goes_on_in_a_line_of_its_own() -> None:
    lines = Lines(b"> ")
    assert lines.feed(b"abc") == b""
    assert lines.end_line() == b"> abc\n"
    assert lines.feed(b"def\n") == b"> def\n"


def test_a_newline_that_was_announced_is_shown_once() -> None:
    lines = Lines(b"> ")
    assert lines.feed(b"abc") + lines.end_line() + lines.feed(b"\ndef\n") == b"> abc\n> def\n"
    assert lines.end_line() == b""


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
