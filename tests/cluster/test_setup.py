"""`setup` on the practice cluster: plan, apply, repair; wrong servers; interrupted runs."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Operator, Program, heal, measured
from tests.needs import LONG, missing

pytestmark = pytest.mark.cluster

ALL_IPS = "for i in 0 1 2 3 4 5 6 7; do /usr/local/Ascend/driver/tools/hccn_tool -i $i -ip -g; done"
HCCN = "/usr/local/Ascend/driver/tools/hccn_tool"
MIB = 1024 * 1024


@pytest.fixture
def operator(practice_cluster: Lab) -> Iterator[Operator]:
    """Servers that ascendboot has never seen; afterwards, faults are repaired."""
    operator = Operator(practice_cluster)
    operator.wipe()
    yield operator
    heal(practice_cluster)


@pytest.fixture
def ready(practice_cluster: Lab) -> Operator:
    """A cluster that is set up."""
    operator = Operator(practice_cluster)
    operator.setup(exits=0)
    return operator


@contextmanager
def bashrc(operator: Operator, text: str, *nodes: str) -> Iterator[None]:
    """Replace root's .bashrc on some nodes for the duration of the block."""
    for node in nodes:
        operator.sh(node, "cp /root/.bashrc /root/.bashrc.test")
        operator.put(node, "/root/.bashrc", text, "644")
    try:
        yield
    finally:
        for node in nodes:
            operator.sh(node, "mv /root/.bashrc.test /root/.bashrc")


def written(operator: Operator) -> dict[str, str]:
    """The files and listeners of ascendboot on the nodes; empty if a run was refused in time."""
    script = f"find {BASE} -type f ! -name lock 2>/dev/null; ss -Hltn | grep :12345; true"
    found = zip(operator.lab.nodes, operator.on_all(script), strict=True)
    return {node.name: text.strip() for node, text in found if text.strip()}


# ----------------------------------------------------------------------------- the way it should go


def test_a_plan_shows_the_diffs_writes_nothing_and_can_tell_by_its_exit_code(
    operator: Operator,
) -> None:
    plan = operator.setup("--plan", "--exit-code", exits=3)
    assert {outcome for *_, outcome in plan.outcomes()} == {"ok", "would_change"}
    assert ("lab-1", "trust/known_hosts", "would_change") in plan.outcomes()
    table = next(r for r in plan.json["results"] if r["step"].startswith("resources/hccl"))
    assert "+++ /var/lib/ascendboot/lab/resources/hccl_json_16p_2_host.json" in table["diff"]
    assert '+  "status": "completed",' in table["diff"]
    row = "  lab-[1-2]  plan         would create resources/hostfile (2 lines)"
    assert row in plan.err.splitlines()
    assert '"status"' not in plan.err
    assert written(operator) == {}
    assert operator.sh("lab-1", "ls /var/lib/ascendboot 2>&1 || true").startswith("ls: cannot")


def test_new_host_keys_are_refused_until_accepted_and_then_come_first_in_the_report(
    operator: Operator,
) -> None:
    document = operator.document()
    keys = [
        {"node": n, "fingerprint": it.pop("fingerprint")} for n, it in document["nodes"].items()
    ]
    path = operator.inventory("fresh.yaml", document, cluster="fresh")
    refused = operator.setup("--plan", inventory=path, exits=4)
    assert all("SHA256:" in d and "--accept-new" in d for d in refused.details("unreachable"))
    plan = operator.setup("--plan", "--accept-new", inventory=path, exits=0)
    assert plan.json["accepted_host_keys"] == keys
    said = ["{node}: accepted the new host key {fingerprint}".format_map(key) for key in keys]
    assert plan.err.splitlines()[:3] == [*said, "Reach the nodes"]
    again = operator.setup("--plan", inventory=path, exits=0)
    assert again.json["accepted_host_keys"] == []


