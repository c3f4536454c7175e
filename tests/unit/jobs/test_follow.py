"""Streams, copies and the screen while a job is followed; slow and lost nodes."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.jobs.follow import Followers, NodeEvent, Reconnector
from ascendboot.jobs.gather import NodeLogs
from ascendboot.jobs.output import LogCopy, RankOutput
from ascendboot.launch.events import Event, NodeSample, RankStarted, RankUse
from ascendboot.launch.plan import LaunchPlan
from ascendboot.launch.planner import plan
from ascendboot.transport.api import Command, Result
from tests.unit.launch.request import REQUEST

PLAN: LaunchPlan = plan(REQUEST)


def says(name: str, data: bytes) -> bytes:
    return f"bytes {len(data)} {name}\n".encode() + data


class Stream:
    def close(self) -> None:
        pass


class Streaming:
    """A transport of which only the stream is used; remembers what it is to say."""

    def __init__(self, node: str, stream: Stream | SlowStream | None = None) -> None:
        self.node = node
        self._stream = stream or Stream()

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Stream | SlowStream:
        self.on_bytes = on_bytes
        return self._stream


def followed(
    folder: Path, shown: list[bytes], seen: list[NodeEvent]
) -> tuple[Followers, Streaming]:
    followers = Followers(PLAN, folder, RankOutput(shown.append), seen.append, forks=4)
    transports = {node: Streaming(node) for node in PLAN.nodes}
    followers.open(transports)  # type: ignore[arg-type]  # see Streaming
    return followers, transports["a-1"]


def test_bytes_go_to_their_files_lines_to_the_screen_events_to_the_run(tmp_path: Path) -> None:
    shown: list[bytes] = []
    seen: list[NodeEvent] = []
    followers, node = followed(tmp_path, shown, seen)
    feed = node.on_bytes
    feed(says("events", b"rank 1 pid 7 start 8\n"))
    feed(says("rank.1.log", b"one\ntwo\n")[:-2])
    feed(b"o\n")
    feed(says("launcher.log", b"hm\n"))
    feed(b"beat\n")
    feed(says("rank.1.log", b"end"))
    feed(b"")
    followers.close()

    event: Event = RankStarted(1)
    assert seen == [NodeEvent("a-1", event), NodeEvent("a-1", None)]
    assert b"".join(shown) == b"a-1:1 | one\na-1:1 | two\na-1:1 | end\n"
    assert (tmp_path / "rank.1.log").read_bytes() == b"one\ntwo\nend"
    assert (tmp_path / "rank.0.log").read_bytes() == b""
    assert (tmp_path / "launcher.log").read_bytes() == b"hm\n"


def test_what_is_short_of_its_size(tmp_path: Path) -> None:
    followers, node = followed(tmp_path, [], [])
    follower = followers.nodes["a-1"]
    node.on_bytes(says("rank.0.log", b"12345\n"))
    whole = {"rank.0.log": 6, "rank.1.log": 0, "events": 0, "of somebody else.log": 9}
    assert follower.short_of(whole, patience_s=0.0) == {}
    longer = {**whole, "rank.0.log": 7, "events": 3}
    assert follower.short_of(longer, patience_s=0.0) == {"rank.0.log": (6, 7), "events": (0, 3)}
    followers.close()


def test_an_event_that_is_not_understood_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[NodeEvent] = []
    followers, node = followed(tmp_path, [], seen)
    with caplog.at_level(logging.WARNING):
        node.on_bytes(says("events", b"what?\nrank 1 pid 7 start 8\n"))
    followers.close()
    assert seen == [NodeEvent("a-1", RankStarted(1))]
    assert [record.getMessage() for record in caplog.records] == [
        (
            'a-1: the job\'s events: line 1 not understood: "what?"; expected a start or an end '
            "of a rank or the launcher"
        )
    ]


def test_a_copy_that_cannot_be_written_does_not_stop_the_screen(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").symlink_to("/dev/full")
    shown: list[bytes] = []
    followers, node = followed(tmp_path, shown, [])
    node.on_bytes(says("rank.0.log", b"a\n"))
    followers.close()
    assert shown == [b"a-1:0 | a\n"]
    assert followers.nodes["a-1"].problems == (
        "rank.0.log: could not keep the whole output: No space left on device",
    )


def test_a_screen_that_broke_is_not_asked_again() -> None:
    asked: list[bytes] = []

    def sink(block: bytes) -> None:
        asked.append(block)
        raise BrokenPipeError(32, "Broken pipe")

    screen = RankOutput(sink)
    for block in (b"", b"a\n", b"b\n"):
        screen.show(block)
    assert asked == [b"a\n"]
    assert screen.problem == (
        "could not show the output any longer: its reader is gone; see the logs"
    )


def test_a_sign_of_life_says_what_ranks_use_and_whether_they_wrote(tmp_path: Path) -> None:
    told: list[tuple[str, NodeSample]] = []
    followers = Followers(
        PLAN,
        tmp_path,
        RankOutput(lambda _: None),
        on_event=lambda _: None,
        on_sample=lambda node, sample: told.append((node, sample)),
        sample_s=60,
        forks=4,
    )
    transports = {node: Streaming(node) for node in PLAN.nodes}
    followers.open(transports)  # type: ignore[arg-type]  # see Streaming
    node = transports["a-1"]
    feed = node.on_bytes
    feed(says("rank.1.log", b"one\n"))
    feed(b"beat\nsam")
    assert told == []
    feed(b"ple 7.50 1:R:1500:4\n")
    feed(b"beat\nsample 8.00\n")
    feed(says("launcher.log", b"not of a rank\n"))
    feed(b"sample 9.50\n")
    followers.close()
    use = RankUse(rank=1, state="R", cpu_s=1.5, memory_bytes=4096)
    assert told == [
        ("a-1", NodeSample(at_s=7.5, ranks=(use,), wrote=True)),
        ("a-1", NodeSample(at_s=8.0, ranks=())),
        ("a-1", NodeSample(at_s=9.5, ranks=())),
    ]


class SlowStream:
    """Ends when those of all nodes are ending."""

    def __init__(self, all_end: threading.Barrier) -> None:
        self.all_end = all_end

    def close(self) -> None:
        self.all_end.wait(timeout=300)


def slow_followers(folder: Path) -> Followers:
    all_end = threading.Barrier(len(PLAN.nodes))
    followers = Followers(PLAN, folder, RankOutput(lambda _: None), lambda _: None, forks=4)
    transports = {node: Streaming(node, SlowStream(all_end)) for node in PLAN.nodes}
    followers.open(transports)  # type: ignore[arg-type]  # see Streaming
    return followers


def test_all_streams_end_at_once(tmp_path: Path) -> None:
    followers = slow_followers(tmp_path)
    followers.close()
    assert len(PLAN.nodes) == 2


def test_all_nodes_are_waited_for_at_once(tmp_path: Path) -> None:
    followers = slow_followers(tmp_path)
    began = time.monotonic()

    short = followers.short_of({"a-1": {"rank.0.log": 3}, "a-2": {"rank.2.log": 4}}, patience_s=1.0)

    assert time.monotonic() - began < 1.9
    assert short == {"a-1": {"rank.0.log": (0, 3)}, "a-2": {"rank.2.log": (0, 4)}}
    followers.close()


def follower_of(folder: Path, *names: str) -> NodeLogs:
    screen = RankOutput(lambda _: None)
    files = {name: LogCopy(folder / name, None, screen) for name in names}
    return NodeLogs("a-1", files, on_event=lambda _: None)


def feeding(follower: NodeLogs, *blocks: bytes, until: threading.Event) -> threading.Thread:
    """Says `blocks` every 50 ms, from the first to the last and the last again, until told."""

    feed = follower.reader()

    def work() -> None:
        rest = list(blocks)
        while not until.wait(0.05):
            feed(rest.pop(0) if len(rest) > 1 else rest[0])

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_signs_of_life_do_not_make_a_lost_log_come(tmp_path: Path) -> None:
    follower, over = follower_of(tmp_path, "rank.0.log"), threading.Event()
    thread = feeding(follower, b"beat\n", until=over)
    began = time.monotonic()
    # Ends the beats if the wait does not end by itself.
    timer = threading.Timer(5.0, over.set)
    timer.start()

    short = follower.short_of({"rank.0.log": 7}, patience_s=0.4)

    assert short == {"rank.0.log": (0, 7)}
    timer.cancel()
    assert 0.4 <= time.monotonic() - began < 2
    over.set()
    thread.join()
    follower.close()


def test_a_log_that_comes_slowly_is_waited_for(tmp_path: Path) -> None:
    follower, over = follower_of(tmp_path, "rank.0.log"), threading.Event()
    blocks = [*[says("rank.0.log", b"x")] * 20, b"beat\n"]
    thread = feeding(follower, *blocks, until=over)

    assert follower.short_of({"rank.0.log": 20}, patience_s=0.5) == {}

    over.set()
    thread.join()
    follower.close()


class Lost:
    """A node that does not answer any more."""

    node = "a-1"

    def run(self, _command: Command) -> Result:
        raise UnreachableError(self.node, "could not open a session")


def test_a_node_is_not_waited_for_any_more_once_it_is_told_what_became_of_it() -> None:
    """Else whoever takes that word might wait without an end for another one."""
    seen = []

    class Inbox(queue.SimpleQueue):  # type: ignore[type-arg]
        def put(self, item: Any, *_: Any) -> None:
            seen.append((item.node, reconnector.is_reconnecting("a-1")))
            super().put(item)

    nothing: Any = None
    inbox: Any = Inbox()
    lost: Any = {"a-1": Lost()}
    reconnector = Reconnector(
        plan(REQUEST),
        lost,
        nothing,
        follow=nothing,
        on_end=inbox.put,
        connect=None,
        tell=print,
        within_s=1,
    )
    reconnector.reconnect("a-1")
    assert isinstance(inbox.get(timeout=10).error, UnreachableError)
    assert seen == [("a-1", False)]
