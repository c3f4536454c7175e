"""The causes of recorded failures: in the report of a job, and in its logs alone."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from ascendboot.doctor.verdict import Layout, Verdict, examine
from ascendboot.jobs.progress import Arrivals, Progress
from ascendboot.launch.events import RankEnded
from ascendboot.launch.plan import PlannedRank, rank_log
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import Placement, Slot
from ascendboot.value import replace
from tests.scenarios import Part, Place, Scenario, scenarios, wrong_parts
from tests.unit.jobs.test_job_report import report
from tests.unit.launch.request import REQUEST, node

BEGAN = 1_767_323_040.0
HOSTS = ("192.0.2.11", "192.0.2.12")
PLACES = [
    Place(rank, f"lab-{1 + rank // 2}", HOSTS[rank // 2], rank % 2, f"198.51.100.{10 + rank}")
    for rank in range(4)
]
NODES = {place.node: node(place.node, place.host) for place in PLACES}
SLOTS = [Slot(NODES[p.node], p.device, p.ip, p.device) for p in PLACES]
PLAN = plan(replace(REQUEST, placement=Placement(tuple(SLOTS))))
MPIRUN = """\
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[50130,1],{}]
  Exit code:    {}
--------------------------------------------------------------------------
"""
LOST = "ORTE has lost communication with a remote daemon.\n"
ROWS = [pytest.param(one, id=one.name) for one in scenarios()]
RANKS = tuple(PlannedRank(p.rank, p.host, p.device, p.device, p.ip) for p in PLACES)
LAYOUT = Layout(RANKS, {host: (host,) for host in HOSTS}, "hccl.json")
"""As a rank table states it."""


def ends(parts: list[Part]) -> dict[int, tuple[int, float]]:
    """How and when each rank ends: with the first that fails, mpirun ends the others."""
    own = {n: (p.exit_code, p.ends_at) for n, p in enumerate(parts) if p.exit_code is not None}
    fatal = min((at for code, at in own.values() if code), default=0.0)
    own = {rank: end for rank, end in own.items() if end[1] <= fatal + 0.05}
    return {rank: own.get(rank, (143, fatal + 0.1)) for rank in range(len(parts))}


def written(row: Scenario, folder: Path) -> tuple[Progress, list[Part]]:
    """Write the logs of a job that failed in this way; its progress."""
    parts = row.parts(PLACES)
    ended = {} if row.row.get("power") else ends(parts)
    fatal = min((at for code, at in ended.values() if code), default=0.0)
    arrivals = {}
    for rank, part in enumerate(parts):
        stamp = datetime.fromtimestamp(BEGAN + part.at, timezone.utc)
        at = f"{stamp:%Y-%m-%d-%H:%M:%S}.{stamp.microsecond // 1000:03}.{rank:03}"
        text = part.text.replace("<t>", at).encode() if ended or part.at == 0 else b""
        (folder / rank_log(rank)).write_bytes(text)
        arrivals[rank_log(rank)] = Arrivals()
        arrivals[rank_log(rank)].note(len(text), BEGAN + part.at + 0.1)
    first = min((at, n, code) for n, (code, at) in ended.items() if code) if ended else None
    words = MPIRUN.format(*first[1:]) if first else LOST
    if row.row.get("power"):
        ended = dict.fromkeys((0, 1), (143, 1.0))
    (folder / "launcher.log").write_text(words)
    oom = row.row.get("kernel")
    progress = Progress(
        ended={
            rank: RankEnded(rank, code, BEGAN + at, 0, out_of_memory=rank == oom)
            for rank, (code, at) in ended.items()
        },
        rank_endings={
            rank: BEGAN + fatal + 0.06 for rank, (_, at) in ended.items() if at > fatal + 0.05
        },
        arrivals=arrivals,
        launcher_over=True,
        launcher_code=1,
    )
    return progress, parts


@pytest.mark.parametrize("row", ROWS)
def test_the_report_names_the_cause(row: Scenario, tmp_path: Path) -> None:
    progress, _ = written(row, tmp_path)
    cause = report(progress, tmp_path, PLAN, uncertainty_s=0.01).cause
    found: Any = None if cause is None else Verdict.of_report(cause, tmp_path).to_json()
    assert wrong_parts(found, row.cause()) == {}, found
    assert found
    places = [PLACES[rank] for rank in found["ranks"]]
    assert found["nodes"] == list(dict.fromkeys(place.node for place in places))
    assert found["device"] == (places[0].device if len(places) == 1 else None)


@pytest.mark.parametrize("row", ROWS)
def test_the_logs_alone_name_no_other_cause(row: Scenario, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    written(row, tmp_path / "logs")
    found = [one.to_json() for one in examine([tmp_path / "logs"], LAYOUT).verdicts]
    expected = row.cause(of_logs=True)
    if expected is not None:
        expected["kind"] = expected["kind"] if found else ""
    assert wrong_parts(found[0] if found else None, expected) == {}, found
    # Without the table fewer names are known, and none is a wrong one.
    for one in examine([tmp_path / "logs"], Layout()).verdicts:
        assert expected
        names, right = set(one.cause.ranks), set(expected["ranks"])
        assert names <= right or (one.certainty == "undecided" and right <= names), one


@pytest.mark.parametrize("missing", range(4))
@pytest.mark.parametrize("row", ROWS)
def test_without_a_log_nothing_wrong_is_certain(
    row: Scenario, missing: int, tmp_path: Path
) -> None:
    expected = row.cause(of_logs=True)
    assert expected
    (tmp_path / "logs").mkdir()
    written(row, tmp_path / "logs")
    (tmp_path / "logs" / rank_log(missing)).unlink()
    for layout in (Layout(), LAYOUT):
        for one in examine([tmp_path / "logs"], layout).verdicts:
            is_right = set(one.cause.ranks) <= set(expected["ranks"])
            assert is_right or one.certainty != "certain", one