def test_a_second_setup_changes_nothing_and_a_third_exactly_what_was_broken(
    operator: Operator,
) -> None:
    first = operator.setup()
    assert (first.code, first.details("failed")) == (0, [])
    before = operator.on_all(_TREE)
    second = operator.setup()
    assert (second.code, second.outcomes("changed")) == (0, [])
    operator.setup("--plan", "--exit-code", exits=0)
    assert operator.on_all(_TREE) == before
    operator.sh("lab-1", f"rm {BASE}/resources/hostfile")
    operator.sh("lab-2", f"sed -i 's/rank_id/rank_iD/' {BASE}/resources/hccl_json_16p_2_host.json")
    operator.sh("lab-2", f"kill $(cat {BASE}/sshd/sshd.pid)")
    third = operator.setup(exits=0)
    assert third.outcomes("changed") == [
        ("lab-2", "sshd", "changed"),
        ("lab-1", "resources/hostfile", "changed"),
        ("lab-2", "resources/hccl_json_16p_2_host.json", "changed"),
    ]
    assert operator.setup().outcomes("changed") == []


# What is deleted together, and what comes back with it.
LEFT_BY_SETUP: dict[tuple[str, ...], tuple[str, ...]] = {
    (
        *("env/keep.sh", "env/node.env", "env/rank-exec", "owner", "trust/authorized_keys"),
        *("resources/hccl_json_16p_2_host.json", "resources/hostfile"),
    ): (),
    ("sshd/host_key",): ("sshd", "sshd/host_key-cert.pub"),
    ("sshd/host_key-cert.pub", "sshd/sshd_config"): (),
    ("sshd/sshd.pid",): ("sshd",),
    ("sshd/started",): ("sshd",),
}


def test_any_file_that_is_deleted_comes_back_and_nothing_else_changes(ready: Operator) -> None:
    listening = "ss -Hltn | grep -o '198[^ ]*:12[0-9]*' | sort"
    ports = ready.sh("lab-2", listening)
    files = ready.sh(
        "lab-2", f"cd {BASE} && find * -type f ! -name '*.log' ! -path 'jobs/*' ! -name made | sort"
    )
    assert files.split() == sorted(path for paths in LEFT_BY_SETUP for path in paths)
    for paths, more in LEFT_BY_SETUP.items():
        ready.sh("lab-2", f"cd {BASE} && rm {' '.join(paths)}")
        mended = ready.setup(exits=0)
        here = [step for node, step, _ in mended.outcomes("changed") if node == "lab-2"]
        wished = {path for path in paths if path not in ("sshd/sshd.pid", "sshd/started")}
        assert sorted(here) == sorted({*wished, *more})
        assert ready.sh("lab-2", listening) == ports, paths
    assert ready.setup().outcomes("changed") == []


def test_a_folder_that_is_deleted_leaves_no_sshd_behind_and_the_port_stays(ready: Operator) -> None:
    listeners = "ss -Hltnp | grep -c 'sshd.*12[0-9][0-9][0-9]\\|:12[0-9]*.*sshd'"
    port = ready.sh("lab-2", f"grep ^Port {BASE}/sshd/sshd_config")
    ready.sh("lab-2", f"rm -rf {BASE}")
    ready.setup(exits=0)
    assert ready.sh("lab-2", f"grep ^Port {BASE}/sshd/sshd_config") == port
    assert ready.sh("lab-2", listeners) == "1\n"


def test_after_a_reboot_of_all_nodes_the_port_stays(operator: Operator) -> None:
    """Even though the first choice, which was in use then, is free now."""
    with operator.port_taken("lab-2", 12345):
        operator.setup(exits=0)
    port = f"grep ^Port {BASE}/sshd/sshd_config"
    assert operator.on_all(port) == ["Port 12346\n"] * 2
    for node in operator.lab.nodes:
        operator.lab.fault(node.name, "node-down")
    for node in operator.lab.nodes:
        operator.lab.undo(node.name, "node-down")
    again = operator.setup(exits=0)
    assert [step for _, step, _ in again.outcomes("changed")] == ["sshd", "sshd"]
    assert operator.on_all(port) == ["Port 12346\n"] * 2
    operator.wipe()


