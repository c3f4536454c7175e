"""`check` over simulated nodes: reads only, goes on after findings, one report."""

from __future__ import annotations

import json
from functools import partial

import pytest

from ascendboot.facts.parsers.system import Listener
from ascendboot.facts.query import Answered
from ascendboot.model.report import Outcome, Report
from tests.engine.simulated import Simulation, details, network
from tests.fake_transport import Answer
from tests.unit.checks import well

TITLES = [
    "Reach the nodes",
    "Query every node",
    "Check the answers",
    "Compare with the desired state",
    "Verify logins from the primary",
    "Verify the network between the nodes",
]


def ready(count: int = 2) -> Simulation:
    """A cluster that is set up, on which the cluster's sshd listens."""
    cluster = Simulation.of(count)
    assert cluster.walk().exit_code == 0
    for n in range(1, count + 1):
        ours = Listener(address=f"198.18.0.{n}", port=12345, pid=77, program="sshd")
        cluster.change(f"lab-{n}", listeners=Answered((ours,)))
    return cluster


def found(report: Report) -> list[tuple[str, str, str]]:
    """Id, level and nodes of every finding, each once."""
    causes = [r.cause for r in report.results if r.cause]
    return list(dict.fromkeys((c.id, c.level, ",".join(c.nodes)) for c in causes))


def test_after_setup_nothing_is_found_in_two_executions() -> None:
    cluster = ready(3)
    report = cluster.check()
    assert (report.exit_code, found(report)) == (0, [])
    assert cluster.shown == TITLES
    assert [len(n.transport.executions) for n in cluster.nodes] == [2, 2, 2]


def test_before_the_first_setup_one_finding_says_so_and_the_network_is_checked() -> None:
    cluster = Simulation.of(2)
    report = cluster.check()
    assert (report.exit_code, found(report)) == (0, [("not-set-up", "warning", "lab-1,lab-2")])
    assert cluster.shown == [*TITLES[:4], TITLES[5]]
    assert [r.detail for r in report.results if r.step == "not-set-up"] == [
        "warning: lab-[1-2]: nothing is set up yet. Run setup."
    ] * 2


def test_what_setup_would_change_is_a_warning_with_the_step() -> None:
    cluster = ready()
    cluster.nodes[1].transport.files.pop("/var/lib/ascendboot/lab/resources/hostfile")
    report = cluster.check()
    [warning] = [r for r in report.results if r.cause]
    place = ("lab-2", "resources", "resources/hostfile")
    assert (warning.node, warning.phase, warning.step) == place
    assert warning.detail == (
        "warning: lab-2: not in the desired state: resources/hostfile is missing. Run setup."
    )
    assert report.exit_code == 0
    assert [r.outcome for r in report.results if r.phase == "prove"] == [Outcome.OK] * 2


def test_an_error_does_not_end_the_check() -> None:
    cluster = ready()
    down = well.network(2, 3, link_up=Answered(value=False))
    cluster.change("lab-2", **well.networks(2, down))
    report = cluster.check()
    assert (report.exit_code, found(report)) == (1, [("link-down", "error", "lab-2")])
    assert cluster.shown == TITLES
    not_run = "not compared with the desired state: fix the errors above first"
    assert details(report, Outcome.NOT_RUN) == [not_run] * 2


@pytest.mark.parametrize("lost", ["lab-1", "lab-3"])
def test_the_other_nodes_are_checked_if_one_is_unreachable(lost: str) -> None:
    cluster = ready(3)
    cluster.unreachable.add(lost)
    report = cluster.check()
    assert report.exit_code == 4
    checked = [r for r in report.results if r.phase == "network"]
    assert {r.node for r in checked} == {"lab-1", "lab-2", "lab-3"} - {lost}
    assert {r.outcome for r in checked} == {Outcome.OK}


def test_without_any_node_the_check_ends() -> None:
    cluster = Simulation.of(2)
    cluster.unreachable |= {"lab-1", "lab-2"}
    assert cluster.check().exit_code == 4
    assert cluster.shown == TITLES[:1]  # the others have nothing to show


def test_a_network_that_is_down_fails_check_and_setup_alike() -> None:
    lost = "3 packets transmitted, 0 received, 100.00% packet loss"
    for run in (Simulation.check, Simulation.walk):
        cluster = ready()
        for node in cluster.nodes:
            node.rule = partial(network, ping=lost)
        report = run(cluster)
        assert (report.exit_code, found(report)) == (1, [("mesh-down", "error", "lab-1,lab-2")])


def test_a_node_that_cannot_try_the_network_is_named_and_the_others_are_checked() -> None:
    cluster = ready(3)
    cluster.nodes[1].broken["try the network"] = Answer(stderr="no fork", exit_code=1)
    report = cluster.check()
    assert details(report, Outcome.FAILED) == [
        "lab-2: could not try the network: a script exited 1: no fork"
    ]
    assert {r.node for r in report.results if r.phase == "network"} == {"lab-1", "lab-2", "lab-3"}


def test_item_16_a_node_that_opens_one_session_is_a_finding() -> None:
    cluster = ready()
    cluster.nodes[1].has_one_session = True
    for report in (cluster.check(), cluster.walk()):
        [bad] = [r for r in report.results if r.outcome is Outcome.FAILED]
        assert (bad.node, bad.phase, bad.step) == ("lab-2", "ask", "one-session")
        assert "allows one (MaxSessions 1)" in bad.detail
        assert bad.cause is not None
        assert (bad.cause.id, bad.cause.level) == ("one-session", "error")
        assert bad.cause.remedy.startswith("Set MaxSessions 10")


def test_one_node_has_no_network_to_check() -> None:
    cluster = ready(1)
    assert cluster.check().exit_code == 0
    assert cluster.shown == TITLES[:4]  # it has no logins either


def test_ports_that_hccl_needs_are_warnings_in_json_with_id_level_nodes_and_remedy() -> None:
    cluster = ready()
    taken = Answered((Listener(address="*", port=60003, pid=9, program="python3"),))
    cluster.change("lab-2", listeners=taken)
    results = json.loads(json.dumps(cluster.check().to_json()))["results"]
    [finding] = [r for r in results if r.get("id") == "hccl-port-taken"]
    shown = [finding[key] for key in ("level", "nodes", "outcome")]
    assert shown == ["warning", ["lab-2"], "ok"]
    assert finding["remedy"].endswith("move HCCL: HCCL_IF_BASE_PORT under `env`")


def test_an_interrupt_ends_the_check_with_what_was_found() -> None:
    cluster = ready()
    cluster.interrupted.set()
    assert (cluster.check().exit_code, cluster.shown) == (130, TITLES[:1])
