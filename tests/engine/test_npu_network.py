"""`npu_network` on simulated nodes: ports are desired state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ascendboot.facts.query import Answered
from ascendboot.value import replace
from tests.engine.simulated import BASE, Simulation, changed
from tests.unit.checks import well

MASK, GATEWAY, STEP = "255.255.0.0", "10.20.0.1", "npu-network"


def two(of: Callable[[int], Simulation]) -> Simulation:
    """Two nodes whose devices have 10.20.N.1 and 10.20.N.2, where the last one is to have .9."""
    cluster, nodes = of(2), []
    for node, known in zip(cluster.nodes, cluster.cluster.nodes, strict=True):
        networks = Answered(tuple(well.network(node.number, i) for i in (0, 1)))
        cluster.change(known.name, **well.npus(0, 1), device_networks=networks)
        ips = [f"10.20.{node.number}.1", f"10.20.{node.number}.2"]
        node.ports = {i: {"ip": f"{ip} {MASK}", "gateway": GATEWAY} for i, ip in enumerate(ips)}
        stated = enumerate([ips[0], ips[1].replace(".2.2", ".2.9")])
        ports = {i: {"ip": f"{ip}/{MASK}", "gateway": GATEWAY} for i, ip in stated}
        nodes.append(replace(known, npu_ports=ports))
    cluster.cluster = replace(cluster.cluster, nodes=tuple(nodes))
    return cluster


@pytest.mark.parametrize("of", [Simulation.of, Simulation.with_containers])
def test_only_what_differs_is_set_and_the_rank_table_has_the_new_addresses(
    of: Callable[[int], Simulation],
) -> None:
    cluster = two(of)
    primary, last = cluster.nodes[0].work, cluster.nodes[1]
    plan = cluster.walk(planning=True)
    [shown] = [r.diff for r in plan.results if r.step == STEP and r.diff]
    # A new address can remove the gateway.
    assert shown.splitlines() == [
        f"+ hccn_tool -i 1 -ip -s address 10.20.2.9 netmask {MASK}",
        "+ hccn_tool -i 1 -gateway -s gateway 10.20.0.1",
    ]
    assert last.ports[1]["ip"] == f"10.20.2.2 {MASK}"

    assert {node for node, step in changed(cluster.walk()) if step == STEP} == {"lab-2"}
    assert last.ports[1]["ip"] == f"10.20.2.9 {MASK}"
    [table] = [path for path in primary.transport.files if path.endswith(".json")]
    assert '"device_ip": "10.20.2.9"' in primary.text(table.removeprefix(f"{BASE}/"))
    assert not changed(cluster.walk())

    last.ports[0]["gateway"] = "10.20.0.7"
    [warning] = [r for r in cluster.check().results if r.is_warning and r.step == STEP]
    assert "device 0: gateway 10.20.0.1 instead of 10.20.0.7" in warning.detail
