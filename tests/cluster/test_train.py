"""`train` on the practice cluster: real mpirun over the cluster's own sshd, and what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Ended, Operator, measured
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

RANK_LINE = re.compile(r"lab-(\d):(\d+) \| ")


@pytest.fixture(scope="module")
def cluster(practice_cluster: Lab) -> Operator:
    """A cluster that is set up."""
    operator = Operator(practice_cluster)
    operator.wipe()
    ended = operator.setup()
    assert ended.code == 0, ended.err
    return operator


@pytest.fixture
def operator(cluster: Operator) -> Iterator[Operator]:
    """The cluster that is set up; afterwards nothing of any job may be left on it."""
    yield cluster
    assert cluster.job_processes() == {}


def script(operator: Operator, text: str, name: str = "job.py") -> str:
    path = operator.lab.directory / name
    path.write_text(text)
    return name


def train(operator: Operator, text: str, *args: str) -> Ended:
    return operator.call("train", script(operator, text), "--json", *args)


# ----------------------------------------------------------------------------- the way it should go


def test_the_demo_trains_on_all_ranks_with_a_falling_loss(operator: Operator) -> None:
    ended = operator.call("train", "main.py")
    assert ended.code == 0, ended.err
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


def test_a_job_report_says_everything_and_logs_are_gathered(operator: Operator) -> None:
    ended = train(operator, "import os; print('rank', os.environ['RANK'])\n")
    report = ended.json
    assert (ended.code, report["state"], report["exit_code"]) == (0, "succeeded", 0)
    assert report["first_failure"] is None
    assert report["ranks"] == [
        {"rank": r, "node": f"lab-{1 + r // 8}", "device": r % 8, "exit_code": 0, "signal": None}
        for r in range(16)
    ]
    assert "/usr/bin/mpirun" in report["command"]
    folder = operator.lab.directory / report["folder"]
    logs = {r: (folder / f"rank.{r}.log").read_text() for r in range(16)}
    assert logs == {r: f"rank {r}\n" for r in range(16)}


def test_script_arguments_arrive_as_they_are(operator: Operator) -> None:
    words = ["--steps", "3", "two words", "it's", '"q"', "$HOME", "*", "", ":", "a\nb", "-v"]
    name = script(operator, "import os, sys\nif os.environ['RANK'] == '9': print(sys.argv[1:])\n")
    ended = operator.call("train", name, "--", *words)
    assert ended.code == 0
    assert ended.out == f"lab-2:9 | {words}\n"


def test_a_plan_prints_the_command_and_starts_nothing(operator: Operator) -> None:
    before = operator.sh("lab-1", f"ls {BASE}/jobs 2>/dev/null; true")
    ended = operator.call("train", "main.py", "--plan")
    assert ended.code == 0
    assert "/usr/bin/mpirun" in ended.out
    assert "lab-2: ranks 8-15 on devices 0,1,2,3,4,5,6,7" in ended.out
    plan = operator.call("train", "main.py", "--plan", "--json").json
    assert [r["rank"] for r in plan["ranks"]] == list(range(16))
    assert operator.sh("lab-1", f"ls {BASE}/jobs 2>/dev/null; true") == before


def test_the_printed_command_starts_the_same_job_by_hand(operator: Operator) -> None:
    plan = operator.call("train", "main.py", "--plan", "--json", "--", "--steps", "8").json
    by_hand = operator.sh("lab-1", plan["command_line"])
    assert "Demo done!" in by_hand


def test_a_script_on_the_operators_side_is_copied_to_every_node(operator: Operator) -> None:
    ended = train(operator, "import os; print(os.getcwd(), __file__)\n")
    assert ended.code == 0
    places = set(re.findall(r"lab-\d:\d+ \| (\S+) (\S+)", ended.err))
    [(cwd, file)] = places
    assert file == f"{cwd}/job.py"
    assert cwd.startswith(f"{BASE}/jobs/")


def test_a_path_means_this_file_though_the_nodes_have_one_of_its_name(operator: Operator) -> None:
    here = operator.lab.directory / script(operator, "print('from here')\n", "main.py")
    ended = operator.call("train", "./main.py", "--json")
    planned = [operator.call("train", name, "--plan").out for name in ("./main.py", "main.py")]
    here.unlink()
    assert ended.code == 0, ended.err
    assert len(re.findall(r"lab-\d:\d+ \| from here\n", ended.err)) == 16
    copied = f"{BASE}/jobs/{ended.json['job_id']}/code/main.py"
    assert ended.json["script"] == {"path": copied, "copied_from": str(here)}
    assert f"\nscript: {copied}, copied from {here} on the control machine\n" in ended.err
    assert f"copied from {here} on the control machine\n" in planned[0]
    assert "\nscript: /workspace/little_demo/main.py, found under code.path" in planned[1]


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
    for node in ("lab-1", "lab-2"):
        operator.sh(node, _OTHER_NETWORK)
    try:
        ended = train(operator, _LISTENERS)
    finally:
        for node in ("lab-1", "lab-2"):
            operator.sh(node, "ip link del other")
    assert ended.code == 0, ended.err
    row = r'(lab-\d):\d+ \| LISTEN \S+ +\S+ +(\S+):\d+ +\S+ +users:\(\("(\w+)'
    seen = re.findall(row, ended.err)
    of_job = {(node, who, where) for node, where, who in seen if who != "sshd"}
    assert {node for node, *_ in of_job} == {"lab-1", "lab-2"}
    # Open MPI (4.1) binds these to all addresses, whatever it is told; PMIx to this node alone.
    assert {where for *_, where in of_job} <= {"0.0.0.0", "*", "[::]", "127.0.0.1"}  # noqa: S104
    assert {who for _, who, _ in of_job} >= {"mpirun", "orted"}


_PORTS_PAGE = Path(__file__).parents[2] / "docs/reference/ports.md"
_KNOCKS = """\
import os, re, subprocess
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if os.environ["LOCAL_RANK"] == "0":
    outside = ["nsenter", "-t", open("/run/outside").read().strip(), "-n", "timeout", "1", "bash"]
    listed = subprocess.run(["ss", "-Htlnp"], stdout=subprocess.PIPE).stdout.decode()
    for where, port, who in re.findall(r'(\\S+):(\\d+) +\\S+ +users:\\(\\("([\\w.]+)', listed):
        if who != "sshd" and not where.startswith(("127.", "[::1]")):
            knock = [*outside, "-c", f"echo >/dev/tcp/192.0.2.9/{port}"]
            is_open = subprocess.run(knock, stderr=subprocess.DEVNULL).returncode == 0
            print("port", port, "of", who, "open" if is_open else "closed", flush=True)
