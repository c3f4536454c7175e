"""`train` on the practice cluster: real mpirun over the cluster's sshd, and failures."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Ended, Operator, heal, measured
from tests.needs import missing
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

RANK_LINE = re.compile(r"lab-(\d):(\d+) \| ")


@pytest.fixture(scope="module")
def cluster(practice_cluster: Lab) -> Operator:
    """A cluster that is set up."""
    operator = Operator(practice_cluster)
    operator.wipe()
    operator.setup(exits=0)
    return operator


@pytest.fixture
def operator(cluster: Operator) -> Iterator[Operator]:
    """The cluster that is set up; no process of a job may remain after a test."""
    yield cluster
    assert cluster.job_processes() == {}


def train(operator: Operator, text: str, *args: str) -> Ended:
    operator.script("job.py", text)
    return operator.call("train", "job.py", "--json", *args)


# ----------------------------------------------------------------------------- the way it should go


def test_the_demo_trains_on_all_ranks_with_a_falling_loss(operator: Operator) -> None:
    ended = operator.call("train", "main.py", exits=0)
    losses = [float(x) for x in re.findall(r"lab-1:0 \| step .* held-out loss (\S+)", ended.out)]
    assert len(losses) > 3
    assert losses[-1] < 0.8 * losses[0]
    digests = re.findall(r"lab-(\d):(\d+) \| weights sha256 (\w+)", ended.out)
    assert sorted((int(n), int(r)) for n, r, _ in digests) == [(1 + r // 8, r) for r in range(16)]
    assert len({digest for *_, digest in digests}) == 1
    assert "Demo done!" in ended.out


def test_each_rank_has_its_own_numbers_and_the_launcher_agrees_with_the_rank_table(
    operator: Operator,
) -> None:
    ended = train(
        operator,
        "import json, os\n"
        "e = os.environ\n"
        "t = json.load(open(e['RANK_TABLE_FILE']))\n"
        "mine = [(s['server_id'], d['device_id']) for s in t['server_list'] for d in s['device']"
        " if d['rank_id'] == e['RANK_ID']]\n"
        "names = 'RANK OMPI_COMM_WORLD_RANK RANK_SIZE LOCAL_RANK DEVICE_ID'.split()\n"
        "print(*[e[n] for n in names], *mine, [k for k in e if k.startswith('CM_')],"
        " e['OMPI_MCA_mpi_yield_when_idle'])\n",
    )
    assert ended.code == 0
    lines = sorted(line for line in ended.err.splitlines() if RANK_LINE.match(line))
    addresses = [str(node.address) for node in operator.lab.nodes]
    assert lines == sorted(
        f"lab-{1 + r // 8}:{r} | {r} {r} 16 {r % 8} {r % 8} {(addresses[r // 8], str(r % 8))} [] 1"
        for r in range(16)
    )


def test_nodes_and_variables_are_chosen_for_one_job(operator: Operator) -> None:
    script = "import os, json\nranks = json.load(open(os.environ['RANK_TABLE_FILE']))"
    script += "['server_list']\nprint(os.environ['RANK_SIZE'], os.environ['LR'], len(ranks))"
    chosen = ("--nodes", "lab-1", "--env", "LR=a=b c", "--env", "X=1", "--preflight")
    ended = train(operator, script, *chosen)
    lines = sorted(line for line in ended.err.splitlines() if RANK_LINE.match(line))
    assert lines == sorted(f"lab-1:{rank} | 8 a=b c 1" for rank in range(8))
    for flag, value, words in [
        ("--nodes", "lab-2", "none of them can start a job; name one of lab-1, too"),
        ("--env", "RANK_ID=1", "RANK_ID: ascendboot sets this variable for every rank; "),
        ("--env", "LR", '"LR" is not NAME=VALUE'),
    ]:
        refused = operator.call("train", "main.py", flag, value, exits=2)
        assert refused.err.startswith(f"{flag}: {words}")


def test_the_printed_command_starts_the_same_job_by_hand(operator: Operator) -> None:
    plan = operator.call("train", "main.py", "--plan", "--json", "--", "--steps", "8").json
    by_hand = operator.sh("lab-1", plan["command_line"])
    assert "Demo done!" in by_hand


def test_a_path_means_this_file_though_the_nodes_have_one_of_its_name(operator: Operator) -> None:
    here = operator.script("main.py", "print('from here')\n")
    ended = operator.call("train", "./main.py", "--json", exits=0)
    planned = [operator.call("train", name, "--plan").out for name in ("./main.py", "main.py")]
    here.unlink()
    assert len(re.findall(r"lab-\d:\d+ \| from here\n", ended.err)) == 16
    copied = f"{BASE}/jobs/{ended.json['job_id']}/code/main.py"
    assert ended.json["script"] == {"path": copied, "copied_from": str(here)}
    assert f"\nscript: main.py copied from {here} on the control machine\n" in ended.err
    assert f"copied from {here} on the control machine\n" in planned[0]
    assert "\nscript: main.py from code.path /workspace/little_demo on the nodes\n" in planned[1]


def test_fold_shows_equal_lines_of_all_ranks_once(operator: Operator) -> None:
    text = "import os\nprint('step 1', flush=True)\nprint(os.environ['RANK'])"
    operator.script("alike.py", text)
    ended = operator.call("train", "alike.py", "--fold", exits=0)
    assert "lab-[1-2]:[0-15] | step 1" in ended.out.splitlines()
    assert {f"lab-{1 + rank // 8}:{rank} | {rank}" for rank in range(16)} < {
        *ended.out.splitlines()
    }
    log = max(operator.lab.directory.glob(".ascendboot/runs/*-train-*/rank.9.log"))
    assert log.read_text() == "step 1\n9\n"


_LISTENERS = """\
import os, subprocess
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if os.environ["LOCAL_RANK"] == "0":
    print(subprocess.run(["ss", "-Htlnp"], stdout=subprocess.PIPE).stdout.decode(), flush=True)