_TREE = f"cd {BASE} && find . -type f ! -name '*.log' ! -name lock | sort | xargs sha256sum"


def test_a_private_key_that_was_damaged_or_opened_is_mended(ready: Operator) -> None:
    ready.sh("lab-1", f"echo x >{BASE}/trust/cluster_key; chmod 644 {BASE}/sshd/host_key")
    mended = ready.setup(exits=0)
    keys = ("trust/cluster_key", "sshd/host_key", "trust/cluster_key-cert.pub")
    assert {("lab-1", key, "changed") for key in keys} <= {*mended.outcomes("changed")}
    modes = ready.sh("lab-1", f"stat -c %a {BASE}/trust/cluster_key {BASE}/sshd/host_key")
    assert modes.split() == ["600", "600"]
    assert ready.setup().outcomes("changed") == []


def test_only_the_primary_holds_a_private_key_that_opens_nodes(ready: Operator) -> None:
    keys = f"grep -rl 'PRIVATE KEY' {BASE} 2>/dev/null | sort"
    assert ready.sh("lab-2", keys).split() == [f"{BASE}/sshd/host_key"]
    assert ready.sh("lab-1", keys).split() == [f"{BASE}/sshd/host_key", f"{BASE}/trust/cluster_key"]
    assert "ssh-ed25519" not in ready.sh("lab-2", "cat /root/.ssh/known_hosts 2>&1; true")


def test_rank_table_and_hostfile_are_equal_on_all_nodes_and_in_one_order(ready: Operator) -> None:
    files = f"cd {BASE}/resources && cat hccl_json_16p_2_host.json hostfile"
    assert ready.sh("lab-1", files) == ready.sh("lab-2", files)
    look = f"stat -c '%F %a' {BASE}/resources/hccl_json_16p_2_host.json"
    assert ready.on_all(look) == ["regular file 644\n"] * 2
    table = json.loads(ready.sh("lab-1", f"cat {BASE}/resources/hccl_json_16p_2_host.json"))
    hosts = [
        line.split()[0] for line in ready.sh("lab-1", f"cat {BASE}/resources/hostfile").splitlines()
    ]
    assert [server["server_id"] for server in table["server_list"]] == hosts
    answers = ready.sh("lab-2", f"for i in 0 7; do {HCCN} -i $i -ip -g; done")
    devices = table["server_list"][1]["device"]
    assert re.findall(r"ipaddr:(\S+)", answers) == [
        devices[0]["device_ip"],
        devices[7]["device_ip"],
    ]
    assert [d["rank_id"] for s in table["server_list"] for d in s["device"]] == [
        str(rank) for rank in range(16)
    ]


# The way from the operator to the nodes (port 22) is let through; a login from the primary is not.
PRINTS_AND_EXITS = 'case "$SSH_CONNECTION" in *" 22") ;; *) echo NOISE; exit 7 ;; esac\n'
PRINTS_AND_SPOILS = "echo NOISE; export OMPI_MCA_mpi_yield_when_idle=0 PATH=/nowhere:$PATH\n"


@pytest.mark.parametrize("hostile", [PRINTS_AND_EXITS, PRINTS_AND_SPOILS])
def test_a_hostile_bashrc_does_not_reach_logins_from_the_primary(
    ready: Operator, hostile: str
) -> None:
    with bashrc(ready, hostile, "lab-2"):
        again = ready.setup()
    assert (again.code, again.outcomes("changed")) == (0, [])


AS_LOGIN_SHELL = "does not run the line by which mpirun starts its daemon"


def test_hostile_16_a_login_shell_that_mpirun_cannot_use_is_named_before_a_job(
    ready: Operator,
) -> None:
    path = ready.sh("lab-2", "type -P fish; true").strip()
    if not path:
        missing("there is no fish")
    with ready.changed("lab-2", f"usermod -s {path} root", "usermod -s /bin/bash root"):
        alone = [ready.setup(exits=1), ready.call("check", "--json", exits=1)]
        with ready.changed("lab-1", f"usermod -s {path} root", "usermod -s /bin/bash root"):
            ready.setup(exits=1)
    told = f"lab-2: root has the login shell {path}, which {AS_LOGIN_SHELL}: "
    for ended in alone:
        assert [detail[: len(told)] for detail in ended.details("failed")] == [told]


