"""Elastic jobs: their commands, their events and their reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ascendboot.checks.collective.run import preflight_plan
from ascendboot.errors import LaunchError
from ascendboot.jobs.job_report import report_on
from ascendboot.jobs.progress import Progress, has_started, will_end
from ascendboot.launch.events import (
    ENDING,
    EndingBegan,
    Event,
    LauncherEnded,
    NodeLeft,
    RankEnded,
    RankEndingBegan,
    RankErrorFile,
    RankNumbered,
    RankStarted,
    StopRequested,
)
from ascendboot.launch.planner import plan, refuse_clocks_apart, why_not_elastic
from ascendboot.model.cluster import MPIRUN, NodeClocks
from ascendboot.model.job import JobReport, JobState
from tests.unit.launch.request import BASE, TORCHRUN

ELASTIC = replace(TORCHRUN, min_nodes=1)
PLAN = plan(ELASTIC)
LOST = NodeLeft(1, 20.5, "torchrun ended with 137")


def begun(rank: int, size: int, at: float, log_bytes: int = 0) -> tuple[Event, ...]:
    return RankNumbered(rank, rank, size, log_bytes, at), RankStarted(rank)


ALL = tuple(event for rank in range(4) for event in begun(rank, 4, 10.0))
SECOND_GONE = (
    *ALL,
    RankEnded(3, 137, 20.0),
    EndingBegan(1, 20.1),
    LOST,
    RankEndingBegan(0, 20.9),
    RankEnded(0, 143, 21.0),
    RankEnded(1, 1, 21.0),
)
WENT_ON = (*SECOND_GONE, *begun(0, 2, 61.0, 400), *begun(1, 2, 61.0, 400))
THROUGH = (*WENT_ON, RankEnded(0, 0, 70.0), RankEnded(1, 0, 70.0), LauncherEnded(0, 71.0))


def seen(*events: Event) -> Progress:
    progress = Progress()
    for event in events:
        progress.note(event)
    return progress


def report(progress: Progress, folder: Path) -> JobReport:
    return report_on(
        PLAN, progress, folder=folder, started="", duration_s=1.0, clocks=NodeClocks({"a-1": 2.0})
    )


def test_nodes_meet_at_the_primary_and_keep_their_order() -> None:
    for number, (name, is_host) in enumerate((("192.0.2.11", "true"), ("node-00001", "false"))):
        start = PLAN.starts[number]
        assert start.command[3:13] == (
            *("--nnodes=1:2", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_id=job-1"),
            "--rdzv_endpoint=192.0.2.11:61000",
            f"--rdzv_conf=is_host={is_host}",
            f"--local_addr={name}",
            "--max_restarts=4",
            "--monitor_interval=0.5",
            f"--log_dir={BASE}/jobs/job-1/torchelastic",
        )
        assert start.env["ASCENDBOOT_FIRST_RANK"] == str(2 * number)
        assert start.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    names = [word for start in PLAN.starts for word in start.command if "local_addr" in word]
    assert sorted(names) == names


def test_its_preflight_needs_all_nodes() -> None:
    assert "--nnodes=2 " in preflight_plan(ELASTIC, "gloo").describe()


def test_a_job_that_cannot_be_elastic() -> None:
    torchrun = TORCHRUN.launcher
    assert why_not_elastic(1, 2, torchrun, with_table=False) is None
    assert why_not_elastic(3, 2, torchrun, with_table=False) == (
        "--elastic 3 is more than its 2 nodes; state fewer"
    )
    assert why_not_elastic(1, 2, torchrun, with_table=True) == (
        "a rank table fixes the number of ranks; state `resources: {mode: root-info}`, or leave "
        "--elastic out"
    )
    assert why_not_elastic(1, 2, MPIRUN, with_table=False) == (
        "only torchrun can continue without a node, and mpirun starts jobs: the default; state "
        "`launcher: {kind: torchrun}`, or leave --elastic out"
    )


def test_clocks_that_differ_too_much_are_refused() -> None:
    refuse_clocks_apart(NodeClocks({"a": -2.0, "b": 3.0}))
    refuse_clocks_apart(NodeClocks({}))
    with pytest.raises(LaunchError) as refused:
        refuse_clocks_apart(NodeClocks({"a": -2.0, "b": 4.0, "c": 0.0}))
    assert str(refused.value) == (
        "b: could not take part in an elastic job: its clock is 6 s ahead of that of a, and "
        "torchrun finds lost nodes by their clocks; at most 5 s are allowed; set the clocks, or "
        "leave --elastic out"
    )


def test_a_restarted_rank_has_not_ended() -> None:
    progress = seen(*SECOND_GONE, RankErrorFile(1, b"{}"))
    assert sorted(progress.ended) == [0, 1, 3]
    for event in (*begun(0, 2, 61.0, 400), *begun(1, 2, 61.0, 500)):
        progress.note(event)
    assert (sorted(progress.ended), progress.error_files, progress.rank_endings) == ([3], {}, {})
    assert progress.log_begins == {0: 400, 1: 500, 2: 0, 3: 0}


def test_a_job_that_succeeds_without_a_node(tmp_path: Path) -> None:
    found = report(seen(*THROUGH), tmp_path)
    assert (found.state, found.exit_code, found.cause) == (JobState.SUCCEEDED, 0, None)
    assert [end.exit_code for end in found.ranks] == [0, 0, None, 137]
    assert found.notes == (
        "a-2: lost with ranks 2-3 at 00:00:18 UTC: torchrun ended with 137",
        "the ranks restarted at 00:00:59 UTC: 2 of them, 4 before",
    )


def test_a_job_succeeds_though_its_launcher_waits_for_a_lost_node(tmp_path: Path) -> None:
    through = (*ALL, RankEnded(0, 0, 15.0), RankEnded(1, 0, 15.0))
    progress = seen(*through, LOST, EndingBegan(0, 30.0), LauncherEnded(143, 31.0))
    progress.is_overdue = True
    found = report(progress, tmp_path)
    assert (found.state, found.exit_code) == (JobState.SUCCEEDED, 0)
    assert found.notes == (
        "every remaining rank ended with exit code 0; the launcher did not end then and was ended",
        "a-2: lost with ranks 2-3 at 00:00:18 UTC: torchrun ended with 137",
    )


def test_a_job_that_continues_has_no_failure(tmp_path: Path) -> None:
    for events in (SECOND_GONE, WENT_ON):
        found = report(seen(*events), tmp_path)
        assert (found.first_failure, found.cause) == (None, None)


@pytest.mark.parametrize(
    ("how", "meaning"),
    [
        ("lost it: ssh ended with 255", "the launcher lost contact with it"),
        ("no sign of the primary for 30 s", "the launcher lost contact with it"),
        ("torchrun ended with 137", "signal 9 ended the launcher's agent there"),
    ],
)
def test_a_job_with_too_few_nodes_names_the_lost_node(
    tmp_path: Path, how: str, meaning: str
) -> None:
    why = f"a-2: {how}; nodes left: 1, needed: 2"
    (tmp_path / "launcher.log").write_text(f"{ENDING}{why}\nmore\n")
    (tmp_path / "agent.1.log").write_text("of that node\n")
    for rank in range(3):
        words = "RuntimeError: Connection closed by peer [198.18.0.3]:4000\n"
        (tmp_path / f"rank.{rank}.log").write_text(words)
    found = report(seen(*SECOND_GONE, EndingBegan(0, 20.6), LauncherEnded(1, 22.0)), tmp_path)
    assert found.state is JobState.FAILED
    assert found.cause is not None
    assert found.cause.title == "a-2: was lost in the middle of the job, with ranks 2-3"
    assert found.cause.words.endswith(why)
    assert found.cause.meaning == meaning
    assert found.notes == ("a-2: lost with ranks 2-3 at 00:00:18 UTC: torchrun ended with 137",)


def test_output_before_a_restart_is_not_the_cause(tmp_path: Path) -> None:
    old, new = b"ValueError: overcome\n", b"KeyError: the cause\n"
    (tmp_path / "rank.1.log").write_bytes(old + new)
    events = (*ALL, *begun(1, 4, 30.0, len(old)), RankEnded(1, 1, 40.0), LauncherEnded(1, 41.0))
    found = report(seen(*events), tmp_path)
    assert found.cause is not None
    assert found.cause.words == "KeyError: the cause"


def test_when_an_elastic_job_has_started_and_will_end() -> None:
    assert not has_started(PLAN, seen(*begun(2, 4, 1.0)))
    assert has_started(PLAN, seen(*begun(0, 4, 1.0)))
    for number, event in enumerate(THROUGH[:-1]):
        progress = seen(*THROUGH[: number + 1])
        assert will_end(PLAN, event, progress) == (number == len(THROUGH) - 2), event
    for event in (StopRequested(1.0), EndingBegan(0, 1.0)):
        assert will_end(PLAN, event, seen(event))
    first_two_through = seen(*ALL, RankEnded(0, 0, 2.0), RankEnded(1, 0, 2.0), LOST)
    assert will_end(PLAN, LOST, first_two_through)


def test_a_job_that_needs_all_nodes_ends_with_any_rank() -> None:
    whole = plan(TORCHRUN)
    assert not has_started(whole, seen(*ALL[:-1]))
    assert has_started(whole, seen(*ALL))
    for event in (RankEnded(1, 3, 1.0), EndingBegan(1, 1.0), RankEndingBegan(2, 1.0)):
        assert will_end(whole, event, seen(event))
    assert not will_end(whole, RankEnded(1, 0, 1.0), seen(RankEnded(1, 0, 1.0)))
    ends = [RankEnded(rank, 0, 1.0) for rank in range(4)]
    assert will_end(whole, ends[3], seen(*ends))