MPI.COMM_WORLD.Barrier()
"""
_OTHER_NETWORK = (
    "ip link add other type veth peer name peer; ip addr add 192.0.2.9/24 dev other;"
    "ip link set other up; ip link set peer up"
)


def test_24_a_job_chooses_no_other_network_to_listen_on(operator: Operator) -> None:
    operator.on_all(_OTHER_NETWORK)
    try:
        ended = train(operator, _LISTENERS)
    finally:
        operator.on_all("ip link del other")
    assert ended.code == 0, ended.err
    row = r'(lab-\d):\d+ \| LISTEN \S+ +\S+ +(\S+):\d+ +\S+ +users:\(\("(\w+)'
    seen = re.findall(row, ended.err)
    of_job = {(node, who, where) for node, where, who in seen if who != "sshd"}
    assert {node for node, *_ in of_job} == {"lab-1", "lab-2"}
    # Open MPI (4.1) binds these to all addresses, whatever it is told; PMIx to this node alone.
    assert {where for *_, where in of_job} <= {"0.0.0.0", "*", "[::]", "127.0.0.1"}  # noqa: S104
    assert {who for _, who, _ in of_job} >= {"mpirun", "orted"}


_KNOCKS = """\
import os, re, subprocess
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if os.environ["LOCAL_RANK"] == "0":
    outside = ["nsenter", "-t", open("/run/outside").read().strip(), "-n", "timeout", "1", "bash"]
    listed = subprocess.run(["ss", "-Htlnp"], stdout=subprocess.PIPE).stdout.decode()
    knocks = []
    for where, port, who in re.findall(r'(\\S+):(\\d+) +\\S+ +users:\\(\\("([\\w.]+)', listed):
        if who != "sshd" and not where.startswith(("127.", "[::1]")):
            for to in ["192.0.2.9", "fd00::9"][: 1 if where.startswith("0.") else 2]:
                knock = [*outside, "-c", f"echo >/dev/tcp/{to}/{port}"]
                knocks.append((port, who, to, subprocess.Popen(knock, stderr=subprocess.DEVNULL)))
    for port, who, to, knock in knocks:
        print("port", port, "of", who, "closed" if knock.wait() else "open", "at", to, flush=True)
MPI.COMM_WORLD.Barrier()
"""
_OUTSIDE = """
ip link add other type veth peer name peer; ip addr add 192.0.2.9/24 dev other
ip addr add fd00::9/64 dev other nodad; ip link set other up
unshare -n sleep 600 </dev/null >/dev/null 2>&1 & echo $! >/run/outside
while [ /proc/$!/ns/net -ef /proc/self/ns/net ]; do sleep 0.05; done
ip link set peer netns $!
nsenter -t $! -n sh -c 'ip addr add 192.0.2.10/24 dev peer; ip link set peer up;
  ip addr add fd00::10/64 dev peer nodad'