def test_what_others_could_change_blocks_a_job_and_is_closed_by_setup(ready: Operator) -> None:
    """sshd accepts no key from a folder that others can write to."""
    ready.script("job.py", "print('trained')\n")
    ready.sh(
        "lab-2",
        f"cd {BASE}; mkdir -p jobs; chmod 777 env trust jobs . ..; chown 1000 env/rank-exec; "
        "ln -s /tmp env/bin; chown -h 1000 env/bin",
    )
    job = ready.call("train", "job.py", "--skip-checks")
    assert (job.code, "'trained'" in job.out) == (125, False)
    told = f"lab-2: others could change what runs there: /var/lib/ascendboot has mode 0777, {BASE} "
    assert told in job.err
    assert "run setup" in job.err
    plan = ready.setup("--plan")
    assert ("lab-2", "folders", "would_change") in plan.outcomes("would_change")
    warned = ready.call("check", "--json").json["results"]
    [detail] = [r["detail"] for r in warned if (r["node"], r["step"]) == ("lab-2", "folders")]
    assert (
        f"not in the desired state: others could change what runs here: {BASE.rpartition('/')[0]}"
        in detail
    )
    mended = ready.setup()
    assert (mended.code, mended.outcomes("changed")) == (0, [("lab-2", "folders", "changed")]), (
        mended.err
    )
    look = f"cd {BASE}; stat -c '%a %u' .. . env env/rank-exec trust jobs; ls env"
    seen = ready.sh("lab-2", look).split("\n")
    assert seen == [*["755 0"] * 6, "keep.sh", "node.env", "rank-exec", ""]
    assert ready.setup().outcomes("changed") == []


def test_a_login_without_a_umask_leaves_nothing_that_others_can_write_to(ready: Operator) -> None:
    ready.script("job.py", "import os\nprint(oct(os.umask(0)))\n")
    ready.on_all(f"rm -rf {BASE}")
    with bashrc(ready, "umask 000\n", "lab-1", "lab-2"):
        ready.setup(exits=0)
        job = ready.call("train", "job.py")
    assert job.code == 0, job.err
    assert {line.rpartition(" ")[2] for line in job.out.splitlines() if " | " in line} == {"0o22"}
    loose = f"find {BASE.rpartition('/')[0]} ! -type l -perm /022"
    assert ready.on_all(loose) == ["", ""]


def test_a_folder_above_that_others_can_write_to_is_named_and_left_alone(ready: Operator) -> None:
    ready.script("job.py", "print('trained')\n")
    with ready.changed("lab-2", "chmod 777 /var/lib", "chmod 755 /var/lib"):
        again, checked = ready.setup(), ready.call("check", "--json")
        job = ready.call("train", "job.py")
        left = ready.sh("lab-2", "stat -c %a /var/lib")
    assert (again.code, checked.code, job.code) == (1, 1, 125)
    for said in (*again.details("blocked"), *checked.details("blocked"), job.err):
        assert "lab-2: /var/lib " in said
        assert "closes it" in said
    assert left == "777\n"
    assert ready.setup().outcomes("changed") == []


