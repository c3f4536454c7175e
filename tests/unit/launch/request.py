"""A job on two nodes, as a request."""

from __future__ import annotations

from pathlib import PurePosixPath

from ascendboot.launch.plan import LaunchRequest, Login
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import LauncherChoice, Placement, Slot
from ascendboot.value import replace
from tests.unit.transport import builders

BASE = PurePosixPath("/var/lib/ascendboot/two")


node = builders.node
A, B = node("a-1", "192.0.2.11"), node("a-2", "192.0.2.12")
SLOTS = (Slot(A, 4, None, 0), Slot(A, 5, None, 1), Slot(B, 0, None, 0), Slot(B, 1, None, 1))
REQUEST = LaunchRequest(
    job_id="job-1",
    cluster="two",
    placement=Placement(SLOTS),
    base=BASE,
    login=Login(user="root", uid=0, home=PurePosixPath("/root")),
    mpirun=PurePosixPath("/usr/local/openmpi/bin/mpirun"),
    networks=("192.0.2.0/24", "198.51.100.0/24"),
    rank_table=BASE / "resources/hccl_json_4p_2_host.json",
    rank_table_sha256="00",
    python="python3",
    script=PurePosixPath("/workspace/main.py"),
    script_args=("--name", "a b", ":"),
    launcher_env={"OMPI_MCA_mpi_yield_when_idle": "1"},
    grace_s=2.5,
)
TORCHRUN = replace(
    REQUEST,
    launcher=LauncherChoice("torchrun", "it was asked for"),
    rank_table=None,
    meeting={"MASTER_ADDR": "192.0.2.11", "MASTER_PORT": "61000"},
    launcher_env={"LD_LIBRARY_PATH": "/opt/lib"},
)


def command_of(request: LaunchRequest) -> tuple[str, ...]:
    """What is run on the primary."""
    return plan(request).starts[0].command
