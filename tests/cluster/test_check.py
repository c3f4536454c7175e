"""`check`, and the check of the network in `setup`, on the practice cluster with real faults."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, CUT, Ended, Operator, heal, set_up
from tests.needs import missing
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

OnNode = Callable[[str, str, str], None]
OtherPython = Callable[[str], None]
HCCN = "/usr/local/Ascend/driver/tools/hccn_tool"


@pytest.fixture(scope="module")
def lab(bring_up_once: Callable[..., Lab]) -> Lab:
    """Two nodes of two devices, set up."""
    lab = bring_up_once(nodes=2, devices=2)
    assert Operator(lab).setup().code == 0
    return lab


@pytest.fixture
def operator(lab: Lab) -> Iterator[Operator]:
    """What a test breaks is mended afterwards."""
    yield Operator(lab)
    heal(lab)


@pytest.fixture
def on_node(operator: Operator) -> Iterator[OnNode]:
    """`on_node(node, do, undo)`: a change of a node's system, taken back after the test."""
    undone: list[tuple[str, str]] = []

    def change(node: str, do: str, undo: str) -> None:
        undone.append((node, undo))
        operator.sh(node, do)

    yield change
    for node, undo in undone:
        operator.sh(node, undo)


def check(operator: Operator, *args: str) -> Ended:
    return operator.call("check", "--json", *args, inventory=operator.lab.inventory)


def findings(ended: Ended, *levels: str) -> dict[str, list[str]]:
    """Nodes by id of each finding of these levels."""
    return {
        r["id"]: r["nodes"]
        for r in ended.json["results"]
        if r.get("level") in (levels or ("error",))
    }


def detail(ended: Ended, id_: str) -> str:
    return next(str(r["detail"]) for r in ended.json["results"] if r.get("id") == id_)


# ---------------------------------------------------------------------------- the way it should go


def test_a_cluster_that_is_set_up_has_no_finding(operator: Operator) -> None:
    ended = check(operator)
    assert (ended.code, findings(ended, "error", "warning")) == (0, {})
    proved = {(r["node"], r["phase"]): r["detail"] for r in ended.json["results"]}
    # mpirun's daemons are called back at the primary alone.
    for node, doors in (("lab-1", 3), ("lab-2", 4)):
        assert proved[node, "prove"] == "the primary logs in and finds all as installed"
        assert proved[node, "network"] == (
            f"reaches the other nodes: 4 pings between NPUs and {doors} TCP connections"
        )


def test_all_pairs_are_tried_on_request(operator: Operator) -> None:
    flags = ["--all-pairs", "--collective", "--inventory", str(operator.lab.inventory)]
    ended = operator.call("check", *flags, exits=0)
    assert "4 pings between NPUs and 4 TCP connections" in ended.out
    assert re.search(
        r"Check communication between ranks\n"
        r"  lab-\[1-2\]  ok +4 ranks met by Open MPI v4\.1\S+ \(mpi4py \S+\), "
        r"agree, and have the right sum, after \S+ s\n",
        ended.out,
    )
    for node in operator.lab.nodes:
        assert operator.sh(node.name, f"ls {BASE}/jobs") == ""
    assert ended.out.splitlines()[-1].startswith("lab: 0 errors, 0 warnings. Kept in ")


def test_level_full_names_slow_and_broken_devices_and_leaves_nothing(operator: Operator) -> None:
    untested = {"node-no-torch-npu": ["lab-1", "lab-2"]}
    well = check(operator, "--level", "full")
    assert (well.code, findings(well, "error", "warning")) == (0, untested)
    operator.lab.fault("lab-2", "npu-slow", device=1)
    slow = check(operator, "--level", "full")
    assert (slow.code, findings(slow)) == (1, {"node-device-slow": ["lab-2"]})
    assert "device 1: its matrix product is slow: " in detail(slow, "node-device-slow")
    operator.lab.fault("lab-2", "npu-broken", device=0)
    broken = check(operator, "--level", "full")
    assert findings(broken)["node-device-failed"] == ["lab-2"]
    assert "device 0: does not compute: " in detail(broken, "node-device-failed")
    for node in operator.lab.nodes:
        assert operator.sh(node.name, f"ls {BASE}/jobs") == ""


