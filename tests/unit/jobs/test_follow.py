"""Followed jobs: streams, copies, output, and nodes that are slow or lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascendboot.errors import UnreachableError
from ascendboot.jobs.follow import Followers, NodeEvent, Reconnected, Reconnector
from ascendboot.jobs.gather import NodeLogs
from ascendboot.jobs.loss import BadLoss
from ascendboot.jobs.output import LogCopy, RankOutput
from ascendboot.launch.events import NodeSample, RankStarted
from ascendboot.launch.plan import LaunchPlan
from ascendboot.launch.planner import plan
from ascendboot.transport.api import Command
from ascendboot.value import replace
from tests.fake_transport import FakeTransport
from tests.unit.launch.request import REQUEST

PLAN: LaunchPlan = plan(REQUEST)


def says(name: str, data: bytes) -> bytes:
    return f"bytes {len(data)} {name}\n".encode() + data


class Streaming:
    """A transport and its stream, which is closed when all that close together are closing."""

    def __init__(self, node: str, all_end: threading.Barrier) -> None:
        self.node = node
        self.all_end = all_end

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> Streaming:
        self.on_bytes = on_bytes
        return self

    def close(self) -> None:
        self.all_end.wait(timeout=300)


def followed(folder: Path, ends: int = 1, **more: Any) -> tuple[Followers, Callable[[bytes], None]]:
    """Followers of two nodes, of which so many end at once, and what takes the first's bytes."""
    all_end = threading.Barrier(ends)
    more = {"output": RankOutput(lambda _: None), "on_event": lambda _: None, **more}
    followers = Followers(PLAN, folder, forks=4, **more)
    transports: Any = {node: Streaming(node, all_end) for node in PLAN.nodes}
    followers.open(transports)
    return followers, transports["a-1"].on_bytes


def test_bytes_go_to_files_lines_to_the_output_and_events_to_the_run(tmp_path: Path) -> None:
    shown: list[bytes] = []
    seen: list[NodeEvent] = []
    output = RankOutput(shown.append)
    followers, feed = followed(tmp_path, output=output, on_event=seen.append)
    feed(says("events", b"rank 1 pid 7 start 8\n"))
    feed(says("rank.1.log", b"one\ntwo\n")[:-2])
    feed(b"o\n")
    feed(says("launcher.log", b"hm\n"))
    feed(b"beat\n")
    feed(says("rank.1.log", b"end"))
    feed(b"")
    followers.close()
    output.close()

    assert seen == [NodeEvent("a-1", RankStarted(1)), NodeEvent("a-1", None)]
    assert b"".join(shown) == b"a-1:1 | one\na-1:1 | two\na-1:1 | end\n"
    logs = {log.name: log.read_bytes() for log in tmp_path.iterdir() if log.stat().st_size}
    assert logs == {"rank.1.log": b"one\ntwo\nend", "launcher.log": b"hm\n"}


def test_the_first_bad_loss_of_a_rank_is_passed_on_beside_its_lines(tmp_path: Path) -> None:
    losses: list[BadLoss] = []
    shown: list[bytes] = []
    output = RankOutput(shown.append)
    followers, feed = followed(tmp_path, output=output, on_loss=losses.append)
    feed(says("rank.1.log", b"step 1 loss 0.5\nstep 2 lo"))
    feed(says("rank.1.log", b"ss nan\nstep 3 loss nan\n"))
    followers.close()
    output.close()

    lines = [
        b"a-1:1 | step %d loss %b\n" % line for line in ((1, b"0.5"), (2, b"nan"), (3, b"nan"))
    ]
    assert b"".join(shown) == b"".join(lines)
    [bad] = losses
    assert replace(bad, at=None) == BadLoss(rank=1, node="a-1", value="nan", step="2")


