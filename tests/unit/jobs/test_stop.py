"""Answers of nodes to the end of a job; and on how many nodes work goes on at once."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import PurePosixPath

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
    said = "ended 5 sleep 600 \nended 6 \nleft 6 [stuck]\nsize 12 rank.0.log\nsize 0 events\n"
    said += "full 4096 /base/jobs/job-1\n"
    found = terminate_processes({"a": answering("a", said)}, FOLDER, grace_s=1, forks=4)
    assert found == {
        "a": Terminated(
            ended=(Survivor(5, "sleep 600"),),
            left=(Survivor(6, "[stuck]"),),
            sizes={"rank.0.log": 12, "events": 0},
            full="/base/jobs/job-1",
        )
    }


def test_a_command_line_may_hold_what_other_programs_take_for_ends_of_lines() -> None:
    odd = "python a\rb\x0bc\x0cd\x1ce\x85f\u2028g"
    found = terminate_processes(
        {"a": answering("a", f"ended 5 {odd}\nleft 6 x\n")}, FOLDER, grace_s=1, forks=4
    )
    assert found == {"a": Terminated(ended=(Survivor(5, odd),), left=(Survivor(6, "x"),))}


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
