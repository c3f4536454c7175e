"""Jobs and servers with faults, on the practice cluster; each test covers one fault."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, CUT, Operator, heal, set_up
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

MB = 1_000_000
WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(300)\n"
ENDS = f"""\
import os, pathlib, time
print("ready", flush=True)
while not pathlib.Path("{BASE}/go").exists(): time.sleep(0.05)
print("last words of", os.environ["RANK"])
"""


FLOODS = f"""\
import os, pathlib, time
print("ready", flush=True)
while pathlib.Path("{BASE}/hold").exists(): time.sleep(0.05)
os.write(1, b"z" * 1_000_000)
os.write(1, b"z" * 1_000_000)
"""


OUTGROWS = f"""\
import os, pathlib, time
text = b"".join(b"%07d %s\\n" % (i, b"x" * 91) for i in range(400_000))
done = 0
while done < len(text): done += os.write(1, text[done:])
while not pathlib.Path("{BASE}/go").exists(): time.sleep(0.05)
print("last words of", os.environ["RANK"])
"""


@pytest.fixture(scope="module")
def cluster(bring_up_once: Callable[..., Lab]) -> Operator:
    """Two nodes of two devices, set up."""
    lab = bring_up_once(nodes=2, devices=2)
    return set_up(lab, waits=WAITS, ends=ENDS, floods=FLOODS, outgrows=OUTGROWS)


@pytest.fixture
def operator(cluster: Operator) -> Iterator[Operator]:
    """The cluster, without faults and jobs before and after each test."""
    cluster.on_all(f"rm -f {BASE}/go")
    yield cluster
    heal(cluster.lab)
    assert cluster.job_processes() == {}


def mount(*words: str) -> None:
    subprocess.run(["/bin/mount", *words], check=True)


# ------------------------------------------------------------------------- the way to the primary


@pytest.mark.parametrize("verb", ["train", "logs"])
@pytest.mark.parametrize("node", ["lab-1", "lab-2"])
def test_item_11_a_job_that_goes_on_while_a_connection_is_lost_ends_with_its_own_code(
    operator: Operator, node: str, verb: str
) -> None:
    train = operator.start("train", "ends.py")
    job_id = train.job_id()
    ready = [train.out.readline() for _ in range(4)]
    if verb == "logs":
        train.die()
        train = operator.start("logs", "--follow")
        ready = [train.out.readline() for _ in range(4)]

    # No login while the ranks end: what they did meanwhile is read from the node.
    operator.sh(node, f"kill -STOP $(cat /run/sshd.pid); {CUT}")
    operator.on_all(f"touch {BASE}/go")
    over = f"grep -c '^rank . exit 0' {BASE}/jobs/{job_id}/events; :"
    wait_until(lambda: operator.sh(node, over).strip() == "2")
    operator.sh(node, "kill -CONT $(cat /run/sshd.pid)")
    ended = train.end(exits=0)

    assert f"{node}: its connection was lost, and was reopened after " in ended.err
    assert sorted([*ready, *ended.out.splitlines(keepends=True)]) == sorted(
        f"lab-{1 + rank // 2}:{rank} | {line}\n"
        for rank in range(4)
        for line in ("ready", f"last words of {rank}")
    )
    status = operator.call("status", "--json").json
    assert (status["state"], [rank["exit_code"] for rank in status["ranks"]]) == (
        "succeeded",
        [0, 0, 0, 0],
    )


# ------------------------------------------------------------------------------- a node's own disk


@pytest.mark.parametrize("node", ["lab-1", "lab-2"])
def test_a_disk_that_gets_full_under_a_job_ends_it_and_names_the_node(
    operator: Operator, node: str
) -> None:
    operator.on_all(f"touch {BASE}/hold")
    train = operator.start("train", "floods.py", "--json")
    job = f"{BASE}/jobs/{train.job_id()}"
    ready = f"cat {job}/rank.*.log; true"
    wait_until(lambda: operator.sh(node, ready) == "ready\nready\n")
    # The end of the job is recorded on this disk, too: room for it is reserved.
    assert operator.sh(node, f"stat -c %b {job}/events") == "1024\n"
    operator.lab.fault(node, "disk-full")
    operator.on_all(f"rm {BASE}/hold")
    ended = train.end(exits=1)
    report = ended.json
    assert (report["state"], report["exit_code"]) == ("failed", 1)
    failure = report["first_failure"]
    ranks = {"lab-1": {0, 1}, "lab-2": {2, 3}}[node]
    assert (failure["node"], failure["rank"] in ranks, failure["exit_code"]) == (node, True, 1)
    full = "is full: what its ranks wrote last may be missing; make room there"
    assert f"{node}: the disk of {job} {full}\n" in ended.err


def test_a_disk_of_the_operator_that_gets_full_ends_no_job_and_logs_goes_on(
    operator: Operator,
) -> None:
    runs = operator.lab.directory / ".ascendboot/runs"
    operator.on_all(f"touch {BASE}/hold")
    mount("-t", "tmpfs", "-o", "size=128m", "tmpfs", str(runs))
    try:
        train = operator.start("train", "floods.py", "--json")
        job_id = train.job_id()
        copies = [runs / job_id / f"rank.{rank}.log" for rank in range(4)]
        wait_until(lambda: [c.is_file() and c.read_bytes() for c in copies] == [b"ready\n"] * 4)
        mount("-o", "remount,size=2m", str(runs))
        operator.on_all(f"rm {BASE}/hold")
        ended = train.end(exits=0)
        assert ended.json["state"] == "succeeded"
        full = r"^rank\.[0-3]\.log: could not keep the whole output: .*No space left on device$"
        assert re.search(full, ended.err, re.MULTILINE), ended.err
        mount("-o", "remount,size=128m", str(runs))
        operator.call("logs", "--job", job_id, "--rank", "0", "--tail", "1", exits=0)
        assert [c.read_bytes() == b"ready\n" + b"z" * 2 * MB for c in copies] == [True] * 4
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(runs)], check=True)


def test_a_log_that_outgrows_its_limit_keeps_its_beginning_and_its_end(operator: Operator) -> None:
    with_it = ("--inventory", str(operator.inventory("limited.yaml", logs={"max_size": "16 MiB"})))
    job_id = operator.call("train", "outgrows.py", "--detach", *with_it).out.strip()
    launcher = f"{BASE}/jobs/{job_id}/launcher.log"
    operator.sh(
        "lab-1", f"yes WARNING: babble | head -c 39999990 >>{launcher}; echo end >>{launcher}"
    )
    blocks = f"stat -c '%s %b' {BASE}/jobs/{job_id}/*.log"

    def is_small(node: str) -> bool:
        lines = [line.split() for line in operator.sh(node, blocks).splitlines()]
        return all(int(s) > 39 * MB and int(b) * 512 < 17 << 20 for s, b in lines)

    wait_until(lambda: is_small("lab-1") and is_small("lab-2"))
    operator.on_all(f"touch {BASE}/go")
    last = operator.call("logs", "--follow", "--tail", "1", "--rank", "3", *with_it)
    assert last.out.splitlines()[-1:] == ["lab-2:3 | last words of 3"]
    shown = operator.call("logs", "--rank", "0", *with_it).out.splitlines()
    [gap] = [number for number, line in enumerate(shown) if "ascendboot: " in line]
    # Both edges of the hole lie within a line.
    head, end = shown[: gap - 1], shown[gap + 2 : -1]
    kept = [line.split()[2] for line in (*head, *end)]
    numbers = (*range(len(head)), *range(400_000 - len(end), 400_000))
    assert kept == [f"{number:07}" for number in numbers]
    assert len(kept) * 100 > (12 << 20) - 300
    assert shown[-1] == "lab-1:0 | last words of 0"
    copies = operator.lab.directory / ".ascendboot/runs" / job_id
    rank, launcher_log = copies / "rank.0.log", copies / "launcher.log"
    assert rank.stat().st_size == 40 * MB + len("last words of 0\n")
    assert launcher_log.stat().st_size == int(operator.sh("lab-1", f"stat -c %s {launcher}"))
    assert [f.stat().st_blocks * 512 < 17 << 20 for f in (rank, launcher_log)] == [True, True]
    with launcher_log.open("rb") as file:
        # Open MPI's own warnings may come first, and last.
        assert file.read(16) == operator.sh("lab-1", f"head -c 16 {launcher}").encode()
        file.seek(-4096, 2)
        assert b"end\n" in file.read()


def test_a_home_that_is_read_only_on_one_node_is_no_obstacle(operator: Operator) -> None:
    with operator.changed(
        "lab-2", "mount -o remount,bind,ro /root", "mount -o remount,bind,rw /root"
    ):
        assert operator.sh("lab-2", "touch /root/x 2>&1; true").endswith("Read-only file system\n")
        again = operator.setup()
        job = operator.call("train", "main.py", "--", "--steps", "10")
    assert (again.code, again.outcomes("changed")) == (0, [])
    assert "Demo done!" in job.out


def test_a_place_of_ours_that_is_read_only_on_one_node_is_named(operator: Operator) -> None:
    with operator.changed(
        "lab-2",
        f"mount --bind {BASE} {BASE} && mount -o remount,bind,ro {BASE}",
        f"umount -l {BASE}",
    ):
        refused = operator.call("train", "waits.py")
        setup = operator.setup()
    assert refused.code == 125
    assert re.search(r"^lab-2: .*Read-only file system$", refused.err, re.MULTILINE)
    assert (setup.code, setup.outcomes("changed")) == (1, [])
    [said] = setup.details("blocked")
    assert said == (
        f"lab-2: could not use the cluster's folder: root cannot write in {BASE}; is it mounted "
        "read-only?"
    )
    operator.setup(exits=0)


# ----------------------------------------------------------------------- servers that are not alike


def test_a_place_of_ours_where_nothing_may_be_run_is_named_before_a_job(operator: Operator) -> None:
    with operator.changed(
        "lab-2",
        f"mount --bind {BASE} {BASE} && mount -o remount,bind,noexec {BASE}",
        f"umount -l {BASE}",
    ):
        remedy = f"mount the file system of {BASE} without noexec"
        told = f"lab-2: {BASE}/env/rank-exec cannot be run; {remedy}"
        ended = operator.setup()
        assert (ended.code, ended.details("failed")) == (1, [told])
        looked = operator.call("check", "--json")
        assert (looked.code, looked.details("failed")) == (1, [told])
        refused = operator.call("train", "waits.py", exits=125)
        assert told.removeprefix("lab-2: ") in refused.err
    operator.setup(exits=0)


# ---------------------------------------------------------------------------- the devices' network


def test_a_job_wants_links_and_equal_tls_switches(operator: Operator) -> None:
    operator.lab.fault("lab-2", "link-down", device=1)
    operator.lab.fault("lab-1", "tls", device=0)
    operator.on_all(f"touch {BASE}/go")
    refused = operator.call("train", "ends.py", exits=125)
    assert "lab-2: the link of device 1 is down; look at cable and switch port; " in refused.err
    assert "lab-1: the TLS switch of lab-1 device 0 is on, that of the 3 other" in refused.err
    checked = operator.call("check", "--json")
    levels = {r["id"]: r["level"] for r in checked.json["results"] if r.get("id")}
    assert (levels["link-down"], levels["tls-differs"]) == ("error", "error")
    operator.call("train", "ends.py", "--skip-checks=links,tls", exits=0)
    heal(operator.lab)
    well = operator.call("train", "ends.py")
    assert (well.code, "link" in well.err) == (0, False)
