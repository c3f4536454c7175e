"""Requests of the operator: handed over as files, carried out once, answered in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.errors import UsageError
from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import Core, State, Stop
from ascendboot.supervise.policy import Limits
from ascendboot.supervise.requests import Answer, Inbox, Request, carry_out

NODES = ("n-1", "n-2", "n-3")


def running(*, least: int = 1) -> Core:
    core = Core(NODES, 8, Parallel(), Limits(min_nodes=least))
    core.begin(0.0)
    core.launched(1.0)
    return core


def quarantine(*nodes: str) -> Request:
    return Request(verb="quarantine", nodes=nodes, reason="loud")


def test_a_request_is_carried_out_once_and_its_answer_is_read_once(tmp_path: Path) -> None:
    inbox, core, saved = Inbox(tmp_path / "requests"), running(), list[str]()
    request_id = inbox.hand_over(quarantine("n-2"))
    (path,) = inbox.folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    (stop,) = inbox.carry_out(core, 2.0, saved.append)
    assert isinstance(stop, Stop)
    assert inbox.carry_out(core, 3.0, saved.append) == ()
    words = "quarantined n-2"
    assert (saved, inbox.answer(request_id)) == ([words], Answer(words))
    assert (inbox.answer(request_id), list(inbox.folder.iterdir())) == (None, [])


def test_a_request_that_was_withdrawn_changes_nothing(tmp_path: Path) -> None:
    inbox, core = Inbox(tmp_path), running()
    request_id = inbox.hand_over(quarantine("n-2"))
    assert inbox.withdraw(request_id)
    assert inbox.carry_out(core, 2.0, pytest.fail) == ()
    assert core.nodes["n-2"].status == "healthy"
    later = inbox.hand_over(quarantine("n-2"))
    inbox.carry_out(core, 2.0, lambda _words: None)
    assert not inbox.withdraw(later)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (quarantine("n-1", "n-9"), "n-9: no such node; the nodes are n-1, n-2, n-3"),
        (Request(verb="release", nodes=("n-9",)), "n-9: no such node; the nodes are n-1, n-2, n-3"),
        (Request(verb="resize", count=1), "resize 1: 1 node of 8 devices: fewer than min_nodes 2"),
    ],
)
def test_what_is_not_possible_is_refused_and_changes_nothing(
    tmp_path: Path, request_: Request, words: str
) -> None:
    inbox, core = Inbox(tmp_path), running(least=2)
    request_id = inbox.hand_over(request_)
    assert inbox.carry_out(core, 2.0, pytest.fail) == ()
    answer = inbox.answer(request_id)
    assert answer is not None
    assert answer.is_refused
    assert answer.words.startswith(words)
    assert core.state is State.RUNNING


def test_a_request_of_another_version_is_refused(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    (tmp_path / "ab.json").write_text('{"verb": "explode"}')
    inbox.carry_out(running(), 2.0, pytest.fail)
    answer = inbox.answer("ab")
    assert answer is not None
    assert "is not of this version" in answer.words


def test_a_job_that_has_ended_or_is_being_ended_takes_no_requests() -> None:
    over, interrupted = running(), running()
    over.completed(2.0)
    interrupted.interrupt(2.0)
    for core, why in ((over, "the job has completed"), (interrupted, "it was interrupted")):
        with pytest.raises(UsageError, match=f"has ended or is being ended: {why}"):
            carry_out(core, 3.0, Request(verb="release", nodes=("n-1",)))


def test_stop_ends_the_job_in_every_state_and_events_say_so() -> None:
    stop, events = Request(verb="stop"), list[object]()
    core = running()
    core.on_event = lambda event: events.append(event["words"])
    (action,) = carry_out(core, 2.0, stop)[0]
    assert isinstance(action, Stop)
    assert events == ["the job was stopped with stop"] * 2
    assert carry_out(core, 3.0, stop)[0] == ()
    assert core.stopped(4.0, ()) == (core.end,)
    ending, waiting = running(), running(least=3)
    ending.quarantine(2.0, ["n-2"], "loud")
    assert carry_out(ending, 3.0, stop)[0] == ()
    ending.stopped(4.0, ())
    waiting.quarantine(2.0, ["n-2"], "loud")
    waiting.stopped(3.0, ())
    assert waiting.state is State.WAITING
    assert carry_out(waiting, 4.0, stop)[0] == (waiting.end,)
    for each in (core, ending, waiting):
        assert each.end is not None
        assert (each.state, each.end.exit_code) == (State.GAVE_UP, 130)
        assert each.release(5.0, "n-2") == ()


def test_each_request_is_confirmed() -> None:
    core = running()
    requests = (
        quarantine("n-2", "n-3"),
        Request(verb="release", nodes=("n-2", "n-3")),
        Request(verb="resize", count=1),
        Request(verb="resize", count=2),
        Request(verb="stop"),
    )
    words = ["quarantined n-[2-3]", "released n-[2-3]", "at most 1 node", "at most 2 nodes"]
    words += ["stop was requested; nothing is started again"]
    assert [carry_out(core, 2.0, request)[1] for request in requests] == words