MPI.COMM_WORLD.Barrier()
"""
_OUTSIDE = """
ip link add other type veth peer name peer; ip addr add 192.0.2.9/24 dev other
ip link set other up; unshare -n sleep 600 </dev/null >/dev/null 2>&1 & echo $! >/run/outside
sleep 0.5; ip link set peer netns $!
nsenter -t $! -n sh -c 'ip addr add 192.0.2.10/24 dev peer; ip link set peer up'
"""


def test_item_24_the_rule_of_the_page_closes_the_listeners(operator: Operator) -> None:
    blocks = re.findall(r"```(?:yaml)?\n(.*?)```", _PORTS_PAGE.read_text(), re.DOTALL)
    restricted = next(block for block in blocks if "port_min_v6" in block)
    rule = next(block for block in blocks if block.startswith("nft add table"))
    document = yaml.safe_load(operator.lab.inventory.read_text())
    document["launcher"] = yaml.safe_load(restricted)["launcher"]
    path = operator.lab.directory / "restricted.yaml"
    path.write_text(yaml.safe_dump(document))
    assert operator.setup(inventory=path).code == 0
    nodes = [node.name for node in operator.lab.nodes]
    seen = []
    try:
        for node in nodes:
            operator.sh(node, _OUTSIDE)
        for with_rule in (False, True):
            for node in nodes if with_rule else ():
                operator.sh(node, rule)
            ended = train(operator, _KNOCKS)
            assert ended.code == 0, ended.err
            seen.append(re.findall(r"(lab-\d):\d+ \| port \d+ of (\w+) (\w+)", ended.err))
    finally:
        for node in nodes:
            operator.sh(node, "nft delete table inet ascendboot; kill $(cat /run/outside); :")
        assert operator.setup().code == 0
    for found, state in zip(seen, ("open", "closed"), strict=True):
        assert {(node, who) for node, who, _ in found} >= {("lab-1", "mpirun"), ("lab-2", "orted")}
        assert {how for *_, how in found} == {state}, found


def test_lines_stay_whole_and_in_order_whatever_is_printed(operator: Operator) -> None:
    ended = train(
        operator,
        "import os, sys\n"
        "r = os.environ['RANK']\n"
        "for i in range(300):\n"
        "    os.write(1, f'{r} {i} '.encode()); os.write(1, b'x' * 200 + b'\\n')\n"
        "os.write(1, b'\\xff\\x00 last, without an end')\n",
    )
    assert ended.code == 0
    mine: dict[int, list[str]] = {rank: [] for rank in range(16)}
    for line in ended.err.split("\n"):
        if match := RANK_LINE.match(line):
            mine[int(match[2])].append(line[match.end() :])
    for rank, lines in mine.items():
        assert lines[:300] == [f"{rank} {i} {'x' * 200}" for i in range(300)]
        assert lines[300:] == ["\ufffd\0 last, without an end"]


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
"""No rank is held up by what has to be sent: alone it takes a second, and sixteen here 5."""
MOST_MEMORY_MB = 200
"""Of the operator's process, while sixteen ranks print 320 MB."""


