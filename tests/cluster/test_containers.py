"""Ranks in real containers: set up, train, restart, re-create, reset."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, PROGRAM, Operator
from tests.terminal import shown

pytestmark = pytest.mark.cluster

OWN = f"ls {BASE}"
START = "/usr/local/Ascend/lab/start-container"
SHOW = """\
import os
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
names = "OF_THE_IMAGE LD_LIBRARY_PATH container ASCENDBOOT_NODE_ADDRESS".split()
print(*(os.environ.get(name) for name in names), os.environ["PATH"].split(":")[0], os.uname()[1])
"""
# Its first process is one that reaps nothing, as most are that people start.
NEW = f"""\
podman rm -f -t 1 rec-sdk
set='-e OF_THE_IMAGE=seen -e LD_LIBRARY_PATH=/opt/image -e PATH=/opt/bin:$PATH'
sed -e "s#--shm-size 1g#$set#" -e "s#bash -c 'trap.*#sleep infinity#" {START} >/tmp/start-container
bash /tmp/start-container
"""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    operator = Operator(bring_up_once(nodes=2, devices=2, containers=True))
    operator.on_all(NEW)
    return operator


def inside(operator: Operator, node: str, script: str) -> str:
    """Run a script in a node's container; its output and errors."""
    argv = ["podman", "exec", "-i", "rec-sdk", "bash", "-s"]
    done = operator.lab.exec(node, argv, input=script.encode(), check=False)
    return done.stdout.decode() + done.stderr.decode()


def test_row_02_an_sshd_of_its_own_in_each_container_from_setup_to_reset(
    operator: Operator,
) -> None:
    """One test from setup to reset, because containers are slow."""
    operator.setup(exits=0)
    assert operator.sh("lab-1", OWN).split() == ["lock"]
    assert operator.sh("lab-2", f"{OWN} 2>&1; true").startswith("ls: cannot access")
    places = ["env", "made", "owner", "resources", "sshd", "trust"]
    assert inside(operator, "lab-2", OWN).split() == places
    port = inside(operator, "lab-1", f"sed -n 's/^Port //p' {BASE}/sshd/sshd_config").strip()
    for number, node in enumerate(("lab-1", "lab-2"), 1):
        # Another sshd than the server's: the container has processes of its own.
        assert (
            inside(operator, node, f"ps -eo args= | grep -c '{BASE}/sshd/sshd_confi[g]'") == "1\n"
        )
        login = f"ssh -F {BASE}/trust/ssh_config -p {port} {operator.lab.nodes[number - 1].address}"
        assert inside(operator, "lab-1", f"{login} uname -n") == f"lab-{number}-rec-sdk\n"
    assert operator.setup().outcomes("changed", "failed", "blocked") == []
    _shell(operator)
    _train(operator)
    _made_anew(operator)
    _reset(operator)


def test_via_the_engine_no_container_needs_an_sshd(operator: Operator) -> None:
    for node in ("lab-1", "lab-2"):
        inside(operator, node, "mv /usr/sbin/sshd /usr/sbin/sshd.away")
    changes = ("code:\n", "ssh: {via: engine}\ncode:\n")
    operator.setup(inventory=operator.inventory_with("via.yaml", changes), exits=0)
    assert " sshd" not in inside(operator, "lab-2", "ps -eo stat=,comm= | grep -v ^Z")
    again = operator.call("setup", "--json")
    assert again.outcomes("changed", "failed", "blocked") == []
    _only_the_container_is_open(operator)
    _train(operator)
    _hang(operator)
    _reset(operator)


def _only_the_container_is_open(operator: Operator) -> None:
    """The cluster's key can only run commands in the container, passed on word for word."""
    login = f"ssh -F {BASE}/trust/ssh_config"
    to = operator.lab.nodes[1].address
    odd = "uname -n; printf '<%s>' 'a  b' '$HOME' \"it's\" '*'"
    said = inside(operator, "lab-1", f"{login} {to} {shlex.quote(odd)}")
    assert said == "lab-2-rec-sdk\n<a  b><$HOME><it's><*>"
    assert "only commands are run here" in inside(operator, "lab-1", f"{login} {to}")
    assert "PTY allocation request failed" in inside(operator, "lab-1", f"{login} -tt {to} true")
    assert "stdio forwarding failed" in inside(operator, "lab-1", f"{login} -W {to}:22 {to}")
    assert inside(operator, "lab-1", f"{login} {to} 'ls /usr/local/Ascend' 2>&1").startswith("ls: ")


def _shell(operator: Operator) -> None:
    """A shell is in the container, with and without --container, and with --host beside it."""
    for flag, name in (
        ("", "lab-2-rec-sdk"),
        ("--container", "lab-2-rec-sdk"),
        ("--host", "lab-2"),
    ):
        line = f"{PROGRAM} shell lab-2 {flag}; echo ends $?"
        lines = shown(line, columns=80, cwd=operator.lab.directory, keys=b"uname -n; exit 3\n")
        assert lines.index(name) < lines.index("ends 3"), lines


def _train(operator: Operator) -> None:
    operator.script("show.py", SHOW)
    done = operator.call("train", "show.py", exits=0)
    for number in (1, 2):
        address = operator.lab.nodes[number - 1].address
        words = [line.split() for line in re.findall(rf"lab-{number}:\d \| (.*)", done.out)]
        assert [libraries.partition(":")[0] for _, libraries, *_ in words] == ["/opt/image"] * 2
        seen = ["seen", "None", f"{address}", "/opt/bin", f"lab-{number}-rec-sdk"]
        assert [[first, *rest] for first, _, *rest in words] == [seen] * 2
    status = operator.call("status", "--json").json
    assert (status["state"], status["exit_code"]) == ("succeeded", 0)
    assert operator.job_processes() == {}


def _hang(operator: Operator) -> None:
    operator.script("wait.py", "import time\ntime.sleep(600)\n")
    words = ("--hang-timeout", "2s", "--on-hang", "stop", "--grace", "0.5", "--json")
    ended = operator.call("train", "wait.py", *words)
    assert (ended.code, ended.json["state"]) == (124, "hung")
    assert ended.json["message"].splitlines()[1].startswith("  ranks 0-3 wait in ")
    assert operator.job_processes() == {}


def _made_anew(operator: Operator) -> None:
    operator.sh("lab-2", "podman rm -f -t 1 rec-sdk")
    refused = operator.call("train", "show.py", exits=125)
    assert "in the container rec-sdk: docker exec ended with exit 125: " in refused.err
    operator.sh("lab-2", "bash /tmp/start-container")
    refused = operator.call("train", "show.py")
    assert "lab-2: not ready: nothing that setup left is in the container" in refused.err
    repaired = operator.setup(exits=0)
    assert {node for node, _, _ in repaired.outcomes("changed")} == {"lab-2"}
    assert len(repaired.outcomes("changed")) == 11


def _reset(operator: Operator) -> None:
    operator.call("reset", "--yes", "--json", exits=0)
    look = "ls /var/lib/ascendboot /run/sshd 2>&1; ps -eo stat=,comm= | grep -v ^Z"
    for node in ("lab-1", "lab-2"):
        assert operator.sh(node, f"{look}; true").count("cannot access '/var/lib/asc") == 1
        said = inside(operator, node, look).splitlines()
        assert len([line for line in said if "cannot access" in line]) == 2
        assert [line for line in said if line.endswith(" sshd")] == []