def test_hccl_test_names_slow_and_broken_devices_and_compares(bring_up: Callable[..., Lab]) -> None:
    lab = bring_up(nodes=2, devices=4)
    operator = set_up(lab)
    well = check(operator, "--hccl-test")
    assert (well.code, findings(well, "error", "warning")) == (0, {})
    [first, _] = [r["detail"] for r in well.json["results"] if r["phase"] == "hccl-test"]
    assert re.fullmatch(r"8 devices: [0-9.]+ GB/s", first)
    floor = check(operator, "--hccl-test", "--floor", "9999", "--nodes", "lab-1", "--devices", "0")
    assert findings(floor) == {"hccl-test-slow": ["lab-1"]}
    lab.fault("lab-2", "npu-slow", device=1)
    slow = check(operator, "--hccl-test")
    assert (slow.code, findings(slow)) == (1, {"hccl-test-slow": ["lab-2"]})
    assert "device 1: slow in HCCL Test, 33% of" in detail(slow, "hccl-test-slow")
    lab.undo("lab-2", "npu-slow", device=1)
    lab.fault("lab-1", "npu-broken", device=2)
    broken = check(operator, "--hccl-test")
    assert findings(broken) == {"hccl-test-failed": ["lab-1"]}
    assert "device 2: HCCL Test failed: acl interface return" in detail(broken, "hccl-test-failed")
    lab.undo("lab-1", "npu-broken", device=2)
    operator.sh("lab-2", "rm -r /usr/local/Ascend/cann/tools/hccl_test/bin")
    lacking = check(operator, "--hccl-test")
    assert findings(lacking) == {"hccl-test-missing": ["lab-2"]}
    assert "&& make MPI_HOME=" in detail(lacking, "hccl-test-missing")
    for node in lab.nodes:
        assert operator.sh(node.name, f"ls {BASE}/jobs; ls -A /shared") == ""


def test_it_writes_nothing_on_any_node(operator: Operator) -> None:
    tree = f"find {BASE} -type f ! -name '*.log' -printf '%p %m %s %T@\\n' | sort"
    before = {n.name: operator.sh(n.name, tree) for n in operator.lab.nodes}
    assert check(operator).code == 0
    assert {n.name: operator.sh(n.name, tree) for n in operator.lab.nodes} == before


def test_what_differs_from_setup_is_a_warning_and_setup_mends_it(operator: Operator) -> None:
    operator.sh("lab-2", f"rm {BASE}/env/rank-exec")
    ended = check(operator)
    assert (ended.code, findings(ended, "error", "warning")) == (
        0,
        {"not-as-setup-wishes": ["lab-2"]},
    )
    assert operator.setup().outcomes("changed") == [("lab-2", "env/rank-exec", "changed")]
    assert findings(check(operator), "error", "warning") == {}


# -------------------------------------------------------------------------------- the NPUs' network


def test_a_link_that_is_down_is_found_by_its_state_and_by_the_pings(operator: Operator) -> None:
    operator.lab.fault("lab-2", "link-down", device=1)
    ended = check(operator, "--all-pairs")
    assert (ended.code, findings(ended)) == (
        1,
        {"link-down": ["lab-2"], "mesh-device-cut-off": ["lab-2"]},
    )
    assert "device 1 (" in detail(ended, "mesh-device-cut-off")
    assert "Execute failed: Link status is down." in detail(ended, "mesh-device-cut-off")


def test_row_10_an_npu_that_is_not_well_stops_check_and_setup(operator: Operator) -> None:
    operator.lab.fault("lab-2", "npu-alarm", device=1)
    checked, set_up = check(operator), operator.setup()
    for ended in (checked, set_up):
        assert (ended.code, findings(ended)) == (1, {"device-health": ["lab-2"]})
        text = "lab-2: npu-smi info reports device 1 as Alarm, not OK. Look at the error codes of "
        assert detail(ended, "device-health").startswith(text)
    assert set_up.outcomes("changed") == []


def test_an_npu_whose_address_leads_nowhere_is_named_by_setup_too(
    operator: Operator, on_node: OnNode
) -> None:
    on_node("lab-2", f"mv {HCCN} {HCCN}.real", f"mv {HCCN}.real {HCCN}")
    address = 'echo "ipaddr:198.19.255.77"; echo "netmask:255.255.0.0"; exit'
    instead = f'case "$2 $3" in "1 -ip") {address};; esac'
    operator.put("lab-2", HCCN, f'#!/bin/bash\n{instead}\nexec "$0.real" "$@"\n')
    for ended in (check(operator, "--all-pairs"), operator.setup()):
        assert ended.code == 1
        assert [node for node in ended.json["results"] if node["outcome"] == "failed"]
    ended = check(operator, "--all-pairs")
    assert findings(ended) == {"mesh-device-unreached": ["lab-2"]}
    assert detail(ended, "mesh-device-unreached").startswith(
        "lab-2: device 1 (198.19.255.77) is reached by no other device: 2 pings failed, "
        "3 packets transmitted, 0 received"
    )
    operator.put("lab-2", HCCN, '#!/bin/bash\nexec "$0.real" "$@"\n')
    stale = check(operator)
    assert (stale.code, findings(stale, "warning")) == (0, {"not-as-setup-wishes": ["lab-2"]})
    operator.setup(exits=0)


