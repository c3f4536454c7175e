"""`check`, and the proof of the network in `setup`, on the practice cluster with real faults."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cluster.operating import BASE, Ended, Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ascendboot.lab import Lab

pytestmark = pytest.mark.cluster

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
    lab.heal()


@pytest.fixture
def on_node(operator: Operator) -> Iterator[Callable[[str, str, str], None]]:
    """`on_node(node, do, undo)`: a change of a node's system, taken back after the test."""
    undone: list[tuple[str, str]] = []

    def change(node: str, do: str, undo: str) -> None:
        undone.append((node, undo))
        operator.sh(node, do)

    yield change
    for node, undo in undone:
        operator.sh(node, undo)


def check(operator: Operator, *args: str) -> Ended:
    return operator.call("check", "--inventory", str(operator.lab.inventory), "--json", *args)


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
    for node in ("lab-1", "lab-2"):
        assert proved[node, "prove"] == "the primary logs in and finds all as written"
        assert proved[node, "network"] == (
            "reaches the other nodes: 4 pings between NPUs and 3 TCP connections"
        )


def test_all_pairs_are_tried_on_request(operator: Operator) -> None:
    ended = operator.call("check", "--all-pairs", "--inventory", str(operator.lab.inventory))
    assert ended.code == 0
    assert "4 pings between NPUs and 3 TCP connections" in ended.out
    assert ended.out.splitlines()[-1].startswith("lab: 0 errors, 0 warnings. Kept in ")


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


def test_before_setup_one_line_says_so(lab: Lab) -> None:
    operator = Operator(lab)
    operator.wipe()
    try:
        ended = check(operator)
        assert (ended.code, findings(ended, "error", "warning")) == (
            0,
            {"not-set-up": ["lab-1", "lab-2"]},
        )
        assert {r["node"] for r in ended.json["results"] if r["phase"] == "network"} == {
            "lab-1",
            "lab-2",
        }
    finally:
        assert operator.setup().code == 0


# -------------------------------------------------------------------------------- the NPUs' network


def test_a_link_that_is_down_is_found_by_the_judge_and_by_the_pings(operator: Operator) -> None:
    operator.lab.fault("lab-2", "link-down", device=1)
    ended = check(operator, "--all-pairs")
    assert (ended.code, findings(ended)) == (
        1,
        {"link-down": ["lab-2"], "mesh-device-cut-off": ["lab-2"]},
    )
    assert "device 1 (" in detail(ended, "mesh-device-cut-off")
    assert "Execute failed: Link status is down." in detail(ended, "mesh-device-cut-off")


def test_an_npu_whose_address_leads_nowhere_is_named_by_setup_too(
    operator: Operator, other_hccn_tool: Callable[[str, str], None]
) -> None:
    other_hccn_tool(
        "lab-2",
        'case "$2 $3" in "1 -ip") echo "ipaddr:198.19.255.77"; echo "netmask:255.255.0.0"; exit;;'
        " esac",
    )
    for ended in (check(operator, "--all-pairs"), operator.setup()):
        assert ended.code == 1
        assert [node for node in ended.json["results"] if node["outcome"] == "failed"]
    ended = check(operator, "--all-pairs")
    assert findings(ended) == {"mesh-device-unreached": ["lab-2"]}
    assert detail(ended, "mesh-device-unreached").startswith(
        "lab-2: device 1 (198.19.255.77) is reached by nobody: 2 pings failed, "
        "3 packets transmitted, 0 received"
    )
    operator.put("lab-2", HCCN, '#!/bin/bash\nexec "$0.real" "$@"\n')
    stale = check(operator)
    assert (stale.code, findings(stale, "warning")) == (0, {"not-as-setup-wishes": ["lab-2"]})
    assert operator.setup().code == 0


def test_an_answer_that_comes_late_is_a_failure_with_both_ends(
    operator: Operator, other_hccn_tool: Callable[[str, str], None]
) -> None:
    late = (
        'case "$2 $3" in "0 -ping") echo "device 0 PING $6"; echo "recv seq=0,time=1.0ms";'
        ' echo "recv time out seq=1"; echo "recv seq=2,time=1.0ms";'
        ' echo "3 packets transmitted, 2 received, 33.33% packet loss";'
        ' echo "Command execute failed!" >&2; exit 1;; esac'
    )
    other_hccn_tool("lab-1", late)
    ended = check(operator, "--all-pairs")
    assert (ended.code, findings(ended)) == (1, {"mesh-device-reaches-nobody": ["lab-1"]})
    assert "3 packets transmitted, 2 received" in detail(ended, "mesh-device-reaches-nobody")


