"""The report of a job and the cause of its failure, from its logs and events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ascendboot.console.screen import Screen
from ascendboot.jobs.job_report import report_on
from ascendboot.jobs.loss import BadLoss, record_loss
from ascendboot.jobs.progress import Arrivals, Progress, has_started, will_end
from ascendboot.launch import events
from ascendboot.launch.events import RankEnded
from ascendboot.launch.plan import LaunchPlan
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import NodeClocks, Placement, Slot
from ascendboot.model.job import (
    CauseKind,
    FirstFailure,
    Followed,
    JobCause,
    JobReport,
    JobState,
    RankEnd,
    RankTimes,
)
from ascendboot.value import asdict, replace
from tests.unit.launch.request import REQUEST, SLOTS, TORCHRUN, node

PLAN = plan(REQUEST)
WELL = [(rank, 0, 10.0) for rank in range(4)]


def progress(*ended: tuple[Any, ...], launcher: int | None = 1) -> Progress:
    """Of a job whose launcher has ended; `ended` are the values of `RankEnded`."""
    ends = {end[0]: RankEnded(*end) for end in ended}
    return Progress(ended=ends, launcher_over=True, launcher_code=launcher)


def report(
    progress: Progress,
    folder: Path,
    made: LaunchPlan = PLAN,
    *,
    uncertainty_s: float = 0.0,
    **ahead_s: float,
) -> JobReport:
    ahead = {name.replace("_", "-"): value for name, value in ahead_s.items()}
    return report_on(
        made,
        progress,
        folder=folder,
        started="2026-01-02T03:04:05.678+00:00",
        duration_s=1.23456,
        clocks=NodeClocks(ahead, uncertainty_s=uncertainty_s),
    )


def failing_rank(found: JobReport) -> int | None:
    return None if found.first_failure is None else found.first_failure.rank


ENDED = {
    **dict.fromkeys(("started", "first_output", "last_output", "silent_s", "silent_since")),
    "ended": "1970-01-01T00:00:10.000+00:00",
}
"""What is known of a rank that was not followed."""


def test_success_as_json(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text(OWN.replace("loss is nan", "no"))
    assert report(progress(*WELL, launcher=0), tmp_path).to_json() == {
        "job_id": "job-1",
        "state": "succeeded",
        "exit_code": 0,
        "started": "2026-01-02T03:04:05.678+00:00",
        "command": PLAN.command_line,
        "script": PLAN.script,
        "first_failure": None,
        "ranks": [
            {"rank": rank, "node": node, "device": device, "exit_code": 0, "signal": None}
            | {"times": ENDED}
            for rank, node, device in ((0, "a-1", 4), (1, "a-1", 5), (2, "a-2", 0), (3, "a-2", 1))
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
        "times": ENDED,
        "message": "1\n2\n3\n4\n5 \ufffd",
        "log": str(tmp_path / "rank.2.log"),
    }
    assert found.ranks[1] == RankEnd(rank=1, node="a-1", device=5, exit_code=None, signal=None)


def test_a_followed_rank_has_times_by_one_clock(tmp_path: Path) -> None:
    log = Arrivals()
    for size, at in ((5, 3.0), (9, 3.1), (12, 8.0)):
        log.note(size, at)
    seen = progress((2, 1, 14.0), launcher=1)
    seen.arrivals, seen.began = {"rank.2.log": log, "rank.3.log": Arrivals()}, {2: 1.0}
    found = report(seen, tmp_path, a_2=5.0).ranks
    day = "1970-01-01T00:00:0"
    assert found[2].times == RankTimes(
        started=f"{day}1.000+00:00",
        first_output=f"{day}3.000+00:00",
        last_output=f"{day}8.000+00:00",
        silent_s=4.9,
        silent_since=f"{day}3.100+00:00",
        ended=f"{day}9.000+00:00",
    )
    assert found[3].times is None


@pytest.mark.parametrize("output", [(), (8.9,)])
def test_a_rank_that_ends_before_its_start_is_seen_started_no_later(
    tmp_path: Path, output: tuple[float, ...]
) -> None:
    log = Arrivals()
    for at in output:
        log.note(5, at)
    seen = progress((2, 0, 14.0), launcher=0)
    seen.arrivals, seen.began = {"rank.2.log": log}, {2: 9.2}
    times = report(seen, tmp_path, a_2=5.0).ranks[2].times
    assert times is not None
    assert times.started == f"1970-01-01T00:00:0{'8.9' if output else '9.0'}00+00:00"
    assert times.ended == "1970-01-01T00:00:09.000+00:00"


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
    assert found.first_failure == FirstFailure(**asdict(end), message="", log=log)
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


def test_two_lost_nodes_are_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    seen = progress(*WELL, launcher=143)
    seen.is_overdue = True
    found = report(seen, tmp_path)
    assert (found.state, found.exit_code, found.cause) == (JobState.SUCCEEDED, 0, None)
    assert found.notes == (
        "every rank ended with exit code 0; the launcher did not end then and was ended",
    )
    seen.ended[1] = RankEnded(1, 3, 10.0)
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
    earlier = progress((0, 143, 20.5), (1, 1, 19.9), (2, 7, 9.8))
    earlier.endings |= {0: 20.0, 1: 9.9}
    assert failing_rank(report(earlier, tmp_path, a_1=10.0)) == 2
    assert failing_rank(report(earlier, tmp_path)) == 2


def test_ranks_that_their_wrappers_ended_are_no_cause(tmp_path: Path) -> None:
    """The clock of a-1 is ten seconds ahead, and nobody has measured it."""
    seen = replace(progress((0, 143, 20.5), (2, 7, 29.9)), rank_endings={0: 20.4})
    assert failing_rank(report(seen, tmp_path)) == 2
    assert failing_rank(report(replace(seen, rank_endings={0: 20.6}), tmp_path)) == 0


def test_the_message_is_that_of_the_node_that_ended_first(tmp_path: Path) -> None:
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
        f"  a-1 | {'x' * 99}…{'x' * 100}",
    ]


def test_no_success_if_a_node_could_not_be_checked(tmp_path: Path) -> None:
    seen = replace(progress(launcher=0), unsure=("a-2: gone",), notes=("a note",))
    found = report(seen, tmp_path)
    assert (found.state, found.exit_code) == (JobState.FAILED, 1)
    assert (found.message, found.notes) == ("a-2: gone", ("a-2: gone", "a note"))


# The cause of a failure, from the logs and events.

RECORDED = Path(__file__).parents[2] / "data/rank-log"
T = 1767323045.0  # 2026-01-02 03:04:05 UTC
OWN = "Traceback (most recent call last):\n  x\nValueError: loss is nan\n"
RESET = "Traceback (most recent call last):\n  y\nRuntimeError: Connection reset by peer\n"


def cause_of(found: JobReport) -> JobCause:
    assert found.cause is not None
    return found.cause


def first(found: JobReport) -> tuple[int | None, str]:
    return cause_of(found).rank, cause_of(found).words


def test_a_rank_with_an_own_error_is_the_cause_although_another_ended_first(tmp_path: Path) -> None:
    (tmp_path / "rank.2.log").write_text(OWN)
    (tmp_path / "rank.0.log").write_text(RESET)
    seen = progress((0, 1, T), (1, 143, T + 1), (2, 143, T + 1))
    found = report(seen, tmp_path)
    assert first(found) == (2, "ValueError: loss is nan")
    assert found.first_failure is not None
    assert (found.first_failure.rank, found.first_failure.signal) == (2, 15)
    assert found.first_failure.message.splitlines()[-1] == "ValueError: loss is nan"
    # The job ends with the code of the rank that ended it.
    assert (found.state, found.exit_code) == (JobState.FAILED, 1)
    document: Any = found.to_json()
    assert JobReport.from_json(document).to_json() == document
    assert (document["cause"]["rank"], document["cause"]["node"]) == (2, "a-2")


def test_times_in_the_lines_by_the_zone_and_the_clock_of_their_node(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text("2026-01-02 11:04:03,500 ERROR: first a\n")
    (tmp_path / "rank.2.log").write_text("2026-01-02 03:04:13,250 ERROR: first b\n")
    seen = progress((0, 1, T, 28800), (2, 1, T + 10, 0), (1, 0, T))
    assert first(report(seen, tmp_path))[0] == 0
    ten_ahead = cause_of(report(seen, tmp_path, uncertainty_s=0.2, a_2=10.0))
    assert ten_ahead.rank == 2
    assert ten_ahead.at == "2026-01-02T03:04:03.250+00:00"
    assert ten_ahead.unsure == ("a-1:0 may have failed first: times are only accurate to 0.4 s")


def test_lines_without_a_time_have_that_of_their_arrival(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text("step 1\n" + OWN)
    (tmp_path / "rank.2.log").write_text("step 1\n" + OWN.replace("nan", "inf"))
    seen = progress((0, 1, T + 9), (2, 1, T + 8))
    assert first(report(seen, tmp_path))[0] == 2
    came = {"rank.0.log": Arrivals(), "rank.2.log": Arrivals()}
    for name, at in (("rank.0.log", 5.0), ("rank.2.log", 7.0)):
        came[name].note(7, T)
        came[name].note(70, T + at)
    cause = cause_of(report(replace(seen, arrivals=came), tmp_path))
    assert (cause.rank, cause.at) == (0, "2026-01-02T03:04:10.000+00:00")


def test_an_error_after_a_rank_is_being_ended_is_no_cause(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text(RESET)
    (tmp_path / "rank.2.log").write_text("2026-01-02 03:04:08 ERROR: closed file\n")
    seen = progress((0, 1, T), (2, 1, T + 4, 0))
    assert first(report(replace(seen, endings={1: T + 5}), tmp_path))[0] == 2
    found = report(replace(seen, endings={1: T + 2}), tmp_path)
    cause = cause_of(found)
    assert (cause.kind, cause.ranks) == (CauseKind.ONE_OF, (1, 2, 3))
    assert cause.followed == (Followed((0,), "the connection to another rank broke"),)
    # None of them is named as the first; the job ends with the code of the one that failed.
    assert (found.first_failure, found.exit_code) == (None, 1)


def test_a_row_of_hccls_link_table_names_the_peer_that_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_bytes((RECORDED / "hccl/link-error.txt").read_bytes())
    (tmp_path / "rank.3.log").write_text(RESET)
    late = ((1, 143, T + 9), (2, 143, T + 9))
    cause = cause_of(report(progress((0, 1, T), (3, 1, T + 1), *late), tmp_path))
    assert (cause.kind, cause.ranks) == (CauseKind.LEFT, (1,)), cause.title


def test_an_error_file_explains_what_the_log_does_not(tmp_path: Path) -> None:
    document = {
        "message": {
            "message": "RuntimeError: boom on rank 3",
            "extraInfo": {"py_callstack": "Traceback …", "timestamp": f"{T:.0f}"},
        }
    }
    seen = progress((0, 1, T + 3), (3, 1, T + 4))
    seen.note(events.RankErrorFile(3, json.dumps(document).encode()))
    found = report(seen, tmp_path)
    assert first(found) == (3, "RuntimeError: boom on rank 3")
    assert cause_of(found).source == "error file"
    # A file that was cut off, or is none, is no clue.
    seen.note(events.RankErrorFile(3, b'{"message": '))
    assert first(report(seen, tmp_path)) == (0, "")


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text(OWN + "x" * 100 + "\n" + "y" * 80_000 + "\n" + RESET)
    seen = progress((0, 1, T), (1, 3, T + 1))
    assert first(report(seen, tmp_path)) == (1, "")


def test_a_node_that_was_lost(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("ORTE has lost communication with a remote daemon.\n")
    found = report(progress((0, 143, T), (1, 1, T), launcher=205), tmp_path)
    cause = cause_of(found)
    assert (cause.kind, cause.nodes, cause.ranks) == (CauseKind.NODE, ("a-2",), (2, 3))
    assert cause.title == "a-2: was lost in the middle of the job, with ranks 2-3"
    assert cause.followed == (Followed((0, 1), "ended with the job"),)
    assert (found.message, found.exit_code) == (cause.title, 205)
    assert found.first_failure is None


def test_a_full_disk_of_a_node_that_was_lost_or_of_a_rank_that_says_nothing(tmp_path: Path) -> None:
    seen = progress((2, 1, T), launcher=205)
    seen.full_disks["a-2"] = "/jobs/job-1"
    silent = report(seen, tmp_path).cause
    (tmp_path / "rank.2.log").write_text("MemoryError\n")
    speaks = report(seen, tmp_path).cause
    (tmp_path / "launcher.log").write_text("ORTE has lost communication with a remote daemon.\n")
    lost = report(replace(seen, ended={0: RankEnded(0, 143, T)}), tmp_path).cause
    assert [(cause.meaning, cause.remedy) for cause in (silent, speaks, lost) if cause] == [
        ("the disk of a-2 is full", "free disk space there: df -h"),
        ("the node is short of memory", "check with free -m there"),
        (
            "the launcher lost contact with it; the disk of a-2 is full",
            "free disk space there: df -h",
        ),
    ]


def test_a_launcher_that_failed_before_any_rank(tmp_path: Path) -> None:
    said = "ssh: connect to host 192.0.2.12 port 2222: Connection refused"
    (tmp_path / "launcher.log").write_text(f"{said}\nORTE was unable to reliably start …\n")
    found = report(progress(launcher=255), tmp_path)
    cause = cause_of(found)
    assert (cause.kind, cause.ranks, cause.nodes) == (CauseKind.LAUNCHER, (), ("a-1",))
    assert cause.words == said
    assert cause.title == "a-1: the launcher failed, with exit code 255"
    assert cause.remedy.startswith("ascendboot setup starts it again")
    assert (found.first_failure, found.exit_code) == (None, 255)
    assert said in found.message


def test_a_rank_that_left_is_the_cause_and_not_the_failure(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text(RESET)
    found = report(progress((0, 1, T), (3, 0, T - 5)), tmp_path)
    assert (cause_of(found).kind, cause_of(found).ranks) == (CauseKind.LEFT, (3,))
    assert (failing_rank(found), found.exit_code) == (0, 1)


FAILED = "[a.cc:1]7 Aicore kernel execute failed, device_id=5"


def plog(folder: Path, line: str) -> None:
    """Write this line into a plog of rank 1."""
    path = folder / "rank.1.plog/debug/plog/plog-7_1.log"
    path.parent.mkdir(parents=True)
    path.write_text(f"[ERROR] RUNTIME(7,python3):{line}\n")


def test_a_known_error_in_a_plog_explains_a_failure(tmp_path: Path) -> None:
    seen = progress((1, 1, T + 5, 0), (3, 1, T + 4, 0))
    (tmp_path / "rank.3.log").write_text("Traceback (most recent call last):\nRuntimeError: no\n")
    plog(tmp_path, f"2026-01-02-03:04:05.678.901 {FAILED}")
    cause = cause_of(report(seen, tmp_path))
    source = "rank.1.plog/debug/plog/plog-7_1.log"
    assert (cause.rank, cause.source, cause.at) == (1, source, "2026-01-02T03:04:05.678+00:00")
    assert "Aicore kernel execute failed" in cause.words
    assert cause.meaning


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-02-03:04:05.678.901 [a.cc:1]7 no file of that name, the default is used",
        f"2026-01-02-01:04:05.678.901 {FAILED}",
        FAILED,
    ],
    ids=["not a known error", "two hours before", "without a time"],
)
def test_other_errors_in_a_plog_explain_nothing(tmp_path: Path, line: str) -> None:
    plog(tmp_path, line)
    cause = cause_of(report(progress((1, 1, T + 5, 0), (3, 1, T + 4, 0)), tmp_path))
    assert (cause.rank, cause.source) == (3, "events")


NAN = BadLoss(rank=3, node="a-2", value="nan", step="120", at=T)
NAN_WORDS = "a-2: the loss of rank 3 was nan from step 120 on, at 03:04:05 UTC"


def test_a_loss_that_was_nan_is_a_note_of_a_job_that_succeeds(tmp_path: Path) -> None:
    seen = replace(progress(*WELL, launcher=0), losses=(NAN,))
    assert report(seen, tmp_path).notes == (NAN_WORDS,)


def test_a_loss_that_was_nan_is_evidence_of_the_cause_of_a_failure(tmp_path: Path) -> None:
    record_loss(tmp_path, NAN)
    found = report(progress((3, 1, 10.0)), tmp_path)
    assert (cause_of(found).losses, found.notes) == ((NAN_WORDS,), ())
    assert f"  loss: {NAN_WORDS}" in cause_of(found).lines()


def test_the_ends_of_logs_show_a_loss_that_was_nan(tmp_path: Path) -> None:
    (tmp_path / "rank.1.log").write_bytes(b"step 7 loss nan\n")
    (tmp_path / "rank.2.log").write_bytes(b"step 9 loss nan\n" * 10_000)
    short, long = "of rank 1 was nan from step 7 on", "of rank 2 was nan at step 9"
    assert report(progress(*WELL), tmp_path).notes == (f"a-1: the loss {short}; also rank 2",)
    (tmp_path / "rank.1.log").unlink()
    assert report(progress(*WELL), tmp_path).notes == (f"a-2: the loss {long}",)


def test_arrivals_become_sparse_and_stay_right() -> None:
    came = Arrivals()
    assert came.of(0) is None
    for second in range(2000):
        came.note(second + 1, float(second))
    assert len(came._sizes) <= 601
    assert (came.of(1999), came.of(2000)) == (1999.0, None)
    assert came.of(1800) == 1800.0
    early = came.of(10)
    assert early is not None
    assert 10 <= early < 2000
    came.note(5000, 1999.1)
    assert came.of(4999) == 1999.1


def test_item_09_mpirun_alone_names_the_node_of_the_lost_peer(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank.{rank}.log").write_text(RESET)
    words = (RECORDED / "openmpi-4.1/peer-hung-up.txt").read_bytes()
    (tmp_path / "launcher.log").write_bytes(words)
    seen = progress((0, 1, T), (1, 1, T))
    cause = cause_of(report(seen, tmp_path))
    assert (cause.kind, cause.ranks) == (CauseKind.ONE_OF, (2, 3))
    assert cause.why == "launcher.log reports their node missing, but no rank"


def seen(*lines: events.Event) -> Progress:
    found = Progress()
    for event in lines:
        found.note(event)
    return found


def test_a_job_has_started_with_its_last_rank_and_ends_with_the_first_that_fails() -> None:
    begun = [events.RankStarted(rank) for rank in range(4)]
    assert not has_started(PLAN, seen(*begun[:-1]))
    assert has_started(PLAN, seen(*begun))
    for event in (
        RankEnded(1, 3, 1.0),
        events.RankEndingBegan(2, 1.0),
        events.EndingBegan(0, 1.0),
        events.EndingBegan(1, 1.0),
        events.StopRequested(1.0),
    ):
        assert will_end(PLAN, event, seen(event))
    ends = [RankEnded(rank, 0, 1.0) for rank in range(4)]
    assert not will_end(PLAN, ends[1], seen(ends[1]))
    assert will_end(PLAN, ends[3], seen(*ends))
