"""Many nodes end as fast as one: what may take its time on each is done on all at once."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ascendboot.jobs.follow import Followers
from ascendboot.launch.planner import plan
from tests.unit.launch.request import REQUEST

if TYPE_CHECKING:
    from pathlib import Path

    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.transport.api import Command

PLAN: LaunchPlan = plan(REQUEST)


class SlowStream:
    """Ends when those of all nodes are ending."""

    def __init__(self, all_end: threading.Barrier) -> None:
        self.all_end = all_end

    def close(self) -> None:
        self.all_end.wait(timeout=300)


class Streaming:
    """A transport of which only the stream is used."""

    def __init__(self, node: str, all_end: threading.Barrier) -> None:
        self.node, self.all_end = node, all_end

    def stream(self, command: Command, on_bytes: object) -> SlowStream:
        return SlowStream(self.all_end)


def followed(folder: Path) -> Followers:
    all_end = threading.Barrier(len(PLAN.nodes))
    followers = Followers(
        PLAN, folder=folder, sink=lambda _: None, on_event=lambda _: None, forks=4
    )
    transports = {node: Streaming(node, all_end) for node in PLAN.nodes}
    followers.open(transports, beat_s=10)  # type: ignore[arg-type]  # see Streaming
    return followers


def test_all_streams_end_at_once(tmp_path: Path) -> None:
    followers = followed(tmp_path)
    followers.close()
    assert len(PLAN.nodes) == 2


def test_all_nodes_are_waited_for_at_once(tmp_path: Path) -> None:
    followers = followed(tmp_path)
    began = time.monotonic()

    short = followers.short_of({"a-1": {"rank.0.log": 3}, "a-2": {"rank.2.log": 4}}, patience_s=1.0)

    assert time.monotonic() - began < 1.9
    assert short == {"a-1": {"rank.0.log": (0, 3)}, "a-2": {"rank.2.log": (0, 4)}}
    followers.close()
