"""A launch as a value: what is run, written and shown."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import PurePosixPath
from typing import Any

import pytest

from ascendboot.errors import LaunchError
from ascendboot.launch.launchers.mpirun import protected
from ascendboot.launch.plan import Login
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import Cluster, Placement, Slot
from ascendboot.value import replace
from tests.unit.launch.request import BASE, REQUEST, SLOTS, A, B, command_of

PATH = "/usr/local/openmpi/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def test_the_command() -> None:
    assert command_of(REQUEST) == (
        "/usr/local/openmpi/bin/mpirun",
        "--allow-run-as-root",
        *("-np", "4", "-H", "192.0.2.11:2,192.0.2.12:2"),
        *("--bind-to", "none", "--map-by", "slot"),
        *("--mca", "plm_rsh_agent", "ssh"),
        *("--mca", "plm_rsh_args", "-F /var/lib/ascendboot/two/trust/ssh_config"),
        *("--mca", "orte_keep_fqdn_hostnames", "1"),
        *("--mca", "plm_rsh_no_tree_spawn", "1"),
        *("--mca", "pml", "ob1"),
        *("--mca", "btl", "^openib"),
        *("--mca", "btl_tcp_if_include", "192.0.2.0/24,198.51.100.0/24"),
        *("--mca", "oob_tcp_if_include", "192.0.2.0/24,198.51.100.0/24"),
        *("--mca", "odls_base_sigkill_timeout", "5"),
        *("-x", "ASCENDBOOT_JOB_ID"),
        "/var/lib/ascendboot/two/env/rank-exec",
        "job-1",
        "ASCENDBOOT_RANK_VARIABLES=OMPI_COMM_WORLD_RANK,OMPI_COMM_WORLD_LOCAL_RANK,OMPI_COMM_WORLD_SIZE",
        "RANK_TABLE_FILE=/var/lib/ascendboot/two/resources/hccl_json_4p_2_host.json",
        "ASCENDBOOT_DEVICES=4,5,0,1",
        "ASCENDBOOT_WORKDIR=/workspace",
        "ASCENDBOOT_GRACE=2.5",
        "--",
        *("python3", "/workspace/main.py", "--name", "a b", "%:"),
    )


def test_another_user_and_working_directory_and_no_networks() -> None:
    login = Login(user="train", uid=1000, home=PurePosixPath("/home/train"))
    made = plan(replace(REQUEST, login=login, networks=(), workdir=PurePosixPath("/data")))
    assert made.workdir == PurePosixPath("/data")
    assert "ASCENDBOOT_WORKDIR=/data" in made.starts[0].command
    assert "--allow-run-as-root" not in made.starts[0].command
    assert "btl_tcp_if_include" not in made.starts[0].command
    assert "oob_tcp_if_include" not in made.starts[0].command
    assert (made.starts[0].env["HOME"], made.starts[0].env["USER"]) == ("/home/train", "train")


def test_the_command_line_is_the_command_in_its_environment() -> None:
    made = plan(REQUEST)
    words = shlex.split(made.command_line)
    assert words[:5] == ["cd", "/var/lib/ascendboot/two", "&&", "env", "-i"]
    count = len(made.starts[0].env)
    assert words[5 : 5 + count] == [f"{name}={value}" for name, value in made.starts[0].env.items()]
    assert tuple(words[5 + count :]) == made.starts[0].command


def test_the_files_and_logs() -> None:
    made = plan(REQUEST)
    assert made.logs_on("a-1") == ("rank.0.log", "rank.1.log", "launcher.log")
    assert made.logs_on("a-2") == ("rank.2.log", "rank.3.log")
    ranks, launch = made.files_on("a-1")
    assert ranks.content == b"rank 0 device 4 local 0\nrank 1 device 5 local 1\n"
    run = made.command_line.replace(" && env", " && exec env", 1)
    assert f"run() {{ {run}; }}\n".encode() in launch.content


def test_each_node_gets_its_number_by_leaf_switches_and_that_of_the_primary() -> None:
    made = plan(replace(REQUEST, master_index=1))
    contents = {(node, file.path.name): file.content for node, file in made.files}
    for node, own in (("a-1", b"0\n"), ("a-2", b"1\n")):
        assert contents[node, "RANK_AFTER_ACC"] == own
        assert contents[node, "MASTER_INDEX"] == b"1\n"


def test_a_script_of_the_control_machine_is_copied_to_every_node() -> None:
    script = PurePosixPath("/home/me/demo/main.py")
    source = "/home/me/demo/main.py"
    made = plan(replace(REQUEST, script=script, script_content=b"print()", script_source=source))
    code = BASE / "jobs/job-1/code"
    copies = [(n, f) for n, f in made.files if f.path == code / "main.py"]
    assert [(n, f.content) for n, f in copies] == [("a-1", b"print()"), ("a-2", b"print()")]
    assert made.workdir == code
    words = f"script: main.py copied from {source} on the control machine"
    assert words in made.describe().splitlines()
    assert made.to_json()["script"] == {"path": f"{code}/main.py", "copied_from": source}


def test_the_plan_says_how_the_order_of_ranks_was_chosen() -> None:
    words = "rank order by leaf switches: skipped, it needs at least 3 nodes"
    made = plan(replace(REQUEST, order_words=words))
    assert words in made.describe().splitlines()
    assert (made.to_json()["rank_order"], plan(REQUEST).to_json()["rank_order"]) == (words, "")


def test_describe() -> None:
    made = plan(REQUEST)
    sizes = [len(file.content) for _, file in made.files]
    assert made.describe().split("\n") == [
        "job job-1: 4 ranks on 2 nodes",
        "  a-1: ranks 0-1 on devices 4,5",
        "  a-2: ranks 2-3 on devices 0,1",
        "script: main.py from code.path /workspace on the nodes",
        f"files in {BASE}/jobs/job-1:",
        f"  a-[1-2]: ranks ({sizes[0]} bytes, mode 0644)",
        f"  a-1: launch.sh ({sizes[2]} bytes, mode 0700)",
        "environment of the launcher:",
        f"  PATH={PATH}",
        "  HOME=/root",
        "  USER=root",
        "  LOGNAME=root",
        "  LANG=C.UTF-8",
        "  ASCENDBOOT_JOB_ID=job-1",
        "  SHLVL=1",
        "  OMPI_MCA_oob_tcp_keepalive_time=10",
        "  OMPI_MCA_oob_tcp_keepalive_intvl=5",
        "  OMPI_MCA_oob_tcp_keepalive_probes=3",
        "  OMPI_MCA_btl_ofi_provider_include=none",
        "  OMPI_MCA_mpi_yield_when_idle=1",
        "launcher: mpirun starts jobs: the default",
        "command, on a-1:",
        f"  {made.command_line}",
    ]


def test_to_json() -> None:
    made = plan(REQUEST)
    assert made.to_json() == {
        "job_id": "job-1",
        "cluster": "two",
        "primary": "a-1",
        "folder": f"{BASE}/jobs/job-1",
        "workdir": "/workspace",
        "script": {"path": "/workspace/main.py", "copied_from": None},
        "rank_order": "",
        "launcher": {"name": "mpirun", "why": "the default"},
        "min_nodes": None,
        "log_limit": 0,
        "loss_form": "",
        "addresses": {
            "a-1": ["a-1", "192.0.2.11", "192.0.2.11", "a-1"],
            "a-2": ["a-2", "192.0.2.12", "192.0.2.12", "a-2"],
        },
        "command": list(made.starts[0].command),
        "command_line": made.command_line,
        "env": dict(made.starts[0].env),
        "starts": [{"node": "a-1", "command": list(made.starts[0].command), "log": "launcher.log"}],
        "ranks": [
            {"rank": 0, "node": "a-1", "device": 4, "local_rank": 0, "device_ip": None},
            {"rank": 1, "node": "a-1", "device": 5, "local_rank": 1, "device_ip": None},
            {"rank": 2, "node": "a-2", "device": 0, "local_rank": 0, "device_ip": None},
            {"rank": 3, "node": "a-2", "device": 1, "local_rank": 1, "device_ip": None},
        ],
        "files": [
            {
                "node": name,
                "path": str(file.path),
                "mode": f"{file.mode:04o}",
                "bytes": len(file.content),
                "sha256": hashlib.sha256(file.content).hexdigest(),
            }
            for name, file in made.files
        ],
    }


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"base": PurePosixPath("/a b")}, 'the folder "/a b" has white space in its path, and '),
        (
            {"placement": Placement((SLOTS[0], SLOTS[2], SLOTS[1], SLOTS[3]))},
            "the ranks of a node are not consecutive, and launchers number all ranks of a ",
        ),
    ],
)
def test_a_request_that_cannot_be_planned(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(LaunchError) as refused:
        plan(replace(REQUEST, **changes))  # any of its fields
    assert str(refused.value).startswith(f"job job-1: could not be planned: {problem}")
    assert refused.value.exit_code == 125


@pytest.mark.parametrize(
    ("word", "sent"), [(":", "%:"), ("%:", "%%:"), ("a:", "a:"), ("%", "%"), ("", ""), ("::", "::")]
)
def test_only_a_lone_colon_is_protected(word: str, sent: str) -> None:
    assert protected(word) == sent


TWO = Cluster(name="two", nodes=(A, B), primary_name=A.name, source="two.yaml")
TURNS = ((A, 4, "x", 0), (A, 5, None, 1), (A, 4, "x", 2), (A, 5, None, 3))


@pytest.mark.parametrize(
    ("launcher", "slots", "devices"),
    [
        ({}, ((A, 4, "x", 0), (A, 5, None, 1), (B, 0, None, 0)), "4,5"),
        ({"ranks_per_node": 1}, ((A, 4, "x", 0, (5,)), (B, 0, None, 0)), "4,5"),
        ({"ranks_per_device": 2}, (*TURNS, (B, 0, None, 0), (B, 0, None, 1)), "4,5,4,5"),
    ],
)
def test_as_many_ranks_as_the_inventory_states(
    launcher: dict[str, Any], slots: tuple[Any, ...], devices: str
) -> None:
    listed = ((A.name, 4, "x"), (A.name, 5, None), (B.name, 0, None))
    placement = Placement.on(replace(TWO, **launcher), listed)
    assert placement == Placement(tuple(Slot(*slot) for slot in slots))
    words = command_of(replace(REQUEST, placement=placement))
    assert words[words.index("-np") + 1] == str(len(slots))
    described = plan(replace(REQUEST, placement=placement)).describe()
    assert re.search(rf"on devices? {devices}\n", described)
