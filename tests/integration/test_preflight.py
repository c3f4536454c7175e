"""A preflight by the real mpirun and mpi4py: two ranks on one node, and what may be wrong there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascendboot.checks.collective.findings import read_notes
from ascendboot.checks.collective.run import (
    Preflight,
    Runner,
    meet,
    preflight_plan,
    preflight_result,
    program_plan,
)
from ascendboot.jobs.follow import Interrupts
from ascendboot.launch.plan import LaunchPlan, LaunchRequest
from ascendboot.model.job import JobState
from ascendboot.templates import script
from ascendboot.value import replace
from tests.here import Here
from tests.integration.launch_cluster import MPIRUN, LocalCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(MPIRUN is None, reason="Open MPI is not installed"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    cluster = LocalCluster(tmp_path / "base", tmp_path / "run")
    node_env = cluster.base / "env" / "node.env"
    node_env.write_text("export OMPI_MCA_mpi_yield_when_idle='1' OMP_NUM_THREADS='1'\n")
    cluster.table.write_text(
        '{"server_list": [{"server_id": "lab-1", "device": ['
        '{"device_id": "4", "rank_id": "0"}, {"device_id": "5", "rank_id": "1"}]}]}'
    )
    return cluster


def request(cluster: LocalCluster, python: str = sys.executable) -> LaunchRequest:
    return cluster.request("", python=python)


def runner(cluster: LocalCluster) -> Runner:
    @contextmanager
    def known(plan: LaunchPlan) -> Iterator[None]:
        assert not (cluster.base / "jobs" / plan.job_id).exists()
        yield
        assert not (cluster.base / "jobs" / plan.job_id).exists()

    return Runner(
        transports=cluster.transports,
        folder=cluster.runs,
        interrupts=Interrupts(),
        known=known,
        connect=lambda _: cluster.transport,
        tell=print,
        forks=4,
    )


def preflight(cluster: LocalCluster, python: str = sys.executable) -> Preflight:
    return meet(request(cluster, python), runner(cluster))


def interpreter(folder: Path, before: str, options: str = "") -> str:
    """A Python that does something before."""
    return Here(folder).put("python", f'{before}\nexec "{sys.executable}" {options} "$@"')


def test_ranks_that_agree_meet_and_leave_nothing(cluster: LocalCluster) -> None:
    ended = preflight(cluster)
    assert (ended.findings, ended.passed) == ((), True)
    assert ended.words.startswith("2 ranks met by Open MPI v4.1")
    assert list((cluster.base / "jobs").iterdir()) == []


def test_devices_are_measured_and_nothing_stays(cluster: LocalCluster) -> None:
    asked = replace(request(cluster), rank_table=None, rank_table_sha256="")
    measure = script("measure.py").encode()
    ended = runner(cluster).run(program_plan(asked, measure, ("device",), grace_s=1.0))
    notes = read_notes(cluster.runs, range(2))
    assert ended.state is JobState.SUCCEEDED
    assert [(own.measured or {})["by"] for own in notes.values()] == ["processor"] * 2
    assert list((cluster.base / "jobs").iterdir()) == []


def test_a_rank_with_other_settings_is_named(cluster: LocalCluster, tmp_path: Path) -> None:
    odd = 'if [ "$RANK" = 1 ]; then export HCCL_BUFFSIZE=100 DEVICE_ID=7; ulimit -n 200; fi'
    ended = preflight(cluster, interpreter(tmp_path, odd))
    where = "lab-1: rank 1 on device 5"
    place, env, limits = ended.findings
    assert place.message.startswith(f'{where}: DEVICE_ID is "7" and should be 5. ')
    assert env.message.startswith(f"{where}: HCCL_BUFFSIZE is 100, not set on the other 1. ")
    assert limits.message.startswith(f"{where}: ulimit -n is 200, ")
    assert (place.level, env.level, limits.level) == ("error", "error", "warning")


def test_a_python_without_mpi4py_and_torch_gets_a_remedy(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    python = interpreter(tmp_path, "", "-S")
    [finding] = preflight(cluster, python).findings
    assert finding.id == "preflight-not-run"
    assert f"no module mpi4py for {python}" in finding.text
    assert "It needs mpi4py, built with the Open MPI of mpirun" in finding.message
    assert finding.nodes == ("lab-1",)
    assert not (cluster.base / "jobs").exists()


def test_a_missing_python_is_named(cluster: LocalCluster) -> None:
    [finding] = preflight(cluster, "no-such-python").findings
    assert "no program no-such-python; install it or state another" in finding.text


def altered(asked: LaunchRequest, cluster: LocalCluster, old: bytes, new: bytes) -> Preflight:
    """The preflight with a program in which something is another."""
    planned = preflight_plan(asked, "mpi")
    [program] = [file for _, file in planned.files if file.path.name == "preflight.py"]
    assert old in program.content
    other = replace(program, content=program.content.replace(old, new))
    files = tuple((node, other if file is program else file) for node, file in planned.files)
    report = cluster.run(replace(planned, files=files), folder=cluster.runs)
    return preflight_result(asked, report, cluster.runs, by="mpi")


def test_row_29_a_rank_that_never_comes_is_named_when_time_is_up(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    asleep = 'case "$RANK $1" in "1 "*/preflight.py) exec sleep 600 ;; esac'
    asked = request(cluster, interpreter(tmp_path, asleep))
    [finding] = altered(asked, cluster, b'"meet": 60.0', b'"meet": 3.0').findings
    assert finding.id == "preflight-failed"
    assert finding.text.startswith("rank 1 on device 5: did not start: no note in the log")


def test_a_wrong_sum_is_named(cluster: LocalCluster) -> None:
    part, other = b"vector(group.rank + 1)", b"vector(2 * group.rank + 1)"
    [finding] = altered(request(cluster), cluster, part, other).findings
    assert (finding.id, finding.text) == (
        "preflight-sum",
        "ranks 0-1: got a wrong sum: number 1 is 4 and should be 3",
    )