def test_sixteen_ranks_print_twenty_mb_a_second_each_and_ctrl_c_ends_them(
    operator: Operator,
) -> None:
    directory = operator.lab.directory
    with (directory / "screen").open("wb") as out, (directory / "said").open("wb") as err:
        train = subprocess.Popen(
            measured(directory / "peak", "train", script(operator, FLOODS)),
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


def test_a_rank_killed_by_signal_9_ends_the_job_with_137(operator: Operator) -> None:
    """The others wait for it in a collective."""
    ended = train(
        operator,
        "import os, signal\n"
        "from mpi4py import MPI\n"
        "MPI.COMM_WORLD.allreduce(1)\n"
        "if os.environ['RANK'] == '4': os.kill(os.getpid(), signal.SIGKILL)\n"
        "while True: MPI.COMM_WORLD.allreduce(1)\n",
    )
    failure = ended.json["first_failure"]
    assert ended.code == 137
    assert (failure["rank"], failure["node"], failure["signal"]) == (4, "lab-1", 9)


IGNORES_TERM = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "if os.environ['RANK'] in sys.argv[1:]: time.sleep(1); sys.exit(5)\n"
    "time.sleep(90)\n"
)


def test_ranks_that_ignore_sigterm_are_killed_when_another_fails(operator: Operator) -> None:
    ended = train(operator, IGNORES_TERM, "--grace", "1", "--", "2")
    assert ended.code == 5
    assert ended.json["first_failure"]["rank"] == 2
    assert ended.json["duration_s"] < 40


def start(operator: Operator, name: str, *args: str) -> subprocess.Popen[str]:
    process = operator.start("train", name, "--json", *args)
    assert process.stderr is not None
    seen = ""
    while "ready" not in seen:
        line = process.stderr.readline()
        assert line, "the job ended before a rank was ready"
        seen += line
    return process


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_stops_every_process_on_every_node(operator: Operator, presses: int) -> None:
    name = script(operator, IGNORES_TERM)
    bystander = "setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $!"
    sleeper = operator.sh("lab-2", bystander).strip()
    process = start(operator, name, "--grace", "1")
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["state"] == "interrupted"
    assert operator.sh("lab-2", f"kill -0 {sleeper} && echo alive; kill {sleeper}") == "alive\n"


def test_row_24_what_a_rank_leaves_behind_is_swept_away(operator: Operator) -> None:
    ended = train(
        operator,
        "import os, subprocess\n"
        "if os.environ['RANK'] == '8':\n"
        "    subprocess.Popen(['sleep', '300'], start_new_session=True)\n",
    )
    assert ended.code == 0
    assert any("lab-2" in note and "sleep" in note for note in ended.json["notes"])


@pytest.mark.parametrize("word", ["", "-x.py"])
def test_what_cannot_be_a_script_is_refused(operator: Operator, word: str) -> None:
    ended = operator.call("train", f"--script={word}")
    assert (ended.code, ended.err) == (
        125,
        f'train: "{word}" is not a script; flags of ascendboot come before `--`\n',
    )


def test_a_script_of_a_shell_is_refused_wherever_it_lies(operator: Operator) -> None:
    name = script(operator, "#!/bin/bash\npython3 main.py\n", "run.sh")
    path = "/workspace/little_demo/there.sh"
    told = "is no script of Python: it begins with #!/bin/bash; give train the script of Python"
    here = operator.call("train", name)
    for node in operator.lab.nodes:
        operator.sh(node.name, f"printf '#!/bin/bash\\nexit\\n' >{path}")
    there = operator.call("train", "there.sh")
    for node in operator.lab.nodes:
        operator.sh(node.name, f"rm {path}")
    assert (here.code, there.code) == (125, 125)
    assert here.err.startswith(f"{name} {told}")
    assert there.err.startswith(f"lab-[1-2]: {path} {told}")


