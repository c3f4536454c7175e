"""`npu_network` on simulated nodes: ports are desired state, and conflicts stop setup."""

from __future__ import annotations

from ascendboot.facts.query import Answered
from ascendboot.model.report import Outcome, Report
from ascendboot.value import replace
from tests.engine.simulated import BASE, Simulation
from tests.fake_transport import Answer
from tests.unit.checks import well

MASK = "255.255.0.0"
STEP = "npu-network"


def two(*wanted: str) -> Simulation:
    """Two nodes whose devices have 10.20.N.1 and 10.20.N.2, where others are `wanted` on lab-2."""
    cluster = Simulation.of(2)
    for number, node in enumerate(cluster.nodes, 1):
        networks = Answered(tuple(well.network(number, i) for i in (0, 1)))
        cluster.change(f"lab-{number}", **well.npus(0, 1), device_networks=networks)
        node.ports = {
            i: {"ip": f"10.20.{number}.{i + 1} {MASK}", "gateway": "10.20.0.1"} for i in (0, 1)
        }
    ips = [["10.20.1.1", "10.20.1.2"], [*wanted]]
    stated = [[{"ip": f"{ip}/{MASK}", "gateway": "10.20.0.1"} for ip in of] for of in ips]
    nodes = (
        replace(node, npu_ports=dict(enumerate(of)))
        for node, of in zip(cluster.cluster.nodes, stated, strict=True)
    )
    cluster.cluster = replace(cluster.cluster, nodes=tuple(nodes))
    return cluster


def outcomes(report: Report) -> list[tuple[str, Outcome]]:
    return [(r.node, r.outcome) for r in report.results if r.step == STEP]


def blocked(report: Report) -> list[tuple[str, str, str]]:
    found = [r for r in report.results if r.outcome is Outcome.BLOCKED]
    return [(r.node, r.cause.id if r.cause else "", r.detail) for r in found]


def test_only_what_differs_is_set_and_the_rank_table_has_the_new_addresses() -> None:
    cluster = two("10.20.2.1", "10.20.2.9")
    before = [dict(node.ports) for node in cluster.nodes]
    plan = cluster.walk(planning=True)
    assert outcomes(plan) == [("lab-1", Outcome.OK), ("lab-2", Outcome.WOULD_CHANGE)]
    [shown] = [r.diff for r in plan.results if r.step == STEP and r.diff]
    # A new address can remove the gateway.
    assert shown.splitlines() == [
        f"+ hccn_tool -i 1 -ip -s address 10.20.2.9 netmask {MASK}",
        "+ hccn_tool -i 1 -gateway -s gateway 10.20.0.1",
    ]
    assert [node.ports for node in cluster.nodes] == before

    report = cluster.walk()
    assert outcomes(report) == [("lab-1", Outcome.OK), ("lab-2", Outcome.CHANGED)]
    assert cluster.nodes[1].ports[1]["ip"] == f"10.20.2.9 {MASK}"
    [table] = [p for p in cluster.nodes[0].transport.files if p.endswith(".json")]
    assert '"device_ip": "10.20.2.9"' in cluster.nodes[0].text(table.removeprefix(f"{BASE}/"))
    assert not [r for r in cluster.walk().results if r.outcome is Outcome.CHANGED]

    cluster.nodes[0].ports[0]["gateway"] = "10.20.0.7"
    [warning] = [r for r in cluster.check().results if r.is_warning and r.step == STEP]
    assert "device 0: gateway 10.20.0.1 instead of 10.20.0.7" in warning.detail


def test_a_tool_that_refuses_a_value_fails_the_step_with_its_words() -> None:
    cluster = two("10.20.2.1", "10.20.2.9")
    refused = "hccn_tool -i 1 -ip -s …: The ip address you configured is conflicted!"
    cluster.nodes[1].broken["set the network"] = Answer(exit_code=1, stderr=refused)
    report = cluster.walk()
    [failed] = [r for r in report.results if r.outcome is Outcome.FAILED]
    assert (failed.node, failed.step, refused in failed.detail) == ("lab-2", STEP, True)
    # Before the rank table: it would have the new address.
    assert not any("resources/" in path for path in cluster.nodes[0].transport.files)


def test_nothing_is_set_anywhere_while_a_job_runs_where_a_port_would_be() -> None:
    cluster = two("10.20.2.8", "10.20.2.9")
    before = dict(cluster.nodes[1].ports)
    cluster.nodes[1].jobs = "process 77 j-1\njob j-1\nend\n"
    [(node, id_, words)] = blocked(cluster.walk())
    assert (node, id_) == ("lab-2", "npu-network-in-use")
    assert "job j-1 runs, and the network of the NPUs is not as stated" in words
    assert cluster.nodes[1].ports == before
    assert not any(node.transport.files for node in cluster.nodes)