def test_a_tool_that_says_something_new_is_quoted(
    operator: Operator, other_hccn_tool: Callable[[str, str], None]
) -> None:
    other_hccn_tool("lab-1", 'case $3 in -ping) echo "all is well, trust me"; exit;; esac')
    ended = check(operator)
    assert (ended.code, findings(ended)) == (1, {"mesh-unknown": ["lab-1"]})
    assert 'line 1 not understood: "all is well, trust me"' in detail(ended, "mesh-unknown")


def test_a_busy_tool_is_asked_again(operator: Operator) -> None:
    operator.lab.fault("lab-1", "busy", times=9)
    ended = check(operator)
    assert (ended.code, findings(ended)) == (0, {})


@pytest.fixture
def other_hccn_tool(
    on_node: Callable[[str, str, str], None], operator: Operator
) -> Callable[[str, str], None]:
    """`other_hccn_tool(node, lines)`: bash that runs in front of the stand-in."""

    def replace(node: str, lines: str) -> None:
        on_node(node, f"mv {HCCN} {HCCN}.real", f"mv {HCCN}.real {HCCN}")
        operator.put(node, HCCN, f'#!/bin/bash\n{lines}\nexec "$0.real" "$@"\n')

    return replace


# ---------------------------------------------------------------------------------------------- TCP


def test_a_firewall_that_drops_new_ports_is_named(
    operator: Operator, on_node: Callable[[str, str, str], None]
) -> None:
    if shutil.which("iptables") is None:
        pytest.skip("there is no iptables on this machine")
    rule = "INPUT -p tcp -m multiport --dports 40000,60000 -j DROP"
    on_node("lab-2", f"iptables -A {rule}", f"iptables -D {rule}")
    ended = check(operator)
    assert (ended.code, findings(ended)) == (1, {"tcp-blocked": ["lab-1", "lab-2"]})
    assert "on ports 40000 (Open MPI), 60000 (HCCL): no answer within 3 s" in detail(
        ended, "tcp-blocked"
    )


def test_a_route_that_leads_nowhere_is_named_with_the_login_that_fails(
    operator: Operator, on_node: Callable[[str, str, str], None]
) -> None:
    first = operator.lab.node("lab-1").address
    on_node("lab-2", f"ip route add prohibit {first}/32", f"ip route del prohibit {first}/32")
    ended = check(operator)
    assert ended.code == 1
    assert findings(ended)["tcp-blocked"] == ["lab-2", "lab-1"]
    failed = {(r["node"], r["step"]) for r in ended.json["results"] if r["outcome"] == "failed"}
    assert ("lab-2", "login") in failed


def test_a_port_of_hccl_that_is_taken_is_a_warning(
    operator: Operator, on_node: Callable[[str, str, str], None]
) -> None:
    listen = (  # its name is its own: what python3 is called differs between machines
        "import socket,time; open('/proc/self/comm','w').write('listener');"
        "s=socket.socket(); s.bind(('',60003)); s.listen(); time.sleep(600)"
    )
    start = f'setsid python3 -c "{listen}" >/dev/null 2>&1 </dev/null & echo $! >/run/listener'
    wait = "timeout 30 bash -c 'until ss -Hltn | grep -q :60003; do sleep 0.05; done'"
    on_node("lab-2", f"{start}; {wait}", 'kill "$(cat /run/listener)"; rm /run/listener')
    ended = check(operator)
    assert (ended.code, findings(ended, "error", "warning")) == (0, {"hccl-port-taken": ["lab-2"]})
    assert "port 60003 of HCCL's 60000-60031 is taken by listener" in detail(
        ended, "hccl-port-taken"
    )


# -------------------------------------------------------------------------------------- exit codes


def test_a_node_that_is_down_is_named_and_the_others_are_checked(operator: Operator) -> None:
    operator.lab.fault("lab-2", "node-down")
    ended = check(operator)
    assert ended.code == 4
    assert ended.outcomes("unreachable") == [("lab-2", "connect", "unreachable")]
    assert ("lab-1", "facts", "ok") in ended.outcomes("ok")


def test_a_wrong_inventory_is_refused(operator: Operator) -> None:
    ended = operator.call("check", "--inventory", "nowhere.yaml")
    assert ended.code == 2
