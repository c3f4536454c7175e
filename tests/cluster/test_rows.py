"""The features of launchers, by the rows of docs/reference/launcher-rows.md.

One cluster runs three jobs, and one job on nodes with many faults. Each test carries the number of
its row.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Ended, Operator

pytestmark = pytest.mark.cluster
PORT = 7722
GOOD = """\
import os, sys
for number in range(200):
    for part in (f"line {number} ", "of rank ", os.environ["RANK"], "\\n"):
        sys.stdout.write(part); sys.stdout.flush()
print("own address", os.environ["ASCENDBOOT_NODE_ADDRESS"])
print("secret", os.environ.get("OF_THE_OPERATOR"), "stated", os.environ["STATED"])
"""
# What rank 3 starts is in no group that mpirun knows.
FAILS = """\
import os, pathlib, subprocess, sys, time
if os.environ["RANK"] == "3":
    subprocess.Popen(["sleep", "599"], start_new_session=True)
    pathlib.Path("/run/has-begun").touch()
if os.environ["RANK"] == "2":
    while not pathlib.Path("/run/has-begun").exists(): time.sleep(0.05)
    sys.exit(print("no more memory") or 3)
time.sleep(600)
"""
SAVES = f"""\
import os, signal, sys, time
def save(*_):
    time.sleep(5)  # longer than they get without a word
    open("{BASE}/saved." + os.environ["RANK"], "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(600)
"""
TORCH = """\
import os
try:
    import torch
except ImportError:
    print("no torch but in name,", os.environ["RANK"])
"""
BYSTANDER = """\
setsid python3 -c 'import time; time.sleep(600)' saves.py </dev/null >/dev/null 2>&1 & echo $!
"""
PYTHON = "/opt/py/bin/python3"
OLDER = "s/^python .*/python 3.9.1/"
"""Changes the version of Python that the check before a job sees."""
OTHERS = "/opt/others"
"""A folder on PYTHONPATH with the metadata of packages that are not installed."""
HELD = """\
sleep 600 </dev/null >/dev/null 2>&1 & echo $!
echo 1 $! >/usr/local/Ascend/lab/holders
python3 -c 'import socket, time; s = socket.create_server(("", 60000)); time.sleep(600)' \\
  </dev/null >/dev/null 2>&1 & echo $!
until grep -q ":EA60 " /proc/net/tcp; do sleep 0.05; done
"""
MOVED = r"""
sed -i 's/^device 0 address=[0-9.]*/device 0 address=198.19.255.9/' /usr/local/Ascend/lab/world
sed -i 's/^address_0=.*/address_0=198.19.255.9/' /etc/hccn.conf
"""


class Story:
    """What happened in the three jobs."""

    setup: Ended
    plan: Any
    after_plan: str
    good: Ended
    failed: Ended
    left_by_failed: dict[str, str]
    stopped: int
    left_by_stopped: dict[str, str]
    bystanders: list[str]
    """The command lines of unrelated processes on each node after the Ctrl-C."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def run_of(self, ended: Ended) -> Path:
        """The folder of the job of a `train`."""
        match = re.search(r"^job (\S+): starting", ended.err, re.MULTILINE)
        assert match
        return self.operator.lab.directory / ".ascendboot/runs" / match[1]

    @property
    def report(self) -> Any:
        """The report of the job that failed."""
        return json.loads((self.run_of(self.failed) / "job.json").read_text())


@pytest.fixture(scope="module")
def story(bring_up_once: Callable[..., Lab]) -> Story:
    operator = Operator(bring_up_once(nodes=2, devices=2))
    operator.sh("lab-1", "ip link set dev eth0 name roce7")
    for node in ("lab-1", "lab-2"):
        operator.put(node, PYTHON, '#!/bin/sh\nexec python3 "$@"\n')
    document = operator.document()
    document["code"]["python"] = PYTHON
    stated = {"STATED": "a b", "PYTHONPATH": OTHERS}
    document["env"] = {**document.get("env", {}), **stated}
    keys = {"ssh": {"port": PORT}, "launcher": {"kind": "mpirun"}}
    path = operator.inventory("rows.yaml", document, **keys)
    scripts = {"good.py": GOOD, "fails.py": FAILS, "saves.py": SAVES, "torches.py": TORCH}
    for name, text in scripts.items():
        (operator.lab.directory / name).write_text(text)
    story = Story(operator)
    story.setup = operator.setup(inventory=path)
    story.plan = operator.call("train", "good.py", "--plan", "--json").json
    story.after_plan = operator.sh("lab-1", f"ls {BASE}/jobs 2>/dev/null; true")
    story.good = operator.start("train", "good.py", env={"OF_THE_OPERATOR": "x"}).end()
    story.failed = operator.call("train", "fails.py")
    story.left_by_failed = operator.job_processes()
    others = {node: operator.sh(node, BYSTANDER).strip() for node in ("lab-1", "lab-2")}
    process = operator.start("train", "saves.py", "--grace", "10")
    for _ in range(4):
        assert "up" in process.out.readline()
    process.send_signal(signal.SIGINT)
    story.stopped = process.end().code
    story.left_by_stopped = operator.job_processes()
    alive = "tr '\\0' ' ' </proc/{0}/cmdline; kill {0}"
    story.bystanders = [operator.sh(node, alive.format(pid)) for node, pid in others.items()]
    return story


class Spoiled:
    """The faults on both nodes, and the output of `train`."""

    refused: Ended
    went: Ended
    python: str
    """The version on the first node."""
    left: str
    """Pid of what an earlier job left on the second node."""
    user: str
    """Pid of what uses device 1 of the first node."""
    listener: str
    """Pid of what has a port of HCCL there."""
    holder: str
    """The listener's name: Python has several."""
    is_over: bool
    """What was left is gone."""
    address: str
    """Of device 0 of the second node, by the rank table."""


@pytest.fixture(scope="module")
def spoiled(story: Story) -> Iterator[Spoiled]:
    operator, seen = story.operator, Spoiled()
    for node, version in (("lab-1", "2.3.1"), ("lab-2", "2.1.0")):
        operator.sh(node, f"mkdir -p {OTHERS}/torch-{version}.dist-info")
    kept = "cp /usr/local/Ascend/lab/world /etc/hccn.conf /run"
    seen.user, seen.listener = operator.sh("lab-1", f"{kept}; {HELD}").split()
    seen.holder = operator.sh("lab-1", f"cat /proc/{seen.listener}/comm").strip()
    gone = "echo 'launcher - pid 1 start 1' >events; : >open"
    operator.sh("lab-1", f"mkdir -p {BASE}/jobs/old; cd {BASE}/jobs/old; {gone}")
    operator.sh("lab-2", f"{kept}; {MOVED}")
    runs = 'case $1 in *.py) exec python3 "$@" ;; esac'
    operator.put("lab-2", PYTHON, f"#!/bin/sh\n{runs}\npython3 \"$@\" | sed '{OLDER}'\n")
    sleeps = "ASCENDBOOT_JOB_ID=old sleep 600 </dev/null >/dev/null 2>&1 & echo $!"
    seen.left = operator.sh("lab-2", sleeps).strip()
    operator.lab.fault("lab-2", "npu-alarm", device=1)
    seen.refused = operator.call("train", "torches.py")
    skips = "--skip-checks=packages,devices,device-ips"
    seen.went = operator.call("train", "torches.py", skips, "--stop-leftovers", "--json")
    seen.python = operator.sh("lab-1", f"{PYTHON} --version").split()[1]
    seen.address = str(operator.lab.nodes[1].devices[0].device_ip)
    seen.is_over = operator.sh("lab-2", f"[ -e /proc/{seen.left} ] || echo over") == "over\n"
    yield seen
    back = "cp /run/world /usr/local/Ascend/lab/; cp /run/hccn.conf /etc/; rm -rf " + OTHERS
    made = f"/usr/local/Ascend/lab/holders {BASE}/jobs/old"
    operator.sh("lab-1", f"kill {seen.user} {seen.listener}; rm -r {made}; {back}")
    operator.sh("lab-2", back)
    operator.lab.undo("lab-2", "npu-alarm")


def test_row_01_all_hosts_are_started_with_one_command(story: Story) -> None:
    assert {line.split(" ")[0] for line in story.good.out.splitlines()} == {
        *("lab-1:0", "lab-1:1", "lab-2:2", "lab-2:3")
    }


def test_row_02_and_04_an_sshd_of_its_own_listens_on_the_chosen_port_everywhere(
    story: Story,
) -> None:
    assert story.setup.code == 0, story.setup.err
    heard = story.operator.on_all(f"ss -Hltn sport = :{PORT}")
    assert [f":{PORT} " in line for line in heard] == [True, True]


def test_row_03_keys_and_known_hosts_are_done_for_the_user(story: Story) -> None:
    other = story.operator.lab.nodes[1].address
    words = f"ssh -F {BASE}/trust/ssh_config {other} hostname; ls /root/.ssh/known_hosts; true"
    assert story.operator.sh("lab-1", words) == "lab-2\n"


def test_row_07_a_login_to_every_host_is_tried_before(story: Story) -> None:
    proven = {
        (r["node"], r["outcome"]) for r in story.setup.json["results"] if r["step"] == "login"
    }
    assert {("lab-1", "ok"), ("lab-2", "ok")} <= proven


def test_row_09_data_that_a_host_has_not_starts_nothing(story: Story) -> None:
    operator = story.operator
    document = yaml.safe_load((operator.lab.directory / "rows.yaml").read_text())
    places = ["/opt/data", "/etc/passwd", "/no/where"]
    path = operator.inventory("data.yaml", document, data=places)
    operator.sh("lab-1", "mkdir -p /opt/data")
    words = ("train", "good.py", "--inventory", str(path))
    refused = operator.call(*words)
    remedy = "bring it there, or correct `data` in the inventory"
    assert (refused.code, refused.err.splitlines()) == (
        125,
        [
            f"lab-2: there is no /opt/data; {remedy}",
            f"lab-[1-2]: there is no /no/where; {remedy}",
            "Stopped: the job was not started; nothing was written.",
        ],
    )
    operator.call(*words, "--skip-checks=data", exits=0)


def test_row_08_10_and_11_all_faults_of_both_nodes_are_named_at_once(spoiled: Spoiled) -> None:
    assert spoiled.refused.err.splitlines() == [
        (
            f"warning: lab-1: port 60000 of HCCL's 60000-60031 is taken by {spoiled.holder} (pid "
            f"{spoiled.listener}); end it, or move HCCL: HCCL_IF_BASE_PORT"
        ),
        (
            f"lab-[1-2]: lab-1 has Python {spoiled.python}, lab-2 has 3.9.1; install the same "
            "version on all nodes"
        ),
        "lab-[1-2]: lab-1 has torch 2.3.1, lab-2 has 2.1.0; install the same version on all nodes",
        (
            f"lab-1: device 1 is used by pid {spoiled.user} (sleep 600); end it, or state the "
            "other devices under `devices`"
        ),
        (
            "lab-2: npu-smi info reports device 1 as Alarm, not OK; look at the error codes of "
            "npu-smi info -t health; reset or replace the NPU, or state the other devices under "
            "`devices`"
        ),
        (
            f"lab-2: the rank table has {spoiled.address} for device 0, and the device has "
            "198.19.255.9; run setup"
        ),
        (
            f"lab-2: 1 process is left of job old, whose launcher is gone: pid {spoiled.left} "
            "(sleep 600); end them: stop --job old, or train with --stop-leftovers"
        ),
        "Stopped: the job was not started; nothing was written.",
    ]
    assert spoiled.refused.code == 125


def test_row_08_to_11_what_the_operator_knows_better_is_skipped_and_noted(spoiled: Spoiled) -> None:
    note = "not checked before the start: packages, devices, device-ips"
    assert (spoiled.went.code, spoiled.went.json["notes"]) == (0, [note])
    assert "lab-2: 1 process of job old ended\n" in spoiled.went.err
    assert spoiled.went.err.startswith(f"{note}\n")
    assert spoiled.is_over
    assert spoiled.went.err.count("| no torch but in name, ") == 4


def test_row_09_a_script_that_is_nowhere_starts_nothing(story: Story) -> None:
    ended = story.operator.call("train", "nowhere.py")
    assert ended.code == 125
    assert "nowhere.py: is neither" in ended.err


def test_row_12_and_13_the_network_is_found_and_given_as_a_cidr(story: Story) -> None:
    """The interface names of the nodes differ."""
    names = [story.operator.sh(n, "ls /sys/class/net").split() for n in ("lab-1", "lab-2")]
    assert [set(n) & {"eth0", "roce7"} for n in names] == [{"roce7"}, {"eth0"}]
    assert story.good.code == 0
    command = story.plan["command"]
    assert re.fullmatch(r"198\.18\.\d+\.0/\d+", command[command.index("btl_tcp_if_include") + 1])


def test_row_14_only_what_is_stated_reaches_the_ranks(story: Story) -> None:
    assert story.good.out.count("| secret None stated a b\n") == 4


def test_row_15_a_value_of_its_own_for_each_host(story: Story) -> None:
    found = re.findall(r"^(lab-\d):\d \| own address (\S+)$", story.good.out, re.MULTILINE)
    assert sorted(found) == sorted(
        (node.name, str(node.address)) for node in story.operator.lab.nodes for _ in range(2)
    )


def test_row_16_the_rank_table_is_made_and_equal_everywhere(story: Story) -> None:
    [table] = set(story.operator.on_all(f"cat {BASE}/resources/hccl_json_4p_2_host.json"))
    assert json.loads(table)["server_count"] == "2"


def test_row_17_whole_lines_behind_host_and_rank(story: Story) -> None:
    for rank in range(4):
        prefix = f"lab-{1 + rank // 2}:{rank} | line "
        lines = [line for line in story.good.out.splitlines() if line.startswith(prefix)]
        assert lines == [f"{prefix}{number} of rank {rank}" for number in range(200)]


def test_row_18_and_19_logs_of_all_hosts_in_one_folder_shown_by_rank_or_node(story: Story) -> None:
    folder = story.run_of(story.good)
    assert sorted(path.name for path in folder.glob("rank.*.log")) == [
        f"rank.{rank}.log" for rank in range(4)
    ]
    shown = story.operator.call("logs", "--job", folder.name, "--rank", "3")
    assert {line.split(" ")[0] for line in shown.out.splitlines()} == {"lab-2:3"}
    shown = story.operator.call("logs", "--job", folder.name, "--node", "lab-2")
    assert {line.split(" ")[0] for line in shown.out.splitlines()} == {"lab-2:2", "lab-2:3"}


def test_row_20_the_true_exit_code(story: Story) -> None:
    assert (story.failed.code, story.stopped) == (3, 130)


def test_row_21_the_first_failing_rank_with_host_and_last_words(story: Story) -> None:
    first = story.report["first_failure"]
    assert (first["rank"], first["node"], first["message"]) == (2, "lab-2", "no more memory")
    assert "lab-2: rank 2 on device 0 failed first, with exit code 3" in story.failed.err


def test_row_22_and_24_a_failure_ends_all_hosts_and_leaves_nothing(story: Story) -> None:
    """Also processes that a rank has started."""
    assert any("lab-2" in note and "sleep 599" in note for note in story.report["notes"])
    assert story.left_by_failed == {}


def test_row_23_and_25_ctrl_c_ends_all_hosts_and_gives_time_to_save(story: Story) -> None:
    assert story.left_by_stopped == {}
    assert [words.split()[-1] for words in story.bystanders] == ["saves.py", "saves.py"]
    saved = [story.operator.sh(f"lab-{n}", f"ls {BASE} | grep saved") for n in (1, 2)]
    assert saved == ["saved.0\nsaved.1\n", "saved.2\nsaved.3\n"]


def test_row_28_a_plan_shows_everything_and_runs_nothing(story: Story) -> None:
    assert story.after_plan == ""
    assert {"command", "env", "files", "ranks", "starts"} <= set(story.plan)


def test_row_30_progress_while_starting(story: Story) -> None:
    assert "starting 4 ranks on 2 nodes" in story.good.err
    assert "Run the cluster's own sshd" in story.setup.err


def test_row_31_a_report_for_machines(story: Story) -> None:
    assert {"job_id", "state", "exit_code", "first_failure", "ranks", "duration_s"} <= set(
        story.report
    )
    assert [rank["node"] for rank in story.report["ranks"]] == ["lab-1", "lab-1", "lab-2", "lab-2"]


def test_row_32_no_disk_in_common(story: Story) -> None:
    story.operator.sh("lab-1", f"touch {BASE}/mine")
    assert story.operator.sh("lab-2", f"ls {BASE}/mine 2>/dev/null; true") == ""