"""


_TABLES = "nft list tables | sort"


def test_item_24_with_firewall_setup_closes_the_listeners(operator: Operator) -> None:
    if shutil.which("nft") is None:
        missing("there is no nft on this machine (Debian package nftables)")
    path = operator.inventory("closed.yaml", firewall=True)
    operator.on_all(f"nft add table inet others; {_OUTSIDE}")
    try:
        before = train(operator, _KNOCKS)
        assert {step for _, step, _ in operator.setup(inventory=path).outcomes("changed")} >= {
            *("env/firewall.nft", "firewall")
        }
        ended = train(operator, _KNOCKS, "--inventory", str(path))
        again = operator.setup(inventory=path)
        operator.sh("lab-2", "nft delete table inet ascendboot_lab")  # as after a restart
        refused = train(operator, "print('never')", "--inventory", str(path))
        checked = operator.call("check", "--json", inventory=path)
        restored = operator.setup(inventory=path)
        tables = operator.on_all(_TABLES)
        operator.call("reset", "--yes", inventory=path, exits=0)
        left = operator.on_all(_TABLES)
    finally:
        operator.on_all("nft delete table inet others; kill $(cat /run/outside); :")
        operator.setup(exits=0)
    assert ended.code == 0, ended.err
    found = re.findall(r"(lab-\d):\d+ \| port (\d+) of (\w+) (\w+)", ended.err)
    assert {(node, who) for node, _, who, _ in found} >= {("lab-1", "mpirun"), ("lab-2", "orted")}
    assert len({who for *_, who, _ in found}) > 2  # ranks listen, too
    assert {how for *_, how in found} == {"closed"}, found
    assert {int(port) // 1000 for _, port, *_ in found} == {62}
    assert set(re.findall(r"port \d+ of mpirun (\w+)", before.err)) == {"open"}
    assert (again.code, again.outcomes("changed")) == (0, [])
    assert refused.code == 125
    assert "lab-2: not ready: the ports of jobs are not closed (`firewall`)" in refused.err
    words = "the table inet ascendboot_lab of nft is not loaded"
    assert [d for d in checked.details("ok") if words in d and "lab-2" in d]
    assert [o[:2] for o in restored.outcomes("changed")] == [("lab-2", "firewall")]
    assert tables == ["table inet ascendboot_lab\ntable inet others\n"] * 2
    assert left == ["table inet others\n"] * 2


# Twenty MB in a second each, as whole lines of 100 bytes; then nothing more until the end.
FLOODS = """\
import os, time
piece = f"{os.environ['RANK']:<9}{'x' * 90}\\n".encode() * 10_000
begun = time.monotonic()
for _ in range(20):
    left = piece
    while left: left = left[os.write(1, left):]
    time.sleep(0.05)
print("took", time.monotonic() - begun, "s", flush=True)
time.sleep(300)
"""
FLOOD = 20_000_000
"""Bytes of each rank, besides the line that says how long it took."""
MOST_TIME_S = 10
"""Sending output delays no rank: one alone takes 1 s, sixteen take 5 s."""
MOST_MEMORY_MB = 200
"""Limit for the operator's process, while sixteen ranks print 320 MB."""


