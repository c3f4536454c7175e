"""`npu_network` on the practice cluster; pings tell whether the addresses work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Ended, Operator

pytestmark = pytest.mark.cluster
HCCN = "/usr/local/Ascend/driver/tools/hccn_tool"
LOOK = f"""
for i in 0 1; do for w in ip gateway netdetect mtu tls; do {HCCN} -i $i -$w -g 2>&1; done; done
echo conf:; cat /etc/hccn.conf
"""
STEP = "npu-network"


@pytest.fixture
def operator(bring_up: Callable[..., Lab]) -> Operator:
    return Operator(bring_up(nodes=2, devices=2))


def address(operator: Operator, node: int, last: int) -> str:
    of_node = str(operator.lab.shape.nodes[node - 1].devices[0].device_ip)
    return f"{of_node.rpartition('.')[0]}.{last}"


def stated(operator: Operator, **changes: object) -> Path:
    """The lab's inventory with `npu_network`, and without addresses of devices."""
    document, shape = operator.document(), operator.lab.shape
    first, second, third, _ = address(operator, 1, 200).split(".")
    gateway = str(shape.gateway)
    network = {"address": f"{first}.{second}.[{third}-{int(third) + 1}].[200-201]"}
    network |= {"netmask": str(shape.npu.netmask), "gateway": gateway, "netdetect": gateway}
    document["defaults"]["npu_network"] = {**network, "tls": False, "mtu": 1400, **changes}
    for node in document["nodes"].values():
        node["devices"] = 2
    return operator.inventory("ports.yaml", document)


def errors(ended: Ended) -> set[str]:
    return {r["id"] for r in ended.json["results"] if r["outcome"] == "blocked"}


def test_ports_are_set_repaired_and_restored(operator: Operator) -> None:
    path, mask = stated(operator), str(operator.lab.shape.npu.netmask)
    before, set_ips = operator.on_all(LOOK), [address(operator, n, 200) for n in (1, 2)]
    plan = operator.setup("--plan", inventory=path)
    assert plan.code == 0, plan.err
    commands = next(r["diff"] for r in plan.json["results"] if r["step"] == STEP).splitlines()
    assert commands[0] == f"+ hccn_tool -i 0 -ip -s address {set_ips[0]} netmask {mask}"
    assert commands[-1] == "+ hccn_tool -i 1 -mtu -s size 1400"
    assert operator.on_all(LOOK) == before

    ended = operator.setup(inventory=path)
    assert ended.code == 0, ended.err
    assert [o[0] for o in ended.outcomes("changed") if o[1] == STEP] == ["lab-1", "lab-2"]
    table = operator.sh("lab-1", f"cat {BASE}/resources/*.json")
    assert f'"device_ip": "{address(operator, 2, 201)}"' in table
    conf = set(operator.sh("lab-2", "cat /etc/hccn.conf").splitlines())
    assert {f"address_0={set_ips[1]}", f"netmask_0={mask}", "mtu_1=1400"} <= conf
    assert "3 received" in operator.sh("lab-1", f"{HCCN} -i 0 -ping -g address {set_ips[1]}")
    again = operator.setup(inventory=path)
    assert (again.code, again.outcomes("changed")) == (0, [])

    other = address(operator, 2, 9)
    operator.sh("lab-2", f"{HCCN} -i 1 -ip -s address {other} netmask {mask}")
    operator.sh("lab-2", "sed -i s/^netdetect_0=.*/netdetect_0=10.0.0.1/ /etc/hccn.conf")
    repaired = operator.setup(inventory=path)
    assert [o[:2] for o in repaired.outcomes("changed")] == [("lab-2", STEP)]
    [words] = repaired.details("changed")
    assert f"device 1: ip {address(operator, 2, 201)}/{mask} instead of {other}/{mask}" in words
    assert "but /etc/hccn.conf has 10.0.0.1 for the next boot" in words
    assert set(operator.sh("lab-2", "cat /etc/hccn.conf").splitlines()) == conf

    reset = ("reset", "--inventory", str(path))
    was = f"device 0: ip {address(operator, 1, 100)}/{mask}"
    assert was in operator.call(*reset, "--plan", "--npu-network").out
    plain = operator.call(*reset, "--yes")
    assert (plain.code, was in plain.out, "reset --npu-network" in plain.out) == (0, True, True)
    assert operator.sh("lab-1", f"ls {BASE}") == "npu-network.before\n"
    restored = operator.call(*reset, "--yes", "--npu-network")
    assert (restored.code, restored.err) == (0, "")
    now, then = (
        [text.split("conf:")[0] for text in each] for each in (operator.on_all(LOOK), before)
    )
    assert now == then
    assert operator.on_all(f"ls -d {BASE} 2>/dev/null; true") == ["", ""]


def test_conflicts_are_refused_before_the_first_change(operator: Operator) -> None:
    before = operator.on_all(LOOK)
    foreign = operator.setup(inventory=stated(operator, gateway="10.0.0.1"))
    wrong = "network.gateway: lab-1 device 0: the gateway 10.0.0.1 is not another machine in "
    assert (foreign.code, wrong in foreign.err) == (2, True)
    path = stated(operator)
    operator.lab.fault("lab-2", "busy", device=1)
    busy = operator.setup(inventory=path)
    assert errors(busy) >= {"npu-network-unknown"}, busy.err
    operator.lab.undo("lab-2", "busy", device=1)

    pid = operator.sh("lab-2", "sleep 600 </dev/null >/dev/null 2>&1 & echo $!").strip()
    operator.sh("lab-2", f"echo 1 {pid} >/usr/local/Ascend/lab/holders")
    used = operator.setup(inventory=path)
    assert errors(used) == {"npu-network-in-use"}
    assert f"device 1 is used by pid {pid}, and the network" in "".join(used.details("blocked"))
    assert operator.on_all(LOOK) == before
    operator.sh("lab-2", f"kill {pid}; rm /usr/local/Ascend/lab/holders")

    assert operator.setup(inventory=path).code == 0
    job = operator.start_long_job("--inventory", str(path))
    assert operator.setup(inventory=path).code == 0  # nothing is to be set
    other = operator.setup(inventory=stated(operator, mtu=1300))
    assert errors(other) == {"npu-network-in-use"}
    assert f"job {job} runs, and the network of the NPUs" in "".join(other.details("blocked"))
    assert "mtu:1400" in operator.sh("lab-1", LOOK)
    assert operator.call("stop", "--job", job, "--inventory", str(path)).code == 0
