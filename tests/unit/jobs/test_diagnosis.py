"""From the files and events of a job to the cause in its report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ascendboot.jobs.error_codes import known_of_launcher
from ascendboot.jobs.job_report import report_on
from ascendboot.jobs.progress import Arrivals, Progress
from ascendboot.launch.events import RankEnded, RankErrorFile
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.job import CauseKind, Followed, JobReport, JobState
from tests.unit.launch.request import REQUEST

LINK_ERROR = Path(__file__).parents[2] / "data/rank-log/hccl/link-error.txt"
PLAN = plan(REQUEST)
T = 1767323045.0  # 2026-01-02 03:04:05 UTC
OWN = "Traceback (most recent call last):\n  x\nValueError: loss is nan\n"
RESET = "Traceback (most recent call last):\n  y\nRuntimeError: Connection reset by peer\n"


def progress(*ended: RankEnded, launcher: int | None = 1) -> Progress:
    seen = Progress(launcher_over=True, launcher_code=launcher)
    for end in ended:
        seen.note(end)
    return seen


def report(seen: Progress, folder: Path, clocks: NodeClocks | None = None) -> JobReport:
    return report_on(
        PLAN,
        seen,
        folder=folder,
        started="2026-01-02T03:04:05.678+00:00",
        duration_s=1.0,
        clocks=clocks or NodeClocks(),
    )


def first(found: JobReport) -> tuple[int | None, str]:
    assert found.cause is not None
    return found.cause.rank, found.cause.words


def test_the_rank_that_says_why_though_another_ended_first(tmp_path: Path) -> None:
    (tmp_path / "rank.2.log").write_text(OWN)
    (tmp_path / "rank.0.log").write_text(RESET)
    seen = progress(RankEnded(0, 1, T), RankEnded(1, 143, T + 1), RankEnded(2, 143, T + 1))
    found = report(seen, tmp_path)
    assert first(found) == (2, "ValueError: loss is nan")
    assert found.first_failure is not None
    assert (found.first_failure.rank, found.first_failure.signal) == (2, 15)
    assert found.first_failure.message.splitlines()[-1] == "ValueError: loss is nan"
    # The job ends with the code of the rank that ended it.
    assert (found.state, found.exit_code) == (JobState.FAILED, 1)
    document: Any = found.to_json()
    assert JobReport.from_json(document) == found
    assert (document["cause"]["rank"], document["cause"]["node"]) == (2, "a-2")


def test_times_in_the_lines_by_the_zone_and_the_clock_of_their_node(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text("2026-01-02 11:04:03,500 ERROR: first a\n")
    (tmp_path / "rank.2.log").write_text("2026-01-02 03:04:13,250 ERROR: first b\n")
    seen = progress(
        RankEnded(0, 1, T, zone_s=28800), RankEnded(2, 1, T + 10, zone_s=0), RankEnded(1, 0, T)
    )
    assert first(report(seen, tmp_path))[0] == 0
    ten_ahead = report(seen, tmp_path, NodeClocks({"a-2": 10.0}, uncertainty_s=0.2))
    assert first(ten_ahead)[0] == 2
    assert ten_ahead.cause is not None
    assert ten_ahead.cause.at == "2026-01-02T03:04:03.250+00:00"
    assert ten_ahead.cause.unsure == (
        "a-1:0 may have failed first: times are only accurate to 0.4 s"
    )


def test_lines_without_a_time_came_in_at_one(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text("step 1\n" + OWN)
    (tmp_path / "rank.2.log").write_text("step 1\n" + OWN.replace("nan", "inf"))
    seen = progress(RankEnded(0, 1, T + 9), RankEnded(2, 1, T + 8))
    assert first(report(seen, tmp_path))[0] == 2
    came = {"rank.0.log": Arrivals(), "rank.2.log": Arrivals()}
    for name, at in (("rank.0.log", 5.0), ("rank.2.log", 7.0)):
        came[name].note(7, T)
        came[name].note(70, T + at)
    found = report(replace(seen, arrivals=came), tmp_path)
    assert found.cause is not None
    assert (found.cause.rank, found.cause.at) == (0, "2026-01-02T03:04:10.000+00:00")


def test_what_a_rank_says_once_it_is_ended_is_no_cause(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text(RESET)
    (tmp_path / "rank.2.log").write_text("2026-01-02 03:04:08 ERROR: closed file\n")
    seen = progress(RankEnded(0, 1, T), RankEnded(2, 1, T + 4, zone_s=0))
    assert first(report(replace(seen, endings={1: T + 5}), tmp_path))[0] == 2
    found = report(replace(seen, endings={1: T + 2}), tmp_path)
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks, found.cause.followed) == (
        CauseKind.ONE_OF,
        (1, 2, 3),
        (Followed((0,), "the connection to another rank broke"),),
    )
    # None of them is named as the first; the job ends with the code of the one that failed.
    assert (found.first_failure, found.exit_code) == (None, 1)


def test_a_row_of_hccls_link_table_names_the_peer_that_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_bytes(LINK_ERROR.read_bytes())
    (tmp_path / "rank.3.log").write_text(RESET)
    late = (RankEnded(1, 143, T + 9), RankEnded(2, 143, T + 9))
    found = report(progress(RankEnded(0, 1, T), RankEnded(3, 1, T + 1), *late), tmp_path)
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks) == (CauseKind.LEFT, (1,)), found.cause.title


def test_an_error_file_tells_what_the_log_does_not(tmp_path: Path) -> None:
    document = {
        "message": {
            "message": "RuntimeError: boom on rank 3",
            "extraInfo": {"py_callstack": "Traceback …", "timestamp": f"{T:.0f}"},
        }
    }
    seen = progress(RankEnded(0, 1, T + 3), RankEnded(3, 1, T + 4))
    seen.note(RankErrorFile(3, json.dumps(document).encode()))
    found = report(seen, tmp_path)
    assert first(found) == (3, "RuntimeError: boom on rank 3")
    assert found.cause is not None
    assert found.cause.source == "error file"
    # A file that was cut off, or is none, is no clue.
    seen.note(RankErrorFile(3, b'{"message": '))
    assert first(report(seen, tmp_path)) == (0, "")


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text(OWN + "x" * 100 + "\n" + "y" * 80_000 + "\n" + RESET)
    seen = progress(RankEnded(0, 1, T), RankEnded(1, 3, T + 1))
    assert first(report(seen, tmp_path)) == (1, "")


def test_a_node_that_was_lost(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("ORTE has lost communication with a remote daemon.\n")
    found = report(progress(RankEnded(0, 143, T), RankEnded(1, 1, T), launcher=205), tmp_path)
    assert found.cause is not None
    assert (found.cause.kind, found.cause.nodes, found.cause.ranks) == (
        CauseKind.NODE,
        ("a-2",),
        (2, 3),
    )
    assert found.cause.title == "a-2: was lost in the middle of the job, with ranks 2-3"
    assert found.cause.followed == (Followed((0, 1), "ended with the job"),)
    assert (found.message, found.exit_code) == (found.cause.title, 205)
    assert found.first_failure is None


def test_a_full_disk_of_a_node_that_was_lost_or_of_a_rank_that_says_nothing(tmp_path: Path) -> None:
    seen = progress(RankEnded(2, 1, T), launcher=205)
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
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks, found.cause.nodes, found.cause.words) == (
        *(CauseKind.LAUNCHER, (), ("a-1",), said),
    )
    assert found.cause.title == "a-1: the launcher failed, with exit code 255"
    assert found.cause.remedy.startswith("invoke setup starts it again")
    assert (found.first_failure, found.exit_code) == (None, 255)
    assert said in found.message


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("bash: line 1: orted: command not found", "Open MPI"),
        ("root@192.0.2.12: Permission denied (publickey).", "rejects the login"),
        ("Host key verification failed.", "host key"),
        ("There are not enough slots available in the system to satisfy", "slots"),
        ("/usr/bin/python3: No module named torch", "Python lacks"),
        ("orted: error while loading shared libraries: libx.so", "library"),
    ],
)
def test_words_of_launchers(line: str, word: str) -> None:
    known = known_of_launcher(["-----", line, "more"])
    assert known is not None
    assert (known[0], word in known[1].meaning) == (line, True)


def test_a_rank_that_left_is_the_cause_and_not_the_failure(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text(RESET)
    found = report(progress(RankEnded(0, 1, T), RankEnded(3, 0, T - 5)), tmp_path)
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks, found.exit_code) == (CauseKind.LEFT, (3,), 1)
    assert found.first_failure is not None
    assert found.first_failure.rank == 0


def test_a_job_that_succeeds_has_none(tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").write_text(OWN)
    found = report(progress(*(RankEnded(n, 0, T) for n in range(4)), launcher=0), tmp_path)
    assert (found.cause, found.state) == (None, JobState.SUCCEEDED)


def test_arrivals_become_sparse_but_never_wrong() -> None:
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
    hung_up = LINK_ERROR.parents[1] / "openmpi-4.1/peer-hung-up.txt"
    (tmp_path / "launcher.log").write_bytes(hung_up.read_bytes())
    seen = progress(RankEnded(0, 1, T), RankEnded(1, 1, T))
    found = report(seen, tmp_path).cause
    assert found is not None
    assert (found.kind, found.ranks) == (CauseKind.ONE_OF, (2, 3))
    assert found.why == "launcher.log reports their node missing, but no rank"
