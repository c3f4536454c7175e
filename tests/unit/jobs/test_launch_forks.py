"""No more nodes are worked on at once than were asked for, from the start of a job to its end."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.jobs.probe import probe_jobs
from ascendboot.jobs.start import start_detached
from ascendboot.jobs.stop import end_ranks, stop_job
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import Placement, Slot
from ascendboot.transport.fake import Answer, FakeTransport
from tests.unit.launch.request import TORCHRUN, node

if TYPE_CHECKING:
    from ascendboot.transport.api import Command

NODES = tuple(f"a-{number}" for number in range(1, 7))
SLOTS = tuple(Slot(node(name, f"192.0.2.1{name[-1]}"), 0, None, 0) for name in NODES)
PLAN = plan(replace(TORCHRUN, placement=Placement(SLOTS)))


class Busy:
    """Answers commands, and counts how many are under way at once."""

    def __init__(self, said: str = "") -> None:
        self._said = said
        self._lock = threading.Lock()
        self._running = 0
        self.most = 0
        self.transports = {name: FakeTransport(name, rules=[self]) for name in NODES}

    def __call__(self, command: Command) -> Answer:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        time.sleep(0.02)
        with self._lock:
            self._running -= 1
        return Answer(self._said)


def test_the_start() -> None:
    busy = Busy()
    start_detached(PLAN, busy.transports, forks=2)
    assert busy.most == 2


def test_a_look() -> None:
    busy = Busy("job job-1\nend\n")
    found = probe_jobs(busy.transports, PLAN.job_folder.parent, ["job-1"], forks=3)
    assert (list(found), busy.most) == (list(NODES), 3)


def test_an_end_in_a_hurry() -> None:
    busy = Busy()
    end_ranks(busy.transports, PLAN.job_folder, forks=2)
    assert busy.most == 2


def test_the_end() -> None:
    busy = Busy()
    stop_job(busy.transports, PLAN.job_folder, primary="a-1", grace_s=1.0, forks=2)
    assert busy.most == 2
