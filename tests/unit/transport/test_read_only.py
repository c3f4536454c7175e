"""While planning nothing that writes leaves this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascendboot.errors import PlanViolationError
from ascendboot.transport.api import Command, Effect, Transport
from ascendboot.transport.fake import FakeTransport
from ascendboot.transport.guard import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK = Command(argv=("cat", "/x"), purpose="look", effect=Effect.READ)
SPOIL = Command(argv=("rm", "-rf", "/x"), purpose="remove x", effect=Effect.WRITE)


def ignore(_data: bytes) -> None:
    pass


@pytest.mark.parametrize(
    "attempt",
    [
        lambda t: t.run(SPOIL),
        lambda t: t.run_all([LOOK, SPOIL]),
        lambda t: t.hold(SPOIL),
        lambda t: t.stream(SPOIL, ignore),
    ],
    ids=["run", "run_all", "hold", "stream"],
)
def test_a_write_is_refused_before_anything_is_sent(attempt: Callable[[Transport], object]) -> None:
    below = FakeTransport(answers={LOOK.argv: "", SPOIL.argv: ""})
    with pytest.raises(PlanViolationError) as caught:
        attempt(ReadOnly(below))
    assert below.executions == []
    assert str(caught.value) == (
        "n1: refused while planning: rm -rf /x. Something that may only look tried to remove x; "
        "this is a bug in ascendboot"
    )


def test_what_reads_is_passed_on() -> None:
    below = FakeTransport("n7", answers={LOOK.argv: "seen\n"})
    guarded = ReadOnly(below)
    taken: list[bytes] = []
    assert guarded.node == "n7"
    assert guarded.run(LOOK).text == "seen\n"
    assert [r.text for r in guarded.run_all([LOOK, LOOK])] == ["seen\n"] * 2
    assert guarded.hold(LOOK).text == "seen\n"
    guarded.stream(LOOK, taken.append).close()
    assert taken == [b"seen\n"]
    guarded.close()
    assert below.is_closed
