"""`npu_network` on simulated nodes: ports are desired state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ascendboot.facts.query import Answered
from ascendboot.model.report import Outcome
from ascendboot.value import replace
from tests.engine.simulated import BASE, Simulation, changed
from tests.unit.checks import well

MASK = "255.255.0.0"
STEP = "npu-network"


def two(*wanted: str, of: Callable[[int], Simulation] = Simulation.of) -> Simulation:
    """Two nodes whose devices have 10.20.N.1 and 10.20.N.2, where others are `wanted` on lab-2."""
    cluster, gateway, nodes = of(2), "10.20.0.1", []
    for number, node in enumerate(cluster.nodes, 1):
        networks = Answered(tuple(well.network(number, i) for i in (0, 1)))
        cluster.change(f"lab-{number}", **well.npus(0, 1), device_networks=networks)
        ips = [f"10.20.{number}.1", f"10.20.{number}.2"]
        node.ports = {i: {"ip": f"{ip} {MASK}", "gateway": gateway} for i, ip in enumerate(ips)}
        stated = enumerate(ips if number == 1 else wanted)
        ports = {i: {"ip": f"{ip}/{MASK}", "gateway": gateway} for i, ip in stated}
        nodes.append(replace(cluster.cluster.nodes[number - 1], npu_ports=ports))
    cluster.cluster = replace(cluster.cluster, nodes=tuple(nodes))
    return cluster


@pytest.mark.parametrize("of", [Simulation.of, Simulation.with_containers])
def test_only_what_differs_is_set_and_the_rank_table_has_the_new_addresses(
    of: Callable[[int], Simulation],
) -> None:
    cluster = two("10.20.2.1", "10.20.2.9", of=of)
    plan = cluster.walk(planning=True)
    assert changed(plan, Outcome.WOULD_CHANGE) >= {("lab-2", STEP)}
    [shown] = [r.diff for r in plan.results if r.step == STEP and r.diff]
    # A new address can remove the gateway.
    assert shown.splitlines() == [
        f"+ hccn_tool -i 1 -ip -s address 10.20.2.9 netmask {MASK}",
        "+ hccn_tool -i 1 -gateway -s gateway 10.20.0.1",
    ]
    assert cluster.nodes[1].ports[1]["ip"] == f"10.20.2.2 {MASK}"

    report = cluster.walk()
    assert {node for node, step in changed(report) if step == STEP} == {"lab-2"}
    assert cluster.nodes[1].ports[1]["ip"] == f"10.20.2.9 {MASK}"
    [table] = [p for p in cluster.nodes[0].work.transport.files if p.endswith(".json")]
    assert '"device_ip": "10.20.2.9"' in cluster.nodes[0].work.text(table.removeprefix(f"{BASE}/"))
    assert not changed(cluster.walk())

    cluster.nodes[0].ports[0]["gateway"] = "10.20.0.7"
    [warning] = [r for r in cluster.check().results if r.is_warning and r.step == STEP]
    assert "device 0: gateway 10.20.0.1 instead of 10.20.0.7" in warning.detail
