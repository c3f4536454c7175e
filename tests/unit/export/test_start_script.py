"""The start script of exported jobs, with stand-ins for the programs of a pod."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ascendboot.templates import installed_templates
from tests.here import Here

START = str(installed_templates() / "scripts/volcano-start.sh")
POD = {"VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j", "MA_NUM_HOSTS": "2"}
POD |= {"MA_NUM_GPUS": "8", "MASTER_PORT": "61000", "MA_VJ_NAME": "j", "MA_TASK_NAME": "worker"}
RANKS = "16|-H|j-worker-0.j:8,j-worker-1.j:8"
PROGRAMS = ("mpirun", "horovodrun", "ssh", "sshd", "ssh-keygen", "python", "wget", "mkdir")


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        Here(tmp_path / "bin").put(name, 'printf "%s|" "${0##*/}" "$@"; echo')
    return tmp_path


def started(pod: Path, *words: str, **env: str) -> tuple[int, list[str]]:
    whole = {**os.environ, **POD, "ROUTING_FOLDER": str(pod), **env}
    whole["PATH"] = f"{pod}/bin:{os.environ['PATH']}"
    argv = ["/bin/bash", START, *words]
    done = subprocess.run(argv, check=False, env=whole, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_torchrun_takes_its_place_from_the_routing(pod: Path) -> None:
    words = ("torchrun", "--", "python", "main.py", "a b", "$x")
    as_is = (
        "python|-m|torch.distributed.run|--nnodes=2|--node_rank={rank}|--nproc_per_node=8|"
        "--master_addr=j-worker-{first}.j|--master_port=61000|--no_python|python|main.py|a b|$$x|"
    )
    assert started(pod, *words, VC_TASK_INDEX="1") == (0, [as_is.format(rank=1, first=0)])
    _, lines = started(pod, *words, OPEN_SCRIPT_ADDRESS="https://a")
    assert lines[:2] == ["wget|-q|https://a/bootstrap.sh|", as_is.format(rank=0, first=0)]
    assert "bootstrap.sh failed; ranks keep the order of the pods" in lines[-1]
    (pod / "bootstrap.sh").write_text("echo 3 >RANK_AFTER_ACC; echo 2 >MASTER_INDEX\n")
    _, lines = started(pod, *words, OPEN_SCRIPT_ADDRESS="https://a")
    assert lines[1:] == [as_is.format(rank=3, first=2)]


def test_mpirun_starts_all_ranks_from_pod_0_and_ends_the_other_pods(pod: Path) -> None:
    code, lines = started(pod, "mpirun", "--mca", "a", "--", "python", "main.py", "x", X="1 2")
    fixed = f"--allow-run-as-root|-np|{RANKS}|--map-by|slot|--bind-to|none|-mca|plm_rsh_args"
    assert code == 0
    assert lines == [
        "ssh|-n|-p|7722|j-worker-1.j|true|",
        f"mpirun|{fixed}|-p 7722|--mca|a|bash|{START}|rank|python|main.py|x|",
        f"ssh|-n|-p|7722|j-worker-1.j|kill $(cat {pod}/ascendboot-sshd.pid)|",
    ]
    assert (pod / "ascendboot-environment").stat().st_mode & 0o777 == 0o600
    Here(pod / "bin").put("python", 'echo "$RANK_ID/$RANK_SIZE $DEVICE_ID $X $1"')
    place = {"OMPI_COMM_WORLD_RANK": "9", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    of_rank = started(pod, "rank", "python", "main.py", OMPI_COMM_WORLD_SIZE="16", **place)
    assert of_rank == (0, ["9/16 1 1 2 main.py"])
    _, lines = started(pod, "horovod", "--mca", "a", "--", "python", "main.py")
    assert lines[1].startswith(f"horovodrun|--mpi|-np|{RANKS}|-p|7722|--mpi-args='--mca' 'a'|bash|")


def test_the_other_pods_serve_ssh_and_the_exit_code_is_that_of_the_launcher(pod: Path) -> None:
    words = ("mpirun", "--", "python", "main.py")
    served = ["mkdir|-p|/run/sshd|", f"sshd|-D|-e|-p|7722|-o|PidFile={pod}/ascendboot-sshd.pid|"]
    assert started(pod, *words, VC_TASK_INDEX="1") == (0, served)
    Here(pod / "bin").put("mpirun", "exit 7")
    assert started(pod, *words)[0] == 7
    Here(pod / "bin").put("ssh", "exit 255")
    code, lines = started(pod, *words, SSH_TRIES="1")
    assert (code, "ssh does not answer on port 7722" in lines[0]) == (125, True)
