"""Requests of the operator: handed over as files, carried out once, answered in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.errors import UsageError
from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import Core, State, Stop
from ascendboot.supervise.policy import Fault, FaultKind, Limits
from ascendboot.supervise.requests import Answer, Inbox, Request, carry_out

NODES = ("n-1", "n-2", "n-3")


def running(*, most: int | None = None, least: int = 1) -> Core:
    core = Core(NODES, 8, Parallel(), Limits(max_nodes=most, min_nodes=least))
    core.begin(0.0)
    core.launched(1.0)
    return core


def quarantine(node: str) -> Request:
    return Request(verb="quarantine", node=node, reason="loud")


def not_called(words: str) -> str:
    raise AssertionError(words)


def test_a_request_is_carried_out_once_and_its_answer_is_read_once(tmp_path: Path) -> None:
    inbox, core, saved = Inbox(tmp_path / "requests"), running(), list[str]()

    def keep(words: str) -> str:
        saved.append(words)
        return f"{words}; a note"

    request_id = inbox.hand_over(quarantine("n-2"))
    (path,) = inbox.folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    (stop,) = inbox.carry_out(core, 2.0, keep)
    assert isinstance(stop, Stop)
    assert inbox.carry_out(core, 3.0, keep) == ()
    words = "quarantined n-2: generation 1 ends, the next one starts on n-[1,3]"
    assert (saved, inbox.answer(request_id)) == ([words], Answer(f"{words}; a note"))
    assert (inbox.answer(request_id), list(inbox.folder.iterdir())) == (None, [])


def test_a_request_that_was_withdrawn_changes_nothing(tmp_path: Path) -> None:
    inbox, core = Inbox(tmp_path), running()
    request_id = inbox.hand_over(quarantine("n-2"))
    assert inbox.withdraw(request_id)
    assert inbox.carry_out(core, 2.0, not_called) == ()
    assert core.nodes["n-2"].status == "healthy"
    later = inbox.hand_over(quarantine("n-2"))
    inbox.carry_out(core, 2.0, str)
    assert not inbox.withdraw(later)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (quarantine("n-9"), "n-9: no such node; the nodes are n-1, n-2, n-3"),
        (Request(verb="release", node="n-9"), "n-9: no such node; the nodes are n-1, n-2, n-3"),
        (Request(verb="resize", count=1), "resize 1: 1 node of 8 devices: fewer than min_nodes 2"),
    ],
)
def test_what_is_not_possible_is_refused_and_changes_nothing(
    tmp_path: Path, request_: Request, words: str
) -> None:
    inbox, core = Inbox(tmp_path), running(least=2)
    request_id = inbox.hand_over(request_)
    assert inbox.carry_out(core, 2.0, not_called) == ()
    answer = inbox.answer(request_id)
    assert answer is not None
    assert answer.is_refused
    assert answer.words.startswith(words)
    assert core.state is State.RUNNING


def test_a_request_of_another_version_is_refused(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    (tmp_path / "ab.json").write_text('{"verb": "explode"}')
    inbox.carry_out(running(), 2.0, not_called)
    answer = inbox.answer("ab")
    assert answer is not None
    assert "is not of this version" in answer.words


def test_a_job_that_has_ended_or_is_being_ended_takes_no_requests() -> None:
    over, interrupted = running(), running()
    over.ended(2.0, 0)
    interrupted.interrupt(2.0)
    for core, why in ((over, "the job has completed"), (interrupted, "it was interrupted")):
        with pytest.raises(UsageError, match=f"has ended or is being ended: {why}"):
            carry_out(core, 3.0, Request(verb="release", node="n-1"))


def test_each_request_states_what_follows_from_it() -> None:
    core = running(most=2)
    assert core.members == ("n-1", "n-2")

    def words(request: Request, at: float) -> str:
        return carry_out(core, at, request)[1]

    assert words(quarantine("n-3"), 2.0) == ("quarantined n-3: generation 1 continues on n-[1-2]")
    assert words(Request(verb="resize", count=1), 3.0) == (
        "at most 1 node: generation 1 ends at its next checkpoint; then n-1"
    )
    core.fault(Fault(kind=FaultKind.NODE_DOWN, at=4.0, node="n-1"))
    assert words(quarantine("n-2"), 5.0) == (
        "quarantined n-2: too few nodes are left; the job waits for more, and then gives up"
    )
    core.stopped(6.0, ())
    core.tick(20.0)
    assert core.state is State.WAITING
    assert words(Request(verb="release", node="n-3"), 21.0) == (
        "released n-3: the next generation starts on n-3"
    )
