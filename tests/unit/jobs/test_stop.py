"""Answers of nodes when a job is ended."""

from __future__ import annotations

from pathlib import PurePosixPath

from ascendboot.errors import CommandError
from ascendboot.jobs.stop import Survivor, Terminated, stop_job, terminate_processes
from ascendboot.launch.launchers import ends_within_s
from ascendboot.launch.planner import plan
from tests.fake_transport import Answer, FakeTransport
from tests.unit.launch.request import REQUEST

FOLDER = PurePosixPath("/base/jobs/job-1")


def answering(node: str, text: str, exit_code: int = 0) -> FakeTransport:
    return FakeTransport(node, rules=[lambda _: Answer(text, exit_code=exit_code)])


def test_the_answer_about_ended_and_remaining_processes_and_sizes() -> None:
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


def test_the_times_are_given_in_tenths_and_bound_the_command() -> None:
    transport = answering("a", "")
    terminate_processes({"a": transport}, FOLDER, linger_s=0.5, grace_s=2, forks=4)
    (command,) = transport.commands
    assert command.argv[-3:] == ("/base/jobs/job-1", "5", "20")
    assert command.timeout_s > 2.5


def test_a_launcher_that_cannot_be_ended_is_not_waited_for() -> None:
    transport = answering("a-1", "", exit_code=1)
    found = stop_job({"a-1": transport}, plan(REQUEST), forks=4)
    assert isinstance(found["a-1"], CommandError)
    assert [command.argv[-2:] for command in transport.commands[1:]] == [("0", "25")] * 2


def test_mpirun_counts_the_grace_time_twice() -> None:
    assert (ends_within_s(0.0), ends_within_s(10.0)) == (11.0, 29.0)
