"""The verb `doctor`: what it reads, prints and returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ascendboot.jobs.job_report import running_report
from ascendboot.launch.planner import plan
from ascendboot.model.job import CauseKind, JobCause, JobState
from ascendboot.value import replace
from tests.unit.cli.calls import AS_OTHERS, called, ended
from tests.unit.jobs.conftest import STARTED, recorded
from tests.unit.launch.request import REQUEST

RESET = "RuntimeError: Connection reset by peer\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of a job of two nodes with two ranks each; rank 2 failed first."""
    folder = tmp_path / ".ascendboot/runs/job-1"
    folder.mkdir(parents=True)
    recorded(folder)
    for rank in range(4):
        words = "step 1\nValueError: loss is nan\n" if rank == 2 else RESET
        (folder / f"rank.{rank}.log").write_text(words)
    (folder / "run.log").write_text("KeyError: words of ascendboot itself\n")
    (folder / "a-1").mkdir()
    (folder / "a-1/01.txt").write_text("KeyError: what a command printed\n")
    return folder


def document(line: str, place: Path) -> dict[str, Any]:
    ended = called(f"{line} --json", place)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_job_by_its_id_or_its_folder(job: Path, tmp_path: Path) -> None:
    by_id = document("doctor --job job-1", tmp_path)
    [verdict] = by_id["verdicts"]
    assert (verdict["rank"], verdict["node"], verdict["device"]) == (2, "a-2", 0)
    assert verdict["place"] == f"{job}/rank.2.log:2"
    assert (by_id["files"], verdict["certainty"]) == (4, "certain")
    assert document(f"doctor {job}", tmp_path) == by_id


def test_the_cause_of_a_report_is_the_verdict(job: Path, tmp_path: Path) -> None:
    cause = JobCause(
        kind=CauseKind.RANK,
        title="a-2: rank 2 on device 0 failed first",
        ranks=(2,),
        nodes=("a-2",),
        words="ValueError: loss is nan",
        source="rank.2.log",
    )
    report = running_report(plan(REQUEST), STARTED, str(job))
    report = replace(report, state=JobState.FAILED, exit_code=1, cause=cause)
    (job / "job.json").write_text(json.dumps(report.to_json()))
    ended = called("doctor --job job-1", tmp_path)
    assert ended.stdout.splitlines() == [
        "a-2: rank 2 on device 0 failed first",
        f"  place: {job}/rank.2.log:2",
        "  it says: ValueError: loss is nan",
        "  how sure: certain",
    ]


def test_several_paths_and_what_has_no_error(job: Path, tmp_path: Path) -> None:
    two = f"{job}/rank.0.log {job}/rank.2.log"
    assert document(f"doctor {two}", tmp_path)["files"] == 2
    (tmp_path / "good.log").write_text("step 1\n")
    ended = called("doctor good.log", tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "no error found in 1 file\n")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("doctor", 2, "nothing to read"),
        ("doctor missing.log", 2, "no such file"),
        ("doctor --job other", 2, 'no job "other"'),
        ("doctor --job ../..", 2, "no job"),
        (
            "doctor --job setup-1",
            2,
            'doctor: no job "setup-1" was started from here; name the files',
        ),
        ("doctor empty", 2, "has no logs"),
        ("doctor x.log --rank-table x.log", 2, "x.log"),
    ],
)
def test_what_is_refused(tmp_path: Path, line: str, code: int, words: str) -> None:
    (tmp_path / "empty").mkdir()
    run = tmp_path / ".ascendboot/runs/setup-1"
    run.mkdir(parents=True)
    (run / "x.log").write_text("no job wrote this")
    (tmp_path / "x.log").write_text("{")
    ended = called(line, tmp_path)
    assert (ended.returncode, words in ended.stderr) == (code, True), ended.stderr


@pytest.mark.parametrize(
    ("closed", "line", "said"),
    [
        ("run", "doctor run", "run/plan.json: could not be read: Permission denied; make it"),
        ("run/plan.json", "doctor run", "run/plan.json: could not be read: Permission denied; mak"),
        ("run/plan.json", "doctor --job j", "/plan.json: could not be read: Permission denied; ma"),
        ("run/job.json", "doctor run", "run/job.json: could not be read: Permission denied; make"),
        ("run/x.log", "doctor run/x.log", "./run/x.log: could not be used: Permission denied; "),
        ("run", "doctor run/x.log", "./run/x.log: could not be used: Permission denied; "),
        ("log", "doctor log", "./log: could not be used: Permission denied; "),
    ],
)
def test_what_may_not_be_read_is_named(tmp_path: Path, closed: str, line: str, said: str) -> None:
    (tmp_path / "log").mkdir(mode=0o311)  # what its files are called cannot be seen
    run = tmp_path / ".ascendboot/runs/j"
    run.mkdir(parents=True)
    recorded(run)
    (run / "x.log").write_text(RESET)
    (run / "job.json").write_text("{}")
    (tmp_path / "run").symlink_to(run)
    mode = (tmp_path / closed).stat().st_mode
    (tmp_path / closed).chmod(0o311 if closed == "log" else 0)
    done = ended(AS_OTHERS, *line.split(), cwd=tmp_path)
    (tmp_path / closed).chmod(mode)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert said in done.stderr


def test_what_may_not_be_read_in_a_folder_is_a_remark(tmp_path: Path) -> None:
    (tmp_path / "log/shut").mkdir(parents=True)
    for name in ("good.log", "shut.log"):
        (tmp_path / "log" / name).write_text("step 1\n")
    for name in ("shut", "shut.log"):
        (tmp_path / "log" / name).chmod(0)
    done = ended(AS_OTHERS, "doctor", "log", cwd=tmp_path)
    (tmp_path / "log/shut").chmod(0o700)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        "log/shut.log: could not be read: Permission denied",
        "log/shut: could not be read: Permission denied",
        "no error found in 2 files",
    ]


def test_entries_of_the_operator_count_and_must_be_valid(tmp_path: Path) -> None:
    entry = (
        "- {id: site-proxy, text: [proxy refused], meaning: proxy, remedy: unset it, source: us,"
        " samples: [the proxy refused it], others: [the proxy]}\n"
    )
    (tmp_path / "known-errors.yaml").write_text(entry)
    (tmp_path / "x.log").write_text("the proxy refused it\n")
    assert document("doctor x.log", tmp_path)["verdicts"][0]["known_error"] == "site-proxy"
    (tmp_path / "known-errors.yaml").write_text(entry.replace("meaning", "sense"))
    ended = called("doctor x.log", tmp_path)
    assert (ended.returncode, "known-errors.yaml: not a list of" in ended.stderr) == (1, True)
