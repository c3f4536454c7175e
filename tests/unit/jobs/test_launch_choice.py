"""Which ranks and lines `logs` prints."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from ascendboot.errors import UsageError
from ascendboot.jobs.logs import MatchingLines, chosen_pattern, chosen_ranks, chosen_time
from ascendboot.launch.plan import PLAN_FILE, JobRecord, read_record, record_of
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import NodeClocks
from tests.unit.launch.request import REQUEST

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)


@pytest.fixture
def job(tmp_path: Path) -> JobRecord:
    document = record_of(plan(REQUEST), started="2026-01-01T00:00:00+00:00", clocks=NodeClocks())
    (tmp_path / PLAN_FILE).write_text(json.dumps(document))
    record = read_record(tmp_path)
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("ranks", "nodes", "chosen"),
    [
        (None, None, (0, 1, 2, 3)),
        ("0,2-3", None, (0, 2, 3)),
        (None, "a-2", (2, 3)),
        (None, "a-[1-2]", (0, 1, 2, 3)),
        ("1-2", "a-[2,1]", (1, 2)),
        (None, "a-2, a-1", (0, 1, 2, 3)),
        ("0", "a-2", ()),
    ],
)
def test_ranks_of_these_numbers_on_these_nodes(
    job: JobRecord, ranks: str | None, nodes: str | None, chosen: tuple[int, ...]
) -> None:
    assert chosen_ranks(job, ranks, nodes) == chosen


def test_a_node_that_has_none_is_refused(job: JobRecord) -> None:
    said = 'logs: --node: "a-3" has no rank of job job-1; its nodes are a-1, a-2'
    with pytest.raises(UsageError, match=re.escape(said)):
        chosen_ranks(job, None, "a-[1-3]")
    with pytest.raises(UsageError, match="logs: --node: "):
        chosen_ranks(job, None, "a-[1")


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ("x", '"x" is neither a rank nor a range such as 8-15'),
        ("3-1", '"3-1" runs backwards; write 1-3'),
        ("2-9", '"2-9" is not within the ranks of the job, 0 to 3'),
    ],
)
def test_what_is_no_rank_of_the_job_is_refused(job: JobRecord, ranks: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        chosen_ranks(job, ranks, None)
    assert str(refused.value) == f"logs: --rank: {said}"


def test_what_is_no_regular_expression_is_refused_with_its_place() -> None:
    with pytest.raises(UsageError) as refused:
        chosen_pattern("loss(")
    assert str(refused.value) == (
        'logs: --grep: "loss(" is not a regular expression: missing ), unterminated subpattern, '
        "at character 5; put a backslash before a character that stands for itself"
    )


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30s", datetime(2026, 1, 31, 11, 59, 30, tzinfo=timezone.utc)),
        ("10m", datetime(2026, 1, 31, 11, 50, tzinfo=timezone.utc)),
        ("2h", datetime(2026, 1, 31, 10, 0, tzinfo=timezone.utc)),
        ("1d", datetime(2026, 1, 30, 12, 0, tzinfo=timezone.utc)),
        ("2026-01-31T08:00:00Z", datetime(2026, 1, 31, 8, 0, tzinfo=timezone.utc)),
        ("2026-01-31T08:00+02:00", datetime(2026, 1, 31, 6, 0, tzinfo=timezone.utc)),
        ("2026-01-31T08:00", datetime(2026, 1, 31, 8, 0).astimezone(timezone.utc)),
    ],
)
def test_a_span_or_a_time(text: str, moment: datetime) -> None:
    assert chosen_time(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "10", "10 minutes", "-5m", "yesterday", "999999999d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"logs: --since: .* is neither a time span"):
        chosen_time(text, NOW)


def test_lines_with_a_match_and_no_others() -> None:
    lines = MatchingLines(b"n:0 | ", re.compile("(?i)LOSS|^$"), coloured=False)
    shown = lines.feed(b"Loss 1\nhm\n\nlo") + lines.skip(9) + lines.feed(b"ss\n\xffloss")
    assert shown + lines.finish() == b"n:0 | Loss 1\nn:0 | \nn:0 | \xffloss\n"
    assert lines.feed(b"1%\r2% loss\n") == b"n:0 | 1%\rn:0 | 2% loss\n"


def test_what_was_found_is_red_where_there_are_colours() -> None:
    lines = MatchingLines(b"n:0 | ", re.compile("[0-9]*"), coloured=True)
    assert lines.feed(b"loss 12\n") == b"n:0 | loss \x1b[1;31m12\x1b[0m\n"
