"""What `status` makes of a job whose launcher is gone without a word."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from ascendboot.jobs.probe import parse_probe
from ascendboot.jobs.status import status_of
from ascendboot.launch.plan import PLAN_FILE, read_record, record_of
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.job import JobState
from tests.unit.launch.request import REQUEST

if TYPE_CHECKING:
    from pathlib import Path

STARTED = "2026-01-02T03:04:05.678+00:00"
GONE = "job job-1\nevent supervisor - pid 10 start 1\nevent launcher - pid 11 start 1\n"


def look(*events: str) -> str:
    return GONE + "".join(f"event {event}\n" for event in events) + "end\n"


def state(folder: Path, text: str) -> tuple[JobState, int | None]:
    """The state, and the rank that failed first."""
    document = record_of(plan(REQUEST), started=STARTED, clocks=NodeClocks())
    (folder / PLAN_FILE).write_text(json.dumps(document))
    job = read_record(folder)
    assert job is not None
    looks = {"a-1": parse_probe(text)["job-1"], "a-2": parse_probe("job job-1\nend\n")["job-1"]}
    now = datetime(2026, 1, 2, 3, 5, tzinfo=timezone.utc)
    found = status_of(job, looks, folder=folder, final=None, now=now).report
    failure = found.first_failure
    return found.state, failure.rank if failure else None


@pytest.mark.parametrize("code", [129, 137, 141, 143])
def test_ranks_that_went_with_their_launcher_are_no_cause(tmp_path: Path, code: int) -> None:
    assert state(tmp_path, look(f"rank 1 exit {code} at 12.5"))[0] is JobState.LOST


@pytest.mark.parametrize("code", [3, 139])
def test_a_rank_that_failed_by_itself_is(tmp_path: Path, code: int) -> None:
    assert state(tmp_path, look(f"rank 1 exit {code} at 12.5")) == (JobState.FAILED, 1)


def test_nothing_else_is_known(tmp_path: Path) -> None:
    assert state(tmp_path, look()) == (JobState.LOST, None)
