"""The record of a job, as a run leaves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ascendboot.launch.plan import PLAN_FILE, JobRecord, read_record, record_of
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import NodeClocks
from tests.unit.launch.request import REQUEST

STARTED = "2026-01-02T03:04:05.000+00:00"


@pytest.fixture
def job(tmp_path: Path) -> JobRecord:
    """A job of two nodes whose first clock is 2 s ahead; its folder is `tmp_path`."""
    return recorded(tmp_path)


def recorded(folder: Path) -> JobRecord:
    document = record_of(plan(REQUEST), started=STARTED, clocks=NodeClocks({"a-1": 2.0}))
    (folder / PLAN_FILE).write_text(json.dumps(document))
    record = read_record(folder)
    assert record is not None
    return record