# ---------------------------------------------------------------------------------------------- TCP


def need_iptables() -> None:
    """Firewalls of nodes alone: each has a network namespace of its own."""
    if shutil.which("iptables") is None:
        missing("there is no iptables on this machine (Debian package iptables)")


def test_a_firewall_that_drops_new_ports_is_named(operator: Operator, on_node: OnNode) -> None:
    need_iptables()
    rule = "INPUT -p tcp -m multiport --dports 1024:1100,40000,60000 -j DROP"
    on_node("lab-1", f"iptables -A {rule}", f"iptables -D {rule}")
    ended = check(operator)
    assert (ended.code, findings(ended)) == (1, {"tcp-blocked": ["lab-2", "lab-1"]})
    assert (
        "on ports 1024 (Open MPI's ranks), 40000 (Open MPI), 60000 (HCCL): no answer within 3 s"
        in detail(ended, "tcp-blocked")
    )


def test_a_route_that_leads_nowhere_is_named_with_the_login_that_fails(
    operator: Operator, on_node: OnNode
) -> None:
    first = operator.lab.node("lab-1").address
    on_node("lab-2", f"ip route add prohibit {first}/32", f"ip route del prohibit {first}/32")
    ended = check(operator)
    assert ended.code == 1
    assert findings(ended)["tcp-blocked"] == ["lab-2", "lab-1"]
    failed = {(r["node"], r["step"]) for r in ended.json["results"] if r["outcome"] == "failed"}
    assert ("lab-2", "login") in failed


# -------------------------------------------------------------------------------- ranks that meet

PYTHON = "/usr/local/bin/python3"
ODD = f"""\
#!/bin/sh
case $1 in */preflight.py)
  export HCCL_CONNECT_TIMEOUT=120 HCCL_ACCESS_TOKEN=hidden PYTHONPATH=/opt/other
  sed 's/"198.19[^"]*"/"192.0.2.1"/' "$RANK_TABLE_FILE" >"$RANK_TABLE_FILE.$RANK"
  mv "$RANK_TABLE_FILE.$RANK" "$RANK_TABLE_FILE" ;;
esac
exec {PYTHON}.was "$@"
"""
KILLED = f"""\
#!/bin/sh
case "$RANK $1" in '3 '*/preflight.py) export PYTHONPATH=/opt/other ;; esac
exec {PYTHON}.was "$@"
"""
ASLEEP = f"""\
#!/bin/sh
case "$RANK $1" in '3 '*/preflight.py) exec sleep 119 ;; esac
exec {PYTHON}.was "$@"
"""
# A rank that dies ends the others at once: they have time to say first what they see.
KILLS = "import os, signal, time; time.sleep(5); os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.fixture
def other_python(operator: Operator, on_node: OnNode) -> OtherPython:
    """`other_python(text)`: what starts Python on lab-2 is another until the test is over."""

    def put(text: str) -> None:
        table = f"{BASE}/resources/hccl_json_4p_2_host.json"
        save, mend = f"mv {PYTHON} {PYTHON}.was; cp -p {table} /run/table", f"mv /run/table {table}"
        on_node("lab-2", save, f"mv {PYTHON}.was {PYTHON}; {mend}; rm -rf /opt/other")
        operator.put("lab-2", PYTHON, text)

    return put


def preflight(operator: Operator) -> list[str]:
    """What stands in the way of a job, without what to do about it."""
    ended = operator.call("train", "main.py", "--preflight", exits=125)
    *lines, last = ended.err.splitlines()
    assert last.startswith("Stopped: the job was not started. Logs in .ascendboot/runs/")
    assert operator.job_processes() == {}
    return [line.partition(". ")[0] for line in lines if line.startswith("lab-")]


def test_ranks_that_differ_and_nodes_that_do_not_hear_each_other_are_named_at_once(
    operator: Operator, on_node: OnNode, other_python: OtherPython
) -> None:
    other_python(ODD)
    operator.put("lab-2", "/opt/other/numpy-0.1.dist-info/METADATA", "Name: numpy\nVersion: 0.1\n")
    need_iptables()
    # Where Open MPI listens for data; what the launcher needs gets through.
    rule = "INPUT -p tcp --dport 1024:1100 -j DROP"
    for node in ("lab-1", "lab-2"):
        on_node(node, f"iptables -A {rule}", f"iptables -D {rule}")
    silent, unheard, *different = preflight(operator)
    first, second = "rank 0 on device 0 of lab-1", "rank 2 on device 0 of lab-2"
    assert silent == f"lab-[1-2]: {first}: received nothing from {second} within 10 s"
    assert unheard == f"lab-[1-2]: {second}: received nothing from {first} within 10 s"
    table, versions, env = different
    assert re.fullmatch(r"lab-2: ranks 2-3: the rank table is another: sha256 \w+, not \w+", table)
    assert re.fullmatch(r"lab-2: ranks 2-3: numpy is 0\.1, \d\S+ on the other 2", versions)
    assert env == (
        "lab-2: ranks 2-3: HCCL_ACCESS_TOKEN is not that of the other 2 (it may be a secret, and "
        "is not shown); HCCL_CONNECT_TIMEOUT is 120, not set on the other 2; PYTHONPATH is "
        "/opt/other, not set on the other 2"
    )


