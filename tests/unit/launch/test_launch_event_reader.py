"""Events from bytes, in whatever pieces they come."""

from __future__ import annotations

import pytest

from ascendboot.launch.events import Event, EventReader, LauncherEnded, RankStarted

SAID = b"rank 1 pid 7 start 8\n\nrank 2 pid 9 start 8\nlauncher - lost\n"
EVENTS = [RankStarted(1), RankStarted(2), LauncherEnded(None)]


@pytest.mark.parametrize("size", [1, 7, len(SAID)])
def test_pieces_of_any_size(size: int) -> None:
    seen: list[Event] = []
    reader = EventReader("a-1", seen.append)
    for begin in range(0, len(SAID), size):
        reader.feed(SAID[begin : begin + size])
    assert (seen, reader.size) == (EVENTS, len(SAID))


def test_what_is_not_understood_is_told_with_its_node_and_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Event] = []
    reader = EventReader("a-2", seen.append)
    reader.feed(b"rank 1 pid 7 start 8\nwhat?\nrank 2 pid 9 start 8\n")
    assert seen == EVENTS[:2]
    [record] = caplog.records
    assert record.getMessage().startswith(
        'a-2: the job\'s events: line 2 not understood: "what?"; expected '
    )
