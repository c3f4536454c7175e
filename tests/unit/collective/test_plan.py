"""From the request of a job to the plan of its preflight."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ascendboot.checks.collective.run import preflight_plan
from tests.unit.launch.request import BASE, REQUEST, TORCHRUN

if TYPE_CHECKING:
    from ascendboot.launch.request import LaunchRequest

TABLE = BASE / "resources/hccl_json_4p_2_host.json"
CHIEF = {"CM_CHIEF_IP": "192.0.2.11", "CM_CHIEF_PORT": "60001"}


@pytest.mark.parametrize(
    ("request_", "by", "meeting_point"),
    [
        (REQUEST, "mpi", ""),
        (replace(REQUEST, meeting=TORCHRUN.meeting), "gloo", ""),
        (replace(REQUEST, rank_table=None, meeting=TORCHRUN.meeting), "mpi", "192.0.2.11/61000"),
        (replace(REQUEST, rank_table=None, chief=CHIEF), "mpi", "192.0.2.11/60001"),
        (TORCHRUN, "gloo", "192.0.2.11/61000"),
        (replace(TORCHRUN, rank_table=TABLE), "gloo", "192.0.2.11/61000"),
    ],
)
def test_what_must_be_there_and_what_must_be_free(
    request_: LaunchRequest, by: str, meeting_point: str
) -> None:
    made = preflight_plan(replace(request_, notes=("checks not made: disk",)), by)
    assert (made.request.meeting_point, made.notes) == (meeting_point, ())
