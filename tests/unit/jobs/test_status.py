"""Answers of nodes about jobs, and the state of a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from time import time

import pytest

from ascendboot.errors import CommandError, NodeError, NotUnderstoodError, UnreachableError
from ascendboot.jobs.probe import JobProbe, RankLoad, parse_probe, probe_jobs, running_nodes
from ascendboot.jobs.status import JobStatus, status_of, why_not_followed
from ascendboot.launch.events import (
    Event,
    HelperChanged,
    LauncherEnded,
    LauncherStarted,
    RankEnded,
    RankStarted,
    StopRequested,
)
from ascendboot.launch.plan import PLAN_FILE, JobRecord, read_record
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.job import JobReport, JobState
from ascendboot.transport.api import Effect
from ascendboot.transport.guard import ReadOnly
from ascendboot.value import replace
from tests.fake_transport import Answer, FakeTransport
from tests.here import Here
from tests.unit.launch.request import BASE, REQUEST

STARTED = "2026-01-02T03:04:05.000+00:00"
BEGAN = datetime.fromisoformat(STARTED).timestamp()
NOW = datetime.fromisoformat("2026-01-02T03:05:05.000+00:00")
BEGINS: list[Event] = [HelperChanged(), LauncherStarted(), RankStarted(0)]


def test_a_record_holds_the_values_of_the_plan(job: JobRecord) -> None:
    planned = plan(REQUEST)
    assert (job.job_id, job.cluster, job.primary) == ("job-1", "two", "a-1")
    assert job.job_folder == planned.job_folder
    assert job.ranks == planned.ranks
    assert [job.logs_on(node) for node in job.nodes] == [
        planned.logs_on(node) for node in planned.nodes
    ]
    assert (job.grace_s, job.started) == (2.5, STARTED)
    assert job.clocks == NodeClocks({"a-1": 2.0})
    assert (job.launcher_kind, job.python) == (planned.launcher_kind, planned.python)


def test_a_run_that_started_no_job_and_a_damaged_record(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    (tmp_path / PLAN_FILE).write_text("{}")
    with pytest.raises(Exception, match=r"plan\.json: could not be read \(KeyError"):
        read_record(tmp_path)


SAID = """\
process 12 job-1
process 13 job-1
process 99 another
job job-1
event supervisor - pid 10 start 1
event launcher - pid 11 start 2
event rank 0 pid 12 start 3
alive supervisor - 10
alive launcher - 11
alive rank 0 12
last rank.0.log step 7 of 9
silent 5 rank.0.log
silent -1 rank.1.log
last rank.1.log\x20
loss rank.0.log step 6 loss: nan
pace 90 60 rank.0.log
pace 0 0 rank.1.log
use 0 D 495 500 2048
end
"""


def test_what_a_node_says() -> None:
    assert parse_probe(SAID, ("job-1", "job-2")) == {
        "job-1": JobProbe(
            has_folder=True,
            events=list(BEGINS),
            ranks_alive={0},
            launcher_alive=True,
            pids={11, 12, 13},
            last_lines={0: "step 7 of 9", 1: ""},
            losses={0: "step 6 loss: nan"},
            silent_s={0: 5.0, 1: 0.0},
            lines_per_s={0: 1.5, 1: 0.0},
            loads={0: RankLoad("D", 99.0, 2 << 20)},
        ),
        "job-2": JobProbe(),
    }


@pytest.mark.parametrize(
    ("marks", "pace"),
    [
        ([(-100, 0), (-40, 4), (-20, 8)], 0.1),  # four lines of four bytes each in 40 s
        ([(-300, 0), (-200, 20)], 0.0),
        ([(-10, 0), (-5, 12)], 0.5),
        (["5; x 0", (-20, 0)], 0.25),
        ([], None),
    ],
)
def test_the_pace_is_that_of_the_last_minute(
    tmp_path: Path, marks: list[tuple[int, int] | str], pace: float | None
) -> None:
    folder = tmp_path / "jobs/j"
    folder.mkdir(parents=True)
    (folder / "events").touch()
    (folder / "rank.3.log").write_text("abc\n" * 5)
    lines = [m if isinstance(m, str) else f"{time() + m[0]:.6f} {m[1]} 0 0" for m in marks]
    (folder / "rank.3.marks").write_text("\n".join([*lines, ""]))
    here = FakeTransport("a", rules=[Here(tmp_path)])
    jobs = PurePosixPath(tmp_path, "jobs")
    found = probe_jobs({"a": here}, jobs, ["j"], details=True, forks=1)["a"]
    assert isinstance(found, dict)
    assert found["j"].lines_per_s == pytest.approx({} if pace is None else {3: pace}, rel=0.2)


@pytest.mark.parametrize(
    "said",
    [
        *("", "job x\n", "what\nend\n", "end\nmore\n"),
        *("alive rank 0\nend\n", "last x y\nend\n", "last rank.0.log\nend\n"),
        *("loss x y\nend\n", "loss rank.0.log\nend\n"),
        f"job j\npace {'9' * 400} 1 rank.0.log\nend\n",
        f"job j\nsilent {'9' * 400} rank.0.log\nend\n",
    ],
)
def test_what_is_not_understood_is_refused(said: str) -> None:
    with pytest.raises(NotUnderstoodError):
        parse_probe(f"job j\n{said}" if said[:1] in {"a", "l"} else said)


def test_a_probe_writes_nothing_and_returns_the_errors_of_nodes() -> None:
    well = FakeTransport("a", rules=[lambda _: SAID])
    off = FakeTransport("b", unreachable="b is off")
    odd = FakeTransport("c", rules=[lambda _: Answer("no\n")])
    found = probe_jobs(
        {t.node: ReadOnly(t) for t in (well, off, odd)}, BASE / "jobs", ("job-1",), forks=4
    )
    assert isinstance(found["b"], UnreachableError)
    assert isinstance(found["c"], CommandError)
    assert running_nodes(found) == {"job-1": ["a"]}
    [command] = well.commands
    assert (command.argv[4:], command.effect) == ((str(BASE / "jobs"), "0", "job-1"), Effect.READ)


def judged(
    job: JobRecord,
    tmp_path: Path,
    first: JobProbe | NodeError,
    second: JobProbe | NodeError | None = None,
    final: JobReport | None = None,
) -> JobStatus:
    looks = {"a-1": first, "a-2": second or JobProbe(has_folder=True)}
    return status_of(job, looks, folder=tmp_path, final=final, now=NOW)


def told(*events: object, alive: bool = False) -> JobProbe:
    return JobProbe(has_folder=True, events=list(events), launcher_alive=alive)  # type: ignore[arg-type]  # any event


ENDED = [RankEnded(rank, 0, BEGAN + 30) for rank in range(4)]


def runs(*ranks: int, launcher: bool = False, events: Sequence[Event] = ()) -> JobProbe:
    begun = [RankStarted(rank) for rank in ranks]
    return JobProbe(
        has_folder=True,
        events=[*begun, *events],
        ranks_alive={*ranks} - {e.rank for e in events if isinstance(e, RankEnded)},
        launcher_alive=launcher,
    )


def test_a_running_job_shows_a_loss_of_nan_once_for_all(job: JobRecord, tmp_path: Path) -> None:
    first = replace(runs(0, 1, launcher=True), losses=dict.fromkeys((1, 0), "step 6 loss: nan"))
    second = replace(runs(2, 3), losses={2: "step 7 loss: nano"})
    found = judged(job, tmp_path, first, second).report
    words = "a-1: the loss of rank 0 was nan at step 6; also rank 1"
    assert (found.state, found.notes) == (JobState.RUNNING, (words,))


OFF = UnreachableError("a-2", "no answer on port 22")
GONE = replace(runs(2, 3), ranks_alive={2})


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (runs(0, 1, launcher=True), runs(2, 3), ""),
        (runs(0, 1, launcher=True), runs(2, 3, events=ENDED[2:3]), ""),
        (runs(0, 1, launcher=True), runs(2, 3, events=ENDED[2:]), ""),
        (runs(0, 1, events=[LauncherEnded(0, BEGAN)]), OFF, ""),
        (runs(0, 1, events=[LauncherEnded(7, BEGAN)]), runs(2, 3), ""),
        (runs(0, 1, events=[LauncherEnded(7, BEGAN)]), OFF, "a-2: no answer on port 22"),
        (runs(0, 1, launcher=True), OFF, "a-2: no answer on port 22"),
        (runs(0, 1), runs(2, 3), "a-1: its launcher is gone"),
        (runs(0, 1, events=[LauncherEnded(None)]), runs(2, 3), "a-1: its launcher is gone"),
        (runs(0, 1, launcher=True), GONE, "a-2: rank 3 is gone"),
        (runs(0, 1, launcher=True), runs(2), "a-2: rank 3 had not begun"),
        (JobProbe(), JobProbe(), "a-1: rank 0 had not begun"),
        (
            runs(0, 1, launcher=True),
            runs(2, 3, events=[RankEnded(3, 9, BEGAN)]),
            "a-2: rank 3 has ended with exit code 9",
        ),
    ],
)
def test_only_a_whole_job_or_one_whose_end_is_recorded_is_followed_again(
    job: JobRecord, first: JobProbe, second: JobProbe | NodeError, why: str
) -> None:
    assert why_not_followed(job, {"a-1": first, "a-2": second}) == why


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (told(*BEGINS, alive=True), ("running", None, 60.0)),
        (told(*BEGINS, *ENDED, LauncherEnded(0, BEGAN + 42)), ("succeeded", 0, 40.0)),
        (told(*BEGINS, RankEnded(1, 3, BEGAN), LauncherEnded(1, BEGAN + 2)), ("failed", 3, 0.0)),
        (told(*BEGINS, StopRequested(BEGAN), LauncherEnded(1, BEGAN + 12)), ("stopped", 143, 10.0)),
        (told(*BEGINS, StopRequested(BEGAN)), ("stopped", 143, 60.0)),
        (told(*BEGINS), ("lost", 1, 60.0)),
        (told(*BEGINS, LauncherEnded(None)), ("lost", 1, 60.0)),
        # Without the end of the launcher, unless a rank failed before it was gone.
        *((told(*BEGINS, RankEnded(1, n, BEGAN)), ("failed", n, 60.0)) for n in (3, 139)),
        *((told(*BEGINS, RankEnded(1, n, BEGAN)), ("lost", n, 60.0)) for n in (129, 137, 141, 143)),
        (told(), ("not_started", 1, 60.0)),
        (JobProbe(), ("lost", 1, 60.0)),
        (UnreachableError("a-1", "off"), ("lost", 1, 60.0)),
    ],
)
def test_the_state_of_a_job(
    job: JobRecord,
    tmp_path: Path,
    look: JobProbe | NodeError,
    expected: tuple[str, int | None, float],
) -> None:
    report = judged(job, tmp_path, look).report
    found = (report.state.value, report.exit_code, report.duration_s)
    assert found == expected


def test_ranks_elsewhere_show_that_it_runs_though_the_primary_is_off(
    job: JobRecord, tmp_path: Path
) -> None:
    second = JobProbe(has_folder=True, ranks_alive={2}, pids={5}, last_lines={2: "step 7"})
    second.silent_s, second.loads = {2: 5.0}, {2: RankLoad("S", 99.5, 4096)}
    found = judged(job, tmp_path, UnreachableError("a-1", "off"), second)
    assert found.report.state is JobState.RUNNING
    assert [n.to_json() for n in found.nodes] == [
        {
            **{key: {} for key in ("last_lines", "silent_s", "lines_per_s", "loads", "npus")},
            **dict.fromkeys(("ranks_alive", "processes", "launcher_alive")),
            "node": "a-1",
            "ranks": [0, 1],
            "npu_problem": "",
            "problem": "off",
        },
        {
            "node": "a-2",
            "ranks": [2, 3],
            "npu_problem": "",
            "problem": "",
            "ranks_alive": [2],
            "processes": 1,
            "launcher_alive": None,
            "last_lines": {"2": "step 7"},
            "silent_s": {"2": 5.0},
            "lines_per_s": {},
            "loads": {"2": {"state": "S", "cpu_percent": 99.5, "memory_bytes": 4096}},
            "npus": {},
        },
    ]


def test_the_final_report_stays_and_remaining_processes_are_named(
    job: JobRecord, tmp_path: Path
) -> None:
    over = told(*BEGINS, *ENDED, LauncherEnded(0, BEGAN + 42))
    final = replace(judged(job, tmp_path, over).report, state=JobState.INTERRUPTED)
    assert JobReport.from_json(final.to_json()) == final
    left = JobProbe(has_folder=True, pids={5, 6})
    found = judged(job, tmp_path, over, left, final)
    assert found.report.state is JobState.INTERRUPTED
    assert found.report.notes == ("a-2: 2 processes of the job are left; stop ends them",)
    assert not found.is_over
