"""Lines of ranks: their prefix, the reader, the copies and their limits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.jobs.output import (
    MAX_BAR,
    MAX_LINE,
    MOST_BLOCKS,
    Folded,
    Lines,
    LogCopy,
    RankOutput,
    by_node,
    drop,
    plain,
    show_copy,
    size_at,
    start_of_last_lines,
    start_of_line,
)
from ascendboot.model.names import expand

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


def test_a_line_that_returns_to_its_start_repeats_the_prefix() -> None:
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


NODES = [f"a-{number}" for number in range(1, 13)]
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def test_nodes_side_by_side_have_colours_of_their_own_and_none_is_red() -> None:
    prefix = by_node(NODES)
    assert prefix("a-1", 7) == b"\x1b[0;36ma-1:7 |\x1b[0m "
    assert plain("a-1", 7) == b"a-1:7 | "
    colours = [COLOUR.findall(prefix(node, 0))[0] for node in NODES]
    assert len(set(colours)) == 10
    assert colours[10:] == colours[:2]
    assert not {b"\x1b[0;31m", b"\x1b[0;91m"} & set(colours)


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_no_byte_of_a_line_is_changed_by_it(blocks: list[bytes]) -> None:
    def shown(prefix: Callable[[str, int], bytes]) -> bytes:
        lines = Lines(prefix("a-2", 3))
        return b"".join([*map(lines.feed, blocks), lines.finish()])

    coloured, without = by_node(NODES)("a-2", 3), plain("a-2", 3)
    assert shown(by_node(NODES)).replace(coloured, without) == shown(plain)


class Stuck:
    """A sink that takes its first block and never comes back until told."""

    def __init__(self) -> None:
        self.entered, self.goes_on = threading.Event(), threading.Event()
        self.taken: list[bytes] = []

    def __call__(self, block: bytes) -> None:
        self.taken.append(block)
        self.entered.set()
        self.goes_on.wait(30)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.goes_on.set()


def test_blocks_come_in_order_and_all_of_them() -> None:
    taken: list[bytes] = []
    output = RankOutput(taken.append)
    blocks = [b"%d\n" % i for i in range(1000)]
    for block in (b"", *blocks):
        output.show(block)
    output.close()
    assert (taken, output.problem) == (blocks, "")


def test_without_a_hurry_a_slow_reader_is_waited_for(stuck: Stuck) -> None:
    output = RankOutput(stuck)
    output.show(b"a\n")
    output.show(b"b\n")
    assert stuck.entered.wait(10)
    threading.Timer(0.5, stuck.goes_on.set).start()
    output.close()
    assert stuck.taken == [b"a\n", b"b\n"]


def test_in_a_hurry_a_reader_that_does_not_read_is_abandoned(stuck: Stuck) -> None:
    hurry = threading.Event()
    output = RankOutput(stuck, is_hurried=hurry.is_set)
    began = time.monotonic()
    threading.Timer(0.2, hurry.set).start()
    for _ in range(MOST_BLOCKS + 2):
        output.show(b"x")
    output.close()
    assert (": its reader does not read; " in output.problem, output.lost) == (True, True)
    assert time.monotonic() - began < 3


def test_a_reader_that_is_gone_is_not_written_to_again() -> None:
    taken: list[bytes] = []

    def sink(block: bytes) -> None:
        taken.append(block)
        raise BrokenPipeError(32, "Broken pipe")

    output = RankOutput(sink)
    for block in (b"a\n", b"b\n"):
        output.show(block)
    output.close()
    words = "could not show the output any longer: its reader is gone; see the logs"
    assert (taken, output.problem, output.lost) == ([b"a\n"], words, False)


PROGRAM = """
import sys
from ascendboot.console.screen import Screen
from ascendboot.jobs.output import RankOutput
output = RankOutput(Screen.raw(to_stderr=False), is_hurried=lambda: True)
output.show(b"x" * 200_000)
output.close()
sys.stderr.write(output.problem)
"""


@pytest.mark.parametrize(("is_open", "said"), [(True, b"does not read"), (False, b"is gone")])
def test_a_program_ends_normally_without_its_reader(*, is_open: bool, said: bytes) -> None:
    """No hang in a full pipe, no traceback and no exit code of Python's own for a closed one."""
    read, write = os.pipe()
    if not is_open:
        os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    os.close(write)
    if is_open:
        os.close(read)
    words = b"could not show the output any longer: its reader %b; see the logs" % said
    assert (done.returncode, done.stderr) == (0, words)


