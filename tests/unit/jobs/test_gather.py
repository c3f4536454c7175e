"""Streams of nodes, in pieces of any size, and the copies that they go into."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from ascendboot.errors import NodeError, NotUnderstoodError, UnreachableError
from ascendboot.jobs.follow import Reconnector
from ascendboot.jobs.gather import Frames, LogGatherer
from ascendboot.jobs.output import Lines, LogCopy, RankOutput
from ascendboot.launch.plan import JobRecord
from ascendboot.templates import script
from ascendboot.transport.api import Command, Result, Transport
from tests.fake_transport import Answer

SENT = (
    b"beat\ngap 3 rank.1.log\nbytes 6 rank.0.log\none\ntwbytes 4 events\nbeatlost\nabsent\n"
    b"bytes 2 rank.0.log\no\nend\n"
)


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_parsed_from_pieces_of_any_size(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    given: dict[str, bytes] = {}
    others: list[object] = []
    frames, rest = Frames(), SENT
    while rest:
        size = chance.randint(1, 9)
        for frame in frames.feed(rest[:size]):
            if isinstance(frame, tuple) and isinstance(frame[1], bytes):
                given[frame[0]] = given.get(frame[0], b"") + frame[1]
            else:
                others.append(frame)
        rest = rest[size:]
    assert given == {"rank.0.log": b"one\ntwo\n", "events": b"beat"}
    assert others == ["beat", ("rank.1.log", 3), "lost", "absent", "end"]


def test_an_unknown_frame_is_refused() -> None:
    with pytest.raises(NotUnderstoodError, match='line 1 not understood: "hello"'):
        list(Frames().feed(b"hello\n"))
    with pytest.raises(NotUnderstoodError):
        list(Frames().feed(b"gap 99999999999999999999 rank.0.log\n"))


def test_a_copy_stays_a_beginning_after_a_full_disk(tmp_path: Path) -> None:
    """Bytes that come after a full disk are shown, and not appended to the copy."""
    path = tmp_path / "rank.0.log"
    shown: list[bytes] = []
    output = RankOutput(shown.append)
    copy = LogCopy(path, Lines(b""), output)
    copy.give(b"one\n")
    kept = copy._copy
    with Path("/dev/full").open("wb", buffering=0) as copy._copy:
        copy.give(b"two\n")
    copy._copy = kept
    copy.give(b"three\n")
    copy.close()
    output.close()
    assert path.read_bytes() == b"one\n"
    assert b"".join(shown) == b"one\ntwo\nthree\n"
    assert copy.problem == "could not keep the whole output: No space left on device"


ONE, TWO = b"bytes 4 rank.0.log\none\n", b"bytes 4 rank.0.log\ntwo\n"
EVENT = b"bytes 39 events\nlauncher - exit 0 at 1767225600.000000\n"
LOST = UnreachableError("a-1", "could not open a session")


class Node:
    """A transport whose streams say this; one after them what misses, and the end of the job."""

    node = "a-1"

    def __init__(self, *streams: Sequence[bytes] | NodeError, is_lost: bool = False) -> None:
        self.streams, self.is_lost = list(streams), is_lost

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Node:
        words = command.argv
        rest = [TWO + EVENT] if words[words.index("rank.0.log") + 1] == "4" else []
        said = self.streams.pop(0) if self.streams else [*rest, b"end\n", b""]
        if isinstance(said, NodeError):
            raise said
        for part in said:
            on_bytes(part)
        return self

    def run(self, command: Command) -> Result:
        if self.is_lost:
            raise LOST
        return Answer().to(command, self.node)

    def close(self) -> None:
        pass


CUT, SILENT = (ONE, b""), (ONE,)


def follow(
    gathering: LogGatherer, job: JobRecord, connect: Callable[[str], Transport] | None = None
) -> list[str]:
    """Follow a job; what the operator saw of it meanwhile."""
    told: list[str] = []
    reconnector = Reconnector(
        job,
        gathering.transports,
        gathering.progress,
        follow=gathering.read,
        on_end=lambda back: gathering.on_reconnected(back.node, back.error),
        connect=connect,
        tell=told.append,
        within_s=10,
    )
    gathering.follow(reconnector.reconnect)
    return told


def gatherer(
    job: JobRecord,
    transports: Any,
    folder: Path,
    shown: Mapping[int, tuple[Lines, int]] | None = None,
    absent: Collection[str] = (),
) -> LogGatherer:
    return LogGatherer(
        job=job,
        transports=transports,
        absent=absent,
        folder=folder,
        output=RankOutput(lambda _: None),
        shown=shown or {},
        forks=4,
    )


def test_a_connection_that_ends_is_reported_at_once(job: JobRecord, tmp_path: Path) -> None:
    gathering = gatherer(job, {"a-1": Node(CUT, is_lost=True)}, tmp_path)
    follow(gathering, job)
    gathering.close()
    [error] = gathering.errors.values()
    assert str(error) == "a-1: could not gather logs of job job-1: its connection has ended"
    assert (tmp_path / "rank.0.log").read_bytes() == b"one\n"


@pytest.mark.parametrize("first", [CUT, SILENT, None], ids=["cut", "silent", "absent"])
def test_item_11_a_lost_connection_is_opened_again_while_logs_are_followed(
    job: JobRecord, tmp_path: Path, first: tuple[bytes, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendboot.jobs.gather._SOON_S", 0.1)
    monkeypatch.setattr("ascendboot.jobs.follow._PAUSE_S", 0.0)
    if first is None:
        (tmp_path / "rank.0.log").write_bytes(b"one\n")
    absent = ["a-1"] if first is None else []
    nodes = {"a-1": Node(first, is_lost=True)} if first else {}
    gathering = gatherer(job, nodes, tmp_path, absent=absent)
    gone = NodeError("a-1", "its container is gone")
    sides: Any = iter([gone, gone, Node(LOST), Node()])

    def connect(_name: str) -> Any:
        if isinstance(side := next(sides), NodeError):
            raise side
        return side

    told = follow(gathering, job, connect)
    gathering.complete()
    gathering.close()
    assert gathering.errors == {}
    assert (tmp_path / "rank.0.log").read_bytes() == b"one\ntwo\n"
    if first is CUT:
        assert told.pop(0).endswith("; connecting again; the job continues")
    words = "its connection was lost, and was reopened" if first else "was reached"
    back = f"a-1: {words} after N s"
    dropped = [] if first is CUT else ["a-1: could not open a session; trying again"]
    told = [re.sub(r"\d+ s$", "N s", line) for line in told]
    assert told == ["a-1: its container is gone; trying again", back, *dropped]


def test_a_stream_that_ends_at_once_is_not_opened_again_and_again(
    job: JobRecord, tmp_path: Path
) -> None:
    hasty = Node(CUT, (b"", b""))
    gathering, began = gatherer(job, {"a-1": hasty}, tmp_path), time.monotonic()
    told = follow(gathering, job)
    gathering.close()
    assert gathering.errors == {}
    assert time.monotonic() - began > 1.0
    assert told == ["a-1: what reads its logs ends at once; trying again each second"]


def test_a_node_with_unknown_frames_is_not_reported_as_silent(
    job: JobRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendboot.jobs.gather.SILENCE_S", -1.0)
    gathering = gatherer(job, {"a-1": Node(), "a-2": Node()}, tmp_path)
    for node in gathering.nodes.values():
        node.reader()
    not_understood = NodeError("a-1", "could not read its logs")
    gathering.errors["a-1"] = not_understood
    gathering.complete()
    gathering.close()
    assert gathering.errors["a-1"] is not_understood
    assert "its last stream has not ended" in str(gathering.errors["a-2"])


LOG = b"one\ntwo\nbytes 3 rank.0.log\n"


class Slow:
    """A transport whose first stream is closed in the middle of a log; others give what misses."""

    node = "a-1"

    def __init__(self) -> None:
        self._readers: list[Thread] = []
        self._closed = Event()
        self.is_alone: list[bool] = []
        """Whether all streams before had ended, by stream."""

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Slow:
        words = command.argv
        at = int(words[words.index("rank.0.log") + 1])
        self.is_alone.append(not any(reader.is_alive() for reader in self._readers))
        rest = b"bytes %d rank.0.log\n" % (len(LOG) - at) + LOG[at:]
        said = [rest + b"end\n"] if self._readers else [EVENT, rest[:27]]

        def read() -> None:
            for part in said:
                on_bytes(part)
            self._closed.wait(10)
            on_bytes(b"")

        self._readers.append(Thread(target=read))
        self._readers[-1].start()
        return self

    def close(self) -> None:
        self._closed.set()
        self._readers[-1].join(0.1)


@pytest.mark.parametrize("reader_takes_s", [0.0, 0.3])
def test_a_copy_continues_where_a_stream_was_cut(
    job: JobRecord, tmp_path: Path, reader_takes_s: float
) -> None:
    """What is left of the stream that followed is no part of the next, nor taken in beside it."""
    node, shown = Slow(), list[bytes]()

    class SlowLines(Lines):
        def feed(self, data: bytes) -> bytes:
            time.sleep(reader_takes_s)
            shown.append(data)
            return b""

    gathering = gatherer(job, {"a-1": node}, tmp_path, {0: (SlowLines(b""), 0)})
    follow(gathering, job)
    gathering.complete()
    gathering.close()
    assert gathering.errors == {}
    assert (tmp_path / "rank.0.log").read_bytes() == LOG
    assert b"".join(shown) == LOG
    assert node.is_alone == [True, True]


MIB = 1 << 20
SIZE = 20 * MIB
WHOLE = f"1.0 {SIZE} {MIB} {16 * MIB}\n"
ALL = [("give", SIZE)]
JUMPED = [("give", MIB), ("skip", 15 * MIB), ("give", 4 * MIB)]


def sent(folder: Path, marks: str, here: int) -> list[tuple[str, int]]:
    """What is given and skipped, in order, to a copy that has `here` bytes."""
    with (folder / "rank.0.log").open("wb") as log:
        log.truncate(SIZE)
    (folder / "rank.0.marks").write_text(marks)
    sizes = (str(folder), "once", "1", "0", "rank.0.log", str(here))
    argv = ("/bin/bash", "-c", script("jobs-logs.sh"), "logs", *sizes)
    done = subprocess.run(argv, capture_output=True, check=True, timeout=300)
    assert done.stderr == b""
    *frames, last = Frames().feed(done.stdout)
    assert last == "end"
    contents = [frame[1] for frame in frames]
    return [("skip", c) if isinstance(c, int) else ("give", len(c)) for c in contents]


@pytest.mark.parametrize(
    ("marks", "parts"),
    [
        (WHOLE, JUMPED),
        ("", ALL),
        (f"1.0 {SIZE} 0 0\n", ALL),
        (f"{WHOLE}2.0 {SIZE} {MIB} 12", JUMPED),
        (f"2.0 {SIZE} {MIB} 12", ALL),
        (f"2.0 {SIZE} {MIB} 12\n3.0 {SIZE}", ALL),
        (f"2.0 {SIZE} {MIB}\n3.", ALL),
    ],
)
def test_an_incomplete_mark_makes_no_gap(
    marks: str, parts: list[tuple[str, int]], tmp_path: Path
) -> None:
    assert sent(tmp_path, marks, 0) == parts


def test_a_copy_that_ends_in_a_gap_continues_after_it(tmp_path: Path) -> None:
    assert sent(tmp_path, WHOLE, 5 * MIB) == [("skip", 11 * MIB), ("give", 4 * MIB)]