def test_a_rank_that_is_killed_before_it_meets_the_others_is_named(
    operator: Operator, other_python: OtherPython
) -> None:
    other_python(KILLED)
    operator.put("lab-2", "/opt/other/mpi4py/__init__.py", KILLS)
    [killed, environment] = preflight(operator)
    assert killed == (
        "lab-2: rank 3 on device 1: ended with signal 9 while it loaded the library of the "
        "collective"
    )
    assert environment.startswith("lab-2: rank 3 on device 1: PYTHONPATH is /opt/other, not set")


@pytest.mark.parametrize("verb", [("train", "main.py", "--preflight"), ("check", "--collective")])
def test_a_preflight_whose_operator_was_killed_is_found_and_stopped_like_a_job(
    operator: Operator, other_python: OtherPython, verb: tuple[str, ...]
) -> None:
    other_python(ASLEEP)
    process = operator.start(*verb)
    wait_until(lambda: "sleep 119" in operator.job_processes().get("lab-2", ""))
    process.die()
    seen = operator.call("status", "--json").json
    assert (seen["state"], 3 in seen["nodes"][1]["ranks_alive"]) == ("running", True)
    job = seen["job_id"]
    assert re.fullmatch(rf"\S+-{verb[0]}-\w+\.preflight", job)
    refused = operator.call("train", "main.py", exits=125)
    assert f"job {job} runs on this node; wait for its end, or end it: stop --job {job}" in (
        refused.err
    )
    operator.call("stop", "--job", job, exits=0)
    assert operator.job_processes() == {}
    assert operator.call("status", "--json").json["state"] == "stopped"
    operator.on_all(f"rm -r {BASE}/jobs/{job}")


def test_item_11_a_check_goes_on_while_a_connection_is_lost(
    operator: Operator, other_python: OtherPython
) -> None:
    other_python(
        f"""#!/bin/bash
case "$*" in */preflight.py*) touch /run/began; while [ ! -e /run/go ]; do sleep 0.2; done ;; esac
exec {PYTHON}.was "$@"
"""
    )
    operator.sh("lab-2", "rm -f /run/began /run/go")
    check = operator.start("check", "--collective")
    wait_until(lambda: operator.sh("lab-2", "ls /run/began 2>/dev/null; :") != "")
    operator.sh("lab-2", CUT)
    assert "lab-2: " in check.err.readline()
    assert check.err.readline().startswith(
        "lab-2: its connection was lost, and was reopened after "
    )
    operator.sh("lab-2", "touch /run/go")
    assert "4 ranks met by Open MPI" in check.end(exits=0, timeout_s=120).out
    assert operator.sh("lab-2", f"ls {BASE}/jobs") == ""


def test_what_a_killed_preflight_left_is_ended_before_a_job(
    operator: Operator, other_python: OtherPython
) -> None:
    other_python(ASLEEP)
    process = operator.start("check", "--collective")
    wait_until(lambda: "sleep 119" in operator.job_processes().get("lab-2", ""))
    process.die()
    job = operator.call("status", "--json").json["job_id"]
    # All that would end the rank on lab-2 dies before it can: who would notice is stopped first,
    # and what stands by a rank is younger than the wrapper that it looks after.
    launchers = (("lab-1", "[l]aunch.sh|[m]pirun"), ("lab-2", "[o]rted"))
    for where, what in launchers:
        operator.sh(where, f"pkill -STOP -f '{what}'")
    operator.sh("lab-2", "kill -KILL $(pgrep -f '[r]ank-exec' | sort -rn)")
    for where, what in launchers:
        operator.sh(where, f"pkill -KILL -f '{what}'")
    wait_until(lambda: [*operator.job_processes()] == ["lab-2"])
    left = operator.call("train", "main.py")
    assert f"of job {job}, whose launcher is gone" in left.err
    operator.script("fine.py", "")
    operator.call("train", "fine.py", "--stop-leftovers", exits=0)
    operator.on_all(f"rm -r {BASE}/jobs/*")
