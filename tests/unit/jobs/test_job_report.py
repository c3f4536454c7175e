"""From what was seen of a job to its report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ascendboot.console.screen import Screen
from ascendboot.jobs.job_report import report_on
from ascendboot.jobs.progress import Progress, signal_of
from ascendboot.launch.events import RankEnded
from ascendboot.launch.plan import LaunchPlan
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import NodeClocks, Placement, Slot
from ascendboot.model.job import FirstFailure, JobReport, JobState, RankEnd
from tests.unit.launch.request import REQUEST, SLOTS, TORCHRUN, node

PLAN = plan(REQUEST)
OVER = Progress(launcher_over=True, launcher_code=0)


def progress(*ended: tuple[int, int, float], launcher: int | None = 1) -> Progress:
    ends = {rank: RankEnded(rank, code, at) for rank, code, at in ended}
    return Progress(ended=ends, launcher_over=True, launcher_code=launcher)


def report(
    progress: Progress, folder: Path, made: LaunchPlan = PLAN, **ahead_s: float
) -> JobReport:
    return report_on(
        made,
        progress,
        folder=folder,
        started="2026-01-02T03:04:05.678+00:00",
        duration_s=1.23456,
        clocks=NodeClocks({name.replace("_", "-"): value for name, value in ahead_s.items()}),
    )


def failing_rank(found: JobReport) -> int | None:
    return None if found.first_failure is None else found.first_failure.rank


def test_success_as_json(tmp_path: Path) -> None:
    ends = [(rank, 0, 10.0) for rank in range(4)]
    assert report(progress(*ends, launcher=0), tmp_path).to_json() == {
        "job_id": "job-1",
        "state": "succeeded",
        "exit_code": 0,
        "started": "2026-01-02T03:04:05.678+00:00",
        "command": PLAN.command_line,
        "script": {"path": str(PLAN.script), "copied_from": None},
        "first_failure": None,
        "ranks": [
            {"rank": 0, "node": "a-1", "device": 4, "exit_code": 0, "signal": None},
            {"rank": 1, "node": "a-1", "device": 5, "exit_code": 0, "signal": None},
            {"rank": 2, "node": "a-2", "device": 0, "exit_code": 0, "signal": None},
            {"rank": 3, "node": "a-2", "device": 1, "exit_code": 0, "signal": None},
        ],
        "duration_s": 1.235,
        "folder": str(tmp_path),
        "message": "",
        "notes": [],
        "cause": None,
    }


def test_the_first_failure_as_json(tmp_path: Path) -> None:
    (tmp_path / "rank.2.log").write_bytes(b"0\n\n1\n2\n3\n4\n5 \xff\n \n")
    found = report(progress((2, 139, 10.0), (0, 143, 11.0), launcher=139), tmp_path)
    assert (found.state, found.exit_code, found.message) == (JobState.FAILED, 139, "")
    assert found.to_json()["first_failure"] == {
        "rank": 2,
        "node": "a-2",
        "device": 0,
        "exit_code": 139,
        "signal": 11,
        "message": "1\n2\n3\n4\n5 \ufffd",
        "log": str(tmp_path / "rank.2.log"),
    }
    assert found.ranks[1] == RankEnd(rank=1, node="a-1", device=5, exit_code=None, signal=None)


def test_the_earliest_end_counts_by_corrected_clocks(tmp_path: Path) -> None:
    seen = progress((0, 0, 1.0), (1, 4, 20.0), (2, 3, 20.5))
    assert failing_rank(report(seen, tmp_path)) == 1
    assert failing_rank(report(seen, tmp_path, a_2=5.0)) == 2
    assert failing_rank(report(seen, tmp_path, a_1=-5.0, a_2=-4.0)) == 2
    assert report(seen, tmp_path, a_2=5.0).exit_code == 3


def test_a_rank_that_only_mpirun_saw_die_was_the_first(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text(
        "mpirun noticed that process rank 3 with PID 0 on node a-2 exited on\nsignal 9 (Killed).\n"
    )
    found = report(progress((0, 143, 10.0), launcher=137), tmp_path)
    log = str(tmp_path / "rank.3.log")
    end = RankEnd(rank=3, node="a-2", device=1, exit_code=137, signal=9)
    assert found.first_failure == FirstFailure(**vars(end), message="", log=log)
    assert found.exit_code == 137


LOST = """\
--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[8316,0],0] on node a-1
  Remote daemon: [[8316,0],1] on node 192.0.2.12

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------
"""  # Open MPI 4.1.4, where the container of the second node was killed


def test_two_nodes_that_were_lost_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "launcher.log").write_text(LOST)
    slots = (*SLOTS, Slot(node("a-3", "192.0.2.13"), 0, None, 0))
    made = plan(replace(REQUEST, placement=Placement(slots)))
    found = report(progress((0, 143, 11.0), (1, 1, 10.0), launcher=205), tmp_path, made)
    assert found.message == (
        "a-2: was lost in the middle of the job, with ranks 2-3; "
        "a-3: was lost in the middle of the job, with rank 4"
    )
    Screen().job(found, "x")
    assert capsys.readouterr().out.count("was lost in the middle of the job, with rank 4") == 1


def test_a_node_whose_ranks_are_known_to_have_ended_was_not_lost(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text(LOST)
    ends = [(rank, 143, 10.0 + rank) for rank in (1, 0, 2)]
    assert failing_rank(report(progress(*ends, launcher=205), tmp_path)) == 0


def test_the_launcher_failed_before_any_rank(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(20)]
    (tmp_path / "launcher.log").write_text("\n\n".join(("-" * 70, *lines, "-" * 70)))
    found = report(progress(launcher=255), tmp_path)
    assert (found.state, found.exit_code) == (JobState.FAILED, 255)
    assert (found.first_failure, found.cause) == (None, None)
    assert found.message.splitlines() == [*lines[:5], "…", *lines[-5:]]


def test_the_launcher_is_gone(tmp_path: Path) -> None:
    seen = progress((0, 143, 1.0), (1, 0, 0.5), launcher=None)
    found = report(seen, tmp_path)
    assert (found.state, found.exit_code, found.cause) == (JobState.FAILED, 143, None)
    found = report(replace(seen, ended={}), tmp_path)
    assert (found.state, found.exit_code) == (JobState.FAILED, 1)
    assert found.message == "the launcher is gone and its exit code is unknown"
    found = report(replace(seen, interrupted=True), tmp_path)
    assert (found.state, found.exit_code, found.first_failure) == (JobState.INTERRUPTED, 130, None)


def test_a_launcher_that_does_not_end_after_its_ranks_fails_no_job(tmp_path: Path) -> None:
    seen = progress(*((rank, 0, 10.0) for rank in range(4)), launcher=143)
    seen.is_overdue = True
    found = report(seen, tmp_path)
    assert (found.state, found.exit_code, found.cause) == (JobState.SUCCEEDED, 0, None)
    assert found.notes == (
        "every rank ended with exit code 0; the launcher did not end then and was ended",
    )


def test_a_launcher_that_was_overdue_after_a_rank_had_failed_changes_nothing(
    tmp_path: Path,
) -> None:
    seen = progress((0, 0, 10.0), (1, 3, 10.0), (2, 0, 10.0), (3, 0, 10.0), launcher=143)
    seen.is_overdue = True
    found = report(seen, tmp_path)
    assert (found.state, found.exit_code, failing_rank(found)) == (JobState.FAILED, 3, 1)


def test_ranks_that_were_ended_on_purpose_are_no_cause(tmp_path: Path) -> None:
    """Node a-2 was lost; a-1's clock is ten seconds ahead of a-2's."""
    followed = replace(progress((0, 143, 20.5), (1, 1, 20.6)), endings={0: 20.0})
    words = "ascendboot: ends torchrun on this node: a-2: lost it"
    (tmp_path / "launcher.log").write_text(f"ssh: closed\n{words}\nTraceback …\n")
    found = report(followed, tmp_path, a_1=10.0)
    assert (found.state, found.exit_code, found.first_failure) == (JobState.FAILED, 1, None)
    assert found.message == f"ssh: closed\n{words}"
    earlier = replace(
        progress((0, 143, 20.5), (1, 1, 19.9), (2, 7, 9.8)), endings={0: 20.0, 1: 9.9}
    )
    assert failing_rank(report(earlier, tmp_path, a_1=10.0)) == 2
    assert failing_rank(report(earlier, tmp_path)) == 2


def test_ranks_that_their_wrappers_ended_are_no_cause(tmp_path: Path) -> None:
    """The clock of a-1 is ten seconds ahead, and nobody has measured it."""
    seen = replace(progress((0, 143, 20.5), (2, 7, 29.9)), rank_endings={0: 20.4})
    assert failing_rank(report(seen, tmp_path)) == 2
    assert failing_rank(report(replace(seen, rank_endings={0: 20.6}), tmp_path)) == 0


def test_the_words_are_those_of_the_node_that_was_first_to_end(tmp_path: Path) -> None:
    made = plan(TORCHRUN)
    (tmp_path / "launcher.log").write_text("a-2: torchrun ended with 1\n")
    (tmp_path / "agent.1.log").write_text("No module named torch\n")
    seen = replace(progress(), endings={0: 20.0, 1: 19.0})
    found = report(seen, tmp_path, made=made)
    assert found.message == "a-2: No module named torch"


def test_a_rank_that_only_torchrun_saw_die(tmp_path: Path) -> None:
    (tmp_path / "agent.1.log").write_text(
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-02_03:04:05\n"
        "  host      : a-2\n  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 77)\n"
    )
    found = report(progress((2, 143, 9.0)), tmp_path, made=plan(TORCHRUN))
    assert (failing_rank(found), found.exit_code) == (3, 137)


def test_what_was_started_is_quoted_where_a_job_did_not_start(tmp_path: Path) -> None:
    words = [f"line {n}" for n in range(9)]
    lines = [*words, "", "ssh: \x1b[31mConnection timed out", "x" * 5000]
    (tmp_path / "launcher.log").write_text("\n".join(lines))
    seen = Progress(not_started="a-2: could not start ranks 2-3")
    assert report(seen, tmp_path / "empty").message == seen.not_started
    found = report(seen, tmp_path)
    assert (found.state, found.exit_code) == (JobState.NOT_STARTED, 125)
    assert found.message.splitlines() == [
        "a-2: could not start ranks 2-3",
        "last output of what was started:",
        "  a-1 | line 6",
        "  a-1 | line 7",
        "  a-1 | line 8",
        "  a-1 | ssh: ?[31mConnection timed out",
        f"  a-1 | {'x' * 199}…",
    ]


def test_success_is_not_claimed_when_a_node_could_not_be_asked(tmp_path: Path) -> None:
    seen = replace(OVER, unsure=("a-2: gone",), notes=("a note",))
    found = report(seen, tmp_path)
    assert (found.state, found.exit_code) == (JobState.FAILED, 1)
    assert (found.message, found.notes) == ("a-2: gone", ("a-2: gone", "a note"))


@pytest.mark.parametrize(
    ("exit_code", "number"), [(0, None), (1, None), (128, None), (129, 1), (137, 9), (255, None)]
)
def test_signal_of(exit_code: int, number: int | None) -> None:
    assert signal_of(exit_code) == number
