"""The generations of a job from its events, as a list and as a timeline."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import Core
from ascendboot.supervise.history import (
    WIDTH,
    Generation,
    Supervision,
    event_line,
    generations,
    timeline,
)
from ascendboot.supervise.policy import Fault, FaultKind, Limits

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
NODES = ("n-1", "n-2", "n-3")


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def a_job() -> tuple[Core, list[dict[str, Any]]]:
    """It loses n-2 after a minute, and completes a minute later."""
    events: list[dict[str, Any]] = []

    def record(event: Any) -> None:
        events.append({"time": at(event["at"]), **event})

    core = Core(NODES, 8, Parallel(), Limits(correlate_s=2.0), on_event=record)
    core.begin(0.0)
    core.launched(1.0)
    core.fault(Fault(kind=FaultKind.NODE_DOWN, at=60.0, node="n-2", words="no sign of life"))
    core.stopped(63.0, ())
    core.launched(66.0)
    core.completed(120.0)
    return core, events


def test_generations_have_start_end_nodes_and_cause() -> None:
    first, second = generations(a_job()[1])
    assert first == Generation(
        generation=1,
        nodes=NODES,
        started=at(0.0),
        ended=at(63.0),
        kind="node-down",
        cause="n-2: node-down: no sign of life",
    )
    assert second == Generation(
        generation=2,
        nodes=("n-1", "n-3"),
        started=at(63.0),
        ended=at(120.0),
        cause="the job has completed",
    )


def test_a_job_that_gave_up_later_keeps_the_end_and_the_cause_of_its_last_generation() -> None:
    _, events = a_job()
    late = {"event": "gave_up", "generation": 1, "node": "", "words": "no nodes", "time": at(400.0)}
    (first,) = generations([*(e for e in events if e["generation"] == 1), late])
    assert (first.ended, first.kind) == (at(63.0), "node-down")


def test_a_timeline_shows_when_each_generation_ran_and_why_it_ended() -> None:
    first, second = generations(a_job()[1])
    runs = Generation(generation=3, nodes=("n-1",), started=at(120.0))
    now = START + timedelta(seconds=126)
    assert timeline([first, second, runs], now) == [
        "g1  |==========          |     63 s n-[1-3] n-2: node-down: no sign of life",
        "g2  |          ==========|     57 s n-[1,3] the job has completed",
        "g3  |                   >|      6 s n-1",
    ]


@given(
    st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e7), st.text(max_size=300)), max_size=40)
)
def test_a_timeline_never_is_wider_or_longer_than_a_terminal(
    found: list[tuple[float, float, str]],
) -> None:
    nodes = tuple(f"node-{n}" for n in range(0, 60, 2))
    made = [
        Generation(generation=n, nodes=nodes, started=at(a), ended=at(a + length), cause=cause)
        for n, (a, length, cause) in enumerate(found, 1)
    ]
    lines = timeline(made, START)
    assert all(len(line) <= WIDTH - 2 for line in lines)
    assert len(lines) <= 17
    assert all("=" in line for line in lines[-16:])


def test_status_shows_state_excluded_nodes_generations_and_the_last_events() -> None:
    core, events = a_job()
    known = Supervision(
        job_id="job-1",
        core=core,
        events=tuple(events),
        exit_codes={1: 143, 2: 0},
        is_followed=False,
    )
    lines = known.lines(START)
    assert lines[0] == "supervised: DONE, generation 2 on n-[1,3], 1 restart"
    assert "n-2: absent: node-down: no sign of life" in lines
    assert any("exit 143: n-2: node-down" in line for line in lines)
    at_end = f"{datetime.fromisoformat(at(120)).astimezone():%H:%M:%S}"
    assert lines[-1] == f"{at_end} g2 done: the job has completed"
    document = known.to_json()
    assert (document["state"], document["exit_code"], document["restarts"]) == ("DONE", 0, 1)
    assert [each["exit_code"] for each in document["generations"]] == [143, 0]  # type: ignore[attr-defined]


def test_events_fold_nodes_count_properly_and_name_a_cause_once() -> None:
    events: list[Any] = []
    core = Core(NODES, 8, Parallel(), Limits(max_restarts=1), on_event=events.append)
    lost = "n-3: node-down: no sign of life"
    title = "n-2: rank 9 on device 1 failed first, with exit code 137"
    failed = Fault(kind=FaultKind.RANK_EXIT, at=1.0, node="n-2", rank=9, exit_code=137, words=title)
    core.begin(0.0)
    core.fault(failed)
    core.stopped(2.0, ())
    core.tick(20.0)
    core.quarantine(21.0, ["n-1", "n-2"], "loud")
    core.stopped(22.0, ())
    core.quarantine(23.0, ["n-3"], "hot")
    core.stopped(24.0, ())
    core.release(25.0, "n-3")
    core.launched(26.0)
    core.fault(Fault(kind=FaultKind.NODE_DOWN, at=27.0, node="n-3", words="no sign of life"))
    core.stopped(28.0, ())
    core.tick(50.0)
    assert [event_line(event).strip() for event in events] == [
        "g0 preflight: 3 of 3 nodes passed",
        "g0 planning: 3 healthy nodes",
        "g1 launching: 3 nodes: n-[1-3]",
        f"g1 stopping: {title}",
        "g1 diagnosing: no process of it is left",
        f"g1 cause: {title}",
        "g1 planning: 3 healthy nodes",
        "g2 launching: 3 nodes: n-[1-3]",
        "g2 node-quarantined: n-1: loud",
        "g2 node-quarantined: n-2: loud",
        "g2 stopping: n-[1-2]: quarantined: loud",
        "g2 diagnosing: no process of it is left",
        "g2 cause: n-[1-2]: quarantined: loud",
        "g2 planning: 1 healthy node",
        "g3 launching: 1 node: n-3",
        "g3 node-quarantined: n-3: hot",
        "g3 stopping: n-3: quarantined: hot",
        "g3 diagnosing: no process of it is left",
        "g3 cause: n-3: quarantined: hot",
        "g3 planning: 0 healthy nodes",
        "g3 waiting: 0 nodes of 8 devices: fewer than min_nodes 1; release or repair a node",
        "g3 node-healthy: n-3: released",
        "g4 launching: 1 node: n-3",
        "g4 running: all ranks have begun",
        f"g4 fault: {lost}",
        f"g4 node-absent: {lost}",
        f"g4 stopping: {lost}",
        "g4 diagnosing: no process of it is left",
        f"g4 cause: {lost}",
        f"g4 gave_up: restarted 1 time, max_restarts is 1; last cause: {lost}",
    ]


def test_a_job_without_a_supervisor_shows_how_to_continue_it() -> None:
    core = Core(NODES, 8, Parallel(), Limits(max_nodes=2))
    core.begin(0.0)
    known = Supervision(job_id="job-1", core=core, events=(), exit_codes={}, is_followed=False)
    assert known.lines(START) == [
        "supervised: LAUNCHING, generation 1 on n-[1-2], 0 restarts",
        "no train supervises it: train SCRIPT --resume job-1 does again",
        "spares: n-3",
    ]


def test_a_checkpoint_that_is_seen_again_is_no_event() -> None:
    events: list[Any] = []
    core = Core(NODES, 8, Parallel(), Limits(), on_event=events.append)
    core.begin(0.0)
    for at_s, step in enumerate((10, 10, 20, 10)):
        core.checkpoint(float(at_s), step)
    words = [event["words"] for event in events if event["event"] == "checkpoint"]
    assert words == ["step 10", "step 20", "step 10"]