MIB = 1 << 20
LIMIT = 16 * MIB
WORDS = b"x" * 1023 + b"\n"


def shown_copy(path: Path) -> bytes:
    shown: list[bytes] = []
    output = RankOutput(shown.append)
    show_copy(path, Lines(b"n:0 | "), output)
    output.close()
    return b"".join(shown)


def test_a_copy_keeps_its_beginning_and_its_end_and_every_byte_its_place(tmp_path: Path) -> None:
    path = tmp_path / "rank.0.log"
    copy = LogCopy(path, None, RankOutput(lambda _: None), limit=LIMIT)
    (tmp_path / "holes").write_bytes(bytes(2 * MIB))
    if not drop(tmp_path / "holes", 0, MIB):
        pytest.skip("no holes in files of this file system")
    numbered = [b"%07d " % n + b"x" * 1015 + b"\n" for n in range(40 * 1024)]
    for at in range(0, len(numbered), 64):
        copy.give(b"".join(numbered[at : at + 64]))
        assert path.stat().st_blocks * 512 <= LIMIT + MIB
    copy.close()
    assert path.stat().st_size == copy.size == 40 * MIB
    lines = shown_copy(path).splitlines(keepends=True)
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
    output = RankOutput(shown.append)
    copy = LogCopy(path, Lines(b"n:0 | "), output, resumes=True)
    copy.skip(10 * MIB - 6)  # nodes drop whole MiB
    copy.give(b"o\nend\n")
    copy.close()
    output.close()
    assert copy.size == 10 * MIB + 6
    assert path.read_bytes() == b"one\ntw" + bytes(10 * MIB - 6) + b"o\nend\n"
    text = (
        b"n:0 | one\nn:0 | tw\n"
        b"n:0 | [ascendboot: 10485754 bytes are missing here: the log outgrew logs.max_size]\n"
        b"n:0 | o\nn:0 | end\n"
    )
    assert b"".join(shown) == shown_copy(path) == text


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


A, B, C = b"lab-1:0 | ", b"lab-1:1 | ", b"lab-2:2 | "
FOLDED = {
    "all ranks": ([A + b"x", B + b"x", C + b"x"], [b"lab-[1-2]:[0-2] | x"]),
    "some": ([A + b"x", C + b"y", B + b"x"], [b"lab-1:[0-1] | x", C + b"y"]),
    "twice": (
        [A + b"x", A + b"x", B + b"x", C + b"x", B + b"x"],
        [b"lab-[1-2]:[0-2] | x", b"lab-1:[0-1] | x"],
    ),
    "order of a rank": (
        [A + b"1", A + b"2", B + b"2", B + b"1"],
        [A + b"1", b"lab-1:[0-1] | 2", B + b"1"],
    ),
    "no label": ([b"x", b"x", A + b"x"], [b"x", b"x", A + b"x"]),
}


@pytest.mark.parametrize(("lines", "shown"), FOLDED.values(), ids=FOLDED)
def test_equal_lines_of_ranks_are_shown_once(lines: list[bytes], shown: list[bytes]) -> None:
    blocks: list[bytes] = []
    folded = Folded(blocks.append, 3, window_s=60.0)
    for line in lines:
        folded(line + b"\n")
    folded.close()
    assert b"".join(blocks).splitlines() == shown


def test_a_line_waits_for_its_like_no_longer_than_the_window() -> None:
    seen = threading.Event()
    folded = Folded(lambda _block: seen.set(), 2, window_s=0.1)
    folded(A + b"x\n")
    assert seen.wait(10)
    folded.close()


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from([b"1", b"2"])), max_size=30))
def test_folding_keeps_every_line_of_a_rank_in_its_order(lines: list[tuple[bytes, bytes]]) -> None:
    blocks: list[bytes] = []
    folded = Folded(blocks.append, 3, window_s=60.0)
    folded(b"".join(who + text + b"\n" for who, text in lines))
    folded.close()
    shown = b"".join(blocks).decode().splitlines()
    for rank, who in enumerate((A, B, C)):
        mine = [line.partition(" | ") for line in shown]
        kept = [text for label, _, text in mine if str(rank) in expand(label.rpartition(":")[2])]
        assert kept == [text.decode() for each, text in lines if each == who]