def test_sixteen_ranks_print_twenty_mb_a_second_each_and_ctrl_c_ends_them(
    operator: Operator,
) -> None:
    directory = operator.lab.directory
    operator.script("floods.py", FLOODS)
    with (directory / "screen").open("wb") as out, (directory / "said").open("wb") as err:
        train = subprocess.Popen(
            measured(directory / "peak", "train", "floods.py"),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        runs = directory / ".ascendboot/runs"
        wait_until(lambda: b"starting" in (directory / "said").read_bytes())
        match = re.match(rb"job (\S+): ", (directory / "said").read_bytes())
        assert match
        logs = [runs / match[1].decode() / f"rank.{rank}.log" for rank in range(16)]
        took = f"grep -ah ^took {BASE}/jobs/{match[1].decode()}/rank.*.log; true"
        wait_until(lambda: operator.sh("lab-1", took).count("s\n") == 8)
        wait_until(lambda: operator.sh("lab-2", took).count("s\n") == 8)
        times = re.findall(r"took (\S+) s", operator.sh("lab-1", took) + operator.sh("lab-2", took))
        os.killpg(train.pid, signal.SIGINT)
        train.wait()
    assert train.returncode == 130, (directory / "said").read_text()
    assert int((directory / "peak").read_text()) / 1024 < MOST_MEMORY_MB
    assert max(map(float, times)) < MOST_TIME_S
    assert [log.stat().st_size // FLOOD for log in logs] == [1] * 16
    for node, of_node in (("lab-1", logs[:8]), ("lab-2", logs[8:])):
        sums = operator.sh(node, f"cd {BASE}/jobs/{match[1].decode()} && sha256sum rank.*.log")
        there = {line.split()[1]: line.split()[0] for line in sums.splitlines()}
        here = {log.name: hashlib.sha256(log.read_bytes()).hexdigest() for log in of_node}
        assert here == there
    whole = "^lab-[12]:[0-9]+ [|] ([0-9]+ +x{90}|took .* s)$"
    count = ["grep", "-acvE", whole, str(directory / "screen")]
    torn = subprocess.run(count, check=False, capture_output=True, env={"LC_ALL": "C"}).stdout
    assert int(torn) <= 16  # what a rank was printing when it was ended


# ------------------------------------------------------------------------------- jobs that go wrong


def test_a_script_that_exits_3_ends_the_job_with_3(operator: Operator) -> None:
    ended = train(
        operator,
        "import os, sys, time\n"
        "if os.environ['RANK'] == '11': print('cannot go on', flush=True); sys.exit(3)\n"
        "time.sleep(1000)\n",
    )
    report = ended.json
    assert (ended.code, report["state"]) == (3, "failed")
    failure = report["first_failure"]
    assert (failure["rank"], failure["node"], failure["device"]) == (11, "lab-2", 3)
    assert (failure["exit_code"], failure["signal"]) == (3, None)
    assert failure["message"] == "cannot go on"
    assert (operator.lab.directory / failure["log"]).read_text() == "cannot go on\n"
    assert "lab-2: rank 11 on device 3 failed first, with exit code 3" in ended.err
    assert report["duration_s"] < 30
    times = report["ranks"][11]["times"]
    assert times["started"] <= times["first_output"] == times["last_output"]
    drawn = operator.call("report", "--json").json["report"]
    assert [row["rank"] for row in drawn["timeline"]["rows"] if row["level"] == "error"] == [11]
    assert (drawn["verdict"]["output"], drawn["job"]["exit_code"]) == ("cannot go on", 3)


def test_what_changed_on_the_devices_of_a_failed_job_is_evidence(operator: Operator) -> None:
    text = (
        "import os, pathlib, sys, time\n"
        "if os.environ['RANK'] == '11':\n"
        "    pathlib.Path('/tmp/runs').touch()\n"
        "    while not pathlib.Path('/tmp/fail').exists(): time.sleep(0.1)\n"
        "    sys.exit(3)\n"
        "time.sleep(1000)\n"
    )
    operator.script("job.py", text)
    process = operator.start("train", "job.py", "--json")
    operator.sh("lab-2", "timeout 60 bash -c 'until [ -e /tmp/runs ]; do sleep 0.1; done'")
    operator.lab.fault("lab-2", "npu-alarm", device=3)
    operator.lab.fault("lab-1", "link-flaps", device=2, times=2)
    operator.lab.fault("lab-1", "net-health", device=2)
    try:
        operator.sh("lab-2", "touch /tmp/fail")
        ended = process.end(exits=3, timeout_s=200)
    finally:
        heal(operator.lab)
        operator.sh("lab-2", "rm -f /tmp/fail /tmp/runs")
    cause = ended.json["cause"]
    codes = "(A4025021 8C03A000 8C084E00)"
    alarm, *others = cause["devices"]
    assert cause["rank"] == 11
    assert alarm == f"lab-2 device 3: its health is Alarm {codes}; at the start it was OK"
    assert cause["meaning"] == f"its device failed: {alarm.partition(': ')[2]}"
    assert [other.split(" during")[0].split(" as ")[0] for other in others] == [
        "lab-1 device 2: its link went down 2 times",
        "lab-1 device 2: hccn_tool reports its network health",
    ]
    assert "  devices: lab-2 device 3: its health is Alarm" in ended.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--script="], "train: SCRIPT: is empty; ascendboot help train shows its flags"),
        (
            ["--script=-x.py"],
            'train: "-x.py" is not a script; flags of ascendboot come before `--`',
        ),
        (["main.py", "--grace=-1"], '--grace: "-1" is not a number of seconds from 0 to 86400'),
    ],
)
def test_a_call_that_makes_no_sense_starts_nothing(
    operator: Operator, args: list[str], says: str
) -> None:
    ended = operator.call("train", *args)
    assert (ended.code, ended.err.strip()) == (2, says)


def test_nothing_starts_where_a_device_is_not_there(operator: Operator) -> None:
    with operator.fault("lab-2", "npu-missing", device=5):
        ended = train(operator, "print('never')")
    said = "lab-2: device 5 is not there: npu-smi info lists devices 0-4,6-7; "
    report = ended.json
    assert (ended.code, report["state"], report["exit_code"]) == (125, "not_started", 125)
    assert (report["job_id"], report["ranks"]) == ("", [])
    assert report["message"].startswith(said)


def test_a_cluster_that_was_not_set_up_is_told_so(operator: Operator) -> None:
    other = operator.lab.directory / "never.yaml"
    other.write_text(operator.lab.inventory.read_text().replace("cluster: lab", "cluster: never"))
    ended = operator.call("train", "main.py", inventory=other, exits=125)
    assert "was not set up from here" in ended.err
