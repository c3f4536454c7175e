"""How long is waited for the rest of a log: as long as bytes of it come."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from ascendboot.errors import UnreachableError
from ascendboot.jobs.follow import Reconnector
from ascendboot.jobs.gather import NodeLogs
from ascendboot.jobs.output import LogCopy, RankOutput
from ascendboot.launch.planner import plan
from tests.unit.launch.request import REQUEST

if TYPE_CHECKING:
    from pathlib import Path

    from ascendboot.transport.api import Command, Result


def says(name: str, data: bytes) -> bytes:
    return f"bytes {len(data)} {name}\n".encode() + data


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
