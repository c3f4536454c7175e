"""While planning, no command that writes is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ascendboot.errors import NodeError, PlanViolationError
from ascendboot.transport.api import Command, Effect, Transport
from ascendboot.transport.guard import Fence, Guarded, ReadOnly
from tests.fake_transport import Answer, FakeTransport

LOOK = Command(argv=("cat", "/x"), purpose="look", effect=Effect.READ)
SPOIL = Command(argv=("rm", "-rf", "/x"), purpose="remove x", effect=Effect.WRITE)


@pytest.mark.parametrize(
    "attempt",
    [lambda t: t.run(SPOIL), lambda t: t.run_all([LOOK, SPOIL]), lambda t: t.stream(SPOIL, print)],
    ids=["run", "run_all", "stream"],
)
def test_a_write_is_refused_before_anything_is_sent(attempt: Callable[[Transport], object]) -> None:
    below = FakeTransport(answers={LOOK.argv: "", SPOIL.argv: ""})
    with pytest.raises(PlanViolationError) as caught:
        attempt(ReadOnly(below))
    assert below.executions == []
    assert str(caught.value) == (
        "n1: refused while planning: rm -rf /x. A read-only step tried to remove x; "
        "this is a bug in ascendboot"
    )


def test_reads_are_passed_on() -> None:
    below = FakeTransport("n7", answers={LOOK.argv: "seen\n"})
    guarded = ReadOnly(below)
    taken: list[bytes] = []
    assert guarded.node == "n7"
    assert guarded.run(LOOK).text == "seen\n"
    assert [r.text for r in guarded.run_all([LOOK, LOOK])] == ["seen\n"] * 2
    guarded.stream(LOOK, taken.append).close()
    assert taken == [b"seen\n"]
    guarded.close()
    assert below.is_closed


class Connection(FakeTransport):
    """The one that holds the lock."""

    is_open = True


def test_hostile_12_after_a_pause_the_lock_is_queried_before_a_write() -> None:
    time = [100.0]
    still_ours = Command(argv=("still-ours",), purpose="see whose it is", effect=Effect.READ)
    lock = Command(argv=("lock",), purpose="lock the cluster", effect=Effect.WRITE)
    primary = Connection("n1", answers={lock.argv: "locked\n", still_ours.argv: ""})
    node = FakeTransport("n2", answers={SPOIL.argv: "", LOOK.argv: ""})
    fence = Fence(lock, still_ours, 30.0, now=lambda: time[0])
    fence.connected(primary)
    guarded = Guarded(node, fence.allow)
    time[0] += 3600
    assert guarded.run(SPOIL).as_expected  # the lock is not taken yet, so none is lost
    fence.answered(primary.run(lock))
    time[0] += 29
    guarded.run(SPOIL)
    assert len(primary.executions) == 1
    time[0] += 3600
    guarded.run_all([LOOK, SPOIL])
    guarded.run(SPOIL)
    assert primary.executions[1:] == [(still_ours,)]

    taken = Answer(stdout="run 2 of bob@ops\n", exit_code=1)
    primary.answers = {still_ours.argv: taken}
    time[0] += 3600
    seen = len(node.executions)
    assert guarded.run(LOOK).as_expected
    with pytest.raises(NodeError) as caught:
        guarded.run_all([LOOK, SPOIL])
    assert str(caught.value) == (
        "n2: could not remove x: the cluster's lock on n1 is lost: it is now held by run 2 of "
        "bob@ops; nothing more was written, repeat the command"
    )
    assert len(node.executions) == seen + 1