def test_what_is_short_of_its_size(tmp_path: Path) -> None:
    followers, feed = followed(tmp_path)
    follower = followers.nodes["a-1"]
    feed(says("rank.0.log", b"12345\n"))
    whole = {"rank.0.log": 6, "rank.1.log": 0, "events": 0, "of somebody else.log": 9}
    assert follower.short_of(whole, patience_s=0.0) == {}
    longer = {**whole, "rank.0.log": 7, "events": 3}
    assert follower.short_of(longer, patience_s=0.0) == {"rank.0.log": (6, 7), "events": (0, 3)}
    followers.close()


def test_a_sign_of_life_contains_what_ranks_use_and_whether_they_wrote(tmp_path: Path) -> None:
    told: list[tuple[str, NodeSample]] = []
    followers, feed = followed(
        tmp_path, on_sample=lambda node, sample: told.append((node, sample)), sample_s=60
    )
    feed(says("rank.1.log", b"one\n"))
    feed(b"beat\nsam")
    assert told == []
    feed(b"ple 7.50 1:1500\n")
    feed(b"beat\nsample 8.00\n")
    feed(says("launcher.log", b"not of a rank\n"))
    feed(b"sample 9.50\n")
    followers.close()
    assert told == [
        ("a-1", NodeSample(at_s=7.5, cpu_s={1: 1.5}, wrote=True)),
        ("a-1", NodeSample(at_s=8.0, cpu_s={})),
        ("a-1", NodeSample(at_s=9.5, cpu_s={})),
    ]


def test_all_nodes_are_waited_for_and_closed_at_once(tmp_path: Path) -> None:
    followers, _ = followed(tmp_path, ends=len(PLAN.nodes))
    began = time.monotonic()

    short = followers.short_of({"a-1": {"rank.0.log": 3}, "a-2": {"rank.2.log": 4}}, patience_s=1.0)

    assert time.monotonic() - began < 1.9
    assert short == {"a-1": {"rank.0.log": (0, 3)}, "a-2": {"rank.2.log": (0, 4)}}
    followers.close()


@contextmanager
def fed(folder: Path, *blocks: bytes) -> Iterator[NodeLogs]:
    """Logs of a node that sends a block every 50 ms, and the last one again and again."""
    copy = LogCopy(folder / "rank.0.log", None, RankOutput(lambda _: None))
    logs = NodeLogs("a-1", {"rank.0.log": copy}, on_event=lambda _: None)
    over, feed, rest = threading.Event(), logs.reader(), list(blocks)

    def work() -> None:
        while not over.wait(0.05):
            feed(rest.pop(0) if len(rest) > 1 else rest[0])

    thread = threading.Thread(target=work)
    thread.start()
    limit = threading.Timer(5.0, over.set)  # a wait that would never end fails instead
    limit.start()
    try:
        yield logs
    finally:
        limit.cancel()
        over.set()
        thread.join()
        logs.close()


def test_signs_of_life_do_not_extend_the_wait_for_a_log(tmp_path: Path) -> None:
    began = time.monotonic()
    with fed(tmp_path, b"beat\n") as logs:
        assert logs.short_of({"rank.0.log": 7}, patience_s=0.4) == {"rank.0.log": (0, 7)}
    assert 0.4 <= time.monotonic() - began < 2


def test_a_log_that_comes_slowly_is_waited_for(tmp_path: Path) -> None:
    with fed(tmp_path, *[says("rank.0.log", b"x")] * 20, b"beat\n") as logs:
        assert logs.short_of({"rank.0.log": 20}, patience_s=0.5) == {}


def test_a_node_counts_as_lost_before_its_reader_gets_the_message() -> None:
    """Otherwise the reader could wait for another message that never comes."""
    seen = []
    ended = threading.Event()
    unused: Any = None
    nodes: Any = {"a-1": FakeTransport("a-1", unreachable="could not open a session")}

    def on_end(back: Reconnected) -> None:
        seen.append((type(back.error), reconnector.is_reconnecting(back.node)))
        ended.set()

    reconnector = Reconnector(
        PLAN, nodes, unused, follow=unused, on_end=on_end, connect=None, tell=print, within_s=1
    )
    reconnector.reconnect("a-1")
    assert ended.wait(10)
    assert seen == [(UnreachableError, False)]
