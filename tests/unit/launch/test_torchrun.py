"""The commands, environment and files of torchrun on each node."""

from __future__ import annotations

from pathlib import PurePosixPath
from string import Template

import pytest

from ascendboot.launch.launchers.torchrun import literal
from ascendboot.launch.planner import plan
from ascendboot.value import replace
from tests.unit.launch.request import BASE, REQUEST, TORCHRUN

RANK_EXEC = (
    f"{BASE}/env/rank-exec",
    *("job-1", "ASCENDBOOT_RANK_VARIABLES=RANK,LOCAL_RANK,WORLD_SIZE"),
    "ASCENDBOOT_SPREADS_FAILURE=1",
    *("ASCENDBOOT_DEVICES=4,5,0,1", "ASCENDBOOT_WORKDIR=/workspace"),
    *("ASCENDBOOT_GRACE=2.5", "--"),
    *("python3", "/workspace/main.py", "--name", "a b", "%:"),
)


def test_one_command_for_each_node() -> None:
    made = plan(TORCHRUN)
    logs = [(start.node, start.log) for start in made.starts]
    assert logs == [("a-1", "launcher.log"), ("a-2", "agent.1.log")]
    for number, start in enumerate(made.starts):
        assert start.command == (
            *("python3", "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2"),
            *(f"--node_rank={number}", "--rdzv_backend=static", "--rdzv_id=job-1"),
            *("--master_addr=192.0.2.11", "--master_port=61000", "--max_restarts=0"),
            *("--monitor_interval=0.5", f"--log_dir={BASE}/jobs/job-1/torchelastic"),
            *("--no_python", *RANK_EXEC),
        )
        assert start.env == {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "USER": "root",
            "LOGNAME": "root",
            "LANG": "C.UTF-8",
            "ASCENDBOOT_JOB_ID": "job-1",
            "LD_LIBRARY_PATH": "/opt/lib",
            "OMP_NUM_THREADS": "1",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }


def test_torchrun_gets_the_library_path_of_its_node() -> None:
    env = {"LD_LIBRARY_PATH": "/mnt/lib", "OMPI_MCA_btl": "tcp", "OTHER": "x"}
    _, second = TORCHRUN.placement.nodes
    slots = [
        replace(slot, node=replace(second, env=env)) if slot.node == second else slot
        for slot in TORCHRUN.placement.slots
    ]
    made = plan(replace(TORCHRUN, placement=replace(TORCHRUN.placement, slots=tuple(slots))))
    assert [start.env["LD_LIBRARY_PATH"] for start in made.starts] == ["/opt/lib", "/mnt/lib"]
    assert made.starts[1].env.keys() == made.starts[0].env.keys()


def test_nodes_with_another_number_of_ranks() -> None:
    slots = TORCHRUN.placement.slots
    made = plan(replace(TORCHRUN, placement=replace(TORCHRUN.placement, slots=slots[:3])))
    for start, count in zip(made.starts, (2, 1), strict=True):
        assert f"--nproc_per_node={count}" in start.command


def test_the_files_and_logs() -> None:
    made = plan(TORCHRUN)
    assert [(node, file.path.name, file.mode) for node, file in made.files] == [
        ("a-1", "ranks", 0o644),
        ("a-2", "ranks", 0o644),
        ("a-1", "launch.sh", 0o700),
        ("a-2", "launch.sh", 0o700),
        ("a-2", "watch.sh", 0o700),
        ("a-2", "watched", 0o644),
    ]
    assert made.mpirun is None
    assert made.logs_on("a-2") == ("rank.2.log", "rank.3.log", "agent.1.log")


def test_ranks_get_a_rank_table_if_there_is_one() -> None:
    table = BASE / "resources/hccl_json_4p_2_host.json"
    made = plan(replace(TORCHRUN, rank_table=table))
    assert f"RANK_TABLE_FILE={table}" in made.starts[1].command


@pytest.mark.parametrize("rank_table", [None, REQUEST.rank_table])
def test_mpirun_gives_ranks_the_address_where_they_meet(rank_table: PurePosixPath | None) -> None:
    made = plan(replace(REQUEST, rank_table=rank_table, meeting=TORCHRUN.meeting))
    assert {"MASTER_ADDR=192.0.2.11", "MASTER_PORT=61000"} <= set(made.starts[0].command)


@pytest.mark.parametrize("word", ["$HOME", "$$", "${local_rank}", "a$", "$ {", "plain"])
def test_torchrun_passes_words_unchanged(word: str) -> None:
    assert Template(literal(word)).safe_substitute(local_rank="7") == word


def test_arguments_that_are_not_valid_text_are_passed_unchanged() -> None:
    made = plan(replace(TORCHRUN, script_args=("\udce4", "\u2713")))
    scripts = [file.content for _, file in made.files if file.path.name == "launch.sh"]
    assert len(scripts) == 2
    for script in scripts:
        assert b" '\xe4' '\xe2\x9c\x93'" in script
