"""What is waited for, and when somebody is told of it."""

from __future__ import annotations

from ascendboot.transport.login_session import TOLD_AFTER_S, Waits


def test_item_03_what_makes_no_progress_is_told_of_once() -> None:
    at = [0.0]
    waits = Waits(now=lambda: at[0])
    with waits.of("n1", "list the NPUs", "wait") as first, waits.of("n2", "list the NPUs", "wait"):
        at[0] = TOLD_AFTER_S - 1
        assert waits.late() == {}
        first("read the clock")
        at[0] += 1
        assert waits.late() == {("list the NPUs", "wait"): ["n2"]}
        assert waits.late() == {}
        first(None)
        at[0] += TOLD_AFTER_S
        assert waits.late() == {}
        first("read the clock")
        at[0] += TOLD_AFTER_S
        assert waits.late() == {("read the clock", "wait"): ["n1"]}
    at[0] += TOLD_AFTER_S
    assert waits.late() == {}
