"""How long is waited for the rest of a log: as long as bytes of it come."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ascendboot.launch.copies import LogCopy, RankOutput
from ascendboot.launch.follow import NodeFollower

if TYPE_CHECKING:
    from pathlib import Path

NONCE = "n"


def says(name: str, data: bytes) -> bytes:
    return f"\n==> {NONCE}/../{name} <==\n".encode() + data


def follower_of(folder: Path, *names: str) -> NodeFollower:
    screen = RankOutput(lambda _: None)
    files = {name: LogCopy(folder / name, None, screen) for name in names}
    return NodeFollower("a-1", files, NONCE, lambda _: None)


def feeding(follower: NodeFollower, *blocks: bytes, until: threading.Event) -> threading.Thread:
    """Says `blocks` every 50 ms, from the first to the last and the last again, until told."""

    def work() -> None:
        rest = list(blocks)
        while not until.wait(0.05):
            follower.feed(rest.pop(0) if len(rest) > 1 else rest[0])

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_signs_of_life_do_not_make_a_lost_log_come(tmp_path: Path) -> None:
    follower, over = follower_of(tmp_path, "rank.0.log"), threading.Event()
    thread = feeding(follower, says("beat", b"\n"), until=over)
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
    blocks = [says("rank.0.log", b"x"), *[b"x"] * 19, says("beat", b"\n")]
    thread = feeding(follower, *blocks, until=over)

    assert follower.short_of({"rank.0.log": 20}, patience_s=0.5) == {}

    over.set()
    thread.join()
    follower.close()
