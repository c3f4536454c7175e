"""Answers of nodes to the end of a job; and on how many nodes work goes on at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from ascendboot.errors import CommandError, UnreachableError
from ascendboot.jobs.probe import probe_jobs
from ascendboot.jobs.start import start_detached
from ascendboot.jobs.stop import Survivor, Terminated, end_ranks, stop_job, terminate_processes
from ascendboot.launch.launchers import ends_within_s
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import Placement, Slot
from ascendboot.transport.api import Command
from tests.fake_transport import Answer, FakeTransport
from tests.unit.launch.request import TORCHRUN, node

FOLDER = PurePosixPath("/base/jobs/job-1")


def answering(node: str, text: str, exit_code: int = 0) -> FakeTransport:
    return FakeTransport(node, rules=[lambda _: Answer(text, exit_code=exit_code)])


def test_what_was_ended_what_is_left_and_the_sizes() -> None:
    # A command line may hold what Python takes for ends of lines.
    odd = "python a\rb\x0bc\x0cd\x1ce\x85f\u2028g"
    said = f"ended 5 {odd} \nended 6 \nleft 6 [stuck]\nsize 12 rank.0.log\nsize 0 events\n"
    said += "full 4096 /base/jobs/job-1\n"
    found = terminate_processes({"a": answering("a", said)}, FOLDER, grace_s=1, forks=4)
    assert found == {
        "a": Terminated(
            ended=(Survivor(5, odd),),
            left=(Survivor(6, "[stuck]"),),
            sizes={"rank.0.log": 12, "events": 0},
            full="/base/jobs/job-1",
        )
    }


def test_an_answer_that_is_not_understood() -> None:
    found = terminate_processes(
        {"a": answering("a", "size 1 events\nhello\n")}, FOLDER, grace_s=1, forks=4
    )["a"]
    assert isinstance(found, CommandError)
    assert str(found) == (
        "a: could not find remaining processes of job job-1: the sweep: line 2 not understood: "
        '"hello"; expected ended, left, size or full'
    )


def test_one_node_that_is_gone_does_not_hide_the_others() -> None:
    gone = FakeTransport("b", unreachable="b is off")
    found = terminate_processes({"a": answering("a", ""), "b": gone}, FOLDER, grace_s=1, forks=4)
    assert found["a"] == Terminated()
    assert isinstance(found["b"], UnreachableError)


def test_the_times_are_given_in_tenths_and_bound_the_command() -> None:
    transport = answering("a", "")
    terminate_processes({"a": transport}, FOLDER, linger_s=0.5, grace_s=2, forks=4)
    (command,) = transport.commands
    assert command.argv[-3:] == ("/base/jobs/job-1", "5", "20")
    assert command.timeout_s > 2.5


def test_a_launcher_that_cannot_be_asked_is_not_waited_for() -> None:
    transport = answering("a", "", exit_code=1)
    found = stop_job({"a": transport}, FOLDER, primary="a", grace_s=2, forks=4)
    assert isinstance(found["a"], CommandError)
    assert [command.argv[-2:] for command in transport.commands[1:]] == [("0", "20")] * 2


def test_mpirun_counts_the_grace_time_twice() -> None:
    assert (ends_within_s(0.0), ends_within_s(10.0)) == (11.0, 29.0)


NODES = tuple(f"a-{number}" for number in range(1, 7))
SLOTS = tuple(Slot(node(name, f"192.0.2.1{name[-1]}"), 0, None, 0) for name in NODES)
PLAN = plan(replace(TORCHRUN, placement=Placement(SLOTS)))


class Busy:
    """Answers commands, and counts how many are under way at once."""

    def __init__(self) -> None:
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
        return Answer("")


@pytest.mark.parametrize(
    "work",
    [
        lambda nodes: start_detached(PLAN, nodes, forks=3),
        lambda nodes: probe_jobs(nodes, PLAN.job_folder.parent, ["job-1"], forks=3),
        lambda nodes: end_ranks(nodes, PLAN.job_folder, forks=3),
        lambda nodes: stop_job(nodes, PLAN.job_folder, primary="a-1", grace_s=1.0, forks=3),
    ],
    ids=["start", "probe", "end-ranks", "stop"],
)
def test_no_more_nodes_than_forks_work_at_once(work: Callable[[Any], object]) -> None:
    busy = Busy()
    work(busy.transports)
    assert busy.most == 3