# ------------------------------------------------------------------------------------ wrong servers


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        ({"kind": "node-down"}, 4, r"lab-2: .*(no answer|no route)"),
        (
            {"kind": "npu-missing", "device": 5},
            1,
            "lab-2: 7 of 8 devices answer; device 5 is missing from npu-smi info -m",
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_broken_node_is_named_and_nothing_is_written(
    operator: Operator, fault: dict[str, Any], code: int, says: str
) -> None:
    operator.lab.fault("lab-2", **fault)
    ended = operator.setup()
    assert ended.code == code
    details = ended.details("unreachable" if code == 4 else "blocked")
    assert any(re.match(says, detail, re.IGNORECASE) for detail in details), details
    heal(operator.lab)
    assert written(operator) == {}


def test_a_busy_tool_is_asked_again(operator: Operator) -> None:
    operator.lab.fault("lab-2", "busy", times=3)
    operator.setup("--plan", exits=0)


@pytest.fixture
def other_hccn_tool(operator: Operator) -> Iterator[Callable[[str], None]]:
    """Lets a test put lines before the stand-in of lab-2, and restores it afterwards."""
    operator.sh("lab-2", f"cp -p {HCCN} {HCCN}.kept")

    def put(lines: str) -> None:
        operator.put("lab-2", HCCN, f'#!/bin/bash\n{lines}\nexec {HCCN}.kept "$@"\n')

    yield put
    operator.sh("lab-2", f"mv -f {HCCN}.kept {HCCN}")


NPU_SMI = "/usr/local/bin/npu-smi"
WARNS = 'echo "WARNING: the firmware is older than the driver"; echo "See 198.51.100.7" >&2'
BROKEN = 'echo "no table today"; exit 0'


def test_hostile_15_a_warning_of_npu_smi_stops_nothing_and_facts_can_be_stated(
    operator: Operator,
) -> None:
    def put(lines: str) -> None:
        operator.put("lab-2", NPU_SMI, f'#!/bin/bash\n{lines}\nexec {kept} "$@"\n')

    path = operator.sh("lab-2", "type -P npu-smi").strip()
    kept = f"{path}.kept"
    with operator.changed("lab-2", f"mv {path} {kept}", f"rm -f {NPU_SMI}; mv {kept} {path}"):
        put(WARNS)
        warned = operator.setup()
        put(BROKEN)
        blocked = operator.setup()
        ips = {
            node.name: re.findall(r"ipaddr:(\S+)", operator.sh(node.name, ALL_IPS))
            for node in operator.lab.nodes
        }
        document = operator.document()
        for name, addresses in ips.items():
            document["nodes"][name]["devices"] = [
                {"device_id": number, "device_ip": ip} for number, ip in enumerate(addresses)
            ]
        stated = operator.inventory("stated.yaml", document, facts="stated", product="a2")
        ended = operator.setup(inventory=stated)
        operator.script("job.py", "print('ran')\n")
        job = operator.call("train", "job.py", inventory=stated)
    words = 'npu-smi info -m: "WARNING: the firmware is older than the driver"'
    assert warned.code == 0, warned.err
    assert [words in d for d in warned.details("ok") if "vendor tools print more" in d] == [True]
    assert blocked.code == 1
    assert any("`facts: stated`" in d for d in blocked.details("blocked"))
    assert ended.code == 0, ended.err
    [told] = [d for d in ended.details("ok") if "(`facts: stated`)" in d]
    assert told.startswith("warning: lab-2: devices 0-7 and their addresses are what the inventory")
    assert (job.code, job.out.count("ran")) == (0, 16), job.err
    assert "`facts: stated` is in the inventory" in job.err


def test_item_02_setup_stays_small_whatever_npu_smi_prints(operator: Operator) -> None:
    directory = operator.lab.directory
    tool = operator.sh("lab-2", "type -P npu-smi").strip()
    with operator.changed("lab-2", f"mv {tool} {tool}.kept", f"mv -f {tool}.kept {tool}"):
        flood = "head -c 100000000 /dev/zero | tr '\\0' x"
        operator.put("lab-2", tool, f"#!/bin/bash\n{flood}\n")
        words = ("setup", "--inventory", str(operator.lab.inventory))
        argv = measured(directory / "peak", *words)
        done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert int((directory / "peak").read_text()) < 200 * 1024
    told = "could not list the NPUs: it printed more than 128 KiB, which began: "
    [line] = [line for line in done.stdout.splitlines() if told in line]
    assert len(line) < 500
    kept = [file for file in (directory / ".ascendboot/runs").rglob("*") if file.is_file()]
    assert max(file.stat().st_size for file in kept) < MIB
    assert written(operator) == {}


def test_a_port_that_is_taken_is_named_and_auto_takes_another(operator: Operator) -> None:
    with operator.port_taken("lab-2", 12345) as pid:
        stated = operator.inventory_with("other.yaml", ("code:\n", "ssh: {port: 12345}\ncode:\n"))
        ended = operator.setup(inventory=stated, exits=1)
        [detail] = ended.details("blocked")
        assert re.match(rf"lab-2: could not use port 12345 .*python.*\(pid {pid}\)", detail)
        tree = f"ls -A {BASE} 2>/dev/null; true"
        assert [operator.sh(n.name, tree).split() for n in operator.lab.nodes] == [["lock"], []]
        operator.setup(exits=0)
        assert "Port 12346" in operator.sh("lab-1", f"cat {BASE}/sshd/sshd_config")
    assert operator.setup().outcomes("changed") == []
    operator.wipe()


@LONG
def test_item_25_what_a_second_per_packet_does_is_said(operator: Operator) -> None:
    operator.lab.fault("lab-2", "delay", milliseconds=1000)
    ended = operator.setup(exits=1)
    address = operator.lab.nodes[1].address
    [problem] = ended.details("failed")
    assert problem.startswith("lab-2: could not log in from lab-1: no answer within ")
    assert f"is the way there slow (ping {address} on lab-1), or " in problem


# ----------------------------------------------------------------- interrupted, killed, two at once


def started(operator: Operator) -> Program:
    return operator.start("setup", "--inventory", str(operator.lab.inventory), "--json")


def writing(operator: Operator) -> Program:
    """A `setup` that has just put files on the second node that were not there before."""
    count = f"find {BASE} -type f 2>/dev/null | wc -l"
    before = operator.sh("lab-2", count).strip()
    process = started(operator)
    more = f"until [ $({count}) -gt {before} ]; do sleep 0.01; done"
    operator.sh("lab-2", f"timeout 300 bash -c {shlex.quote(more)}")
    return process


def is_finished_by_the_next(operator: Operator) -> None:
    operator.setup(exits=0)
    assert operator.setup().outcomes("changed") == []
    leftovers = f"find {BASE} -name '*.??????' -o -name '.new.*'"
    assert operator.on_all(leftovers) == ["", ""]


def test_ctrl_c_while_files_are_written_is_finished_by_the_next(operator: Operator) -> None:
    process = writing(operator)
    process.send_signal(signal.SIGINT)
    ended = process.end(exits=130)
    assert ended.json["exit_code"] == 130
    results = [r for r in ended.json["results"] if r["node"] == "lab-2"]
    assert "changed" in {r["outcome"] for r in results}
    assert "prove" not in {r["phase"] for r in results}
    assert ended.err.splitlines()[-1].startswith("Stopped: interrupted; what was changed stays")
    is_finished_by_the_next(operator)


@pytest.mark.one_try
def test_a_setup_that_is_killed_while_it_writes_is_finished_by_the_next(operator: Operator) -> None:
    for _ in range(3):  # each of them gets further
        process = writing(operator)
        process.die()
        assert process.returncode == -signal.SIGKILL
    is_finished_by_the_next(operator)


def test_a_setup_that_waited_for_another_does_not_act_on_what_was_there_before(
    ready: Operator,
) -> None:
    release = f"echo mended >>{BASE}/env/node.env"
    until = "until [ -e /run/go ]; do sleep 0.05; done"
    hold = (
        f"rm -f /run/go; exec 9>>{BASE}/lock; flock 9;"
        f" timeout 300 bash -c '{until}' </dev/null >/dev/null 2>&1 & echo $!"
    )
    plan = ready.sh("lab-2", f"cp {BASE}/env/node.env /run/kept; {release}")
    assert plan == ""
    ready.sh("lab-1", hold)
    waiting = started(ready)
    ready.sh("lab-2", f"sleep 1.5; cp /run/kept {BASE}/env/node.env")
    ready.sh("lab-1", "touch /run/go")
    assert waiting.end(exits=0).outcomes("changed") == []
