"""The lines of a job's events, and events from bytes in pieces."""

from __future__ import annotations

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.launch import events


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("rank 3 pid 77 start 1234", events.RankStarted(3)),
        ("rank 12 exit 137 at 1795251312.067779", events.RankEnded(12, 137, 1795251312.067779)),
        ("rank 1 exit 9 at 1.5 zone +0530 oom 0", events.RankEnded(1, 9, 1.5, 19800)),
        ("rank 1 exit 137 at 1.5 zone -0800 oom 2", events.RankEnded(1, 137, 1.5, -28800, True)),  # noqa: FBT003
        ("rank 1 error eyJhIjogMX0=", events.RankErrorFile(1, b'{"a": 1}')),
        ("launcher - pid 5 start 6", events.LauncherStarted()),
        ("launcher - exit 0 at 1.5", events.LauncherEnded(0, 1.5)),
        ("launcher - stop at 2.5", events.StopRequested(2.5)),
        (
            "launcher - late 2,3 awaited 1 after 150 at 1.5",
            events.StartOverdue(late=(2, 3), awaited=(1,), within_s=150.0, at=1.5),
        ),
        ("agent 1 late 2 awaited - after 3 at 1.5", events.StartOverdue((2,), (), 3.0, 1.5)),
        ("launcher - lost", events.LauncherEnded(None)),
        ("supervisor - pid 5 start 6", events.HelperChanged()),
        ("agent 1 pid 5 start 6", events.HelperChanged()),
        ("agent 1 exit 3 at 1.5", events.HelperChanged()),
        ("agent 1 lost", events.HelperChanged()),
        ("agent 1 ends at 1.5", events.EndingBegan(1, 1.5)),
        ("launcher - ends at 1.5", events.EndingBegan(0, 1.5)),
        ("rank 7 ends at 1.5", events.RankEndingBegan(7, 1.5)),
    ],
)
def test_events(line: str, event: events.Event) -> None:
    assert events.parse_event(line, 1) == event


@pytest.mark.parametrize(
    "line",
    [
        "",
        "rank 3",
        "rank - pid 1 start 2",
        "launcher 1 exit 0 at 1.0",
        "supervisor - exit 0 at 1.0",
        "rank 3 exit 1 at 1795251312",
        "rank 3 pid 77 start 1234 ",
        "agent - lost",
        "launcher 0 ends at 1.0",
        "launcher - late - awaited - after 3 at 1.5",
        "rank 1 error eyJ",
        "rank 1 error e y",
        "rank 0 exit 1 at 99999999999999.0",
        "rank 99999999999 ends at 1.5",
    ],
)
def test_a_line_that_is_not_an_event_is_refused(line: str) -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        events.parse_event(line, 4)
    assert str(refused.value) == (
        f'the job\'s events: line 4 not understood: "{line}"; expected a start or an end of a rank '
        "or the launcher"
    )


LINES = b"rank 1 pid 7 start 8\n\nrank 2 pid 9 start 8\nlauncher - lost\n"
EVENTS = [events.RankStarted(1), events.RankStarted(2), events.LauncherEnded(None)]


@pytest.mark.parametrize("size", [1, 7, len(LINES)])
def test_pieces_of_any_size(size: int) -> None:
    seen: list[events.Event] = []
    reader = events.EventReader("a-1", seen.append)
    for begin in range(0, len(LINES), size):
        reader.feed(LINES[begin : begin + size])
    assert (seen, reader.size) == (EVENTS, len(LINES))


def test_a_line_not_understood_is_logged_with_its_node(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[events.Event] = []
    reader = events.EventReader("a-2", seen.append)
    reader.feed(b"rank 1 pid 7 start 8\nwhat?\nrank 2 pid 9 start 8\n")
    assert seen == EVENTS[:2]
    [record] = caplog.records
    assert record.getMessage().startswith(
        'a-2: the job\'s events: line 2 not understood: "what?"; expected '
    )