def test_a_script_that_is_not_there_is_named_before_anything_starts(operator: Operator) -> None:
    ended = operator.call("train", "nowhere.py")
    assert ended.code == 125
    assert ended.err.startswith(
        "nowhere.py: is neither /workspace/little_demo/nowhere.py on the nodes nor a file here"
    )


def test_with_json_a_job_that_was_not_started_is_told_as_one(operator: Operator) -> None:
    report = operator.call("train", "nowhere.py", "--json").json
    assert (report["state"], report["exit_code"], report["ranks"]) == ("not_started", 125, [])
    assert report["message"].startswith("nowhere.py: is neither ")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["main.py", "--forks", "abc"], '--forks: "abc" is not a whole number of at least 1'),
        (["main.py", "--grace=-1"], '--grace: "-1" is not a number of seconds from 0 to 86400'),
    ],
)
def test_a_flag_that_makes_no_sense_starts_nothing(
    operator: Operator, args: list[str], says: str
) -> None:
    ended = operator.call("train", *args)
    assert (ended.code, ended.err.strip()) == (125, says)


def test_row_09_a_script_that_one_node_lacks_is_named(operator: Operator) -> None:
    operator.put("lab-1", "/workspace/little_demo/half.py", "print(1)\n", "644")
    ended = operator.call("train", "half.py")
    operator.sh("lab-1", "rm /workspace/little_demo/half.py")
    assert ended.code == 125
    assert ended.err.splitlines()[:-1] == [
        (
            "lab-2: not ready: half.py is missing, which lab-1 has; make the folders equal, or"
            " state code.source and run setup"
        )
    ]


def test_nothing_starts_where_one_node_is_not_as_setup_left_it(operator: Operator) -> None:
    operator.sh("lab-2", f"echo >>{BASE}/env/rank-exec; kill $(cat {BASE}/sshd/sshd.pid)")
    jobs = operator.sh("lab-1", f"ls {BASE}/jobs 2>/dev/null; true")
    ended = operator.call("train", "main.py")
    assert ended.code == 125
    assert ended.err.splitlines()[:2] == [
        "lab-2: not ready: env/rank-exec has changed; run setup",
        "lab-2: not ready: the cluster's sshd does not run; run setup",
    ]
    assert operator.sh("lab-1", f"ls {BASE}/jobs 2>/dev/null; true") == jobs
    assert operator.setup().code == 0


def test_nothing_starts_where_a_device_is_not_there(operator: Operator) -> None:
    operator.lab.fault("lab-2", "npu-missing", device=5)
    try:
        ended = train(operator, "print('never')")
    finally:
        operator.lab.undo("lab-2", "npu-missing")
    said = "lab-2: device 5 is not there: npu-smi info lists devices 0-4,6-7; "
    assert (ended.code, ended.json["job_id"]) == (125, "")
    assert ended.json["message"].startswith(said)


def test_nothing_starts_where_a_node_is_down(operator: Operator) -> None:
    operator.lab.fault("lab-2", "node-down")
    try:
        ended = operator.call("train", "main.py")
    finally:
        operator.lab.undo("lab-2", "node-down")
    assert ended.code == 125
    assert re.match(r"lab-2: .*(no answer|no route)", ended.err, re.IGNORECASE), ended.err
    assert operator.setup().code == 0


def test_a_cluster_that_was_not_set_up_is_told_so(operator: Operator) -> None:
    other = operator.lab.directory / "never.yaml"
    other.write_text(operator.lab.inventory.read_text().replace("cluster: lab", "cluster: never"))
    ended = operator.call("train", "main.py", "--inventory", str(other))
    assert ended.code == 125
    assert "was not set up from here" in ended.err


def test_an_inventory_that_changed_asks_for_setup(operator: Operator) -> None:
    changed = operator.inventory_with("changed.yaml", ("env:\n", "env:\n  NEW: 1\n"))
    ended = operator.call("train", "main.py", "--inventory", str(changed))
    assert ended.code == 125
    assert "the inventory has changed since the cluster was set up; run setup again" in ended.err


def test_a_launcher_that_a_node_turns_away_is_not_silent(operator: Operator) -> None:
    key = f"{BASE}/trust/cluster_key"
    new = f"ssh-keygen -q -t ed25519 -N '' -f /run/new && cp -p /run/new {key}"
    operator.sh("lab-1", f"mv {key} /run/key && {new}")
    try:
        ended = train(operator, "print('ready')\n")
    finally:
        operator.sh("lab-1", f"mv -f /run/key {key}; rm /run/new*")
    assert ended.json["state"] == "failed"
    assert ended.code not in {0, 125}
    assert "ermission" in ended.json["message"]
