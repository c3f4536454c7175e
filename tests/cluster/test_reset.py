"""`reset` on the practice cluster: it restores the nodes as they were before `setup`."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, PROGRAM, Operator
from tests.needs import LONG

pytestmark = pytest.mark.cluster

EXCLUDED = re.compile(
    r"(cow[^/]*/work"  # the overlay's own
    r"|cow/upper/var/log/(sshd\.log|lastlog|wtmp|btmp)"  # every login is noted there
    r"|cow/upper/run/utmp"
    r"|cow[^/]*/upper/(.*/)?__pycache__"  # python's, of whatever ran on the node
    r"|root|lab"  # where the node's root is mounted; what the lab notes of the node
    r"|containers/(?!run/overlay-containers/\w+/rootfs/upper/).*"  # the engine's own books
    r")(/|$)"
)
"""Paths on a node's disk that are not compared."""
FLEETING = "find /run /tmp /dev/shm -xdev ! -path '/run/utmp' -printf '%y %m %p\\n' | sort"
LISTENERS = "ss -Hltn | awk '{print $4}' | sort"
# Without kernel threads, the init's own sleep and this question.
PROCESSES = "ps -e -o comm= | grep -vxE 'ps|sort|grep|bash|sleep' | sort"


def difference(operator: Operator, before: set[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """What differs after processes that end with a connection (the lock's holder) have ended."""
    deadline = time.monotonic() + 10
    while (found := picture(operator) ^ before) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


@pytest.fixture
def operator(bring_up: Callable[..., Lab], request: pytest.FixtureRequest) -> Operator:
    """Separate servers; with the parameter, ranks run in containers."""
    operator = Operator(bring_up(nodes=2, devices=2, containers=getattr(request, "param", False)))
    operator.script("job.py", "print('done')\n")
    return operator


def files_of(disk: Path) -> dict[str, tuple[str, str]]:
    """Kind, mode and content of everything written to a node's disk."""
    found = {}
    for path in sorted(disk.rglob("*")):
        name = str(path.relative_to(disk))
        if EXCLUDED.match(name) or _is_copied_up(path, name):
            continue
        info = path.lstat()
        content = ""
        if stat.S_ISREG(info.st_mode):
            content = sha256(path.read_bytes()).hexdigest()
        found[name] = (stat.filemode(info.st_mode), content)
    return found


def _is_copied_up(path: Path, name: str) -> bool:
    """Whether it is a folder of the machine, which the overlay copies when a file in it changes."""
    place, _, below = name.partition("/upper/")
    return place != name and path.is_dir() and Path("/", below).is_dir()


def picture(operator: Operator) -> set[tuple[str, ...]]:
    """The state of the nodes, as a set whose difference shows what changed."""
    found: set[tuple[str, ...]] = set()
    for node in operator.lab.nodes:
        files = files_of(operator.lab._record.disk(node.name))
        found |= {(node.name, path, *what) for path, what in files.items()}
        for question in (FLEETING, LISTENERS, PROCESSES):
            lines = operator.sh(node.name, question).splitlines()
            found |= {(node.name, question, str(n), line) for n, line in enumerate(lines)}
    return found


@pytest.mark.parametrize(
    "operator", [False, True], ids=["on-servers", "in-containers"], indirect=True
)
def test_nodes_are_as_before_and_a_second_reset_changes_nothing(operator: Operator) -> None:
    inventory = str(operator.lab.inventory)
    assert operator.setup("--plan").code == 0  # the first login of all makes files, too
    before = picture(operator)
    kept = {p.name for p in (operator.lab.directory / ".ascendboot").iterdir()}
    operator.setup(exits=0)
    operator.call("train", "job.py", exits=0)

    planned = operator.call("reset", "--plan", "--json", exits=0)
    inside = operator.lab.shape.containers
    lock = [("lab-1", "files")] if inside else []  # it lies on the host side
    wanted = [("lab-1", "sshd"), ("lab-1", "files"), *lock, ("lab-2", "sshd"), ("lab-2", "files")]
    assert [o[:2] for o in planned.outcomes("would_change") if o[0] != "here"] == wanted

    unsaid = operator.call("reset", exits=2)
    assert "there is no terminal; see --plan, or use --yes" in unsaid.err
    unsaid = operator.call("reset", "--json")
    assert (unsaid.code, unsaid.json["exit_code"]) == (2, 2)
    assert unsaid.json["message"].endswith(": --json is set; see --plan, or use --yes")
    look = operator.inside if inside else operator.sh
    assert look("lab-1", f"ls {BASE}/sshd/started") == f"{BASE}/sshd/started\n"

    done = operator.call("reset", "--yes", "--json", exits=0)
    assert [o[:2] for o in done.outcomes("changed") if o[0] != "here"] == wanted
    assert difference(operator, before) == set()
    here = operator.lab.directory / ".ascendboot"
    assert {p.name for p in here.iterdir()} - kept <= {"clusters", "runs"}
    left = [p.name for p in (here / "clusters/lab").rglob("*") if p.is_file()]
    assert sorted(left) in (["known_hosts", "lock"], ["lock"])

    again = operator.call("reset", "--yes", "--json", "--inventory", inventory)
    assert (again.code, again.outcomes("changed", "failed")) == (0, [])
    assert difference(operator, before) == set()


def test_a_job_that_runs_stands_in_the_way_and_files_of_others_stay(operator: Operator) -> None:
    operator.setup(exits=0)
    job_id = operator.start_long_job()
    refused = operator.call("reset", "--yes", "--json", exits=1)
    assert refused.details("blocked") == [
        f"{node}: job {job_id} runs; end it first with: stop --job {job_id}"
        for node in ("lab-1", "lab-2")
    ]
    operator.call("stop", "--grace", "0.5", exits=0)
    checkpoint = f"{BASE}/jobs/{job_id}/code/model.pt"
    operator.put("lab-2", checkpoint, "precious", "644")

    for _ in range(2):
        done = operator.call("reset", "--yes", "--json", inventory=operator.lab.inventory, exits=0)
        assert [r["detail"] for r in done.json["results"] if r["step"] == "foreign"] == [
            f"left alone in {BASE}, not made by ascendboot: jobs/{job_id}/code/model.pt"
        ]
        assert operator.sh("lab-2", f"cat {checkpoint}") == "precious"
    assert operator.sh("lab-2", f"find {BASE} -type f").split() == [checkpoint]
    assert operator.sh("lab-1", "ls /var/lib | grep ascendboot; true") == ""


@pytest.mark.parametrize(
    "typed", [pytest.param(b"\x04", marks=LONG), b"y\n"], ids=["end of input", "yes"]
)
def test_a_job_that_is_started_while_reset_asks_is_left_alone(
    operator: Operator, typed: bytes
) -> None:
    operator.setup(exits=0)
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [PROGRAM, "reset"],
        cwd=operator.lab.directory,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as reset:
        assert reset.stdout is not None
        assert any(line.endswith("? [y/N]\n") for line in reset.stdout)
        job_id = operator.start_long_job()
        os.write(ours, typed)
        said = reset.stdout.read()
    os.close(ours)
    os.close(theirs)
    runs = f"job {job_id} runs; end it first with: stop --job {job_id}"
    assert (reset.returncode, runs in said) == (1, typed == b"y\n"), said
    assert operator.call("status", "--json").json["state"] == "running"
    assert operator.sh("lab-1", f"ls {BASE}/sshd/started") == f"{BASE}/sshd/started\n"
    operator.call("stop", "--grace", "0.5", exits=0)


def test_nothing_is_taken_back_before_all_nodes_are_reached(operator: Operator) -> None:
    operator.setup(exits=0)
    operator.lab.fault("lab-2", "no-sshd")
    ended = operator.call("reset", "--yes", "--json", exits=4)
    assert operator.sh("lab-1", f"ls {BASE}/sshd/started") == f"{BASE}/sshd/started\n"
    assert ended.outcomes("changed") == []


def test_what_a_setup_that_was_cut_off_left_is_taken_back(operator: Operator) -> None:
    operator.setup(exits=0)
    folder = f"{BASE}/jobs/20260101-000000-train-0000"
    operator.sh("lab-1", f"cp {BASE}/env/node.env {BASE}/env/node.env.Ab12Cd; mkdir -p {folder}")
    operator.sh(
        "lab-1", f"touch {folder}/making {folder}/ranks.Ab12Cd; mkdir {BASE}/sshd/.new.123456"
    )
    operator.call("reset", "--yes", exits=0)
    assert operator.sh("lab-1", "ls /var/lib | grep ascendboot; true") == ""
